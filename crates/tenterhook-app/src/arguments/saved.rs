//! What can be typed about what was saved.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use tenterhook::checkpoint::OnUnreadable;

use super::{Changes, Ending, Trust};

/// Where runs are found, and how what was found is printed.
#[derive(Args, Clone, Debug)]
pub(crate) struct Found {
    /// The directory of all runs.
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub(crate) dir: PathBuf,
    /// Print JSON, for programs.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What may have changed in a run that is resumed.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Accepts {
    /// Resume although keys have changed that change what is computed, such as those of the model.
    #[arg(long)]
    pub(crate) force: bool,
    /// Resume although hooks were added or removed: new ones begin anew, others are forgotten.
    #[arg(long)]
    pub(crate) accept_hook_changes: bool,
    /// Resume from the newest checkpoint that can be read; without it, one that cannot be read stops the command.
    #[arg(long)]
    skip_unreadable: bool,
}

impl Accepts {
    pub(crate) fn on_unreadable(self) -> OnUnreadable {
        if self.skip_unreadable { OnUnreadable::Skip } else { OnUnreadable::Stop }
    }
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Resume {
    /// The run: its id, the beginning or end of it, a path, or `latest`; or the path of one of its checkpoints.
    pub(crate) run: String,
    /// The directory of all runs.
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    pub(crate) trust: Trust,
    #[command(flatten)]
    pub(crate) changes: Changes,
    #[command(flatten)]
    pub(crate) accepts: Accepts,
    #[command(flatten)]
    pub(crate) ending: Ending,
}

#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Checkpoints {
    #[command(subcommand)]
    pub(crate) command: Option<CheckpointsCommand>,
    /// The run: its id, the beginning or end of it, a path, `latest`; or the path of a directory of checkpoints.
    #[arg(default_value = "latest")]
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) found: Found,
}

#[derive(Subcommand, Clone, Debug)]
pub(crate) enum CheckpointsCommand {
    /// Say whether checkpoints are to the byte what was written; where one is not, the exit code is 1.
    Verify(Verify),
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Verify {
    /// A checkpoint; or a directory of checkpoints or a run, for all of its checkpoints.
    pub(crate) path: String,
    #[command(flatten)]
    pub(crate) found: Found,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Export {
    /// A checkpoint, a run or a safetensors file.
    pub(crate) path: PathBuf,
    /// The file to write; unset, it is called as the run or the checkpoint is, in the working directory.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Write the weights in training where others were evaluated, such as an average of them.
    #[arg(long)]
    pub(crate) raw: bool,
    /// Replace the file if it is there already.
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) found: Found,
}
