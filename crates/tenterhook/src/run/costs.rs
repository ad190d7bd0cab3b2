//! The cost of hooks, as `run.json` stores it.

use serde::{Deserialize, Serialize};
use tenterhook_core::{Cost, HookCost};

use crate::accounts::TimeSpent;

/// The cost of all hooks in the process that wrote it. A resumed run counts from 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct HookCosts {
    /// The duration of all training steps, or of the calls if there were none, in seconds. Shares are fractions of it.
    pub seconds: f64,
    /// The hooks, in registration order.
    pub hooks: Vec<CostOfHook>,
}

/// The cost of one hook.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct CostOfHook {
    /// Its name.
    pub hook: String,
    /// All of its calls.
    #[serde(flatten)]
    pub calls: CostOfCalls,
    /// The fraction of the step time that it took. Time outside of steps counts only in `total_s`.
    pub share: f64,
    /// The number of its failures.
    pub failures: u32,
    /// The values that it read from the engine.
    pub read: EngineReads,
    /// The cost by event.
    pub by_event: Vec<CostOfEvent>,
}

/// The cost of a hook at one event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct CostOfEvent {
    /// The handler of the event; `update` for changes of gradients by update hooks.
    pub event: String,
    /// The calls.
    #[serde(flatten)]
    pub calls: CostOfCalls,
    /// The fraction of the step time that they took.
    pub share: f64,
}

/// The number of calls and their durations in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct CostOfCalls {
    /// The number of calls.
    pub calls: u64,
    /// The total duration.
    pub total_s: f64,
    /// The median, with a relative error of at most 1/8.
    pub p50_s: f64,
    /// The 99th percentile, with a relative error of at most 1/8.
    pub p99_s: f64,
    /// The longest timed call.
    pub longest_s: f64,
    /// The part of the total within training steps.
    pub in_steps_s: f64,
    /// Only some of the calls were timed.
    pub estimated: bool,
}

/// The number of values that were read from the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct EngineReads {
    /// Losses, norms and other single numbers.
    pub scalars: u64,
    /// Tensors, and statistics of tensors.
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
                read: EngineReads { scalars: cost.read.scalars, tensors: cost.read.tensors },
                by_event: cost.by_event.iter().map(event).collect(),
            }
        };
        HookCosts { seconds, hooks: costs.iter().map(hook).collect() }
    }

    /// The cost of this hook.
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
