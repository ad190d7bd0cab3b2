//! Hooks of the tests' own, and stand-ins for documented built-ins that a registry lacks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::{AnyHook, Controller, Decision, HookResult, Observer, StepEnd, TrainEpochEnd, hook};

use super::*;

/// Notes the steps at which it fires.
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
    /// Where to send what.
    #[schemars(extend("writeOnly" = true))]
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
    fn on_step_end(&mut self, cx: &StepEnd) {
        self.steps.push(cx.step);
    }
    fn on_train_epoch_end(&mut self, cx: &TrainEpochEnd) {
        self.epochs.push(cx.epoch);
    }
}

/// Steers nothing; its errors abort.
struct Steers;

#[hook]
impl Controller for Steers {
    fn on_step_end(&mut self, _: &StepEnd) -> HookResult<Decision> {
        Ok(Decision::CONTINUE)
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NoOptions {}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
#[allow(dead_code)] // it is read, and that is all
struct GradientMonitor {
    log_frequency: u64,
    log_histogram: bool,
    log_norm: bool,
    param_filter: Vec<String>,
    percentiles: Vec<f64>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
#[allow(dead_code)]
struct LrMonitor {
    log_momentum: bool,
    log_weight_decay: bool,
    frequency: String,
}

/// A hook with a name of its own, as the built-ins have.
fn named(name: &'static str) -> AnyHook {
    AnyHook::new(tenterhook_core::closure::on_fit_end(name, |_| ()))
}

/// The built-ins, those that are documented and not there yet, and hooks of a user's own.
pub(super) fn registry() -> Registry {
    let mut registry = Registry::default();
    let has = |registry: &Registry, name| registry.hook_named(name).is_some();
    if !has(&registry, "logging") {
        registry.add_hook("logging", |_: NoOptions| Ok::<_, String>(named("logging"))).expect("it is free");
    }
    if !has(&registry, "gradient_monitor") {
        let make = |_: GradientMonitor| Ok::<_, String>(named("gradient_monitor"));
        registry.add_hook("gradient_monitor", make).expect("it is free");
    }
    if !has(&registry, "lr_monitor") {
        let make = |options: LrMonitor| match options.frequency.as_str() {
            "" | "step" | "epoch" => Ok(named("lr_monitor")),
            other => Err(format!("`frequency` is `step` or `epoch`, not `{other}`")),
        };
        registry.add_hook("lr_monitor", make).expect("it is free");
    }
    let seen = |options| Ok::<_, String>(Seen { options, ..Seen::default() });
    registry.add_hook("mycrate::hooks::Seen", seen).expect("it is free");
    registry.add_hook("mycrate::Steers", |_: NoOptions| Ok::<_, String>(Steers)).expect("it is free");
    registry
}

pub(super) fn works_with_stubs(file: &str, environment: &[(&str, &str)], sets: &[&str]) -> Resolved {
    resolve_with(&registry(), file, environment, sets).unwrap_or_else(|error| panic!("{error}"))
}

pub(super) fn error_with_stubs(file: &str, sets: &[&str]) -> String {
    resolve_with(&registry(), file, &[], sets).map(|resolved| resolved.to_toml()).expect_err("it is wrong")
}
