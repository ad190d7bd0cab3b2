//! What `tenter resume` and `tenter train --resume` resume, and what they say about it.

use std::path::{Path, PathBuf};

use serde_json::json;
use tenterhook::checkpoint::{OnUnreadable, newest_whole, read_state, refused_hook_states, verify};
use tenterhook::config::{Resolved, refusal};
use tenterhook::run::RunLock;
use tenterhook::run::resume::{FinishedRun, ResumeTarget, find};

use super::{print, print_data, tell};
use crate::app::App;
use crate::arguments::{Accepts, Output};
use crate::error::CommandError;

/// What a training resumes; by default nothing.
#[derive(Debug, Default)]
pub(crate) struct Resumption {
    /// Resuming was asked for.
    wanted: bool,
    /// The lock of the run to resume, until the trainer takes it; without one a new run begins.
    pub(crate) lock: Option<RunLock>,
    /// The checkpoint to restore.
    pub(crate) checkpoint: Option<PathBuf>,
    /// Newer checkpoints that cannot be used, and why.
    skipped: Vec<(PathBuf, String)>,
    pub(crate) finished: Option<Done>,
    pub(crate) accepts: Accepts,
}

/// A run that has nothing left to do.
#[derive(Debug)]
pub(crate) struct Done {
    finished: FinishedRun,
    directory: Option<PathBuf>,
}

impl Resumption {
    /// Finds what is meant, and refuses what cannot be resumed before anything is built.
    pub(crate) fn find(
        app: &App,
        runs_dir: &Path,
        what: &str,
        resolved: &Resolved,
        accepts: Accepts,
    ) -> Result<Resumption, CommandError> {
        let (config, rules) = (resolved.to_json(), resolved.change_rules(&app.registry));
        let target = find(runs_dir, what, Some((&config, &rules)), accepts.on_unreadable());
        let ResumeTarget { run_dir, lock, checkpoint, skipped, finished, .. } =
            target.map_err(CommandError::new)?;
        if let Some(checkpoint) = &checkpoint {
            // Of a run the newest whole one was taken; one that was named may be anything.
            let named = Path::new(what).canonicalize().is_ok_and(|named| named == *checkpoint);
            if named {
                whole(checkpoint, run_dir.as_deref())?;
            }
            // Also refuses a state with an entry that is not valid.
            let state = read_state(checkpoint)?;
            if state.weights_only {
                let what_is = format!(
                    "checkpoint {} holds weights alone, so it cannot be resumed",
                    checkpoint.display()
                );
                let fix =
                    format!("begin a new run with them: `{} train CONFIG --init-from {what}`", app.command);
                return Err(CommandError::new(what_is).fix(fix));
            }
            if finished.is_none() {
                let refused = refusal("configuration", &rules.differences(&state.config, &config));
                if let Some(refused) = refused.filter(|_| !accepts.force) {
                    let place = format!("cannot resume from {}", checkpoint.display());
                    return Err(CommandError::new(refused).at(place));
                }
                if let Some(damaged) = refused_hook_states(checkpoint, &config, &app.registry).first() {
                    return Err(CommandError::new(damaged));
                }
            }
        }
        let finished = finished.map(|finished| Done { finished, directory: run_dir });
        Ok(Resumption { wanted: true, lock, checkpoint, skipped, finished, accepts })
    }

    /// Says what was passed over. From where a run is resumed is told once it begins, after everything was accepted.
    pub(crate) fn tell(&self, runs_dir: &Path, quiet: bool) {
        // That a checkpoint is damaged is no chatter.
        for (_, why) in &self.skipped {
            tell(format_args!("skipped: {why}"));
        }
        let is_new = self.lock.is_none() && self.checkpoint.is_none() && self.finished.is_none();
        if self.wanted && !quiet && is_new {
            tell(format_args!("no run in {} fits this configuration: a new one begins", runs_dir.display()));
        }
    }
}

impl Done {
    /// The weights to test, if only their test is left to do.
    pub(crate) fn untested(&self) -> Option<&Path> {
        self.finished.untested.as_deref()
    }

    pub(crate) fn print(&self, output: Output) {
        let Done { finished, directory } = self;
        if output.json {
            let FinishedRun { run, status, steps, epochs, untested, .. } = finished;
            let status = status.as_str();
            let done = json!({
                "run": run, "directory": directory, "finished": true, "status": status, "steps": steps,
                "epochs": epochs, "untested": untested.is_some(),
            });
            print_data(&done.to_string());
        } else if !output.quiet {
            print(&finished.to_string());
        }
    }
}

/// Refuses a checkpoint that is not whole, and names one that is.
fn whole(checkpoint: &Path, run_dir: Option<&Path>) -> Result<(), CommandError> {
    let Err(error) = verify(checkpoint) else { return Ok(()) };
    let root = run_dir.map(|run_dir| run_dir.join("checkpoints"));
    let root = root.or_else(|| checkpoint.parent().map(Path::to_owned)).unwrap_or_default();
    let instead = newest_whole(&root, OnUnreadable::Skip).ok().and_then(|newest| newest.path);
    let instead = instead.map_or_else(
        || format!("there is no whole one in {}", root.display()),
        |newest| format!("the newest whole one is {}", newest.display()),
    );
    Err(CommandError::new(error).fix(instead))
}
