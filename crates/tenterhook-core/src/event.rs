//! Events, and sets of events.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::context::same_text;
use crate::progress::{Phase, Progress};
use crate::runner::HookGroup;

/// A receiver of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventReceiver {
    /// The data module.
    Data,
    /// The hooks, or a group of them.
    Hooks(HookGroup),
    /// The module.
    Module,
    /// The strategy.
    Strategy,
}

macro_rules! define_event {
    ($($(#[$doc:meta])* $mode:ident $handler:ident $Event:ident $Phase:ident [$($receiver:ident)*];)*) => {
        /// The events of a run.
        ///
        /// This is all of `fit`, in order. `▶` marks an event that hooks receive; `module.…`, `strategy.…`
        /// and `hooks.…` are other calls that the loop makes. A test compares this text with the trace of a
        /// real run, line by line.
        ///
        /// ```text
        /// fit:
        ///   ▶ setup                           data, hooks, module
        ///     module.configure_model
        ///     if resuming:
        ///       module.load_weights           after its own on_load_checkpoint
        ///       ▶ on_load_checkpoint
        ///       hooks.load_state_dict
        ///     strategy.setup
        ///     module.configure_optimizers
        ///   ▶ on_fit_start
        ///     if resuming:
        ///       module.load_optimizer_state
        ///       ▶ on_checkpoint_loaded
        ///   if num_sanity_val_steps > 0, unless resuming:
        ///     ▶ on_sanity_check_start
        ///       validation, as below
        ///     ▶ on_sanity_check_end           its metrics are discarded
        ///   ▶ on_train_start
        ///     if resuming:
        ///       the rest of the event in which the checkpoint was taken, and what follows it; of an epoch's end:
        ///       module.lr_scheduler_step      schedulers on a plateau of a metric
        ///       ▶ on_log                      metrics that were not logged yet
        ///       ▶ on_checkpoint_saved         of the checkpoint that was loaded
        ///   for each epoch:
        ///     ▶ on_train_epoch_start
        ///     for each batch:
        ///       ▶ on_train_batch_start        a controller can skip the batch or end the epoch
        ///       ▶ on_before_forward
        ///         module.training_step
        ///           ▶ on_activation           each exposed activation that a hook wants
        ///       ▶ on_after_forward
        ///       on the first batch of an accumulation window:
        ///         ▶ on_before_zero_grad
        ///           module.optimizer_zero_grad
        ///       unless the step yielded no loss:
        ///         ▶ on_before_backward
        ///           module.backward           the loss is divided by accumulate_grad_batches
        ///         ▶ on_after_backward         a controller can skip the update
        ///       on the last batch of an accumulation window, for each optimizer:
        ///         ▶ on_before_optimizer_step
        ///           update hooks
        ///           module.clip_gradients     if gradient_clip_val is set
        ///         ▶ on_gradient_clip
        ///           module.optimizer_step
        ///         ▶ on_after_optimizer_step
        ///       then once for all optimizers:
        ///           module.lr_scheduler_step  schedulers per step; on the epoch's last batch also those per epoch
        ///         ▶ on_step_end
        ///       ▶ on_train_batch_end
        ///       if metrics were logged:
        ///         ▶ on_log
        ///       if a validation is due:
        ///         ▶ on_validation_start
        ///         ▶ on_validation_epoch_start
        ///         for each validation batch:
        ///           ▶ on_validation_batch_start
        ///             module.validation_step
        ///           ▶ on_validation_batch_end
        ///         ▶ on_validation_epoch_end
        ///         ▶ on_validation_end
        ///       ▶ on_log                      the metrics of the validation
        ///     ▶ on_train_epoch_end            hooks, module, then monitors
        ///       for each requested save:
        ///         hooks.state_dict
        ///         ▶ on_save_checkpoint
        ///         module.weights
        ///         module.optimizer_state
        ///       module.lr_scheduler_step      schedulers on a plateau of a metric
        ///     ▶ on_log                        the metrics of the epoch
        ///     ▶ on_checkpoint_saved           at the first step boundary after the checkpoint is durable
        ///   ▶ on_train_end
        ///     strategy.teardown
        ///   ▶ on_fit_end
        ///   ▶ teardown                        data, hooks, module
        ///     hooks finish                    what they handed to worker threads
        /// ```
        ///
        /// `validate`, `test` and `predict` consist of `setup`, their own six events, and `teardown`.
        ///
        /// After a failure come `on_exception` and `teardown`, and no `on_*_end`.
        ///
        /// `on_hook_disabled` follows the event in which the hook was disabled; within a step it follows the
        /// next event. It does not fire after `on_exception` and `teardown`.
        ///
        /// `on_notice` follows the event in which the notice came up. A notice that comes up while hooks
        /// receive `on_notice` is not delivered to hooks.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Event {
            $($(#[$doc])* $Event,)*
        }

        impl Event {
            /// All events, in the order of the table.
            pub const ALL: &'static [Event] = &[$(Event::$Event,)*];

            /// The name of the event's handler, which is also the name that users read and type.
            #[must_use]
            pub const fn handler(self) -> &'static str {
                match self {
                    $(Event::$Event => stringify!($handler),)*
                }
            }

            /// Whether a controller can decide at this event.
            #[must_use]
            pub const fn steers(self) -> bool {
                match self {
                    $(Event::$Event => define_event!(@steers $mode),)*
                }
            }

            /// The loop that the event belongs to; `Train` for events that occur in all loops, such as
            /// `on_activation`.
            #[must_use]
            pub const fn phase(self) -> Phase {
                match self {
                    $(Event::$Event => Phase::$Phase,)*
                }
            }

            /// The receivers of the event, in order.
            #[must_use]
            pub const fn receivers(self) -> &'static [EventReceiver] {
                match self {
                    $(Event::$Event => &[$(define_event!(@receiver $receiver),)*],)*
                }
            }
        }
    };
    (@steers steer) => { true };
    (@steers watch) => { false };
    (@receiver data) => { EventReceiver::Data };
    (@receiver hooks) => { EventReceiver::Hooks(HookGroup::All) };
    (@receiver others) => { EventReceiver::Hooks(HookGroup::BeforeModule) };
    (@receiver monitors) => { EventReceiver::Hooks(HookGroup::Monitors) };
    (@receiver module) => { EventReceiver::Module };
    (@receiver strategy) => { EventReceiver::Strategy };
}

for_each_event!(define_event);

/// An event is serialized as the name of its handler.
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
    /// The number of events.
    pub const COUNT: usize = Event::ALL.len();

    /// The event of the handler of this name.
    #[must_use]
    pub fn of_handler(handler: &str) -> Option<Event> {
        Event::ALL.iter().copied().find(|event| event.handler() == handler)
    }

    /// Whether the event belongs to a training batch.
    #[must_use]
    pub const fn is_within_train_batch(self) -> bool {
        let event = self as u8;
        event >= Event::TrainBatchStart as u8 && event <= Event::StepEnd as u8
    }

    /// Whether the event belongs to a batch of a validation, a test or a prediction.
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

    /// Whether the event belongs to a training batch, given the current loop and progress: activations occur
    /// in all loops, and lines are also logged after epochs.
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

    /// Whether the event belongs to an epoch of training, which includes its batches and validations.
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
    /// The empty set.
    pub const NONE: Events = Events(0);

    /// The set of these events.
    #[must_use]
    pub fn of(events: &[Event]) -> Events {
        events.iter().fold(Events::NONE, |set, event| set.with(*event))
    }

    /// The set with one more event.
    #[must_use]
    pub const fn with(self, event: Event) -> Events {
        Events(self.0 | 1 << event as u8)
    }

    /// The union of two sets.
    #[must_use]
    pub const fn union(self, other: Events) -> Events {
        Events(self.0 | other.0)
    }

    /// The events of this set that are not in the other one.
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

/// The attribute macro has its own list of handlers, since it cannot see this table. The two are compared at
/// compile time.
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
    fn a_set_contains_exactly_its_events() {
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
