//! The built-in hooks, in folders by what they are for.
//!
//! - `monitoring`: what is printed and measured while training runs.
//! - `integration`: what leaves the training process for files, services and commands.
//!
//! `support` holds what several hooks share; [`worker`] is public, for hooks of your own.
//!
//! Hooks that need the network are cargo features, off by default: `http` has `Notify` and `Heartbeat`, `upload` has
//! `Upload`, and `gcp` and `azure` add destinations to it.

// Only one place prints, which makes untrusted text harmless.
#![warn(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

mod activation_stats;
mod activation_store;
mod checkpoint;
mod checks;
mod chosen;
mod clip_by_norm;
mod clip_by_value;
mod early_stopping;
mod ema_weights;
mod freeze;
mod gradient_monitor;
mod gradient_noise;
mod integration;
mod kept;
mod loss_spike;
mod lr_monitor;
mod mode;
mod model_summary;
mod monitoring;
mod nan_guard;
mod pace;
mod plateau_detector;
mod points;
mod profiler;
#[cfg(test)]
mod resume_tests;
mod scale;
mod stages;
mod stopwatch;
mod support;
mod tensor_file;
mod throughput;
mod timer;
pub mod worker;

pub use activation_stats::{ActivationStatistic, ActivationStats, ActivationStatsOptions};
pub use activation_store::{ActivationStore, ActivationStoreOptions, ActivationTarget, StoredActivation};
pub use checkpoint::{BEST, BestCheckpoint, Checkpoint, CheckpointOptions, Link, SaveLast};
pub use clip_by_norm::{ClipByNorm, ClipByNormOptions};
pub use clip_by_value::{ClipByValue, ClipByValueOptions};
pub use early_stopping::{EarlyStopping, EarlyStoppingOptions};
pub use ema_weights::{EmaWeights, EmaWeightsOptions};
pub use freeze::{Freeze, FreezeOptions};
pub use gradient_monitor::{GradientMonitor, GradientMonitorOptions};
pub use gradient_noise::{GradientNoise, GradientNoiseOptions};
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
pub use loss_spike::{LossSpike, LossSpikeOptions};
pub use lr_monitor::{LrFrequency, LrMonitor, LrMonitorOptions};
pub use mode::Mode;
pub use model_summary::{ModelSummary, ModelSummaryOptions};
pub use monitoring::console::{Console, ConsoleOptions};
pub use monitoring::logging::{Logging, LoggingOptions};
pub use nan_guard::{NanAction, NanGuard, NanGuardOptions};
pub use plateau_detector::{PlateauDetector, PlateauDetectorOptions};
pub use profiler::{Profiler, ProfilerOptions};
pub use scale::{Scale, ScaleOptions};
pub use stages::ActivationStage;
pub use support::byte_size::{ByteSize, ByteSizeError};
#[cfg(feature = "http")]
pub use support::secret::Secret;
pub use throughput::{Throughput, ThroughputOptions};
pub use timer::{Timer, TimerInterval, TimerOptions};
