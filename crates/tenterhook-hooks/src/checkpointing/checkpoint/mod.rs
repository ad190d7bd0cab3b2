//! Saves checkpoints: when, under which name, and which old ones are removed.

mod best;
mod filename;
mod naming;
mod options;
mod reconcile;
mod schedule;
#[cfg(test)]
mod tests;
mod top_k;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenterhook_core::plan::TRAIN_LOSS;
use tenterhook_core::{
    Cadence, Controller, Decision, Effect, Exception, HookResult, HookSpec, OptionError, Phase, Policy,
    Request, RunContext, SAVES_CHECKPOINTS, SaveRequest, Tier, TrainBatchEnd, TrainEnd, TrainEpochEnd,
    TrainStart, ValidationEnd, hook,
};
use tenterhook_files::RelPath;

use crate::support::from_options;
use crate::support::mode::Mode;
pub(crate) use best::PROVIDED;
pub use best::{BEST, BestCheckpoint};
use naming::{release_names, reserve_name};
use options::SaveInterval;
pub use options::{CheckpointOptions, Link, SaveLast};
use schedule::is_interrupted;
use top_k::TopK;

/// Saves checkpoints periodically, and keeps the best of them by a monitored metric.
///
/// - **Fires** at `on_train_batch_end`, `on_validation_end`, `on_train_epoch_end`, `on_train_end` and
///   `on_exception`, after all other hooks and before the module (at `on_train_epoch_end` after the module). Never in a
///   dry run or a sanity check, and not while a signal ends the run: the trainer saves that checkpoint itself.
/// - **Reads** the monitored metric and the metrics in `filename`; writes checkpoints. If the monitored metric has no value
///   for the current step, the save is deferred until it has one: a checkpoint is never scored by, or named after, a
///   metric of other weights.
/// - **Names** taken by another run or another hook are not overwritten; the new checkpoint becomes `…-v1`. A resumed run
///   chooses the same names as an uninterrupted one, and overwrites the checkpoints that it saved before it was killed.
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
/// # mode: unset is inferred from the name of `monitor`
/// # monitor, filename, dirpath, save_last, save_on_train_epoch_end: unset
/// # every_n_epochs: unset is 1; or every_n_train_steps or train_time_interval instead
/// # save_top_k: unset is all where every_n_epochs is set without a monitor, else 1
/// ```
#[derive(Clone, Debug)]
pub struct Checkpoint {
    options: CheckpointOptions,
    interval: SaveInterval,
    mode: Mode,
    state: SavedState,
    /// The failed saves handled so far. They belong to this process and are not saved.
    failed_saves: Vec<PathBuf>,
}

/// State saved in checkpoints. Paths are relative to the hook's directory, so that none can point outside of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct SavedState {
    top_k: TopK,
    last_step: u64,
    last_time_ns: u64,
    /// Whether a save waits for the monitored metric.
    deferred: bool,
    /// The step at which `last` was saved in this fit.
    last_saved_at: Option<u64>,
    /// The path of this run's `last`.
    last: Option<RelPath>,
    /// A validation has run since training began, so a missing metric is an error.
    validated: bool,
    /// A missing metric of `filename` was reported.
    missing_reported: bool,
    /// Names taken when training began. A checkpoint that appears later may be the run's own, from before it was killed.
    taken: Option<BTreeSet<RelPath>>,
    /// The metric of the scores.
    scored_by: Option<String>,
    /// The most recent saves, each with the checkpoints that it replaces, which are kept if the save fails.
    replaced: Vec<(RelPath, TopK)>,
}

/// How many saves may be pending before their outcome is known.
const MAX_UNCONFIRMED: usize = 4;

from_options! {
    Checkpoint from CheckpointOptions,
    purpose: "saves checkpoints: the best, the last, or all of them",
    example: r#"
monitor = "val/loss"
mode = "min"
save_top_k = 3
save_last = true
filename = "epoch_{epoch}_loss_{val/loss:.2f}"
auto_insert_metric_name = false
"#
}

impl Checkpoint {
    /// Creates the hook, or reports an invalid option.
    pub fn new(options: CheckpointOptions) -> Result<Checkpoint, OptionError> {
        let interval = options.check()?;
        let mode = options.direction()?;
        Ok(Checkpoint { options, interval, mode, state: SavedState::default(), failed_saves: Vec::new() })
    }

    /// The best checkpoint that can be loaded, and its score if a metric is monitored. A relative path is below the
    /// checkpoints' root.
    #[must_use]
    pub fn best(&self) -> Option<(PathBuf, Option<f64>)> {
        let (path, score) = self.state.top_k.best_on_disk(self.mode)?;
        Some((self.at(path), score))
    }

    /// The monitored metric.
    #[must_use]
    pub fn monitor(&self) -> Option<&str> {
        self.options.monitor.as_deref()
    }

    /// At the end of an epoch or of a validation.
    fn after_epoch(&mut self, run_cx: &RunContext<'_>) -> HookResult<Decision> {
        if self.take_deferred(run_cx) {
            return self.save_now(run_cx);
        }
        let mut saves = Vec::new();
        if self.epoch_is_due(run_cx) {
            self.save_best(run_cx, &mut saves)?;
        }
        if matches!(self.interval, SaveInterval::Epochs(_)) || self.state.last_step == run_cx.step {
            self.save_last(run_cx, &mut saves)?;
        }
        Ok(requests(saves))
    }

    /// Saves now, regardless of the interval.
    fn save_now(&mut self, run_cx: &RunContext<'_>) -> HookResult<Decision> {
        let mut saves = Vec::new();
        self.save_best(run_cx, &mut saves)?;
        self.save_last(run_cx, &mut saves)?;
        Ok(requests(saves))
    }

    fn save_best(&mut self, run_cx: &RunContext<'_>, saves: &mut Vec<SaveRequest>) -> HookResult {
        if self.options.top_k() == 0 {
            return Ok(());
        }
        let mut score = None;
        let keep = usize::try_from(self.options.top_k()).ok();
        if let Some(monitor) = &self.options.monitor {
            score = run_cx.metrics().get(monitor);
            if score.is_none() && self.state.validated {
                let known = run_cx.metrics().names().join("`, `");
                return Err(format!("metric `{monitor}` was not logged; logged metrics: `{known}`").into());
            }
            if score.is_some() && self.awaits_metric(run_cx) {
                self.state.deferred = true;
                return Ok(());
            }
            if score.is_none_or(|score| !self.state.top_k.accepts(score, keep, self.mode)) {
                return Ok(());
            }
        }
        self.state.scored_by.clone_from(&self.options.monitor);
        let leaving = self.state.top_k.make_room(keep, self.mode);
        let replaces = leaving.paths();
        let path = self.free_path(run_cx, &replaces)?;
        let replaces: Vec<_> = replaces.iter().map(|old| self.at(old)).collect();
        release_names(run_cx, &replaces);
        self.state.top_k.add(path.clone(), score);
        let is_best = self.state.top_k.best(self.mode).is_some_and(|best| *best.0 == path);
        let best_score = score.filter(|_| is_best);
        self.state.replaced.push((path.clone(), leaving));
        // The outcome of older saves is known.
        let known = self.state.replaced.len().saturating_sub(MAX_UNCONFIRMED);
        self.state.replaced.drain(..known);
        self.publish_best(run_cx);
        let path = Some(self.at(&path));
        self.request_save(
            run_cx,
            SaveRequest { path, replaces, best_score, ..SaveRequest::default() },
            saves,
        );
        Ok(())
    }

    /// Saves the current state as `last`: as a link if it is saved under another name too, else as its own checkpoint.
    fn save_last(&mut self, run_cx: &RunContext<'_>, saves: &mut Vec<SaveRequest>) -> HookResult {
        if !self.options.save_last.is_on() || self.state.last_saved_at == Some(run_cx.step) {
            return Ok(());
        }
        self.state.last_saved_at = Some(run_cx.step);
        let path = self.last_path(run_cx)?;
        match saves.last_mut().filter(|_| matches!(self.options.save_last, SaveLast::Link(_))) {
            Some(same) => same.link = Some(path),
            None => {
                self.request_save(run_cx, SaveRequest { path: Some(path), ..SaveRequest::default() }, saves);
            }
        }
        Ok(())
    }

    fn request_save(&mut self, run_cx: &RunContext<'_>, save: SaveRequest, saves: &mut Vec<SaveRequest>) {
        self.state.last_step = run_cx.step;
        if let Some(path) = &save.path {
            reserve_name(run_cx, path);
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

#[hook(state = "state", version = 2)]
impl Controller for Checkpoint {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        let spec = spec.tier(Tier::Checkpoint).policy(Policy::ABORT);
        // Declaring the training loss would make the trainer read it at every step.
        let named = filename::metrics(self.template()).into_iter().filter(|name| *name != TRAIN_LOSS);
        let spec = named.fold(spec, |spec, name| spec.reads_option("filename", name));
        let mut spec = self.options.monitor.iter().fold(spec, HookSpec::monitors);
        let keeps_best = self.options.top_k() != 0;
        if keeps_best && self.options.monitor.is_some() {
            spec = spec.provides(PROVIDED);
        }
        if keeps_best || self.options.save_last.is_on() || self.options.save_on_exception {
            spec = spec.provides(SAVES_CHECKPOINTS);
        }
        let outside = self.options.dirpath.as_deref().and_then(Effect::of_saving);
        let spec = outside.into_iter().fold(spec, HookSpec::effect);
        match self.interval {
            SaveInterval::Epochs(n) => spec.every_option("every_n_epochs", Cadence::Epochs(n)),
            SaveInterval::Steps(n) => spec.every_option("every_n_train_steps", Cadence::Steps(n)),
            SaveInterval::Time(_) | SaveInterval::Never => spec,
        }
    }

    fn on_train_start(&mut self, cx: &TrainStart) -> HookResult<Decision> {
        if cx.total_batches == 0 {
            // A new training: an earlier fit counted its own steps.
            (self.state.last_step, self.state.deferred, self.state.last_saved_at) = (0, false, None);
            (self.state.validated, self.state.taken) = (false, None);
            self.state.last_time_ns = nanoseconds(cx.elapsed());
        } else {
            self.reconcile(cx)?;
        }
        self.record_existing_names(cx)?;
        Ok(Decision::CONTINUE)
    }

    fn on_train_batch_end(&mut self, cx: &TrainBatchEnd) -> HookResult<Decision> {
        self.forget_failed_saves(cx);
        if !self.batch_is_due(cx) || self.nothing_to_save(cx) {
            return Ok(Decision::CONTINUE);
        }
        // The validation after this batch may log a newer value.
        let fresher = self.options.monitor.is_some()
            && cx.batch.is_last
            && !self.saves_at_epoch_end(cx)
            && cx.run.validation.due_in(cx.epoch);
        self.state.deferred = fresher || self.awaits_metric(cx);
        if self.state.deferred { Ok(Decision::CONTINUE) } else { self.save_now(cx) }
    }

    fn on_validation_end(&mut self, cx: &ValidationEnd) -> HookResult<Decision> {
        self.state.validated |= cx.phase != Phase::SanityCheck && !is_interrupted(cx);
        self.forget_failed_saves(cx);
        if self.nothing_to_save(cx) {
            return Ok(Decision::CONTINUE);
        }
        if self.saves_at_epoch_end(cx) {
            // If the epoch ends with this step, the deferred save happens there.
            let waits = self.state.deferred && !cx.run.validation.at_epoch_end;
            return if waits && self.take_deferred(cx) { self.save_now(cx) } else { Ok(Decision::CONTINUE) };
        }
        self.after_epoch(cx)
    }

    fn on_train_epoch_end(&mut self, cx: &TrainEpochEnd) -> HookResult<Decision> {
        self.forget_failed_saves(cx);
        if self.nothing_to_save(cx) {
            return Ok(Decision::CONTINUE);
        }
        if self.saves_at_epoch_end(cx) {
            return self.after_epoch(cx);
        }
        // The best are chosen after validations; `last` is saved every epoch.
        let mut saves = Vec::new();
        if matches!(self.interval, SaveInterval::Epochs(_)) {
            self.save_last(cx, &mut saves)?;
        }
        Ok(requests(saves))
    }

    fn on_train_end(&mut self, cx: &TrainEnd) -> HookResult<Decision> {
        self.forget_failed_saves(cx);
        let mut saves = Vec::new();
        if !(is_interrupted(cx) || cx.run.fast_dev_run) {
            self.save_last(cx, &mut saves)?;
        }
        Ok(requests(saves))
    }

    fn on_exception(&mut self, cx: &Exception) -> HookResult<Decision> {
        self.forget_failed_saves(cx);
        if !self.options.save_on_exception || self.nothing_to_save(cx) {
            return Ok(Decision::CONTINUE);
        }
        let mut saves = Vec::new();
        let path = self.free_path(cx, &[])?;
        self.request_save(
            cx,
            SaveRequest { path: Some(self.at(&path)), ..SaveRequest::default() },
            &mut saves,
        );
        self.save_last(cx, &mut saves)?;
        Ok(requests(saves))
    }
}
