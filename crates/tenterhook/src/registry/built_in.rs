//! The built-in hooks.

use std::sync::Arc;

use tenterhook_core::update::Identity;
use tenterhook_core::{AnyHook, FromOptions};
use tenterhook_hooks::{
    ActivationStats, ActivationStore, Checkpoint, ClipByNorm, ClipByValue, Console, Csv, EarlyStopping,
    EmaWeights, Exec, Freeze, GradientMonitor, GradientNoise, Jsonl, Logging, LossSpike, LrMonitor,
    ModelSummary, NanGuard, PlateauDetector, Profiler, Scale, TensorBoard, Throughput, Timer,
};

use super::Registry;
use super::factory::Factory;
use crate::schedule::{self, Scheduler};

/// A built-in hook.
struct BuiltIn {
    name: &'static str,
    /// The cargo feature that contains it; `None` if every program has it.
    feature: Option<&'static str>,
    /// `None` if the program is built without the feature.
    factory: Option<fn(String) -> Factory<AnyHook>>,
}

const fn always<H: FromOptions>(name: &'static str) -> BuiltIn {
    BuiltIn { name, feature: None, factory: Some(Factory::of_type::<H>) }
}

/// A hook of a cargo feature.
macro_rules! feature {
    ($feature:literal, $name:literal, $hook:ident) => {
        BuiltIn {
            name: $name,
            feature: Some($feature),
            #[cfg(feature = $feature)]
            factory: Some(Factory::of_type::<tenterhook_hooks::$hook>),
            #[cfg(not(feature = $feature))]
            factory: None,
        }
    };
}

/// All built-in hooks, in the order in which they are listed.
const HOOKS: &[BuiltIn] = &[
    always::<Console>("console"),
    always::<Jsonl>("jsonl"),
    always::<Logging>("logging"),
    always::<TensorBoard>("tensorboard"),
    always::<Csv>("csv"),
    feature!("http", "notify", Notify),
    feature!("http", "heartbeat", Heartbeat),
    always::<Exec>("exec"),
    feature!("upload", "upload", Upload),
    always::<Checkpoint>("checkpoint"),
    always::<EarlyStopping>("early_stopping"),
    always::<LrMonitor>("lr_monitor"),
    always::<GradientMonitor>("gradient_monitor"),
    always::<ActivationStats>("activation_stats"),
    always::<ActivationStore>("activation_store"),
    always::<NanGuard>("nan_guard"),
    always::<PlateauDetector>("plateau_detector"),
    always::<LossSpike>("loss_spike"),
    always::<EmaWeights>("ema_weights"),
    always::<Throughput>("throughput"),
    always::<Timer>("timer"),
    always::<Profiler>("profiler"),
    always::<ModelSummary>("model_summary"),
    // Update hooks.
    always::<Identity>("identity"),
    always::<ClipByNorm>("clip_by_norm"),
    always::<ClipByValue>("clip_by_value"),
    always::<GradientNoise>("gradient_noise"),
    always::<Freeze>("freeze"),
    always::<Scale>("scale"),
];

pub(super) fn registry() -> Registry {
    let hook = |BuiltIn { name, feature, factory }: &BuiltIn| {
        factory.map(|factory| Arc::new(Factory { feature: *feature, ..factory((*name).to_owned()) }))
    };
    Registry {
        hooks: HOOKS.iter().filter_map(hook).collect(),
        schedulers: schedule::BUILT_INS.iter().map(|built_in| Arc::new(scheduler(built_in))).collect(),
        optimizers: Vec::new(),
    }
}

/// The cargo feature that is needed for this hook and that the program is built without.
pub(super) fn missing_feature(name: &str) -> Option<&'static str> {
    let missing = HOOKS.iter().find(|hook| hook.name == name && hook.factory.is_none());
    missing.and_then(|hook| hook.feature)
}

fn scheduler(built_in: &schedule::BuiltIn) -> Factory<Box<dyn Scheduler>> {
    let factory = (built_in.factory)(built_in.name.to_owned());
    Factory { purpose: built_in.purpose.to_owned(), ..factory }
}
