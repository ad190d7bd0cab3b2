//! Weights that are named on the command line: a file, a checkpoint or a run.

use std::path::{Path, PathBuf};

use tenterhook::checkpoint::{OnUnreadable, WEIGHTS, newest_whole};
use tenterhook::run::{Run, RunRecord, RunStatus, Runs};

/// Weights, and the configuration of the run they belong to.
#[derive(Debug)]
pub(crate) struct Weights {
    /// A file, or a directory that holds one and may know better ones to evaluate.
    pub(crate) path: PathBuf,
    pub(crate) config: Option<PathBuf>,
}

impl Weights {
    /// Those at a path, or of a run that is called so.
    pub(crate) fn found(what: &Path, runs_dir: &Path) -> Result<Weights, String> {
        let run = what.to_str().filter(|_| !what.exists()).map(|name| Runs::resolve(runs_dir, name));
        match run {
            Some(Ok(run)) => Weights::at(&run.directory),
            _ => Weights::at(what),
        }
    }

    /// Those at a path.
    pub(crate) fn at(path: &Path) -> Result<Weights, String> {
        if !path.exists() {
            return Err(format!(
                "there is nothing at {}; give a safetensors file, a checkpoint, or a run directory such as runs/latest",
                path.display()
            ));
        }
        let path = if path.join("run.json").is_file() { of_run(path)? } else { path.to_owned() };
        let file = if path.is_dir() { path.join(WEIGHTS) } else { path.clone() };
        if !file.exists() {
            return Err(format!("{} holds no {WEIGHTS}", path.display()));
        }
        // Beside the weights of a run, above those of its checkpoints.
        let config = file.ancestors().skip(1).take(4).map(|above| above.join("config.toml"));
        let config = config.into_iter().find(|config| config.is_file());
        Ok(Weights { path, config })
    }
}

/// Where the weights of a run are: its own, which it leaves when it ends, or those of its newest checkpoint. After an
/// end that was none, its own are missing, or those of an earlier end.
fn of_run(directory: &Path) -> Result<PathBuf, String> {
    let run = Run::read(directory);
    // `latest` may lead elsewhere after a start that was killed.
    let directory = run.as_ref().map_or(directory, |run| &run.directory);
    let ended = run.as_ref().is_ok_and(|run| {
        let RunRecord { status, trained, .. } = &run.record;
        status.is_finished() || trained.is_some() || matches!(status, RunStatus::Interrupted { .. })
    });
    if ended && directory.join(WEIGHTS).is_file() {
        return Ok(directory.to_owned());
    }
    let newest = newest_whole(&directory.join("checkpoints"), OnUnreadable::Stop);
    let newest = newest.map_err(|error| error.to_string())?;
    Ok(newest.path.unwrap_or_else(|| directory.to_owned()))
}
