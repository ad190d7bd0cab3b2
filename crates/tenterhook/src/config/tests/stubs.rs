//! Test hooks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::{Controller, Decision, HookResult, Observer, StepEnd, TrainEpochEnd, hook};

use super::*;

/// Records the steps at which it fires.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) steps: Vec<u64>,
    pub(super) epochs: Vec<u64>,
    pub(super) options: SeenOptions,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct SeenOptions {
    /// A number.
    pub(super) threshold: f64,
    /// A list.
    pub(super) layers: Vec<String>,
    /// The token.
    #[serde(alias = "api_key")]
    #[schemars(extend("writeOnly" = true, "x-aliases" = ["api_key"]))]
    pub(super) token: Option<String>,
    /// More.
    pub(super) nested: Nested,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Nested {
    /// Another secret.
    #[schemars(extend("writeOnly" = true))]
    pub(super) password: String,
    /// No secret.
    pub(super) user: String,
}

#[hook]
impl Observer for Seen {
    fn on_step_end(&mut self, cx: &StepEnd) -> HookResult {
        self.steps.push(cx.step);
        Ok(())
    }
    fn on_train_epoch_end(&mut self, cx: &TrainEpochEnd) -> HookResult {
        self.epochs.push(cx.epoch);
        Ok(())
    }
}

/// A controller without decisions, whose errors abort the run.
pub(super) struct Steers;

#[hook]
impl Controller for Steers {
    fn on_step_end(&mut self, _: &StepEnd) -> HookResult<Decision> {
        Ok(Decision::CONTINUE)
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NoOptions {}

/// The built-in hooks and the test hooks.
pub(super) fn registry() -> Registry {
    let mut registry = Registry::default();
    let seen = |options| Ok::<_, String>(Seen { options, ..Seen::default() });
    registry.add_hook("mycrate::hooks::Seen", seen).expect("it is free");
    registry.add_hook("mycrate::Steers", |_: NoOptions| Ok::<_, String>(Steers)).expect("it is free");
    registry
}

pub(super) fn works_with_stubs(file: &str, environment: &[(&str, &str)], sets: &[&str]) -> Config {
    resolve_with(&registry(), file, environment, sets).unwrap_or_else(|error| panic!("{error}"))
}

pub(super) fn error_with_stubs(file: &str, sets: &[&str]) -> String {
    resolve_with(&registry(), file, &[], sets).map(|resolved| resolved.to_toml()).expect_err("it is wrong")
}
