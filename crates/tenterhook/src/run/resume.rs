//! Finding what a training goes on from.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tenterhook_core::Stage;

use super::lock::{self, LockError, RunLock};
use super::reading::ReadError;
use super::{Happening, Run, RunStatus, Runs};
use crate::checkpoint::{Newest, OnUnreadable, Unreadable, WEIGHTS, newest_whole};
use crate::config::{ChangeRules, ConfigChange, Impact};

/// The word that lets the newest fitting run go on, or else begins a new one.
pub const AUTO: &str = "auto";

/// What says how long a run lasts: with another limit, a finished run may go on.
const LIMITS: [&str; 3] = ["trainer.max_epochs", "trainer.max_steps", "trainer.max_time"];

/// Checkpoints and runs that cannot be used, and why.
pub type Skipped = Vec<(PathBuf, String)>;

/// What a training goes on from.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Target {
    /// The directory of the run that goes on; `None` begins a new one.
    pub run_dir: Option<PathBuf>,
    /// Its lock, unless it has nothing left to do. What is found here holds as long as the lock does.
    pub lock: Option<RunLock>,
    /// The checkpoint to restore; without one, training begins from the start.
    pub checkpoint: Option<PathBuf>,
    /// Newer checkpoints that cannot be used, runs that cannot be read, and why.
    pub skipped: Skipped,
    /// The run has nothing left to do.
    pub finished: Option<Finished>,
}

/// A run that has nothing left to do.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Finished {
    /// The name of the run.
    pub run: String,
    /// How it ended.
    pub status: RunStatus,
    /// Completed optimizer steps.
    pub steps: u64,
    /// Epochs whose batches are done.
    pub epochs: u64,
    /// The weights to test of a run whose test was cut off and that has no checkpoint: the test is left to do.
    pub untested: Option<PathBuf>,
}

impl std::fmt::Display for Finished {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Finished { run, status, steps, epochs, untested } = self;
        let how = match status {
            RunStatus::Stopped { by, reason } => format!("was stopped by `{by}` ({reason})"),
            _ => "is completed".to_owned(),
        };
        write!(f, "run {run} {how} after {epochs} epochs and {steps} steps; ")?;
        match untested {
            None => f.write_str("to train on, raise `max_epochs`, `max_steps` or `max_time`"),
            Some(weights) => {
                write!(f, "its test was cut off; the weights to test are in {}", weights.display())
            }
        }
    }
}

/// Why nothing can be resumed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// The run cannot be found or read.
    #[error(transparent)]
    Run(#[from] ReadError),
    /// Somebody writes to the run, or it cannot be locked.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// Its checkpoints cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] Unreadable),
    /// What cannot be read may be the newest run or checkpoint.
    #[error("{0}; `--skip-unreadable` resumes from the newest one that can be read")]
    Newest(#[source] Box<ResumeError>),
    /// A path leads to something else.
    #[error("{} is neither a checkpoint nor a run; name one of both", path.display())]
    Neither {
        /// The path.
        path: PathBuf,
    },
    /// The run has ended without a checkpoint. To begin from the start would lose what it has come to.
    #[error(
        "run {run} has ended, and has no whole checkpoint to go on from; begin a new run with its weights: \
         `--init-from {}`",
        directory.display()
    )]
    NoCheckpoint {
        /// The name of the run.
        run: String,
        /// Its directory.
        directory: PathBuf,
    },
    /// Only the test is left to do, and its weights are elsewhere.
    #[error(
        "the test of run {run} was cut off, and its best weights are outside of its directory; test them with \
         `test --weights`"
    )]
    WeightsElsewhere {
        /// The name of the run.
        run: String,
    },
}

impl ResumeError {
    /// The same with the flag to get past it, where that is not given.
    fn newest(error: impl Into<ResumeError>, on_unreadable: OnUnreadable) -> ResumeError {
        match on_unreadable {
            OnUnreadable::Stop => ResumeError::Newest(Box::new(error.into())),
            OnUnreadable::Skip => error.into(),
        }
    }
}

/// A configuration, and what judges its differences from that of a run.
pub type ResumeConfig<'a> = (&'a Value, &'a ChangeRules);

/// Finds what is meant below a directory of runs:
///
/// - `auto`: the newest training whose configuration does no harm to this one, at its newest whole checkpoint; where
///   there is none, nothing, and a new run begins
/// - a path to a checkpoint, which goes on in the run that it lies in
/// - a path to a run, a run's id or the beginning or end of it, `latest`, `latest~1`: its newest whole checkpoint
///
/// `config` is the configuration to go on with, as [`Config::to_json`](crate::config::Config::to_json) makes it,
/// and what judges its differences; unset, it is the run's own. A run that somebody writes to is refused with who it is.
/// A checkpoint that cannot be read is an error unless `on_unreadable` skips it; for `auto`, so is a run.
pub fn find(
    runs_dir: &Path,
    what: &str,
    config: Option<ResumeConfig<'_>>,
    on_unreadable: OnUnreadable,
) -> Result<Target, ResumeError> {
    if what == AUTO {
        let (run, unreadable) = newest_fitting(runs_dir, config, on_unreadable)
            .map_err(|error| ResumeError::newest(error, on_unreadable))?;
        let Some(run) = run else { return Ok(Target::default()) };
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

/// A run has weights of its own, and is none.
fn is_checkpoint(path: &Path) -> bool {
    let has = |file: &str| path.join(file).is_file();
    !has("run.json") && [WEIGHTS, "state.json", "manifest.json"].into_iter().any(has)
}

fn of_checkpoint(path: &Path) -> Result<Target, ResumeError> {
    // A link, such as `latest`, would soon lead elsewhere.
    let real = path.canonicalize().map_err(ReadError::unreadable(path))?;
    let run_dir = real.ancestors().skip(1).find(|above| above.join("run.json").is_file()).map(Path::to_owned);
    let lock = run_dir.clone().map(RunLock::take).transpose()?;
    Ok(Target { run_dir, lock, checkpoint: Some(real), ..Target::default() })
}

fn of_run(
    run: &Run,
    config: Option<ResumeConfig<'_>>,
    on_unreadable: OnUnreadable,
) -> Result<Target, ResumeError> {
    let held = |holder| LockError::Held { run: run.name.clone(), holder: Box::new(holder) };
    lock::free(&run.directory).map_err(held)?;
    let run_dir = Some(run.directory.clone());
    if let Some(finished) = finished(run, config, true)? {
        return Ok(Target { run_dir, finished: Some(finished), ..Target::default() });
    }
    let mut lock = RunLock::take(&run.directory)?;
    // It may have ended between the reading and the locking.
    let run = &Run::read(&run.directory)?;
    let root = run.directory.join("checkpoints");
    let found =
        newest_whole(&root, on_unreadable).map_err(|error| ResumeError::newest(error, on_unreadable))?;
    let Newest { path: checkpoint, skipped, unreadable } = found;
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
    // A test that was cut off is left to do.
    let lock = Some(lock).filter(|_| finished.as_ref().is_none_or(|finished| finished.untested.is_some()));
    Ok(Target { run_dir, lock, checkpoint, skipped, finished })
}

/// How its training came to its own end, be it that the test after it did not.
fn ended(run: &Run) -> Option<&RunStatus> {
    run.record.trained.as_ref().or(Some(&run.record.status)).filter(|status| status.is_finished())
}

/// Whether a limit is further away than it was. A negative one is none; times are not compared.
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
    goes_on: bool,
) -> Result<Option<Finished>, ReadError> {
    let record = &run.record;
    let Some(status) = ended(run).cloned() else { return Ok(None) };
    if record.trained.is_some() && goes_on {
        return Ok(None);
    }
    let untested = record.trained.as_ref().and(record.weights_to_test.as_ref());
    let untested = untested.map(|weights| weights.below(&run.directory));
    if let Some((new, rules)) = config {
        let changed = rules.differences(&config_of(run)?, new);
        let is_limit = |difference: &ConfigChange| LIMITS.contains(&difference.key.as_str());
        if changed.iter().any(|difference| is_limit(difference) && is_raised(difference)) {
            return Ok(None);
        }
    }
    let (run, steps, epochs) = (run.name.clone(), record.steps, record.epochs);
    Ok(Some(Finished { run, status, steps, epochs, untested }))
}

/// The configuration that a run has left, as JSON.
fn config_of(run: &Run) -> Result<Value, ReadError> {
    let config = serde_json::to_value(run.config()?);
    config.map_err(|error| ReadError::damaged(&run.directory.join("config.toml"), &error))
}

/// The training that was started last, of those that could have been started with this configuration, and the runs that
/// were skipped because they cannot be read. Damaged runs are passed over.
///
/// # Errors
/// Where a run cannot be read that may be newer, unless it is skipped, and where none is left after skipping.
fn newest_fitting(
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
    // The order of the list decides among equals.
    candidates.sort_by(|a, b| a.0.cmp(&b.0));
    let newest_first = candidates.into_iter().rev().map(|(_, run)| Ok(run));
    let (mut skipped, mut unreadable) = (Vec::new(), None);
    // When a run was started that cannot be read is not known.
    for run in runs.damaged().cloned().map(Err).chain(newest_first) {
        match run.and_then(|run| Ok((run, is_training(run)? && goes_with(run, config)?))) {
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
    // That there is none is known only if all could be read.
    unreadable.map_or(Ok((None, Vec::new())), Err)
}

fn goes_with(run: &Run, config: Option<ResumeConfig<'_>>) -> Result<bool, ReadError> {
    let Some((config, rules)) = config else { return Ok(true) };
    let differences = rules.differences(&config_of(run)?, config);
    Ok(differences.iter().all(|difference| difference.impact != Impact::Harmful))
}

/// Not an evaluation by itself. One that was killed before it could write what it is has lost nothing.
fn is_training(run: &Run) -> Result<bool, ReadError> {
    let happened = run.happenings()?;
    let mut stages = happened.entries.iter().filter_map(|entry| match entry.what {
        Happening::Start { stage, .. } => Some(stage),
        _ => None,
    });
    Ok(stages.next().is_none_or(|first| first == Stage::Fit))
}
