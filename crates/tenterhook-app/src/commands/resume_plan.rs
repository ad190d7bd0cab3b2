//! Finds the run or checkpoint for `tenter resume` and `tenter train --resume`.

use std::path::{Path, PathBuf};

use serde_json::json;
use tenterhook::checkpoint::{OnUnreadable, newest_whole, read_state, refused_hook_states, verify};
use tenterhook::config::{Config, change_error};
use tenterhook::run::RunLock;
use tenterhook::run::resume::{FinishedRun, ResumeTarget, find};

use super::{print_data, print_stderr, print_stdout};
use crate::app::App;
use crate::arguments::{Output, ResumeOptions};
use crate::error::CommandError;

/// The run or checkpoint to resume. The default is a new run.
#[derive(Debug, Default)]
pub(crate) struct ResumePlan {
    /// Whether `resume` or `--resume` was given.
    requested: bool,
    /// The lock of the run to resume, until the trainer takes it; `None` starts a new run.
    pub(crate) lock: Option<RunLock>,
    /// The checkpoint to restore.
    pub(crate) checkpoint: Option<PathBuf>,
    /// Newer checkpoints that cannot be used, with the reason.
    skipped: Vec<(PathBuf, String)>,
    /// Set if the run has nothing left to train.
    pub(crate) finished: Option<FinishedRun>,
    run_dir: Option<PathBuf>,
    pub(crate) options: ResumeOptions,
}

impl ResumePlan {
    /// Finds the run or checkpoint, and refuses one that cannot be resumed.
    pub(crate) fn find(
        app: &App,
        runs_dir: &Path,
        what: &str,
        resolved: &Config,
        options: ResumeOptions,
    ) -> Result<ResumePlan, CommandError> {
        let (config, rules) = (resolved.to_json(), resolved.change_rules(&app.registry));
        let target = find(runs_dir, what, Some((&config, &rules)), options.on_unreadable());
        let ResumeTarget { run_dir, lock, checkpoint, skipped, finished, .. } =
            target.map_err(CommandError::new)?;
        if let Some(checkpoint) = &checkpoint {
            // In a run only whole checkpoints are considered; one that the user names may be damaged.
            let is_named = Path::new(what).canonicalize().is_ok_and(|named| named == *checkpoint);
            if is_named {
                require_whole(checkpoint, run_dir.as_deref())?;
            }
            // This also refuses a state with invalid entries.
            let state = read_state(checkpoint)?;
            if state.weights_only {
                let what_is =
                    format!("checkpoint {} has weights only, so it cannot be resumed", checkpoint.display());
                let fix =
                    format!("start a new run with them: `{} train CONFIG --init-from {what}`", app.command);
                return Err(CommandError::new(what_is).fix(fix));
            }
            if finished.is_none() {
                let refused = change_error("configuration", &rules.changes(&state.config, &config));
                if let Some(refused) = refused.filter(|_| !options.force) {
                    let place = format!("cannot resume from {}", checkpoint.display());
                    return Err(CommandError::new(refused).at(place));
                }
                if let Some(damaged) = refused_hook_states(checkpoint, &config, &app.registry).first() {
                    return Err(CommandError::new(damaged));
                }
            }
        }
        Ok(ResumePlan { requested: true, lock, checkpoint, skipped, finished, run_dir, options })
    }

    /// Prints which checkpoints were skipped, and whether a new run starts. The trainer reports the resume itself.
    pub(crate) fn report(&self, runs_dir: &Path, quiet: bool) {
        // Printed even if `quiet` is set.
        for (_, why) in &self.skipped {
            print_stderr(format_args!("skipped: {why}"));
        }
        let is_new = self.lock.is_none() && self.checkpoint.is_none() && self.finished.is_none();
        if self.requested && !quiet && is_new {
            print_stderr(format_args!(
                "no run in {} matches this configuration; starting a new run",
                runs_dir.display()
            ));
        }
    }

    /// Prints that the run is finished.
    pub(crate) fn print_finished(&self, finished: &FinishedRun, output: Output) {
        if output.json {
            let FinishedRun { run, status, steps, epochs, untested, .. } = finished;
            let status = status.as_str();
            let summary = json!({
                "run": run, "directory": self.run_dir, "finished": true, "status": status, "steps": steps,
                "epochs": epochs, "untested": untested.is_some(),
            });
            print_data(&summary.to_string());
        } else if !output.quiet {
            print_stdout(&finished.to_string());
        }
    }
}

/// Refuses a damaged checkpoint, and suggests the newest whole one.
fn require_whole(checkpoint: &Path, run_dir: Option<&Path>) -> Result<(), CommandError> {
    let Err(error) = verify(checkpoint) else { return Ok(()) };
    let root = run_dir.map(|run_dir| run_dir.join("checkpoints"));
    let root = root.or_else(|| checkpoint.parent().map(Path::to_owned)).unwrap_or_default();
    let instead = newest_whole(&root, OnUnreadable::Skip).ok().and_then(|newest| newest.path);
    let instead = instead.map_or_else(
        || format!("there is no whole checkpoint in {}", root.display()),
        |newest| format!("the newest whole checkpoint is {}", newest.display()),
    );
    Err(CommandError::new(error).fix(instead))
}
