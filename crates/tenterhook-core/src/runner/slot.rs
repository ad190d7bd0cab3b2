//! One hook as the runner keeps it.

use super::hook_status::HookStatus;
use crate::cadence::Cadence;
use crate::context::{Activation, Context, EventRef};
use crate::event::{Event, Events};
use crate::hook::{EventResult, Hook, HookResult};
use crate::plan::{PlanEntry, TRAIN_LOSS};
use crate::roster::{HookInfo, HookKind};
use crate::spec::HookSpec;
use crate::update::{Gradients, Identity, Update};
use crate::world::World;

/// A hook of any kind. Slots are numbered in registration order and never move; a removed hook leaves its
/// slot empty.
pub(super) struct Slot {
    pub(super) status: HookStatus,
    pub(super) hook: Box<dyn Hook>,
    /// The hook's spec, with the name and policy under which it is registered.
    pub(super) spec: HookSpec,
    pub(super) presence: Presence,
    pub(super) teardown: Teardown,
}

/// Whether the hook is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    Registered,
    /// Removed in this call, and not finished yet.
    Leaving,
    Removed,
}

/// Whether the hook is torn down at the end of this call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Teardown {
    /// Only if the hook receives events then.
    Open,
    /// The hook was set up in this call, so it is torn down even if it was disabled or removed since.
    Due,
    /// Done already. After a failed teardown the event is delivered again, to the remaining hooks.
    Done,
}

impl Slot {
    pub(super) fn is_present(&self) -> bool {
        self.presence == Presence::Registered
    }

    pub(super) fn is_live(&self) -> bool {
        self.status.enabled && self.is_present()
    }

    pub(super) fn is_update(&self) -> bool {
        self.spec.kind() == HookKind::Update
    }

    /// Whether it is an update hook that is called.
    pub(super) fn changes_gradients(&self) -> bool {
        self.is_update() && self.is_live() && self.spec.changes_gradients
    }

    pub(super) fn is_named(&self, name: &str) -> bool {
        self.spec.name == name && self.is_present()
    }

    /// Delivers an event to the hook; an activation only if the hook wants it.
    #[inline]
    pub(super) fn offer<C: Context>(&mut self, cx: &C) -> EventResult {
        let event = cx.event();
        if let EventRef::Activation(Activation { run_cx, point, .. }) = event
            && !(self.hook.wants_activations(run_cx.phase, &run_cx.progress) && self.hook.wants_point(point))
        {
            run_cx.shared.gate_closed();
            return Ok(());
        }
        self.hook.deliver(event)
    }

    /// Calls an update hook, and checks the changed gradients.
    pub(super) fn change(&mut self, gradients: &mut Gradients<'_>, cx: &Update<'_>) -> HookResult {
        self.hook.update(gradients, cx)?;
        if let Some(refused) = gradients.refused() {
            return Err(refused.into());
        }
        let wrong = self.spec.check_finite.then(|| gradients.not_finite()).flatten();
        wrong.map_or(Ok(()), |wrong| Err(wrong.into()))
    }

    /// Whether the hook was disabled after a failure and must not receive the event, although an outdated
    /// plan lists it.
    pub(super) fn is_out(&self, event: Event) -> bool {
        self.status.gave_up && !(self.teardown == Teardown::Due && event == Event::Teardown)
    }

    /// Whether the event is a teardown that the hook has received already. For any other event this is a
    /// constant.
    #[inline]
    pub(super) fn had_its_teardown(&mut self, event: Event) -> bool {
        event == Event::Teardown && std::mem::replace(&mut self.teardown, Teardown::Done) == Teardown::Done
    }

    /// Takes the hook out and leaves one that does nothing.
    pub(super) fn take_hook(&mut self) -> Box<dyn Hook> {
        std::mem::replace(&mut self.hook, Box::new(Identity))
    }

    /// Whether every loss must be read for the hook. This is the case
    /// - if the hook declares to read `train/loss`;
    /// - if it monitors `train/loss` within batches. A hook that monitors it per epoch uses the mean of the epoch. An
    ///   update hook always runs within batches;
    /// - if the hook steers training and its `when` condition contains the loss.
    pub(super) fn wants_losses(&self) -> bool {
        let (spec, is_loss) = (&self.spec, |name: &String| name == TRAIN_LOSS);
        if !self.is_live() || (self.is_update() && !spec.changes_gradients) {
            return false;
        }
        let within_batches = self.is_update()
            || !spec.every.iter().any(|cadence| matches!(cadence, Cadence::Epochs(_)))
                && spec.events.iter().any(Event::is_within_train_batch);
        spec.reads.iter().any(is_loss)
            || within_batches && spec.monitors.iter().any(is_loss)
            || spec.steers() && spec.gated_by.iter().any(|name| is_loss(name) || name == "loss")
    }

    /// Whether the hook may read the gradient norm in `on_step_end`.
    pub(super) fn reads_grad_norm(&self) -> bool {
        self.spec.events.contains(Event::StepEnd) && !self.spec.ignores_grad_norm
    }

    pub(super) fn entry(&self, slot: usize, world: World) -> PlanEntry {
        let spec = &self.spec;
        let events = match spec.events {
            _ if self.is_update() || !spec.ranks.include(world) => Events::NONE,
            wanted if self.is_live() => wanted,
            wanted if self.teardown == Teardown::Due && wanted.contains(Event::Teardown) => {
                Events::NONE.with(Event::Teardown)
            }
            _ => Events::NONE,
        };
        let steps = |cadence: &Cadence| match cadence {
            Cadence::Steps(n) => Some(*n),
            _ => None,
        };
        let every_n_steps = spec.every.iter().chain(&spec.throttle).find_map(steps).unwrap_or(1);
        PlanEntry { slot, tier: spec.tier, events, every_n_steps }
    }

    pub(super) fn info(&self) -> HookInfo {
        self.status.info(&self.spec)
    }
}
