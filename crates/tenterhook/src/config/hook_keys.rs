//! The keys that all hooks have in a configuration.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::wrap::{After, Conditioned, Every, Once, Sampled};
use tenterhook_core::{AnyHook, Budget, Cadence, Condition, HookKind, OnError, OverBudget, Policy};

use super::tree::USE;
use crate::problems::Problem;
use crate::settings::Percent;

/// The keys that all `[[hooks]]` tables have.
///
/// `after`, `when`, `sampled`, `every` and `once` are gates that make a hook fire less often. They are
/// checked in this order, and an event must pass all of them: `once = true` with `when = "val/loss < 0.5"`
/// fires the first time that the loss is that low. Events that do not recur (start and end of training,
/// checkpoints, failures, …) always pass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HookKeys {
    /// The registered name of the hook.
    #[serde(rename = "use")]
    pub use_: String,
    /// Unique name of the hook in this run. Unset: the hook's default name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"my_name", length(min = 1))]
    pub name: Option<String>,
    /// Whether the hook receives events.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Action when the hook fails: `abort` the run, `warn`, or `disable` the hook after `max_failures`.
    /// Unset: the hook's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"warn")]
    pub on_error: Option<OnError>,
    /// Number of failures after which `on_error = "disable"` disables the hook. Unset: 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 3, range(min = 1, max = 4_294_967_295_u32))]
    pub max_failures: Option<u32>,
    /// Maximum share of the step time, such as `2%`. Checked every 100 training batches; exceeding it is
    /// reported once. Unset: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"2%")]
    #[schemars(extend("x-harmless-change" = true))]
    pub budget: Option<Percent>,
    /// Action when the hook exceeds its `budget`: `warn`, or `disable` the hook (observers only). Unset:
    /// `warn`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"warn")]
    #[schemars(extend("x-harmless-change" = true))]
    pub over_budget: Option<OverBudget>,
    /// Fire at this interval only, such as `100 steps`, `2 epochs`, `50 batches` or `5 min`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"100 steps")]
    pub every: Option<Cadence>,
    /// Fire only after this much training, such as `10 epochs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"10 epochs")]
    pub after: Option<Cadence>,
    /// Fire only in the first training batch that passes the other gates, and once at each event outside of
    /// batches.
    #[serde(default)]
    pub once: bool,
    /// Fire in this fraction of the training batches, above 0 and at most 1, selected at random from the
    /// seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 0.1, range(max = 1), extend("exclusiveMinimum" = 0))]
    pub sampled: Option<f64>,
    /// Fire only while this condition is true, such as `val/loss < 0.5 and epoch >= 3`. Operators: comparison
    /// (`<`, `<=`, `>`, `>=`, `==`, `!=`), arithmetic (`+`, `-`, `*`, `%`) and logic (`and`, `or`, `not`).
    /// Variables: `epoch` and `batch` (both from 0), `step` (the current one in a training batch, else the
    /// number of completed steps), `samples`, `tokens`, `elapsed` (seconds), `stage` (`fit`, `validate`,
    /// `test`, `predict`), `phase` (`sanity_check`, `train`, `validate`, `test`, `predict`) and all metrics
    /// by name; `loss` is short for `train/loss`. A comparison with a metric that has not been logged yet is
    /// false.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"val/loss < 0.5")]
    pub when: Option<Condition>,
}

fn yes() -> bool {
    true
}

/// The names of these keys.
pub(crate) const HOOK_KEYS: &[&str] = &[
    USE,
    "name",
    "enabled",
    "on_error",
    "max_failures",
    "budget",
    "over_budget",
    "every",
    "after",
    "once",
    "sampled",
    "when",
];

impl HookKeys {
    /// Values that are valid by type but not for this hook.
    pub(super) fn problems(&self, hook: &AnyHook) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.sampled.is_some_and(|fraction| !(fraction > 0.0 && fraction <= 1.0)) {
            let problem = Problem::new("sampled", "`sampled` must be above 0 and at most 1");
            problems.push(problem.fix("for example, write 0.1; `enabled = false` switches a hook off"));
        }
        if let Some((message, fix)) = self.when.as_ref().and_then(Conditioned::impossible_comparison) {
            problems.push(Problem::new("when", message).fix(fix));
        }
        let on_error = self.on_error.unwrap_or(hook.spec().policy.on_error);
        match self.max_failures {
            Some(0) => {
                let problem = Problem::new("max_failures", "`max_failures` must be 1 or more");
                problems.push(problem.fix("to end the run at the first failure, set `on_error = \"abort\"`"));
            }
            Some(_) if on_error != OnError::Disable => {
                let message =
                    format!("`max_failures` has no effect here: the errors of this hook do `{on_error}`");
                let fix = "set `on_error = \"disable\"` as well, or remove it";
                problems.push(Problem::new("max_failures", message).fix(fix));
            }
            _ => {}
        }
        problems.extend(self.budget_problem(hook));
        problems
    }

    fn budget_problem(&self, hook: &AnyHook) -> Option<Problem> {
        let over = self.over_budget?;
        if self.budget.is_none() {
            let problem = Problem::new("over_budget", "`over_budget` has no effect without a `budget`");
            return Some(problem.fix("set for example `budget = \"2%\"` as well, or remove it"));
        }
        let kind = Some(hook.kind()).filter(|kind| over == OverBudget::Disable && kind.steers())?;
        let what = if kind == HookKind::Update { "an update hook" } else { "a controller" };
        let message = format!("{what} cannot be disabled for its cost, because it affects training");
        Some(Problem::new("over_budget", message).fix("set `over_budget = \"warn\"`"))
    }

    /// The time budget, if set.
    pub(super) fn budget(&self) -> Option<Budget> {
        let over = self.over_budget.unwrap_or_default();
        self.budget.map(|share| Budget { share: share.of_one(), over })
    }

    /// Whether the gate `every`, `after` or `when` is set.
    pub(super) fn has(&self, key: &str) -> bool {
        match key {
            "every" => self.every.is_some(),
            "after" => self.after.is_some(),
            "when" => self.when.is_some(),
            _ => false,
        }
    }

    /// The error policy, if set.
    pub(super) fn policy(&self, hook: &AnyHook) -> Option<Policy> {
        if self.on_error.is_none() && self.max_failures.is_none() {
            return None;
        }
        let own = hook.spec().policy;
        Some(Policy {
            on_error: self.on_error.unwrap_or(own.on_error),
            max_failures: self.max_failures.unwrap_or(own.max_failures),
        })
    }

    /// Wraps the hook in the gates. The last one is checked first, so that `once` and `every` count only
    /// events that pass the others.
    pub(crate) fn gate(&self, mut hook: AnyHook) -> AnyHook {
        if self.once {
            hook = hook.gated(Once::default());
        }
        if let Some(cadence) = self.every {
            hook = hook.gated(Every::new(cadence));
        }
        if let Some(fraction) = self.sampled {
            hook = hook.gated(Sampled::new(fraction));
        }
        if let Some(condition) = &self.when {
            hook = hook.gated(Conditioned::new(condition.clone()));
        }
        if let Some(start) = self.after {
            hook = hook.gated(After::new(start));
        }
        hook
    }
}
