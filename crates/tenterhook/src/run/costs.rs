//! What hooks cost, as `run.json` holds it.

use serde::{Deserialize, Serialize};
use tenterhook_core::{Cost, HookCost};

use crate::accounts::TimeSpent;

/// What the hooks of a run cost, of the process that wrote it: a run that went on begins to count anew.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct HookCosts {
    /// How long training steps took, in seconds: what shares are shares of. Where there were none, the whole calls.
    pub seconds: f64,
    /// Every hook, in registration order.
    pub hooks: Vec<CostOfHook>,
}

/// What one hook cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct CostOfHook {
    /// Its name.
    pub hook: String,
    /// All of its calls.
    #[serde(flatten)]
    pub calls: CostOfCalls,
    /// What share of the step time it took, of 1. What it took at other times is in `total_s` alone.
    pub share: f64,
    /// How often it failed.
    pub failures: u32,
    /// What it made the engine hand over.
    pub read: HandedOver,
    /// The same by event.
    pub by_event: Vec<CostOfEvent>,
}

/// What a hook cost at one event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct CostOfEvent {
    /// The event, named by its handler; `update` is what update hooks do to gradients.
    pub event: String,
    /// The calls.
    #[serde(flatten)]
    pub calls: CostOfCalls,
    /// What share of the step time they took, of 1.
    pub share: f64,
}

/// How many calls there were, and how long they took, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct CostOfCalls {
    /// How many.
    pub calls: u64,
    /// All of them together.
    pub total_s: f64,
    /// Half of them took less, within an eighth.
    pub p50_s: f64,
    /// All but one in a hundred took less, within an eighth.
    pub p99_s: f64,
    /// The longest of those that were timed.
    pub longest_s: f64,
    /// The part of the total that was spent in training steps.
    pub in_steps_s: f64,
    /// Not every call was timed.
    pub estimated: bool,
}

/// How many values were brought over from the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct HandedOver {
    /// Losses, norms and other single numbers.
    pub scalars: u64,
    /// Whole tensors, or statistics of them.
    pub tensors: u64,
}

impl HookCosts {
    pub(crate) fn of(costs: &[HookCost], spent: TimeSpent) -> HookCosts {
        let trained = !spent.steps.is_zero();
        let seconds = if trained { spent.steps } else { spent.calls }.as_secs_f64();
        let part = |calls: CostOfCalls| if trained { calls.in_steps_s } else { calls.total_s };
        let share = |calls| if seconds > 0.0 { part(calls) / seconds } else { 0.0 };
        let event = |(event, cost): &(&'static str, Cost)| {
            let calls = CostOfCalls::from(*cost);
            CostOfEvent { event: (*event).to_owned(), calls, share: share(calls) }
        };
        let hook = |cost: &HookCost| {
            let calls = CostOfCalls::from(cost.cost);
            CostOfHook {
                hook: cost.hook.clone(),
                calls,
                share: share(calls),
                failures: cost.failures,
                read: HandedOver { scalars: cost.read.scalars, tensors: cost.read.tensors },
                by_event: cost.by_event.iter().map(event).collect(),
            }
        };
        HookCosts { seconds, hooks: costs.iter().map(hook).collect() }
    }

    /// The account of a hook.
    #[must_use]
    pub fn hook(&self, name: &str) -> Option<&CostOfHook> {
        self.hooks.iter().find(|cost| cost.hook == name)
    }
}

impl From<Cost> for CostOfCalls {
    fn from(cost: Cost) -> CostOfCalls {
        let Cost { calls, total, p50, p99, longest, in_steps, estimated } = cost;
        let [total_s, p50_s, p99_s, longest_s, in_steps_s] =
            [total, p50, p99, longest, in_steps].map(|duration| duration.as_secs_f64());
        CostOfCalls { calls, total_s, p50_s, p99_s, longest_s, in_steps_s, estimated }
    }
}
