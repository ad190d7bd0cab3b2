//! The table of events, from which handlers, closures, `EventRef` and the lists of receivers are made.

/// Calls `$then!` with every event, one row each: how it is answered, its handler, its name, the loop it belongs to, and who
/// receives it in which order.
///
/// `steer`: a controller's decision counts here. `watch`: nothing can be decided here, whatever
/// the kind of hook; the run is already ending, or is being saved or loaded.
///
/// The receivers are `data`, `hooks`, `module` and `strategy`. `others` and `monitors` are the two parts of the hooks.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_event {
    ($then:ident) => {
        $crate::event_table! { [$then] }
    };
}

/// Calls `$then!` with the handlers of the events that the `module` or the `strategy` receives with the state of the loop alone.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_handler_of {
    ($receiver:ident $then:ident) => {
        $crate::event_table! { [$crate::select_handlers] $receiver $then [] }
    };
}

/// Takes one row of the table after the other. A list of receivers that has no rule here does not compile.
#[doc(hidden)]
#[macro_export]
macro_rules! select_handlers {
    ($receiver:ident $then:ident [$($found:ident)*]) => {
        $then! { $($found)* }
    };
    // These come with arguments of their own, and are written by hand.
    (@row $receiver:ident $then:ident $found:tt setup $sources:tt $($rest:tt)*) => {
        $crate::select_handlers! { $receiver $then $found $($rest)* }
    };
    (@row $receiver:ident $then:ident $found:tt teardown $sources:tt $($rest:tt)*) => {
        $crate::select_handlers! { $receiver $then $found $($rest)* }
    };
    (@row $receiver:ident $then:ident $found:tt on_exception $sources:tt $($rest:tt)*) => {
        $crate::select_handlers! { $receiver $then $found $($rest)* }
    };
    (@row $receiver:ident $then:ident $found:tt on_save_checkpoint $sources:tt $($rest:tt)*) => {
        $crate::select_handlers! { $receiver $then $found $($rest)* }
    };
    (@row $receiver:ident $then:ident $found:tt on_load_checkpoint $sources:tt $($rest:tt)*) => {
        $crate::select_handlers! { $receiver $then $found $($rest)* }
    };
    (@row module $then:ident [$($found:ident)*] $handler:ident [hooks module strategy] $($rest:tt)*) => {
        $crate::select_handlers! { module $then [$($found)* $handler] $($rest)* }
    };
    (@row module $then:ident [$($found:ident)*] $handler:ident [hooks module] $($rest:tt)*) => {
        $crate::select_handlers! { module $then [$($found)* $handler] $($rest)* }
    };
    (@row module $then:ident [$($found:ident)*] $handler:ident [others module monitors] $($rest:tt)*) => {
        $crate::select_handlers! { module $then [$($found)* $handler] $($rest)* }
    };
    (@row strategy $then:ident [$($found:ident)*] $handler:ident [hooks module strategy] $($rest:tt)*) => {
        $crate::select_handlers! { strategy $then [$($found)* $handler] $($rest)* }
    };
    (@row strategy $then:ident $found:tt $handler:ident [hooks module] $($rest:tt)*) => {
        $crate::select_handlers! { strategy $then $found $($rest)* }
    };
    (@row strategy $then:ident $found:tt $handler:ident [others module monitors] $($rest:tt)*) => {
        $crate::select_handlers! { strategy $then $found $($rest)* }
    };
    (@row $receiver:ident $then:ident $found:tt $handler:ident [hooks] $($rest:tt)*) => {
        $crate::select_handlers! { $receiver $then $found $($rest)* }
    };
    ($receiver:ident $then:ident $found:tt
        $(#[$doc:meta])* $mode:ident $handler:ident $Event:ident $Phase:ident $sources:tt; $($rest:tt)*) => {
        $crate::select_handlers! { @row $receiver $then $found $handler $sources $($rest)* }
    };
}

/// The table itself.
#[doc(hidden)]
#[macro_export]
macro_rules! event_table {
    ([$($then:tt)*] $($given:tt)*) => {
        $($then)*! {
            $($given)*
            /// Before anything else, once per call of fit, validate, test or predict.
            steer setup Setup Train [data hooks module strategy];
            /// After everything else, exactly once, also after a failure.
            watch teardown Teardown Train [strategy data hooks module];
            /// Everything is set up; nothing has run yet.
            steer on_fit_start FitStart Train [hooks module];
            /// Fitting is over.
            watch on_fit_end FitEnd Train [hooks module];
            /// A few validation batches follow, to find mistakes before the first epoch.
            steer on_sanity_check_start SanityCheckStart SanityCheck [hooks module strategy];
            /// The sanity check passed; its metrics are forgotten.
            steer on_sanity_check_end SanityCheckEnd SanityCheck [hooks module strategy];
            /// The first epoch is about to begin.
            steer on_train_start TrainStart Train [hooks module strategy];
            /// The last epoch is over, by its limit or by a request to stop.
            steer on_train_end TrainEnd Train [hooks module strategy];
            /// An epoch begins.
            steer on_train_epoch_start TrainEpochStart Train [hooks module];
            /// An epoch ends. Monitors receive it after the module.
            steer on_train_epoch_end TrainEpochEnd Train [others module monitors];
            /// A micro-batch has been fetched.
            steer on_train_batch_start TrainBatchStart Train [hooks module strategy];
            /// A micro-batch is done, after the step it completed.
            steer on_train_batch_end TrainBatchEnd Train [hooks module];
            /// The module's training step is about to run.
            steer on_before_forward BeforeForward Train [hooks module];
            /// The module's training step has returned.
            steer on_after_forward AfterForward Train [hooks module];
            /// The gradients of the last window are about to be cleared, once per accumulation window.
            steer on_before_zero_grad BeforeZeroGrad Train [hooks module];
            /// The loss is about to be propagated back.
            steer on_before_backward BeforeBackward Train [hooks module];
            /// The gradients of this window so far exist.
            steer on_after_backward AfterBackward Train [hooks module];
            /// Before update hooks, clipping and the update, once per optimizer.
            steer on_before_optimizer_step BeforeOptimizerStep Train [hooks module];
            /// After clipping, whether or not it clipped.
            steer on_gradient_clip GradientClip Train [hooks module];
            /// The weights have changed; the gradients they changed by are still readable.
            steer on_after_optimizer_step AfterOptimizerStep Train [hooks module];
            /// An optimizer step is complete: scheduler stepped, metrics logged, no gradients any more.
            steer on_step_end StepEnd Train [hooks module];
            /// A module's step shows an activation, in training and in evaluations; see `wants_point`.
            watch on_activation Activation Train [hooks];
            /// A validation begins.
            steer on_validation_start ValidationStart Validate [hooks module strategy];
            /// The validation's data is about to be walked through.
            steer on_validation_epoch_start ValidationEpochStart Validate [hooks module strategy];
            /// A validation batch has been fetched.
            steer on_validation_batch_start ValidationBatchStart Validate [hooks module strategy];
            /// A validation batch is done.
            steer on_validation_batch_end ValidationBatchEnd Validate [hooks module strategy];
            /// All validation batches are done and their metrics aggregated.
            steer on_validation_epoch_end ValidationEpochEnd Validate [hooks module strategy];
            /// A validation ends.
            steer on_validation_end ValidationEnd Validate [hooks module strategy];
            /// A test begins.
            watch on_test_start TestStart Test [hooks module strategy];
            /// The test data is about to be walked through.
            watch on_test_epoch_start TestEpochStart Test [hooks module strategy];
            /// A test batch has been fetched.
            watch on_test_batch_start TestBatchStart Test [hooks module strategy];
            /// A test batch is done.
            watch on_test_batch_end TestBatchEnd Test [hooks module strategy];
            /// All test batches are done and their metrics aggregated.
            watch on_test_epoch_end TestEpochEnd Test [hooks module strategy];
            /// A test ends.
            watch on_test_end TestEnd Test [hooks module strategy];
            /// A prediction begins.
            watch on_predict_start PredictStart Predict [hooks module strategy];
            /// The data to predict on is about to be walked through.
            watch on_predict_epoch_start PredictEpochStart Predict [hooks module];
            /// A batch to predict on has been fetched.
            watch on_predict_batch_start PredictBatchStart Predict [hooks module];
            /// A batch has been predicted.
            watch on_predict_batch_end PredictBatchEnd Predict [hooks module];
            /// All batches are predicted.
            watch on_predict_epoch_end PredictEpochEnd Predict [hooks module];
            /// A prediction ends.
            watch on_predict_end PredictEnd Predict [hooks module strategy];
            /// A checkpoint is being assembled, after every hook gave its own state.
            watch on_save_checkpoint SaveCheckpoint Train [hooks module];
            /// A checkpoint is being read, before every hook gets its own state back.
            watch on_load_checkpoint LoadCheckpoint Train [module hooks];
            /// A checkpoint is durable.
            watch on_checkpoint_saved CheckpointSaved Train [hooks];
            /// A checkpoint has been applied.
            watch on_checkpoint_loaded CheckpointLoaded Train [hooks];
            /// What was logged since the last time has been written down: a line for whoever passes it on.
            watch on_log Log Train [hooks];
            /// A hook was disabled: it failed once too often, took too long, or another one asked for it.
            watch on_hook_disabled HookDisabled Train [hooks];
            /// People were told something, or the journal notes a decision or a contained failure.
            watch on_notice Notice Train [hooks];
            /// The run has failed; teardown follows.
            steer on_exception Exception Train [hooks module data strategy];
        }
    };
}
