//! The cost of hooks, as `run.json` stores it.

use serde::{Deserialize, Serialize};
use tenterhook_core::{Cost, HookCost, ReadCounts};

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
    pub calls: Cost,
    /// The fraction of the step time that it took. Time outside of steps counts only in `total_s`.
    pub share: f64,
    /// The number of its failures.
    pub failures: u32,
    /// The values that it read from the engine.
    pub read: ReadCounts,
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
    pub calls: Cost,
    /// The fraction of the step time that they took.
    pub share: f64,
}

impl HookCosts {
    pub(crate) fn of(costs: &[HookCost], spent: TimeSpent) -> HookCosts {
        let trained = !spent.steps.is_zero();
        let seconds = if trained { spent.steps } else { spent.calls }.as_secs_f64();
        let part = |calls: Cost| if trained { calls.in_steps } else { calls.total };
        let share = |calls| if seconds > 0.0 { part(calls).as_secs_f64() / seconds } else { 0.0 };
        let event = |&(event, calls): &(&'static str, Cost)| CostOfEvent {
            event: event.to_owned(),
            calls,
            share: share(calls),
        };
        let hook = |of: &HookCost| CostOfHook {
            hook: of.hook.clone(),
            calls: of.cost,
            share: share(of.cost),
            failures: of.failures,
            read: of.read,
            by_event: of.by_event.iter().map(event).collect(),
        };
        HookCosts { seconds, hooks: costs.iter().map(hook).collect() }
    }

    /// The cost of this hook.
    #[must_use]
    pub fn hook(&self, name: &str) -> Option<&CostOfHook> {
        self.hooks.iter().find(|cost| cost.hook == name)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::run::SinkDeliveries;

    #[test]
    fn run_json_holds_seconds() {
        let [long, short] = [Duration::from_millis(1500), Duration::from_nanos(1234)];
        let cost = Cost { calls: 3, total: long, p50: short, longest: long, ..Cost::default() };
        let read = ReadCounts { scalars: 1, tensors: 2 };
        let by_event = vec![CostOfEvent { event: "on_step_end".into(), calls: cost, share: 0.5 }];
        let hook = CostOfHook { hook: "h".into(), calls: cost, share: 0.5, failures: 1, read, by_event };
        let calls = r#""calls":3,"total_s":1.5,"p50_s":1.234e-6,"p99_s":0.0,"longest_s":1.5,"in_steps_s":0.0,"estimated":false,"share":0.5"#;
        let text = serde_json::to_string(&hook).unwrap();
        let expected = format!(
            r#"{{"hook":"h",{calls},"failures":1,"read":{{"scalars":1,"tensors":2}},"by_event":[{{"event":"on_step_end",{calls}}}]}}"#
        );
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<CostOfHook>(&text).unwrap(), hook);

        let stats = tenterhook_core::DeliveryStats { sent: 2, lost: 1, waited: short, ..Default::default() };
        let sent = SinkDeliveries { hook: "h".into(), stats };
        let text = serde_json::to_string(&sent).unwrap();
        assert_eq!(
            text,
            r#"{"hook":"h","sent":2,"delivered":0,"failed":0,"dropped":0,"lost":1,"waited_s":1.234e-6,"flushed_s":0.0}"#
        );
        assert_eq!(serde_json::from_str::<SinkDeliveries>(&text).unwrap(), sent);
    }
}
