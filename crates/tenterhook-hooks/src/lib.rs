//! The built-in hooks, grouped by purpose.
//!
//! - `monitoring`: progress, learning rates, gradients, activations, time.
//! - `optimization`: early stopping, averaged weights, changes of gradients.
//! - `checkpointing`: saving checkpoints.
//! - `debugging`: NaN guard, profiler.
//! - `integration`: files for other tools, messages, uploads, commands.
//!
//! `support` holds code that several hooks share. [`worker`] is public, for custom hooks.
//!
//! Hooks that need the network are cargo features, off by default: `http` enables `Notify` and `Heartbeat`,
//! `upload` enables `Upload`, and `gcp` and `azure` add destinations to it.

// All output goes through one function, which escapes control characters of untrusted text.
#![warn(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

mod checkpointing;
mod debugging;
mod integration;
mod monitoring;
mod optimization;
#[cfg(test)]
mod resume_tests;
mod support;
pub mod worker;

pub use checkpointing::checkpoint::{BEST, BestCheckpoint, Checkpoint, CheckpointOptions, Link, SaveLast};
pub use debugging::nan_guard::{NanAction, NanGuard, NanGuardOptions};
pub use debugging::profiler::{Profiler, ProfilerOptions};
pub use integration::csv::{Csv, CsvOptions};
pub use integration::exec::{Exec, ExecCommand, ExecOptions};
#[cfg(feature = "http")]
pub use integration::heartbeat::{Heartbeat, HeartbeatOptions};
pub use integration::jsonl::{Jsonl, JsonlOptions};
#[cfg(feature = "http")]
pub use integration::notify::{Notify, NotifyOn, NotifyOptions, NotifyTemplates};
pub use integration::tensorboard::{HistogramOf, TensorBoard, TensorBoardOptions};
#[cfg(feature = "upload")]
pub use integration::upload::{Upload, UploadOnly, UploadOptions};
pub use monitoring::activation_stats::{ActivationStatistic, ActivationStats, ActivationStatsOptions};
pub use monitoring::activation_store::{ActivationStore, ActivationStoreOptions};
pub use monitoring::activation_store::{ActivationTarget, StoredActivation};
pub use monitoring::console::{Console, ConsoleOptions};
pub use monitoring::gradient_monitor::{GradientMonitor, GradientMonitorOptions};
pub use monitoring::logging::{Logging, LoggingOptions};
pub use monitoring::lr_monitor::{LrFrequency, LrMonitor, LrMonitorOptions};
pub use monitoring::model_summary::{ModelSummary, ModelSummaryOptions};
pub use monitoring::plateau_detector::{PlateauDetector, PlateauDetectorOptions};
pub use monitoring::throughput::{Throughput, ThroughputOptions};
pub use monitoring::timer::{Timer, TimerInterval, TimerOptions};
pub use optimization::clip_by_norm::{ClipByNorm, ClipByNormOptions};
pub use optimization::clip_by_value::{ClipByValue, ClipByValueOptions};
pub use optimization::early_stopping::{EarlyStopping, EarlyStoppingOptions};
pub use optimization::ema_weights::{EmaWeights, EmaWeightsOptions};
pub use optimization::freeze::{Freeze, FreezeOptions};
pub use optimization::gradient_noise::{GradientNoise, GradientNoiseOptions};
pub use optimization::loss_spike::{LossSpike, LossSpikeOptions};
pub use optimization::scale::{Scale, ScaleOptions};
pub use support::activation_stage::ActivationStage;
pub use support::byte_size::{ByteSize, ByteSizeError};
pub use support::mode::Mode;
#[cfg(feature = "http")]
pub use support::secret::Secret;
