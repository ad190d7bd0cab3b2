//! The built-in hooks, one file each, in folders by what they are for; `support` holds what they share.
//!
//! Hooks that need the network are cargo features, off by default: `http` has `Notify` and `Heartbeat`, `upload` has
//! `Upload`, and `gcp` and `azure` add destinations to it.

// Only one place prints, which makes untrusted text harmless.
#![warn(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

mod byte_size;
mod checkpointing;
mod console;
mod csv;
mod debugging;
mod exec;
mod format;
#[cfg(feature = "http")]
mod heartbeat;
#[cfg(feature = "http")]
mod http;
mod jsonl;
mod logging;
mod monitoring;
#[cfg(feature = "http")]
mod notify;
mod optimization;
mod own_file;
#[cfg(test)]
mod python;
#[cfg(test)]
mod resuming;
#[cfg(feature = "http")]
mod secret;
mod sink;
mod support;
mod tensorboard;
mod text;
#[cfg(feature = "upload")]
mod upload;
pub mod worker;

pub use byte_size::{ByteSize, ByteSizeError};
pub use checkpointing::checkpoint::{BEST, BestCheckpoint, Checkpoint, CheckpointOptions, Link, SaveLast};
pub use console::{Console, ConsoleOptions};
pub use csv::{Csv, CsvOptions};
pub use debugging::nan_guard::{NanAction, NanGuard, NanGuardOptions};
pub use debugging::profiler::{Profiler, ProfilerOptions};
pub use exec::{Exec, ExecCommand, ExecOptions};
#[cfg(feature = "http")]
pub use heartbeat::{Heartbeat, HeartbeatOptions};
pub use jsonl::{Jsonl, JsonlOptions};
pub use logging::{Logging, LoggingOptions};
pub use monitoring::activation_stats::{ActivationStatistic, ActivationStats, ActivationStatsOptions};
pub use monitoring::activation_store::{ActivationStore, ActivationStoreOptions};
pub use monitoring::activation_store::{ActivationTarget, StoredActivation};
pub use monitoring::gradient_monitor::{GradientMonitor, GradientMonitorOptions};
pub use monitoring::lr_monitor::{LrFrequency, LrMonitor, LrMonitorOptions};
pub use monitoring::model_summary::{ModelSummary, ModelSummaryOptions};
pub use monitoring::plateau_detector::{PlateauDetector, PlateauDetectorOptions};
pub use monitoring::throughput::{Throughput, ThroughputOptions};
pub use monitoring::timer::{Timer, TimerInterval, TimerOptions};
#[cfg(feature = "http")]
pub use notify::{Notify, NotifyOn, NotifyOptions, NotifyTemplates};
pub use optimization::clip_by_norm::{ClipByNorm, ClipByNormOptions};
pub use optimization::clip_by_value::{ClipByValue, ClipByValueOptions};
pub use optimization::early_stopping::{EarlyStopping, EarlyStoppingOptions};
pub use optimization::ema_weights::{EmaWeights, EmaWeightsOptions};
pub use optimization::freeze::{Freeze, FreezeOptions};
pub use optimization::gradient_noise::{GradientNoise, GradientNoiseOptions};
pub use optimization::loss_spike::{LossSpike, LossSpikeOptions};
pub use optimization::scale::{Scale, ScaleOptions};
#[cfg(feature = "http")]
pub use secret::Secret;
pub use support::activation_stage::ActivationStage;
pub use support::mode::Mode;
pub use tensorboard::{HistogramOf, TensorBoard, TensorBoardOptions};
#[cfg(feature = "upload")]
pub use upload::{Upload, UploadOnly, UploadOptions};
