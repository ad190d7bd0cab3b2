//! Weights that are named on the command line: a file, a checkpoint or a run.

use std::path::{Path, PathBuf};

use tenterhook::checkpoint::{OnUnreadable, WEIGHTS, newest_whole};
use tenterhook::run::reading::ReadError;
use tenterhook::run::{Run, RunRecord, RunStatus, Runs};

use crate::error::CommandError;

/// Weights, and the configuration of the run they belong to.
#[derive(Debug)]
pub(crate) struct Weights {
    /// A file, or a directory that holds one and may know better ones to evaluate.
    pub(crate) path: PathBuf,
    pub(crate) config: Option<PathBuf>,
}

impl Weights {
    /// Those at a path, or of a run that is called so.
    pub(crate) fn found(what: &Path, runs_dir: &Path) -> Result<Weights, CommandError> {
        let name = if exists(what)? { None } else { what.to_str() };
        match name.map(|name| Runs::resolve(runs_dir, name)) {
            Some(Ok(run)) => Weights::at(&run.directory),
            Some(Err(
                error @ (ReadError::Unreadable { .. } | ReadError::Damaged { .. } | ReadError::Newer { .. }),
            )) => Err(error.into()),
            _ => Weights::at(what),
        }
    }

    /// Those at a path.
    pub(crate) fn at(path: &Path) -> Result<Weights, CommandError> {
        if !exists(path)? {
            return Err(CommandError::new(format_args!("there is nothing at {}", path.display()))
                .fix("give a safetensors file, a checkpoint, or a run directory such as runs/latest"));
        }
        let is_run = path.is_dir() && exists(&path.join("run.json"))?;
        let path = if is_run { of_run(path)? } else { path.to_owned() };
        let file = if path.is_dir() { path.join(WEIGHTS) } else { path.clone() };
        if !exists(&file)? {
            return Err(CommandError::new(format_args!("{} holds no {WEIGHTS}", path.display())));
        }
        // Beside the weights of a run, above those of its checkpoints.
        for config in file.ancestors().skip(1).take(4).map(|above| above.join("config.toml")) {
            if exists(&config)? {
                return Ok(Weights { path, config: Some(config) });
            }
        }
        Ok(Weights { path, config: None })
    }
}

/// Whether something has this name. Only "not found" means that nothing has.
fn exists(path: &Path) -> Result<bool, CommandError> {
    path.try_exists().map_err(CommandError::cannot("read", path))
}

/// Where the weights of a run are: its own, which it leaves when it ends, or those of its newest checkpoint. After an
/// end that was none, its own are missing, or those of an earlier end.
fn of_run(directory: &Path) -> Result<PathBuf, CommandError> {
    let run = match Run::read(directory) {
        // The `run.json` of another tool.
        Err(ReadError::NotARun { .. }) => None,
        Err(error) => {
            let fix = format!("give its {WEIGHTS} or one of its checkpoints");
            return Err(CommandError::new(error).fix(fix));
        }
        Ok(run) => Some(run),
    };
    // `latest` may lead elsewhere after a start that was killed.
    let directory = run.as_ref().map_or(directory, |run| &run.directory);
    let ended = run.as_ref().is_some_and(|run| {
        let RunRecord { status, trained, .. } = &run.record;
        status.is_finished() || trained.is_some() || matches!(status, RunStatus::Interrupted { .. })
    });
    if ended && exists(&directory.join(WEIGHTS))? {
        return Ok(directory.to_owned());
    }
    let newest = newest_whole(&directory.join("checkpoints"), OnUnreadable::Stop)?;
    Ok(newest.path.unwrap_or_else(|| directory.to_owned()))
}
