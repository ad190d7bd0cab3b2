//! Finding the run and the checkpoint to resume from.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tenterhook_core::Stage;

use super::lock::{self, LockError, RunLock};
use super::reading::ReadError;
use super::{JournalEvent, Run, RunStatus, Runs};
use crate::checkpoint::{CheckpointError, NewestCheckpoint, OnUnreadable, WEIGHTS, newest_whole};
use crate::config::{ChangeRules, ConfigChange, Impact};

/// The argument that resumes the newest run with a compatible configuration, or begins a new run.
pub const AUTO: &str = "auto";

/// The limits of a run. A finished run can be resumed with a higher limit.
const LIMITS: [&str; 3] = ["trainer.max_epochs", "trainer.max_steps", "trainer.max_time"];

/// Checkpoints and runs that cannot be used, and why.
pub type Skipped = Vec<(PathBuf, String)>;

/// The run and the checkpoint to resume from.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct ResumeTarget {
    /// The directory of the run to resume; `None` begins a new one.
    pub run_dir: Option<PathBuf>,
    /// Its lock, unless the run is finished. No other process changes the run while it is held.
    pub lock: Option<RunLock>,
    /// The checkpoint to restore; without one, training begins from the start.
    pub checkpoint: Option<PathBuf>,
    /// Newer checkpoints and runs that cannot be used, and why.
    pub skipped: Skipped,
    /// Set if the run is finished.
    pub finished: Option<FinishedRun>,
}

/// A run whose training is finished.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FinishedRun {
    /// The name of the run.
    pub run: String,
    /// Its status.
    pub status: RunStatus,
    /// Completed optimizer steps.
    pub steps: u64,
    /// Epochs whose batches are done.
    pub epochs: u64,
    /// The weights to test, if the test was interrupted and the run has no checkpoint.
    pub untested: Option<PathBuf>,
}

impl std::fmt::Display for FinishedRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let FinishedRun { run, status, steps, epochs, untested } = self;
        let how = match status {
            RunStatus::Stopped { by, reason } => format!("was stopped by `{by}` ({reason})"),
            _ => "is completed".to_owned(),
        };
        write!(f, "run {run} {how} after {epochs} epochs and {steps} steps; ")?;
        match untested {
            None => f.write_str("to train on, raise `max_epochs`, `max_steps` or `max_time`"),
            Some(weights) => {
                write!(f, "its test was interrupted; the weights to test are in {}", weights.display())
            }
        }
    }
}

/// Why no run can be resumed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// The run cannot be found or read.
    #[error(transparent)]
    Run(#[from] ReadError),
    /// The run is in use, or cannot be locked.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The checkpoints of the run cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A run or checkpoint that cannot be read may be the newest.
    #[error("{0}; `--skip-unreadable` resumes from the newest one that can be read")]
    Newest(#[source] Box<ResumeError>),
    /// The path is neither a checkpoint nor a run.
    #[error("{} is neither a checkpoint nor a run; name one of them", path.display())]
    Neither {
        /// The path.
        path: PathBuf,
    },
    /// The run is finished and has no checkpoint. Starting again would lose its results.
    #[error(
        "run {run} has ended, and has no whole checkpoint to resume from; start a new run with its weights: \
         `--init-from {}`",
        directory.display()
    )]
    NoCheckpoint {
        /// The name of the run.
        run: String,
        /// Its directory.
        directory: PathBuf,
    },
    /// Only the test is left, and its weights are outside of the run directory.
    #[error(
        "the test of run {run} was interrupted, and its best weights are outside of its directory; test them with \
         `test --weights`"
    )]
    WeightsElsewhere {
        /// The name of the run.
        run: String,
    },
}

impl ResumeError {
    /// Adds the flag that skips unreadable runs and checkpoints, unless it was given.
    fn newest(error: impl Into<ResumeError>, on_unreadable: OnUnreadable) -> ResumeError {
        match on_unreadable {
            OnUnreadable::Stop => ResumeError::Newest(Box::new(error.into())),
            OnUnreadable::Skip => error.into(),
        }
    }
}

/// A configuration, and the rules that judge its differences from that of a run.
pub type ResumeConfig<'a> = (&'a Value, &'a ChangeRules);

/// Finds the run and the checkpoint that `what` names, below a directory of runs:
///
/// - `auto`: the newest training with a compatible configuration, at its newest whole checkpoint; without one, a new
///   run
/// - a path to a checkpoint: that checkpoint, in its run
/// - a path to a run, the id of a run or the beginning or end of it, `latest`, `latest~1`: its newest whole checkpoint
///
/// `config` is the configuration to resume with, as [`Config::to_json`](crate::config::Config::to_json) makes it,
/// with the rules that judge its differences; unset, it is the run's own. A run that is in use is refused with its
/// holder. A checkpoint that cannot be read, and for `auto` also a run, is an error unless `on_unreadable` skips it.
pub fn find(
    runs_dir: &Path,
    what: &str,
    config: Option<ResumeConfig<'_>>,
    on_unreadable: OnUnreadable,
) -> Result<ResumeTarget, ResumeError> {
    if what == AUTO {
        let (run, unreadable) = newest_compatible(runs_dir, config, on_unreadable)
            .map_err(|error| ResumeError::newest(error, on_unreadable))?;
        let Some(run) = run else { return Ok(ResumeTarget::default()) };
        let mut target = of_run(&run, config, on_unreadable)?;
        target.skipped.extend(unreadable);
        return Ok(target);
    }
    let path = Path::new(what);
    if is_checkpoint(path) {
        return of_checkpoint(path);
    }
    let run = Runs::resolve(runs_dir, what).map_err(|error| match error {
        ReadError::NotARun { path } => ResumeError::Neither { path },
        error => error.into(),
    })?;
    of_run(&run, config, on_unreadable)
}

/// Whether this is a checkpoint. A run also has weights, but is none.
fn is_checkpoint(path: &Path) -> bool {
    let has = |file: &str| path.join(file).is_file();
    !has("run.json") && [WEIGHTS, "state.json", "manifest.json"].into_iter().any(has)
}

fn of_checkpoint(path: &Path) -> Result<ResumeTarget, ResumeError> {
    // A link such as `latest` may lead elsewhere later.
    let real = path.canonicalize().map_err(ReadError::unreadable(path))?;
    let run_dir = real.ancestors().skip(1).find(|above| above.join("run.json").is_file()).map(Path::to_owned);
    let lock = run_dir.clone().map(RunLock::acquire).transpose()?;
    Ok(ResumeTarget { run_dir, lock, checkpoint: Some(real), ..ResumeTarget::default() })
}

fn of_run(
    run: &Run,
    config: Option<ResumeConfig<'_>>,
    on_unreadable: OnUnreadable,
) -> Result<ResumeTarget, ResumeError> {
    let held = |holder| LockError::Held { run: run.name.clone(), holder: Box::new(holder) };
    lock::check_free(&run.directory).map_err(held)?;
    let run_dir = Some(run.directory.clone());
    if let Some(finished) = finished(run, config, true)? {
        return Ok(ResumeTarget { run_dir, finished: Some(finished), ..ResumeTarget::default() });
    }
    let mut lock = RunLock::acquire(&run.directory)?;
    // The run may have ended before it was locked.
    let run = &Run::read(&run.directory)?;
    let root = run.directory.join("checkpoints");
    let found =
        newest_whole(&root, on_unreadable).map_err(|error| ResumeError::newest(error, on_unreadable))?;
    let NewestCheckpoint { path: checkpoint, skipped, unreadable } = found;
    if on_unreadable == OnUnreadable::Skip {
        lock.skip_unreadable(unreadable);
    }
    let finished = finished(run, config, checkpoint.is_some())?;
    if checkpoint.is_none() && finished.is_none() && ended(run).is_some() {
        return Err(ResumeError::NoCheckpoint { run: run.name.clone(), directory: run.directory.clone() });
    }
    if checkpoint.is_none() && run.record.trained.is_some() && run.record.weights_to_test.is_none() {
        return Err(ResumeError::WeightsElsewhere { run: run.name.clone() });
    }
    // An interrupted test still needs the lock.
    let lock = Some(lock).filter(|_| finished.as_ref().is_none_or(|finished| finished.untested.is_some()));
    Ok(ResumeTarget { run_dir, lock, checkpoint, skipped, finished })
}

/// The final status of its training, also if the test after it was interrupted.
fn ended(run: &Run) -> Option<&RunStatus> {
    run.record.trained.as_ref().or(Some(&run.record.status)).filter(|status| status.is_finished())
}

/// Whether a limit was raised. A negative limit means none; times count as raised.
fn is_raised(difference: &ConfigChange) -> bool {
    let number = |value: &Option<Value>| value.as_ref().and_then(Value::as_i64);
    match (number(&difference.old), number(&difference.new)) {
        (Some(old), Some(new)) => old < 0 || new < 0 || new > old,
        _ => true,
    }
}

fn finished(
    run: &Run,
    config: Option<ResumeConfig<'_>>,
    has_checkpoint: bool,
) -> Result<Option<FinishedRun>, ReadError> {
    let record = &run.record;
    let Some(status) = ended(run).cloned() else { return Ok(None) };
    if record.trained.is_some() && has_checkpoint {
        return Ok(None);
    }
    let untested = record.trained.as_ref().and(record.weights_to_test.as_ref());
    let untested = untested.map(|weights| weights.below(&run.directory));
    if let Some((new, rules)) = config {
        let changed = rules.changes(&config_of(run)?, new);
        let is_limit = |difference: &ConfigChange| LIMITS.contains(&difference.key.as_str());
        if changed.iter().any(|difference| is_limit(difference) && is_raised(difference)) {
            return Ok(None);
        }
    }
    let (run, steps, epochs) = (run.name.clone(), record.steps, record.epochs);
    Ok(Some(FinishedRun { run, status, steps, epochs, untested }))
}

/// The configuration in the run directory, as JSON.
fn config_of(run: &Run) -> Result<Value, ReadError> {
    let config = serde_json::to_value(run.config()?);
    config.map_err(|error| ReadError::damaged(&run.directory.join("config.toml"), &error))
}

/// The training with a compatible configuration that was started last, and the runs that were skipped because they
/// cannot be read. Damaged runs are ignored.
///
/// # Errors
/// A run that may be newer cannot be read. With [`OnUnreadable::Skip`], only if no run is left.
fn newest_compatible(
    runs_dir: &Path,
    config: Option<ResumeConfig<'_>>,
    on_unreadable: OnUnreadable,
) -> Result<(Option<Run>, Skipped), ReadError> {
    let runs = match Runs::below(runs_dir) {
        Err(ReadError::NoDirectory { .. }) => return Ok((None, Vec::new())),
        read => read?,
    };
    let started = |run: &Run| {
        let last = run.record.parts.last().map(|part| part.started.clone());
        last.unwrap_or_else(|| run.record.created.clone())
    };
    let mut candidates: Vec<_> = runs.list().iter().map(|run| (started(run), run)).collect();
    // The sort is stable, so equal times keep the order of the list.
    candidates.sort_by(|a, b| a.0.cmp(&b.0));
    let newest_first = candidates.into_iter().rev().map(|(_, run)| Ok(run));
    let (mut skipped, mut unreadable) = (Vec::new(), None);
    // The start of an unreadable run is unknown, so it is tried first.
    for run in runs.damaged().cloned().map(Err).chain(newest_first) {
        match run.and_then(|run| Ok((run, is_training(run)? && is_compatible(run, config)?))) {
            Ok((run, true)) => return Ok((Some(run.clone()), skipped)),
            Err(ReadError::Unreadable { path, source }) => {
                let error = ReadError::Unreadable { path: path.clone(), source };
                if on_unreadable == OnUnreadable::Stop {
                    return Err(error);
                }
                skipped.push((path, error.to_string()));
                unreadable = unreadable.or(Some(error));
            }
            Ok((_, false)) | Err(_) => {}
        }
    }
    // An unreadable run may be compatible.
    unreadable.map_or(Ok((None, Vec::new())), Err)
}

fn is_compatible(run: &Run, config: Option<ResumeConfig<'_>>) -> Result<bool, ReadError> {
    let Some((config, rules)) = config else { return Ok(true) };
    let differences = rules.changes(&config_of(run)?, config);
    Ok(differences.iter().all(|difference| difference.impact != Impact::Harmful))
}

/// Whether the run is a training run. A run that was killed before its first journal entry counts as one.
fn is_training(run: &Run) -> Result<bool, ReadError> {
    let happened = run.event_log()?;
    let mut stages = happened.entries.iter().filter_map(|entry| match entry.what {
        JournalEvent::Start { stage, .. } => Some(stage),
        _ => None,
    });
    Ok(stages.next().is_none_or(|first| first == Stage::Fit))
}
