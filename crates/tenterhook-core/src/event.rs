//! The table of events, from which handlers, the erased twin, wrappers and closures are made.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::context::same_text;
use crate::progress::{Phase, Progress};
use crate::runner::Part;

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
            /// The run has failed; teardown follows.
            steer on_exception Exception Train [hooks module data strategy];
        }
    };
}

/// Who can receive an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The data module.
    Data,
    /// The hooks, or some of them.
    Hooks(Part),
    /// The module.
    Module,
    /// The strategy.
    Strategy,
}

macro_rules! define_event {
    ($($(#[$doc:meta])* $mode:ident $handler:ident $Event:ident $Phase:ident [$($source:ident)*];)*) => {
        /// Every event a hook can receive.
        ///
        /// The whole of `fit`, in the order in which things happen. `▶` is an event that hooks receive;
        /// `module.…`, `strategy.…` and `hooks.…` are what the loop asks of them besides. A test compares
        /// this text with a real trace, line by line.
        ///
        /// ```text
        /// fit:
        ///   ▶ setup                           data, hooks, module
        ///     module.configure_model
        ///     when resuming:
        ///       module.load_weights           after its own on_load_checkpoint
        ///       ▶ on_load_checkpoint
        ///       hooks.load_state_dict
        ///     strategy.setup
        ///     module.configure_optimizers
        ///   ▶ on_fit_start
        ///     when resuming:
        ///       module.load_optimizer_state
        ///       ▶ on_checkpoint_loaded
        ///   when num_sanity_val_steps > 0, unless resuming:
        ///     ▶ on_sanity_check_start
        ///       validation, as below
        ///     ▶ on_sanity_check_end           its metrics are forgotten
        ///   ▶ on_train_start
        ///     when resuming:
        ///       the rest of the event that the checkpoint was taken in, and what follows it: of an epoch's end
        ///       module.lr_scheduler_step      those on a plateau
        ///       ▶ on_log                      what had not been logged
        ///       ▶ on_checkpoint_saved         of that checkpoint
        ///   for each epoch:
        ///     ▶ on_train_epoch_start
        ///     for each batch:
        ///       ▶ on_train_batch_start        a controller may skip the batch or end the epoch
        ///       ▶ on_before_forward
        ///         module.training_step
        ///           ▶ on_activation           at each point that the module names and a hook wants
        ///       ▶ on_after_forward
        ///       on the first batch of an accumulation window:
        ///         ▶ on_before_zero_grad
        ///           module.optimizer_zero_grad
        ///       unless the step yielded no loss:
        ///         ▶ on_before_backward
        ///           module.backward           of the loss divided by accumulate_grad_batches
        ///         ▶ on_after_backward         a controller may skip the update
        ///       on the last batch of an accumulation window, for each optimizer:
        ///         ▶ on_before_optimizer_step
        ///           update hooks
        ///           module.clip_gradients     when gradient_clip_val is set
        ///         ▶ on_gradient_clip
        ///           module.optimizer_step
        ///         ▶ on_after_optimizer_step
        ///       and once for all of them:
        ///           module.lr_scheduler_step  those per step; on the epoch's last batch those per epoch
        ///         ▶ on_step_end
        ///       ▶ on_train_batch_end
        ///       when something was logged:
        ///         ▶ on_log
        ///       when a validation is due:
        ///         ▶ on_validation_start
        ///         ▶ on_validation_epoch_start
        ///         for each validation batch:
        ///           ▶ on_validation_batch_start
        ///             module.validation_step
        ///           ▶ on_validation_batch_end
        ///         ▶ on_validation_epoch_end
        ///         ▶ on_validation_end
        ///       ▶ on_log                      the validation's metrics
        ///     ▶ on_train_epoch_end            hooks, module, then monitors
        ///       for each save that was requested:
        ///         hooks.state_dict
        ///         ▶ on_save_checkpoint
        ///         module.weights
        ///         module.optimizer_state
        ///       module.lr_scheduler_step      those on a plateau of a metric
        ///     ▶ on_log                        the epoch's metrics
        ///     ▶ on_checkpoint_saved           at the first step boundary after it is durable
        ///   ▶ on_train_end
        ///     strategy.teardown
        ///   ▶ on_fit_end
        ///   ▶ teardown                        data, hooks, module
        ///     every hook finishes             what it handed to a worker thread
        /// ```
        ///
        /// `validate`, `test` and `predict` are `setup`, their own six events, `teardown`. After a
        /// failure: `on_exception`, then `teardown`, and no `on_*_end`. `on_hook_disabled` follows whatever event
        /// the hook was disabled in, but for those two; within a step the event that comes next.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Event {
            $($(#[$doc])* $Event,)*
        }

        impl Event {
            /// Every event, in the order of the table.
            pub const ALL: &'static [Event] = &[$(Event::$Event,)*];

            /// The name of the method that handles it, which is also what users read and type.
            #[must_use]
            pub const fn handler(self) -> &'static str {
                match self {
                    $(Event::$Event => stringify!($handler),)*
                }
            }

            /// Whether a controller's decision counts at this event.
            #[must_use]
            pub const fn steers(self) -> bool {
                match self {
                    $(Event::$Event => define_event!(@steers $mode),)*
                }
            }

            /// The loop it belongs to. Activations, lines that are logged and checkpoints come in all of them.
            #[must_use]
            pub const fn phase(self) -> Phase {
                match self {
                    $(Event::$Event => Phase::$Phase,)*
                }
            }

            /// Who receives it, in order.
            #[must_use]
            pub const fn sources(self) -> &'static [Source] {
                match self {
                    $(Event::$Event => &[$(define_event!(@source $source),)*],)*
                }
            }
        }
    };
    (@steers steer) => { true };
    (@steers watch) => { false };
    (@source data) => { Source::Data };
    (@source hooks) => { Source::Hooks(Part::All) };
    (@source others) => { Source::Hooks(Part::BeforeModule) };
    (@source monitors) => { Source::Hooks(Part::Monitors) };
    (@source module) => { Source::Module };
    (@source strategy) => { Source::Strategy };
}

for_each_event!(define_event);

/// An event is written by the name of its handler.
impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.handler())
    }
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Event, D::Error> {
        let handler = String::deserialize(deserializer)?;
        Event::of_handler(&handler).ok_or_else(|| D::Error::custom(format!("there is no event `{handler}`")))
    }
}

impl Event {
    /// How many events there are.
    pub const COUNT: usize = Event::ALL.len();

    /// The event a handler of this name receives.
    #[must_use]
    pub fn of_handler(handler: &str) -> Option<Event> {
        Event::ALL.iter().copied().find(|event| event.handler() == handler)
    }

    /// Whether the event belongs to one training batch, from its start to its end.
    #[must_use]
    pub const fn is_within_train_batch(self) -> bool {
        let event = self as u8;
        event >= Event::TrainBatchStart as u8 && event <= Event::StepEnd as u8
    }

    /// Whether the event belongs to one batch of a validation, a test or a prediction.
    #[must_use]
    pub const fn is_within_evaluation_batch(self) -> bool {
        matches!(
            self,
            Event::ValidationBatchStart
                | Event::ValidationBatchEnd
                | Event::TestBatchStart
                | Event::TestBatchEnd
                | Event::PredictBatchStart
                | Event::PredictBatchEnd
        )
    }

    /// Whether the event belongs to one training batch, where this loop is running and the run stands there:
    /// activations are shown in all loops, and lines are logged after epochs, too.
    #[must_use]
    pub fn belongs_to_train_batch(self, phase: Phase, progress: &Progress) -> bool {
        self.is_within_train_batch()
            || phase == Phase::Train
                && match self {
                    Event::Activation => true,
                    Event::Log => progress.is_within_batches(),
                    _ => false,
                }
    }

    /// Whether the event belongs to one epoch of training: its own start and end, its batches and
    /// its validations.
    #[must_use]
    pub const fn is_within_epoch(self) -> bool {
        let event = self as u8;
        event >= Event::TrainEpochStart as u8 && event <= Event::ValidationEnd as u8
    }
}

impl std::fmt::Display for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.handler())
    }
}

/// A set of events.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Events(u64);

const _: () = assert!(Event::COUNT <= 64, "a set of events is one machine word");

impl Events {
    /// No event.
    pub const NONE: Events = Events(0);

    /// Exactly these events.
    #[must_use]
    pub fn of(events: &[Event]) -> Events {
        events.iter().fold(Events::NONE, |set, event| set.with(*event))
    }

    /// These events and one more.
    #[must_use]
    pub const fn with(self, event: Event) -> Events {
        Events(self.0 | 1 << event as u8)
    }

    /// The events of either set.
    #[must_use]
    pub const fn union(self, other: Events) -> Events {
        Events(self.0 | other.0)
    }

    /// The events of this set that are not in the other.
    #[must_use]
    pub const fn without(self, other: Events) -> Events {
        Events(self.0 & !other.0)
    }

    /// Whether the event is in the set.
    #[inline]
    #[must_use]
    pub const fn contains(self, event: Event) -> bool {
        self.0 & 1 << event as u8 != 0
    }

    /// The events in the set, in the order of the table.
    pub fn iter(self) -> impl Iterator<Item = Event> {
        Event::ALL.iter().copied().filter(move |event| self.contains(*event))
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// The attribute macro has the handlers' names too, to suggest the nearest; it cannot see this table,
/// so the two are compared while compiling.
const _: () = {
    let table: &[(&str, bool)] = tenterhook_macros::handler_table!();
    assert!(table.len() == Event::COUNT, "tenterhook-macros knows other handlers than tenterhook-core");
    let mut i = 0;
    while i < table.len() {
        let event = Event::ALL[i];
        assert!(
            same_text(table[i].0, event.handler()) && table[i].1 == event.steers(),
            "tenterhook-macros knows other handlers than tenterhook-core"
        );
        i += 1;
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in_and_nothing_else() {
        let set = Events::of(&[Event::StepEnd, Event::Setup]);
        assert_eq!(set.iter().collect::<Vec<_>>(), [Event::Setup, Event::StepEnd]);
        assert!(!set.contains(Event::TrainBatchEnd));
        assert_eq!(set.without(Events::of(&[Event::Setup])).iter().collect::<Vec<_>>(), [Event::StepEnd]);
    }

    #[test]
    fn every_handler_names_its_event() {
        for event in Event::ALL {
            assert_eq!(Event::of_handler(event.handler()), Some(*event));
        }
        assert_eq!(Event::of_handler("on_training_end"), None);
    }

    #[test]
    fn a_batch_event_is_an_epoch_event() {
        for event in Event::ALL.iter().filter(|event| event.is_within_train_batch()) {
            assert!(event.is_within_epoch(), "{event}");
        }
        assert!(!Event::TestBatchEnd.is_within_epoch());
    }
}
