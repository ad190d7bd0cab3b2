//! The built-ins. These lists are the only places that know them all.

use std::sync::Arc;

use tenterhook_core::AnyHook;
use tenterhook_core::update::Identity;
use tenterhook_hooks::{
    ActivationStats, ActivationStore, Checkpoint, ClipByNorm, ClipByValue, Console, Csv, EarlyStopping,
    EmaWeights, Exec, Freeze, GradientMonitor, GradientNoise, Heartbeat, Jsonl, Logging, LossSpike,
    LrMonitor, ModelSummary, NanGuard, Notify, PlateauDetector, Profiler, Scale, TensorBoard, Throughput,
    Timer, Upload,
};

use super::Registry;
use super::maker::Maker;
use crate::schedule::{self, Scheduler};

/// How a built-in hook comes by its name.
type BuiltIn = (&'static str, fn(String) -> Maker<AnyHook>);

/// Every built-in hook, in the order in which they are listed.
const HOOKS: &[BuiltIn] = &[
    ("console", Maker::of_type::<Console>),
    ("jsonl", Maker::of_type::<Jsonl>),
    ("logging", Maker::of_type::<Logging>),
    ("tensorboard", Maker::of_type::<TensorBoard>),
    ("csv", Maker::of_type::<Csv>),
    ("notify", Maker::of_type::<Notify>),
    ("heartbeat", Maker::of_type::<Heartbeat>),
    ("exec", Maker::of_type::<Exec>),
    ("upload", Maker::of_type::<Upload>),
    ("checkpoint", Maker::of_type::<Checkpoint>),
    ("early_stopping", Maker::of_type::<EarlyStopping>),
    ("lr_monitor", Maker::of_type::<LrMonitor>),
    ("gradient_monitor", Maker::of_type::<GradientMonitor>),
    ("activation_stats", Maker::of_type::<ActivationStats>),
    ("activation_store", Maker::of_type::<ActivationStore>),
    ("nan_guard", Maker::of_type::<NanGuard>),
    ("plateau_detector", Maker::of_type::<PlateauDetector>),
    ("loss_spike", Maker::of_type::<LossSpike>),
    ("ema_weights", Maker::of_type::<EmaWeights>),
    ("throughput", Maker::of_type::<Throughput>),
    ("timer", Maker::of_type::<Timer>),
    ("profiler", Maker::of_type::<Profiler>),
    ("model_summary", Maker::of_type::<ModelSummary>),
    // Those that change gradients.
    ("identity", Maker::of_type::<Identity>),
    ("clip_by_norm", Maker::of_type::<ClipByNorm>),
    ("clip_by_value", Maker::of_type::<ClipByValue>),
    ("gradient_noise", Maker::of_type::<GradientNoise>),
    ("freeze", Maker::of_type::<Freeze>),
    ("scale", Maker::of_type::<Scale>),
];

pub(super) fn registry() -> Registry {
    Registry {
        hooks: HOOKS.iter().map(|(name, made)| Arc::new(made((*name).to_owned()))).collect(),
        schedulers: schedule::BUILT_INS.iter().map(|built_in| Arc::new(scheduler(built_in))).collect(),
    }
}

fn scheduler(built_in: &schedule::BuiltIn) -> Maker<Box<dyn Scheduler>> {
    let maker = (built_in.maker)(built_in.name.to_owned());
    Maker { purpose: built_in.purpose.to_owned(), ..maker }
}
