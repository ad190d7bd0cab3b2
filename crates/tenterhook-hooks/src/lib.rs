//! The built-in hooks, one file each.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

mod checkpoint;
mod console;
mod early_stopping;
mod jsonl;
mod logging;
mod mode;
mod model_summary;
mod profiler;
mod stopwatch;
mod table;
mod text;
mod throughput;
mod timer;

pub use checkpoint::{Checkpoint, CheckpointOptions, Link, SaveLast};
pub use console::{Console, ConsoleOptions};
pub use early_stopping::{EarlyStopping, EarlyStoppingOptions};
pub use jsonl::{Jsonl, JsonlOptions};
pub use logging::{Logging, LoggingOptions};
pub use mode::Mode;
pub use model_summary::{ModelSummary, ModelSummaryOptions};
pub use profiler::{Profiler, ProfilerOptions};
pub use throughput::{Throughput, ThroughputOptions};
pub use timer::{Timer, TimerInterval, TimerOptions};
