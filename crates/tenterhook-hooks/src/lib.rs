//! The built-in hooks, one file each.
//!
//! Hooks that need the network are cargo features, off by default: `http` has `Notify` and `Heartbeat`, `upload` has
//! `Upload`, and `gcp` and `azure` add destinations to it.

// Only one place prints, which makes untrusted text harmless.
#![warn(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

mod activation_stats;
mod activation_store;
mod byte_size;
mod checkpoint;
mod checks;
mod chosen;
mod clip_by_norm;
mod clip_by_value;
mod console;
mod csv;
mod early_stopping;
mod ema_weights;
mod exec;
mod format;
mod freeze;
mod gradient_monitor;
mod gradient_noise;
#[cfg(feature = "http")]
mod heartbeat;
#[cfg(feature = "http")]
mod http;
mod jsonl;
mod kept;
mod logging;
mod loss_spike;
mod lr_monitor;
mod mode;
mod model_summary;
mod nan_guard;
#[cfg(feature = "http")]
mod notify;
mod own_file;
mod pace;
mod plateau_detector;
mod points;
mod profiler;
#[cfg(test)]
mod python;
#[cfg(test)]
mod resuming;
mod scale;
#[cfg(feature = "http")]
mod secret;
mod sink;
mod stages;
mod stopwatch;
mod tensor_file;
mod tensorboard;
mod text;
mod throughput;
mod timer;
#[cfg(feature = "upload")]
mod upload;
pub mod worker;

pub use activation_stats::{ActivationStatistic, ActivationStats, ActivationStatsOptions};
pub use activation_store::{ActivationStore, ActivationStoreOptions, ActivationTarget, StoredActivation};
pub use byte_size::{ByteSize, ByteSizeError};
pub use checkpoint::{BEST, BestCheckpoint, Checkpoint, CheckpointOptions, Link, SaveLast};
pub use clip_by_norm::{ClipByNorm, ClipByNormOptions};
pub use clip_by_value::{ClipByValue, ClipByValueOptions};
pub use console::{Console, ConsoleOptions};
pub use csv::{Csv, CsvOptions};
pub use early_stopping::{EarlyStopping, EarlyStoppingOptions};
pub use ema_weights::{EmaWeights, EmaWeightsOptions};
pub use exec::{Exec, ExecCommand, ExecOptions};
pub use freeze::{Freeze, FreezeOptions};
pub use gradient_monitor::{GradientMonitor, GradientMonitorOptions};
pub use gradient_noise::{GradientNoise, GradientNoiseOptions};
#[cfg(feature = "http")]
pub use heartbeat::{Heartbeat, HeartbeatOptions};
pub use jsonl::{Jsonl, JsonlOptions};
pub use logging::{Logging, LoggingOptions};
pub use loss_spike::{LossSpike, LossSpikeOptions};
pub use lr_monitor::{LrFrequency, LrMonitor, LrMonitorOptions};
pub use mode::Mode;
pub use model_summary::{ModelSummary, ModelSummaryOptions};
pub use nan_guard::{NanAction, NanGuard, NanGuardOptions};
#[cfg(feature = "http")]
pub use notify::{Notify, NotifyOn, NotifyOptions, NotifyTemplates};
pub use plateau_detector::{PlateauDetector, PlateauDetectorOptions};
pub use profiler::{Profiler, ProfilerOptions};
pub use scale::{Scale, ScaleOptions};
#[cfg(feature = "http")]
pub use secret::Secret;
pub use stages::ActivationStage;
pub use tensorboard::{HistogramOf, TensorBoard, TensorBoardOptions};
pub use throughput::{Throughput, ThroughputOptions};
pub use timer::{Timer, TimerInterval, TimerOptions};
#[cfg(feature = "upload")]
pub use upload::{Upload, UploadOnly, UploadOptions};
