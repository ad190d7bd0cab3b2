//! What hooks cost, as `run.json` holds it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenterhook_core::{Cost, HookCost};

/// What the hooks of a run cost, of the process that wrote it: a run that went on begins to count anew.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct HookCosts {
    /// How long it all took, in seconds: what shares are shares of.
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
    /// What share of the time it took, of 1.
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
    pub(crate) fn of(costs: &[HookCost], spent: Duration) -> HookCosts {
        let seconds = spent.as_secs_f64();
        let share = |total: f64| if seconds > 0.0 { total / seconds } else { 0.0 };
        let hook = |cost: &HookCost| {
            let calls = CostOfCalls::from(cost.cost);
            CostOfHook {
                hook: cost.hook.clone(),
                calls,
                share: share(calls.total_s),
                failures: cost.failures,
                read: HandedOver { scalars: cost.read.scalars, tensors: cost.read.tensors },
                by_event: cost.by_event.iter().map(CostOfEvent::from).collect(),
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

impl From<&(&'static str, Cost)> for CostOfEvent {
    fn from((event, cost): &(&'static str, Cost)) -> CostOfEvent {
        CostOfEvent { event: (*event).to_owned(), calls: (*cost).into() }
    }
}

impl From<Cost> for CostOfCalls {
    fn from(cost: Cost) -> CostOfCalls {
        let [total_s, p50_s, p99_s, longest_s] =
            [cost.total, cost.p50, cost.p99, cost.longest].map(|duration| duration.as_secs_f64());
        CostOfCalls { calls: cost.calls, total_s, p50_s, p99_s, longest_s, estimated: cost.estimated }
    }
}
