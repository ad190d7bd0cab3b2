//! Records which hook receives which events, to check afterwards whether a hook was exercised.

use super::HookRunner;
use crate::event::{Event, Events};
use crate::progress::Phase;

/// The events that a hook has received. Events withheld by a gate, activations that the hook does not want
/// and events of a sanity check do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceivedEvents {
    /// The events that the hook wants.
    pub wanted: Events,
    /// The events received in training.
    pub in_training: Events,
    /// The events received in evaluations.
    pub in_evaluations: Events,
}

impl HookRunner {
    /// Starts recording which hook receives which events.
    pub fn record_received(&mut self) {
        self.received.get_or_insert_default();
        self.replan();
    }

    /// The events that a hook has received since [`record_received`](HookRunner::record_received). `None` for
    /// update hooks.
    #[must_use]
    pub fn received(&self, name: &str) -> Option<ReceivedEvents> {
        let recorded = self.received.as_ref()?;
        let id = self.slots.iter().position(|slot| slot.is_named(name) && !slot.is_update())?;
        let wanted = self.slots[id].spec.events;
        Some(ReceivedEvents { wanted, ..recorded.get(id).copied().unwrap_or_default() })
    }
}

impl ReceivedEvents {
    pub(super) fn record(&mut self, event: Event, phase: Phase) {
        match phase {
            Phase::SanityCheck => {}
            Phase::Train => self.in_training = self.in_training.with(event),
            _ => self.in_evaluations = self.in_evaluations.with(event),
        }
    }
}
