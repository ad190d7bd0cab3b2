//! Saves checkpoints: when, under which name, and which old ones go.

mod best;
mod due;
mod filename;
mod ledger;
mod naming;
mod options;
mod reconciled;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenterhook_core::plan::TRAIN_LOSS;
use tenterhook_core::{
    Cadence, Controller, Decision, Effect, Exception, FromOptions, HookResult, HookSpec, OptionError, Phase,
    Policy, Request, RunContext, SAVES_CHECKPOINTS, SaveRequest, Tier, TrainBatchEnd, TrainEnd,
    TrainEpochEnd, TrainStart, ValidationEnd, hook,
};
use tenterhook_files::RelPath;

use crate::mode::Mode;
pub(crate) use best::PROVIDED;
pub use best::{BEST, BestCheckpoint};
use due::is_interrupted;
use ledger::Ledger;
use naming::{leave_names, take_name};
use options::Rhythm;
pub use options::{CheckpointOptions, Link, SaveLast};

/// Saves checkpoints: after all hooks and before the module, at `on_train_epoch_end` after the module.
///
/// - **Fires** at `on_train_batch_end`, `on_validation_end`, `on_train_epoch_end`, `on_train_end` and
///   `on_exception`; never in a dry run or a sanity check, and not while a signal ends the run: the trainer saves that
///   itself.
/// - **Reads** the metric it monitors, and those that `filename` names; writes checkpoints. A save whose
///   metric has no value of this very step yet waits for one, whatever the rhythm: no checkpoint is judged
///   by, or named after, the metric of other weights.
/// - **Names** that another run, or another hook, has taken stay as they are, and the new one becomes `…-v1`. A
///   resumed run takes the names that it would have taken, and overwrites what it saved before it was killed.
/// - **Cost**: a comparison per batch, and the saves.
/// - **When it fails** the run is aborted.
///
/// ```toml
/// [[hooks]]
/// use = "checkpoint"
/// auto_insert_metric_name = true
/// save_weights_only = false
/// save_on_exception = false
/// verbose = false
/// # mode: unset is what the name of `monitor` tells
/// # monitor, filename, dirpath, save_last, save_on_train_epoch_end: unset
/// # every_n_epochs: unset is 1; or every_n_train_steps or train_time_interval instead
/// # save_top_k: unset is all where every_n_epochs is set without a monitor, else 1
/// ```
#[derive(Clone, Debug)]
pub struct Checkpoint {
    options: CheckpointOptions,
    rhythm: Rhythm,
    mode: Mode,
    memory: Memory,
    /// The failed saves that it knows of. They are this process's, and no part of the state.
    unsaved: Vec<PathBuf>,
}

/// What a checkpoint keeps. Its paths are relative to the hook's directory, so that they mean nothing outside of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Memory {
    ledger: Ledger,
    last_step: u64,
    last_time_ns: u64,
    saved_any: bool,
    /// A save waits for the monitored metric.
    deferred: bool,
    /// The step that `last` is of, in this fit.
    #[serde(default)]
    last_is_of: Option<u64>,
    /// Where this run keeps its `last`.
    #[serde(default)]
    last: Option<RelPath>,
    /// A validation has run since training began, so a missing metric is an error.
    #[serde(default)]
    validated: bool,
    /// It was said that a metric of the name is missing.
    #[serde(default)]
    told_missing: bool,
    /// The names that others had taken when training began. What is on the disk later may be the run's own, from
    /// before it was killed.
    #[serde(default)]
    taken: Option<BTreeSet<RelPath>>,
    /// The metric that the scores are of.
    #[serde(default)]
    judged_by: Option<String>,
    /// Those that made way for the last few saves: they stay when it turns out that one could not be written.
    #[serde(default)]
    made_way: Vec<(RelPath, Ledger)>,
}

/// So many saves may be under way before it is known what has become of them.
const MADE_WAY: usize = 4;

impl FromOptions for Checkpoint {
    type Options = CheckpointOptions;
    const PURPOSE: &str = "saves checkpoints: the best, the last, or all of them";
    const EXAMPLE: &str = r#"
monitor = "val/loss"
mode = "min"
save_top_k = 3
save_last = true
filename = "epoch_{epoch}_loss_{val/loss:.2f}"
auto_insert_metric_name = false
"#;

    fn from_options(options: CheckpointOptions) -> Result<Checkpoint, OptionError> {
        Checkpoint::new(options)
    }
}

impl Checkpoint {
    /// With these options, which are checked.
    pub fn new(options: CheckpointOptions) -> Result<Checkpoint, OptionError> {
        let rhythm = options.check()?;
        let mode = options.direction()?;
        Ok(Checkpoint { options, rhythm, mode, memory: Memory::default(), unsaved: Vec::new() })
    }

    /// The best checkpoint that can be loaded, and its score where something is monitored. A relative path is below the
    /// checkpoints' root.
    #[must_use]
    pub fn best(&self) -> Option<(PathBuf, Option<f64>)> {
        let (path, score) = self.memory.ledger.best_there(self.mode)?;
        Some((self.at(path), score))
    }

    /// What it monitors.
    #[must_use]
    pub fn monitor(&self) -> Option<&str> {
        self.options.monitor.as_deref()
    }

    /// At the end of an epoch or of a validation.
    fn after_epoch(&mut self, run_cx: &RunContext<'_>) -> HookResult<Decision> {
        if self.wait_is_over(run_cx) {
            return self.now(run_cx);
        }
        let mut saves = Vec::new();
        if self.epoch_is_due(run_cx) {
            self.save_best(run_cx, &mut saves)?;
        }
        if matches!(self.rhythm, Rhythm::Epochs(_)) || self.memory.last_step == run_cx.step {
            self.save_last(run_cx, &mut saves)?;
        }
        Ok(requests(saves))
    }

    /// Whatever the rhythm: now.
    fn now(&mut self, run_cx: &RunContext<'_>) -> HookResult<Decision> {
        let mut saves = Vec::new();
        self.save_best(run_cx, &mut saves)?;
        self.save_last(run_cx, &mut saves)?;
        Ok(requests(saves))
    }

    fn save_best(&mut self, run_cx: &RunContext<'_>, saves: &mut Vec<SaveRequest>) -> HookResult {
        if self.options.keeps() == 0 {
            return Ok(());
        }
        let mut score = None;
        if let Some(monitor) = &self.options.monitor {
            score = run_cx.metrics().get(monitor);
            if score.is_none() && self.memory.validated {
                let known = run_cx.metrics().names().join("`, `");
                return Err(format!("metric `{monitor}` was not logged; there are: `{known}`").into());
            }
            if score.is_some() && self.awaits_metric(run_cx) {
                self.memory.deferred = true;
                return Ok(());
            }
            let keep = usize::try_from(self.options.keeps()).ok();
            if score.is_none_or(|score| !self.memory.ledger.takes(score, keep, self.mode)) {
                return Ok(());
            }
        }
        let keep = usize::try_from(self.options.keeps()).ok();
        self.memory.judged_by.clone_from(&self.options.monitor);
        let leaving = self.memory.ledger.make_room(keep, self.mode);
        let replaces = leaving.paths();
        let path = self.free_path(run_cx, &replaces)?;
        let replaces: Vec<_> = replaces.iter().map(|old| self.at(old)).collect();
        leave_names(run_cx, &replaces);
        self.memory.ledger.add(path.clone(), score);
        let is_best = self.memory.ledger.best(self.mode).is_some_and(|best| *best.0 == path);
        let best_score = score.filter(|_| is_best);
        self.memory.made_way.push((path.clone(), leaving));
        // Of older ones it has long been known whether they were written.
        let known = self.memory.made_way.len().saturating_sub(MADE_WAY);
        self.memory.made_way.drain(..known);
        self.publish_best(run_cx);
        let path = Some(self.at(&path));
        self.file(run_cx, SaveRequest { path, replaces, best_score, ..SaveRequest::default() }, saves);
        Ok(())
    }

    /// Keeps this moment as `last`: as a link where it is saved under another name, else as a checkpoint of its own.
    fn save_last(&mut self, run_cx: &RunContext<'_>, saves: &mut Vec<SaveRequest>) -> HookResult {
        if !self.options.save_last.is_on() || self.memory.last_is_of == Some(run_cx.step) {
            return Ok(());
        }
        self.memory.last_is_of = Some(run_cx.step);
        let path = self.last_path(run_cx)?;
        match saves.last_mut().filter(|_| matches!(self.options.save_last, SaveLast::Link(_))) {
            Some(same) => same.link = Some(path),
            None => self.file(run_cx, SaveRequest { path: Some(path), ..SaveRequest::default() }, saves),
        }
        Ok(())
    }

    fn file(&mut self, run_cx: &RunContext<'_>, save: SaveRequest, saves: &mut Vec<SaveRequest>) {
        self.memory.last_step = run_cx.step;
        self.memory.saved_any = true;
        if let Some(path) = &save.path {
            take_name(run_cx, path);
        }
        if self.options.verbose
            && let Some(path) = &save.path
        {
            run_cx.say(format!("saving {} at step {}", path.display(), run_cx.step));
        }
        saves.push(SaveRequest { weights_only: self.options.save_weights_only, ..save });
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn requests(saves: Vec<SaveRequest>) -> Decision {
    saves.into_iter().fold(Decision::CONTINUE, |decision, save| decision.request(Request::Save(save)))
}

#[hook(state = "memory")]
impl Controller for Checkpoint {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        let spec = spec.tier(Tier::Checkpoint).policy(Policy::ABORT);
        // The training loss is the trainer's, and reading it at every step for a name would cost too much.
        let named = filename::metrics(self.template()).into_iter().filter(|name| *name != TRAIN_LOSS);
        let spec = named.fold(spec, |spec, name| spec.reads_option("filename", name));
        let mut spec = self.options.monitor.iter().fold(spec, HookSpec::monitors);
        let keeps_best = self.options.keeps() != 0;
        if keeps_best && self.options.monitor.is_some() {
            spec = spec.provides(PROVIDED);
        }
        if keeps_best || self.options.save_last.is_on() || self.options.save_on_exception {
            spec = spec.provides(SAVES_CHECKPOINTS);
        }
        let outside = self.options.dirpath.as_deref().and_then(Effect::of_saving);
        let spec = outside.into_iter().fold(spec, HookSpec::effect);
        match self.rhythm {
            Rhythm::Epochs(n) => spec.every_option("every_n_epochs", Cadence::Epochs(n)),
            Rhythm::Steps(n) => spec.every_option("every_n_train_steps", Cadence::Steps(n)),
            Rhythm::Time(_) | Rhythm::Never => spec,
        }
    }

    fn on_train_start(&mut self, cx: &TrainStart) -> HookResult<Decision> {
        if cx.total_batches == 0 {
            // It begins here; a fit before this one counted steps of its own.
            (self.memory.last_step, self.memory.deferred, self.memory.last_is_of) = (0, false, None);
            (self.memory.validated, self.memory.taken) = (false, None);
            self.memory.last_time_ns = nanoseconds(cx.elapsed());
        } else {
            self.reconcile(cx)?;
        }
        self.note_names_of_others(cx)?;
        Ok(Decision::CONTINUE)
    }

    fn on_train_batch_end(&mut self, cx: &TrainBatchEnd) -> HookResult<Decision> {
        self.drop_unsaved(cx);
        if !self.batch_is_due(cx) || self.is_saved(cx) {
            return Ok(Decision::CONTINUE);
        }
        // A metric may be logged anew by the validation after this very batch.
        let fresher = self.options.monitor.is_some()
            && cx.batch.is_last
            && !self.saves_at_epoch_end(cx)
            && cx.run.validation.due_in(cx.epoch);
        self.memory.deferred = fresher || self.awaits_metric(cx);
        if self.memory.deferred { Ok(Decision::CONTINUE) } else { self.now(cx) }
    }

    fn on_validation_end(&mut self, cx: &ValidationEnd) -> HookResult<Decision> {
        self.memory.validated |= cx.phase != Phase::SanityCheck && !is_interrupted(cx);
        self.drop_unsaved(cx);
        if self.is_saved(cx) {
            return Ok(Decision::CONTINUE);
        }
        if self.saves_at_epoch_end(cx) {
            // Where the epoch ends with this step, a save that waits is made there.
            let waits = self.memory.deferred && !cx.run.validation.at_epoch_end;
            return if waits && self.wait_is_over(cx) { self.now(cx) } else { Ok(Decision::CONTINUE) };
        }
        self.after_epoch(cx)
    }

    fn on_train_epoch_end(&mut self, cx: &TrainEpochEnd) -> HookResult<Decision> {
        self.drop_unsaved(cx);
        if self.is_saved(cx) {
            return Ok(Decision::CONTINUE);
        }
        if self.saves_at_epoch_end(cx) {
            return self.after_epoch(cx);
        }
        // The best are judged after validations; the latest state is that of every epoch.
        let mut saves = Vec::new();
        if matches!(self.rhythm, Rhythm::Epochs(_)) {
            self.save_last(cx, &mut saves)?;
        }
        Ok(requests(saves))
    }

    fn on_train_end(&mut self, cx: &TrainEnd) -> HookResult<Decision> {
        self.drop_unsaved(cx);
        let mut saves = Vec::new();
        if !(is_interrupted(cx) || cx.run.fast_dev_run) {
            self.save_last(cx, &mut saves)?;
        }
        Ok(requests(saves))
    }

    fn on_exception(&mut self, cx: &Exception) -> HookResult<Decision> {
        self.drop_unsaved(cx);
        if !self.options.save_on_exception || self.is_saved(cx) {
            return Ok(Decision::CONTINUE);
        }
        let mut saves = Vec::new();
        let path = self.free_path(cx, &[])?;
        self.file(cx, SaveRequest { path: Some(self.at(&path)), ..SaveRequest::default() }, &mut saves);
        self.save_last(cx, &mut saves)?;
        Ok(requests(saves))
    }
}
