//! The keys that every hook has in a configuration, whichever hook it is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::wrap::{After, Conditioned, Every, Once, Sampled};
use tenterhook_core::{AnyHook, Budget, Cadence, Condition, HookKind, OnError, OverBudget, Policy};

use super::tree::USE;
use crate::problems::Problem;
use crate::settings::Share;

/// The keys that every `[[hooks]]` table has.
///
/// `after`, `when`, `sampled`, `every` and `once` let a hook fire less often. They are asked in this order,
/// and an event passes when all of them let it: `once = true` with `when = "val/loss < 0.5"` is the first time
/// that the loss is that low. What does not recur (start and end of training, checkpoints, failures, …)
/// always passes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HookKeys {
    /// Which hook: a registered name.
    #[serde(rename = "use")]
    pub use_: String,
    /// Its name in this run, which must be unique. Unset: the name it gives itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"my_name", length(min = 1))]
    pub name: Option<String>,
    /// Whether it receives events.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// What its errors do to the run: `abort`, `warn` or `disable` it after `max_failures`. Unset: the hook's
    /// own choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"warn")]
    pub on_error: Option<OnError>,
    /// After how many failures `disable` disables. Unset: 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 3, range(min = 1, max = 4_294_967_295_u32))]
    pub max_failures: Option<u32>,
    /// What share of the step time it may take, such as `2%`. It is looked at every 100 training batches, and more is told
    /// of once. Unset: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"2%")]
    #[schemars(extend("x-harmless-change" = true))]
    pub budget: Option<Share>,
    /// What else happens to a hook that takes more than its `budget`: nothing (`warn`), or it is disabled (`disable`)
    /// if it only watches. Unset: `warn`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"warn")]
    #[schemars(extend("x-harmless-change" = true))]
    pub over_budget: Option<OverBudget>,
    /// Fire only every so often, such as `100 steps`, `2 epochs`, `50 batches` or `5 min`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"100 steps")]
    pub every: Option<Cadence>,
    /// Fire only once so much of training has passed, such as `10 epochs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"10 epochs")]
    pub after: Option<Cadence>,
    /// Fire only in the first training batch it gets, and once at each event around the batches.
    #[serde(default)]
    pub once: bool,
    /// Fire in this share of all training batches, above 0 and at most 1, chosen at random by the seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 0.1, range(max = 1), extend("exclusiveMinimum" = 0))]
    pub sampled: Option<f64>,
    /// Fire only while this holds, such as `val/loss < 0.5 and epoch >= 3`. It compares (`<`, `<=`, `>`, `>=`,
    /// `==`, `!=`), calculates (`+`, `-`, `*`, `%`) and joins (`and`, `or`, `not`). It knows `epoch` and `batch`
    /// (both from 0), `step` (the one that a training batch works on, else how many are completed), `samples`, `tokens`, `elapsed` (seconds), `stage` (`fit`,
    /// `validate`, `test`, `predict`), `phase` (`sanity_check`, `train`, `validate`, `test`, `predict`) and every
    /// metric by its name; `loss` is short for `train/loss`. A comparison with a metric that nobody has logged yet
    /// is false.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"val/loss < 0.5")]
    pub when: Option<Condition>,
}

fn yes() -> bool {
    true
}

/// The same, as they are written.
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
    /// The keys of a hook about which nothing else is said.
    #[must_use]
    pub fn of(hook: impl Into<String>) -> HookKeys {
        HookKeys {
            use_: hook.into(),
            name: None,
            enabled: true,
            on_error: None,
            max_failures: None,
            budget: None,
            over_budget: None,
            every: None,
            after: None,
            once: false,
            sampled: None,
            when: None,
        }
    }

    /// What reads and makes no sense for this hook.
    pub(super) fn problems(&self, hook: &AnyHook) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.sampled.is_some_and(|share| !(share > 0.0 && share <= 1.0)) {
            let problem = Problem::new("sampled", "`sampled` must be above 0 and at most 1");
            problems.push(problem.fix("write for example 0.1; `enabled = false` switches a hook off"));
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
                let fix = "set `on_error = \"disable\"` as well, or take it away";
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
            return Some(problem.fix("set for example `budget = \"2%\"` as well, or take it away"));
        }
        let kind = Some(hook.kind()).filter(|kind| over == OverBudget::Disable && kind.steers())?;
        let what = if kind == HookKind::Update { "an update hook" } else { "a controller" };
        let message = format!("{what} is not disabled for taking long: training would be another without it");
        Some(Problem::new("over_budget", message).fix("set `over_budget = \"warn\"`"))
    }

    /// What share of the step time it may take, where that is said.
    pub(super) fn budget(&self) -> Option<Budget> {
        let over = self.over_budget.unwrap_or_default();
        self.budget.map(|share| Budget { share: share.of_one(), over })
    }

    /// Whether this key, of those that let a hook fire less often, is set.
    pub(super) fn has(&self, key: &str) -> bool {
        match key {
            "every" => self.every.is_some(),
            "after" => self.after.is_some(),
            "when" => self.when.is_some(),
            _ => false,
        }
    }

    /// What its errors do, where that is said.
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

    /// The hook behind the gates that are asked for. The last one is asked first, so that `once` and `every`
    /// count only what the others let pass.
    pub(crate) fn gate(&self, mut hook: AnyHook) -> AnyHook {
        if self.once {
            hook = hook.gated(Once::default());
        }
        if let Some(cadence) = self.every {
            hook = hook.gated(Every::new(cadence));
        }
        if let Some(share) = self.sampled {
            hook = hook.gated(Sampled::new(share));
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
