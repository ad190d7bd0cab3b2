//! The events, as the table lists them, and sets of them.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::context::same_text;
use crate::progress::{Phase, Progress};
use crate::runner::Part;

/// Who can receive an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventReceiver {
    /// The data module.
    Data,
    /// The hooks, or some of them.
    Hooks(HookGroup),
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
        ///
        /// `on_notice` follows the event after which the notice came up; notices that come up while hooks receive it are not
        /// delivered to hooks.
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
            pub const fn receivers(self) -> &'static [EventReceiver] {
                match self {
                    $(Event::$Event => &[$(define_event!(@source $source),)*],)*
                }
            }
        }
    };
    (@steers steer) => { true };
    (@steers watch) => { false };
    (@source data) => { EventReceiver::Data };
    (@source hooks) => { EventReceiver::Hooks(HookGroup::All) };
    (@source others) => { EventReceiver::Hooks(HookGroup::BeforeModule) };
    (@source monitors) => { EventReceiver::Hooks(HookGroup::Monitors) };
    (@source module) => { EventReceiver::Module };
    (@source strategy) => { EventReceiver::Strategy };
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
