//! The plan: which hooks receive which event, in which order. It is checked before the first step.

mod check;
mod condition_names;
mod writers;

use serde::{Deserialize, Serialize};

use crate::event::{Event, Events};

pub use check::{
    DeclaredMetric, NoValidation, PlanError, RunFacts, TRAIN_LOSS, check, environment_problems, nearest,
    not_logged,
};

/// The place of a hook in the order of hooks. Within a tier, hooks run in registration order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Tier {
    /// Hooks of the user come first, even if they are registered late.
    #[default]
    User,
    /// Then built-in hooks.
    BuiltIn,
    /// Then monitors of the user, which decide by metrics.
    Monitor,
    /// Then built-in monitors, such as early stopping.
    BuiltInMonitor,
    /// Checkpoint hooks come last, so checkpoints include the work of all other hooks.
    Checkpoint,
}

impl Tier {
    /// Whether hooks of this tier are monitors, which come after the module at `on_train_epoch_end`.
    #[must_use]
    pub fn is_monitor(self) -> bool {
        self >= Tier::Monitor
    }

    /// The reason for the place of this tier, as text for users.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Tier::User => "user hook",
            Tier::BuiltIn => "built-in, after user hooks",
            Tier::Monitor => "user monitor, after built-ins",
            Tier::BuiltInMonitor => "built-in monitor, after user monitors",
            Tier::Checkpoint => "checkpoint, last: it includes the work of all other hooks",
        }
    }
}

/// A hook in the plan.
#[derive(Clone, Copy, Debug)]
pub struct PlanEntry {
    /// The hook's slot in the runner.
    pub slot: usize,
    /// Tier of the hook.
    pub tier: Tier,
    /// The events that the hook wants; none if it is disabled.
    pub events: Events,
    /// The interval in steps at which the hook runs.
    pub every_n_steps: u64,
}

#[derive(Clone, Debug, Default)]
struct Route {
    receivers: Vec<usize>,
    /// The index of the first monitor among the receivers.
    monitors_from: usize,
    /// The interval in steps of each receiver; empty if one runs at every step.
    every_n_steps: Vec<u64>,
}

/// The receivers of every event, in order.
#[derive(Clone, Debug)]
pub struct Plan {
    wanted: Events,
    routes: Box<[Route; Event::COUNT]>,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan { wanted: Events::NONE, routes: Box::new(std::array::from_fn(|_| Route::default())) }
    }
}

impl Plan {
    /// Makes a plan for hooks in registration order.
    #[must_use]
    pub fn new(entries: &[PlanEntry]) -> Plan {
        let mut ordered = entries.to_vec();
        ordered.sort_by_key(|entry| entry.tier);
        let mut plan = Plan::default();
        for event in Event::ALL {
            let wanting = ordered.iter().filter(|entry| entry.events.contains(*event));
            let route = &mut plan.routes[*event as usize];
            route.receivers = wanting.clone().map(|entry| entry.slot).collect();
            route.every_n_steps = wanting.clone().map(|entry| entry.every_n_steps).collect();
            if route.every_n_steps.contains(&1) {
                route.every_n_steps.clear();
            }
            route.monitors_from = wanting.filter(|entry| !entry.tier.is_monitor()).count();
        }
        plan.wanted = entries.iter().fold(Events::NONE, |set, entry| set.union(entry.events));
        plan
    }

    /// Whether any hook wants the event.
    #[inline]
    #[must_use]
    pub fn wants(&self, event: Event) -> bool {
        self.wanted.contains(event)
    }

    /// Whether a receiver of the event runs at this step.
    #[inline]
    #[must_use]
    pub fn is_due(&self, event: Event, step: u64) -> bool {
        let every = &self.routes[event as usize].every_n_steps;
        every.is_empty() || every.iter().any(|n| step.is_multiple_of(*n))
    }

    /// The slots of the event's receivers, in order.
    #[must_use]
    pub fn receivers(&self, event: Event) -> &[usize] {
        &self.routes[event as usize].receivers
    }

    /// The index of the first monitor among the event's receivers.
    #[must_use]
    pub fn monitors_from(&self, event: Event) -> usize {
        self.routes[event as usize].monitors_from
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(slot: usize, tier: Tier) -> PlanEntry {
        PlanEntry { slot, tier, events: Events::of(&[Event::TrainEpochEnd]), every_n_steps: 1 }
    }

    #[test]
    fn tiers_decide_before_registration_order() {
        let plan = Plan::new(&[
            entry(0, Tier::Checkpoint),
            entry(1, Tier::BuiltIn),
            entry(2, Tier::User),
            entry(3, Tier::BuiltInMonitor),
            entry(4, Tier::Monitor),
            entry(5, Tier::User),
            entry(6, Tier::Checkpoint),
        ]);
        assert_eq!(plan.receivers(Event::TrainEpochEnd), [2, 5, 1, 4, 3, 0, 6]);
        assert_eq!(plan.monitors_from(Event::TrainEpochEnd), 3);
        assert!(plan.wants(Event::TrainEpochEnd));
        assert!(!plan.wants(Event::StepEnd));
        assert!(plan.receivers(Event::StepEnd).is_empty());
    }

    #[test]
    fn an_event_is_due_when_one_of_its_receivers_fires() {
        let rare = |slot, every_n_steps| PlanEntry { every_n_steps, ..entry(slot, Tier::User) };
        let due =
            |plan: &Plan| (1..=6).filter(|step| plan.is_due(Event::TrainEpochEnd, *step)).collect::<Vec<_>>();
        assert_eq!(due(&Plan::new(&[rare(0, 2), rare(1, 3)])), [2, 3, 4, 6]);
        assert_eq!(due(&Plan::new(&[rare(0, 2), rare(1, 1)])), [1, 2, 3, 4, 5, 6]);
    }
}
