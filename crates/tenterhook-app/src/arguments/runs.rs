//! Arguments of the commands that work on existing runs.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use tenterhook::checkpoint::OnUnreadable;

use super::{AfterTraining, Overrides, Trust};

/// The option for the directory of all runs.
#[derive(Args, Clone, Debug)]
pub(crate) struct RunsDir {
    /// The directory of all runs.
    #[arg(id = "dir", long, value_name = "DIR", default_value = "runs")]
    pub(crate) path: PathBuf,
}

/// Differences that a resume accepts.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct ResumeOptions {
    /// Resume even if settings changed that affect the computation, such as those of the model.
    #[arg(long)]
    pub(crate) force: bool,
    /// Resume even if hooks were added or removed. New hooks start without state; the state of removed hooks is lost.
    #[arg(long)]
    pub(crate) accept_hook_changes: bool,
    /// Skip unreadable checkpoints, and resume from the newest readable one. Default: stop with an error.
    #[arg(long)]
    skip_unreadable: bool,
}

impl ResumeOptions {
    pub(crate) fn on_unreadable(self) -> OnUnreadable {
        if self.skip_unreadable { OnUnreadable::Skip } else { OnUnreadable::Stop }
    }
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Resume {
    /// The run: its id, the start or end of the id, a path, or `latest`; or the path of one of its checkpoints.
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) dir: RunsDir,
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    #[command(flatten)]
    pub(crate) options: ResumeOptions,
    #[command(flatten)]
    pub(crate) trust: Trust,
    #[command(flatten)]
    pub(crate) after: AfterTraining,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Runs {
    #[command(flatten)]
    pub(crate) dir: RunsDir,
    /// List only runs that match a condition, e.g. 'val/loss < 0.1 and status == completed'.
    ///
    /// Names are metrics, fields of the run (see --sort) and configuration keys such as 'optimizer.lr'. If given
    /// several times, all conditions must hold.
    #[arg(long, value_name = "EXPR")]
    pub(crate) filter: Vec<String>,
    /// Sort by a metric, a field or a configuration key, smallest first. Default: newest run first.
    ///
    /// The best loss comes first; for the best accuracy add --reverse. Runs without a value come last. Fields include
    /// created, seconds, steps, epochs, seed, status and task.
    #[arg(long, value_name = "KEY")]
    pub(crate) sort: Option<String>,
    /// Reverse the order.
    #[arg(long)]
    pub(crate) reverse: bool,
    /// List only the first N runs.
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Show {
    /// The run: its id, the start or end of the id, a path, `latest`, or `latest~1` for the run before it.
    #[arg(default_value = "latest")]
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) dir: RunsDir,
    /// Plot a metric, e.g. val/loss, or all metrics whose name ends with this part, e.g. loss. Can be given
    /// several times.
    #[arg(long = "metric", value_name = "NAME")]
    pub(crate) metrics: Vec<String>,
    /// Width of the curves, in characters.
    #[arg(long, value_name = "N", default_value_t = 80, value_parser = clap::value_parser!(u16).range(20..=1000))]
    pub(crate) width: u16,
    /// Height of the curves, in lines.
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u16).range(3..=200))]
    pub(crate) height: u16,
    /// Plot with ASCII characters only. This is the default if TERM=dumb.
    #[arg(long)]
    pub(crate) ascii: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Compare {
    /// The runs: ids, starts or ends of ids, paths, `latest` or `latest~1`.
    #[arg(value_name = "RUN", required = true, num_args = 2..)]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) dir: RunsDir,
    /// Also show equal values.
    #[arg(long)]
    pub(crate) all: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Checkpoints {
    #[command(subcommand)]
    pub(crate) command: Option<CheckpointsCommand>,
    /// The run: its id, the start or end of the id, a path, or `latest`; or the path of a directory of checkpoints.
    #[arg(default_value = "latest")]
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) dir: RunsDir,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Subcommand, Clone, Debug)]
pub(crate) enum CheckpointsCommand {
    /// Verify the checksums of checkpoints. If a checkpoint is damaged, the exit code is 1.
    Verify(Verify),
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Verify {
    /// A checkpoint, a directory of checkpoints, or a run.
    pub(crate) path: String,
    #[command(flatten)]
    pub(crate) dir: RunsDir,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Export {
    /// A checkpoint, a run or a safetensors file.
    pub(crate) path: PathBuf,
    #[command(flatten)]
    pub(crate) dir: RunsDir,
    /// The file to write. Default: the name of the run or checkpoint, in the working directory.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Export the trained weights, even if others, such as their average, were used in evaluations.
    #[arg(long)]
    pub(crate) raw: bool,
    /// Overwrite an existing file.
    #[arg(long)]
    pub(crate) force: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
