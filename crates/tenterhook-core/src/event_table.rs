//! The table of events, from which handlers, closures, `EventRef` and the lists of receivers are generated.

/// Calls `$then!` with the table of events. A row holds the mode, the handler, the event, the loop that the
/// event belongs to, and its receivers in order.
///
/// The mode is `steer` if a controller can decide at the event. It is `watch` if no decision is possible: the
/// run is ending, or is being saved or loaded, or the event only reports something.
///
/// The receivers are `data`, `hooks`, `module` and `strategy`. `others` are the hooks that are no monitors,
/// `monitors` those that are.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_event {
    ($then:ident) => {
        $crate::event_table! { [$then] }
    };
}

/// Calls `$then!` with the handlers of `module` or `strategy` that take no arguments but the state of the
/// loop.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_handler_of {
    ($receiver:ident $then:ident) => {
        $crate::event_table! { [$crate::select_handlers] $receiver $then [] }
    };
}

/// Goes through the table row by row. A list of receivers without a rule does not compile.
#[doc(hidden)]
#[macro_export]
macro_rules! select_handlers {
    ($receiver:ident $then:ident [$($found:ident)*]) => {
        $then! { $($found)* }
    };
    // These handlers take other arguments, so they are handwritten.
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

/// The table of events.
#[doc(hidden)]
#[macro_export]
macro_rules! event_table {
    ([$($then:tt)*] $($given:tt)*) => {
        $($then)*! {
            $($given)*
            /// Start of a call of `fit`, `validate`, `test` or `predict`, before anything else.
            steer setup Setup Train [data hooks module strategy];
            /// End of a call, after everything else. Fires exactly once, also after a failure.
            watch teardown Teardown Train [strategy data hooks module];
            /// Start of `fit`. Everything is set up, and no batch has run.
            steer on_fit_start FitStart Train [hooks module];
            /// End of `fit`.
            watch on_fit_end FitEnd Train [hooks module];
            /// Start of the sanity check: a few validation batches that reveal mistakes before the first
            /// epoch.
            steer on_sanity_check_start SanityCheckStart SanityCheck [hooks module strategy];
            /// End of the sanity check. Its metrics are discarded.
            steer on_sanity_check_end SanityCheckEnd SanityCheck [hooks module strategy];
            /// Start of training, before the first epoch.
            steer on_train_start TrainStart Train [hooks module strategy];
            /// End of training, after the last epoch: a limit was reached or a stop was requested.
            steer on_train_end TrainEnd Train [hooks module strategy];
            /// Start of a training epoch.
            steer on_train_epoch_start TrainEpochStart Train [hooks module];
            /// End of a training epoch. Monitors and checkpoint hooks receive it after the module.
            steer on_train_epoch_end TrainEpochEnd Train [others module monitors];
            /// Start of a training micro-batch, after it was fetched.
            steer on_train_batch_start TrainBatchStart Train [hooks module strategy];
            /// End of a training micro-batch, after the optimizer step that it completes.
            steer on_train_batch_end TrainBatchEnd Train [hooks module];
            /// Before the module's `training_step`.
            steer on_before_forward BeforeForward Train [hooks module];
            /// After the module's `training_step`.
            steer on_after_forward AfterForward Train [hooks module];
            /// Before the gradients of the previous accumulation window are cleared. Once per window.
            steer on_before_zero_grad BeforeZeroGrad Train [hooks module];
            /// Before the backward pass.
            steer on_before_backward BeforeBackward Train [hooks module];
            /// After the backward pass. The gradients accumulated in this window are available.
            steer on_after_backward AfterBackward Train [hooks module];
            /// Before update hooks, gradient clipping and the optimizer step. Once per optimizer.
            steer on_before_optimizer_step BeforeOptimizerStep Train [hooks module];
            /// After gradient clipping, even if it did not clip. Once per optimizer.
            steer on_gradient_clip GradientClip Train [hooks module];
            /// After the optimizer step. The gradients that it used are still available. Once per optimizer.
            steer on_after_optimizer_step AfterOptimizerStep Train [hooks module];
            /// End of an optimizer step, after schedulers and metrics. Gradients are no longer available.
            steer on_step_end StepEnd Train [hooks module];
            /// An activation that the module exposes at a hook point, in training and in evaluations. See `wants_point`.
            watch on_activation Activation Train [hooks];
            /// Start of a validation.
            steer on_validation_start ValidationStart Validate [hooks module strategy];
            /// Start of the validation epoch, before its first batch.
            steer on_validation_epoch_start ValidationEpochStart Validate [hooks module strategy];
            /// Start of a validation batch, after it was fetched.
            steer on_validation_batch_start ValidationBatchStart Validate [hooks module strategy];
            /// End of a validation batch.
            steer on_validation_batch_end ValidationBatchEnd Validate [hooks module strategy];
            /// End of the validation epoch. Its metrics are aggregated.
            steer on_validation_epoch_end ValidationEpochEnd Validate [hooks module strategy];
            /// End of a validation.
            steer on_validation_end ValidationEnd Validate [hooks module strategy];
            /// Start of a test.
            watch on_test_start TestStart Test [hooks module strategy];
            /// Start of the test epoch, before its first batch.
            watch on_test_epoch_start TestEpochStart Test [hooks module strategy];
            /// Start of a test batch, after it was fetched.
            watch on_test_batch_start TestBatchStart Test [hooks module strategy];
            /// End of a test batch.
            watch on_test_batch_end TestBatchEnd Test [hooks module strategy];
            /// End of the test epoch. Its metrics are aggregated.
            watch on_test_epoch_end TestEpochEnd Test [hooks module strategy];
            /// End of a test.
            watch on_test_end TestEnd Test [hooks module strategy];
            /// Start of a prediction.
            watch on_predict_start PredictStart Predict [hooks module strategy];
            /// Start of the prediction epoch, before its first batch.
            watch on_predict_epoch_start PredictEpochStart Predict [hooks module];
            /// Start of a prediction batch, after it was fetched.
            watch on_predict_batch_start PredictBatchStart Predict [hooks module];
            /// End of a prediction batch.
            watch on_predict_batch_end PredictBatchEnd Predict [hooks module];
            /// End of the prediction epoch.
            watch on_predict_epoch_end PredictEpochEnd Predict [hooks module];
            /// End of a prediction.
            watch on_predict_end PredictEnd Predict [hooks module strategy];
            /// A checkpoint is being saved. The states of all hooks have been collected.
            watch on_save_checkpoint SaveCheckpoint Train [hooks module];
            /// A checkpoint is being loaded. The states of the hooks have not been restored yet.
            watch on_load_checkpoint LoadCheckpoint Train [module hooks];
            /// A checkpoint has been saved: it is complete and durable on disk.
            watch on_checkpoint_saved CheckpointSaved Train [hooks];
            /// A checkpoint has been loaded: everything in it has been restored.
            watch on_checkpoint_loaded CheckpointLoaded Train [hooks];
            /// A line of `metrics.jsonl` has been written, for hooks that pass metrics on.
            watch on_log Log Train [hooks];
            /// A hook was disabled: it failed too often, exceeded its budget, or another hook requested it.
            watch on_hook_disabled HookDisabled Train [hooks];
            /// A notice for people, or a journal entry about a decision or a contained failure. A notice that is
            /// shown while no hook can be called, such as a stall warning, is delivered with the next event.
            watch on_notice Notice Train [hooks];
            /// The run has failed. Teardown follows.
            steer on_exception Exception Train [hooks module data strategy];
        }
    };
}
