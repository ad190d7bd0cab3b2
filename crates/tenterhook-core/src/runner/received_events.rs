//! Who has received what, for those who want to know afterwards whether a hook did anything.

use super::HookRunner;
use crate::event::{Event, Events};
use crate::progress::Phase;

/// The events that a hook has received; those that a gate held back are not among them, nor activations that it
/// did not want, nor what belongs to a sanity check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceivedEvents {
    /// The events that it wants.
    pub wanted: Events,
    /// What it has received in training.
    pub in_training: Events,
    /// What it has received in evaluations.
    pub in_evaluations: Events,
}

impl HookRunner {
    /// From now on notes who receives what.
    pub fn record_received(&mut self) {
        self.received.get_or_insert_default();
        self.replan();
    }

    /// What a hook has received since [`HookRunner::record_received`]; nothing is known of update hooks.
    #[must_use]
    pub fn received(&self, name: &str) -> Option<ReceivedEvents> {
        let noted = self.received.as_ref()?;
        let id = self.slots.iter().position(|slot| slot.is_called(name) && !slot.is_update())?;
        let wanted = self.slots[id].spec.events;
        Some(ReceivedEvents { wanted, ..noted.get(id).copied().unwrap_or_default() })
    }
}

impl ReceivedEvents {
    pub(super) fn note(&mut self, event: Event, phase: Phase) {
        match phase {
            Phase::SanityCheck => {}
            Phase::Train => self.in_training = self.in_training.with(event),
            _ => self.in_evaluations = self.in_evaluations.with(event),
        }
    }
}
