//! Finds the weights that are named on the command line: a file, a checkpoint or a run.

use std::path::{Path, PathBuf};

use tenterhook::checkpoint::{OnUnreadable, WEIGHTS, newest_whole};
use tenterhook::run::reading::ReadError;
use tenterhook::run::{Run, RunRecord, RunStatus, Runs};

use crate::error::CommandError;

/// Weights, with the configuration of their run.
#[derive(Debug)]
pub(crate) struct Weights {
    /// A safetensors file, or the directory of a checkpoint or run.
    pub(crate) path: PathBuf,
    pub(crate) config: Option<PathBuf>,
}

impl Weights {
    /// The weights at a path, or of the run with this name.
    pub(crate) fn find(what: &Path, runs_dir: &Path) -> Result<Weights, CommandError> {
        let name = if exists(what)? { None } else { what.to_str() };
        match name.map(|name| Runs::resolve(runs_dir, name)) {
            Some(Ok(run)) => Weights::at(&run.directory),
            Some(Err(
                error @ (ReadError::Unreadable { .. } | ReadError::Damaged { .. } | ReadError::Newer { .. }),
            )) => Err(error.into()),
            _ => Weights::at(what),
        }
    }

    /// The weights at a path.
    pub(crate) fn at(path: &Path) -> Result<Weights, CommandError> {
        if !exists(path)? {
            return Err(CommandError::new(format_args!("{} does not exist", path.display()))
                .fix("give a safetensors file, a checkpoint, or a run directory such as runs/latest"));
        }
        let is_run = path.is_dir() && exists(&path.join("run.json"))?;
        let path = if is_run { of_run(path)? } else { path.to_owned() };
        let file = if path.is_dir() { path.join(WEIGHTS) } else { path.clone() };
        if !exists(&file)? {
            return Err(CommandError::new(format_args!("{} has no {WEIGHTS}", path.display())));
        }
        // `config.toml` is beside the weights of a run, and above its checkpoints.
        for config in file.ancestors().skip(1).take(4).map(|above| above.join("config.toml")) {
            if exists(&config)? {
                return Ok(Weights { path, config: Some(config) });
            }
        }
        Ok(Weights { path, config: None })
    }
}

/// Whether a path exists. Only "not found" means that it does not.
fn exists(path: &Path) -> Result<bool, CommandError> {
    path.try_exists().map_err(CommandError::cannot("read", path))
}

/// The final weights of a run, or its newest checkpoint if it was killed or failed: then the final weights are missing
/// or outdated.
fn of_run(directory: &Path) -> Result<PathBuf, CommandError> {
    let run = match Run::read(directory) {
        // Another tool wrote this `run.json`.
        Err(ReadError::NotARun { .. }) => None,
        Err(error) => {
            let fix = format!("give its {WEIGHTS} or one of its checkpoints");
            return Err(CommandError::new(error).fix(fix));
        }
        Ok(run) => Some(run),
    };
    // `latest` may still point to the run before if this one was killed at its start.
    let directory = run.as_ref().map_or(directory, |run| &run.directory);
    let has_final_weights = run.as_ref().is_some_and(|run| {
        let RunRecord { status, trained, .. } = &run.record;
        status.is_finished() || trained.is_some() || matches!(status, RunStatus::Interrupted { .. })
    });
    if has_final_weights && exists(&directory.join(WEIGHTS))? {
        return Ok(directory.to_owned());
    }
    let newest = newest_whole(&directory.join("checkpoints"), OnUnreadable::Stop)?;
    Ok(newest.path.unwrap_or_else(|| directory.to_owned()))
}
