//! The built-ins. These lists are the only places that know them all.

use std::sync::Arc;

use tenterhook_core::update::Identity;
use tenterhook_core::{AnyHook, FromOptions};
use tenterhook_hooks::{
    ActivationStats, ActivationStore, Checkpoint, ClipByNorm, ClipByValue, Console, Csv, EarlyStopping,
    EmaWeights, Exec, Freeze, GradientMonitor, GradientNoise, Jsonl, Logging, LossSpike, LrMonitor,
    ModelSummary, NanGuard, PlateauDetector, Profiler, Scale, TensorBoard, Throughput, Timer,
};

use super::Registry;
use super::maker::Maker;
use crate::schedule::{self, Scheduler};

/// A built-in hook: its name, and how it is made.
type BuiltIn = (&'static str, Source);

type Make = fn(String) -> Maker<AnyHook>;

/// Where a built-in hook comes from.
enum Source {
    /// Every program has it.
    Always(Make),
    /// A cargo feature has it: nothing to make it with in a program that is built without.
    Feature(&'static str, Option<Make>),
}

const fn always<H: FromOptions>() -> Source {
    Source::Always(Maker::of_type::<H>)
}

/// A hook of a cargo feature.
macro_rules! feature {
    ($feature:literal, $hook:ident) => {{
        #[cfg(feature = $feature)]
        let make = Some(Maker::of_type::<tenterhook_hooks::$hook> as Make);
        #[cfg(not(feature = $feature))]
        let make = None;
        Source::Feature($feature, make)
    }};
}

/// Every built-in hook, in the order in which they are listed.
const HOOKS: &[BuiltIn] = &[
    ("console", always::<Console>()),
    ("jsonl", always::<Jsonl>()),
    ("logging", always::<Logging>()),
    ("tensorboard", always::<TensorBoard>()),
    ("csv", always::<Csv>()),
    ("notify", feature!("http", Notify)),
    ("heartbeat", feature!("http", Heartbeat)),
    ("exec", always::<Exec>()),
    ("upload", feature!("upload", Upload)),
    ("checkpoint", always::<Checkpoint>()),
    ("early_stopping", always::<EarlyStopping>()),
    ("lr_monitor", always::<LrMonitor>()),
    ("gradient_monitor", always::<GradientMonitor>()),
    ("activation_stats", always::<ActivationStats>()),
    ("activation_store", always::<ActivationStore>()),
    ("nan_guard", always::<NanGuard>()),
    ("plateau_detector", always::<PlateauDetector>()),
    ("loss_spike", always::<LossSpike>()),
    ("ema_weights", always::<EmaWeights>()),
    ("throughput", always::<Throughput>()),
    ("timer", always::<Timer>()),
    ("profiler", always::<Profiler>()),
    ("model_summary", always::<ModelSummary>()),
    // Those that change gradients.
    ("identity", always::<Identity>()),
    ("clip_by_norm", always::<ClipByNorm>()),
    ("clip_by_value", always::<ClipByValue>()),
    ("gradient_noise", always::<GradientNoise>()),
    ("freeze", always::<Freeze>()),
    ("scale", always::<Scale>()),
];

pub(super) fn registry() -> Registry {
    let hook = |(name, source): &BuiltIn| {
        let (feature, make) = match source {
            Source::Always(make) => (None, Some(make)),
            Source::Feature(feature, make) => (Some(*feature), make.as_ref()),
        };
        make.map(|make| Arc::new(Maker { feature, ..make((*name).to_owned()) }))
    };
    Registry {
        hooks: HOOKS.iter().filter_map(hook).collect(),
        schedulers: schedule::BUILT_INS.iter().map(|built_in| Arc::new(scheduler(built_in))).collect(),
        optimizers: Vec::new(),
    }
}

/// The cargo feature that this program is built without, and that has the hook of this name.
pub(super) fn missing_feature(name: &str) -> Option<&'static str> {
    HOOKS.iter().find_map(|built_in| match built_in {
        (known, Source::Feature(feature, None)) if *known == name => Some(*feature),
        _ => None,
    })
}

fn scheduler(built_in: &schedule::BuiltIn) -> Maker<Box<dyn Scheduler>> {
    let maker = (built_in.maker)(built_in.name.to_owned());
    Maker { purpose: built_in.purpose.to_owned(), ..maker }
}
