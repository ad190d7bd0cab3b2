//! Finding what a training goes on from.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tenterhook_core::Stage;

use super::lock::{self, RunLock};
use super::reading::ReadError;
use super::{Happening, Run, RunStatus, Runs};
use crate::checkpoint::{Newest, OnUnreadable, WEIGHTS, newest_whole};
use crate::config::{ChangeRules, Difference, Harm};

/// The word that lets the newest fitting run go on, or else begins a new one.
pub const AUTO: &str = "auto";

/// What says how long a run lasts: with another limit, a finished run may go on.
const LIMITS: [&str; 3] = ["trainer.max_epochs", "trainer.max_steps", "trainer.max_time"];

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
    /// Newer checkpoints that cannot be used, and why.
    pub skipped: Vec<(PathBuf, String)>,
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

/// A configuration, and what judges its differences from that of a run.
pub type Config<'a> = (&'a Value, &'a ChangeRules);

/// Finds what is meant below a directory of runs:
///
/// - `auto`: the newest training whose configuration does no harm to this one, at its newest whole checkpoint; where
///   there is none, nothing, and a new run begins
/// - a path to a checkpoint, which goes on in the run that it lies in
/// - a path to a run, a run's id or the beginning or end of it, `latest`, `latest~1`: its newest whole checkpoint
///
/// `config` is the configuration to go on with, as [`Resolved::to_json`](crate::config::Resolved::to_json) makes it,
/// and what judges its differences; unset, it is the run's own. A run that somebody writes to is refused with who it is.
/// A checkpoint that cannot be read is an error unless `on_unreadable` skips it.
pub fn find(
    runs_dir: &Path,
    what: &str,
    config: Option<Config<'_>>,
    on_unreadable: OnUnreadable,
) -> Result<Target, String> {
    if what == AUTO {
        let Some(run) = newest_fitting(runs_dir, config)? else { return Ok(Target::default()) };
        return of_run(&run, config, on_unreadable);
    }
    let path = Path::new(what);
    if is_checkpoint(path) {
        return of_checkpoint(path);
    }
    let run = Runs::resolve(runs_dir, what).map_err(|error| match error {
        ReadError::NotARun { path } => {
            format!("{} is neither a checkpoint nor a run; name one of both", path.display())
        }
        error => error.to_string(),
    })?;
    of_run(&run, config, on_unreadable)
}

/// A run has weights of its own, and is none.
fn is_checkpoint(path: &Path) -> bool {
    let has = |file: &str| path.join(file).is_file();
    !has("run.json") && [WEIGHTS, "state.json", "manifest.json"].into_iter().any(has)
}

fn of_checkpoint(path: &Path) -> Result<Target, String> {
    // A link, such as `latest`, would soon lead elsewhere.
    let real = path.canonicalize().map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let run_dir = real.ancestors().skip(1).find(|above| above.join("run.json").is_file()).map(Path::to_owned);
    let lock = run_dir.clone().map(RunLock::take).transpose().map_err(|error| error.to_string())?;
    Ok(Target { run_dir, lock, checkpoint: Some(real), ..Target::default() })
}

fn of_run(run: &Run, config: Option<Config<'_>>, on_unreadable: OnUnreadable) -> Result<Target, String> {
    lock::free(&run.directory).map_err(|holder| holder.refusal(&run.name))?;
    let run_dir = Some(run.directory.clone());
    if let Some(finished) = finished(run, config, true) {
        return Ok(Target { run_dir, finished: Some(finished), ..Target::default() });
    }
    let lock = RunLock::take(&run.directory).map_err(|error| error.to_string())?;
    // It may have ended between the reading and the locking.
    let run = &Run::read(&run.directory).map_err(|error| error.to_string())?;
    let root = run.directory.join("checkpoints");
    let found = newest_whole(&root, on_unreadable).map_err(|error| match on_unreadable {
        OnUnreadable::Stop => {
            format!("{error}; `--skip-unreadable` resumes from the newest one that can be read")
        }
        OnUnreadable::Skip => error.to_string(),
    })?;
    let Newest { path: checkpoint, skipped } = found;
    let finished = finished(run, config, checkpoint.is_some());
    // To begin from the start would lose what the run has come to.
    if checkpoint.is_none() && finished.is_none() && ended(run).is_some() {
        return Err(format!(
            "run {} has ended, and has no whole checkpoint to go on from; begin a new run with its weights: `--init-from {}`",
            run.name,
            run.directory.display()
        ));
    }
    if checkpoint.is_none() && run.record.trained.is_some() && run.record.weights_to_test.is_none() {
        return Err(format!(
            "the test of run {} was cut off, and its best weights are outside of its directory; test them with \
             `test --weights`",
            run.name
        ));
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
fn is_raised(difference: &Difference) -> bool {
    let number = |value: &Option<Value>| value.as_ref().and_then(Value::as_i64);
    match (number(&difference.old), number(&difference.new)) {
        (Some(old), Some(new)) => old < 0 || new < 0 || new > old,
        _ => true,
    }
}

fn finished(run: &Run, config: Option<Config<'_>>, goes_on: bool) -> Option<Finished> {
    let record = &run.record;
    let status = ended(run)?.clone();
    if record.trained.is_some() && goes_on {
        return None;
    }
    let untested = record.trained.as_ref().and(record.weights_to_test.as_ref());
    let untested = untested.map(|weights| weights.below(&run.directory));
    let old = config_of(run).unwrap_or_default();
    let other_limit = |(new, rules): Config<'_>| {
        let changed = rules.differences(&old, new);
        changed.iter().any(|difference| LIMITS.contains(&difference.key.as_str()) && is_raised(difference))
    };
    if config.is_some_and(other_limit) {
        return None;
    }
    let (run, steps, epochs) = (run.name.clone(), record.steps, record.epochs);
    Some(Finished { run, status, steps, epochs, untested })
}

/// The configuration that a run has left, as JSON.
fn config_of(run: &Run) -> Option<Value> {
    serde_json::to_value(run.config().ok()?).ok()
}

/// The training that was started last, of those that could have been started with this configuration.
fn newest_fitting(runs_dir: &Path, config: Option<Config<'_>>) -> Result<Option<Run>, String> {
    let runs = match Runs::below(runs_dir) {
        Err(ReadError::NoDirectory { .. }) => return Ok(None),
        read => read.map_err(|error| error.to_string())?,
    };
    let started = |run: &Run| {
        let last = run.record.parts.last().map(|part| part.started.clone());
        last.unwrap_or_else(|| run.record.created.clone())
    };
    let mut candidates: Vec<_> = runs.list().iter().map(|run| (started(run), run)).collect();
    // The order of the list decides among equals.
    candidates.sort_by(|a, b| a.0.cmp(&b.0));
    let fits = |run: &&Run| is_training(run) && config.is_none_or(|config| goes_with(run, config));
    Ok(candidates.into_iter().rev().map(|(_, run)| run).find(fits).cloned())
}

fn goes_with(run: &Run, (config, rules): Config<'_>) -> bool {
    let Some(old) = config_of(run) else { return false };
    rules.differences(&old, config).iter().all(|difference| difference.harm != Harm::Harmful)
}

/// Not an evaluation by itself. One that was killed before it could write what it is has lost nothing.
fn is_training(run: &Run) -> bool {
    let Ok(happened) = run.happenings() else { return false };
    let mut stages = happened.entries.iter().filter_map(|entry| match entry.what {
        Happening::Start { stage, .. } => Some(stage),
        _ => None,
    });
    stages.next().is_none_or(|first| first == Stage::Fit)
}
