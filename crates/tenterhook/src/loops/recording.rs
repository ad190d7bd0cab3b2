//! What the loop records: metrics after each event, and the start, weights and end of a call.

use std::path::{Path, PathBuf};

use tenterhook_core::{Event, Failure, Origin, Outcome, Phase, Progress, Stage, Status};
use tenterhook_files::FilePosition;

use super::{Callee, Ending, Loop, LoopState};
use crate::checkpoint::{Best, Roots};
use crate::journal::{Journal, RunNotice};
use crate::module::Module;
use crate::run::{CallEnd, RunHeader, RunStart, SinkDeliveries, StartReport};

impl<M: Module> Loop<M> {
    /// Records the metrics that were logged since the last line, and delivers `on_log`. Called when all
    /// receivers have the event, so that its metrics are on one line.
    #[inline]
    pub(crate) fn record_metrics(&mut self, module: &mut M, logged_in: Phase) -> Result<(), Failure> {
        let is_wanted = self.journal.recording.is_some() || self.hooks.wants(Event::Log);
        if let Some((time, metrics, histograms)) = is_wanted
            .then(|| self.journal.record_line(&mut self.shared, &self.state.progress, logged_in))
            .flatten()
        {
            let progress = self.state.progress;
            let (epoch_end, metrics) = (progress.epochs_done > progress.epoch, &metrics);
            emit!(self, module, Log { logged_in, epoch_end, time, metrics, histograms: &histograms });
        }
        Ok(())
    }

    /// Records metrics and flushes the recorder.
    pub(crate) fn record_all_metrics(&mut self, module: &mut M, logged_in: Phase) -> Result<(), Failure> {
        let delivered = self.record_metrics(module, logged_in);
        self.journal.record(|recorder| recorder.flush());
        delivered
    }

    /// Creates the run directory, after all checks.
    pub(crate) fn begin_recording(
        &mut self,
        seed: u64,
        engine: Option<String>,
        resumed_from: Option<&Path>,
        file_positions: &[FilePosition],
    ) -> Result<(), Failure> {
        let time = self.shared.elapsed().as_secs_f64();
        let (stage, progress, hooks) = (self.state.stage, self.state.progress, self.hooks.list());
        let (run, identity) = (&self.shared.run, &self.journal.identity);
        let beginning = RunStart {
            stage,
            run,
            seed,
            identity,
            engine,
            hooks,
            resumed_from,
            file_positions,
            progress,
            time,
        };
        // Dry runs are not announced.
        let announces = self.journal.notices.announces_start
            && stage == Stage::Fit
            && !run.fast_dev_run
            && !run.rehearsal;
        let Some(recording) = &self.journal.recording else {
            let header = announces.then(|| RunHeader::new(&beginning));
            if self.checkpointer.kept {
                let continued = self.checkpointer.continue_numbering(&self.shared.run.checkpoints);
                call!(self, Trainer, "begin", continued)?;
            }
            if let Some(header) = header {
                self.note(RunNotice::Started(header));
            }
            if self.limits.trace_updates && self.state.stage == Stage::Fit {
                let text =
                    "`trace_updates` is on, but without a run directory there is nowhere to write them";
                self.note(RunNotice::Said { hook: Origin::TRAINER.into(), text: text.into() });
            }
            return Ok(());
        };
        let mut recorder = recording.recorder();
        let own = || announces.then(|| RunHeader::new(&beginning));
        let begun = recorder.begin(&beginning);
        let begun = begun.map(|begun| StartReport { header: begun.header.or_else(own), ..begun });
        drop(recorder);
        let begun = call!(self, Trainer, "begin", begun)?;
        self.shared.run.removed_checkpoints = begun.removed_checkpoints;
        if begun.earlier_part_ended {
            // Training had announced all its checkpoints before it ended.
            self.checkpointer.announcements.durable.clear();
        }
        if stage == Stage::Fit && !self.shared.run.fast_dev_run {
            self.take_over_checkpoints(&begun.unreadable_checkpoints)?;
        }
        if !begun.missing.is_empty() {
            self.note(RunNotice::WriteFailed(begun.missing.join("; ").into()));
        }
        if let Some(header) = begun.header.filter(|_| stage == Stage::Fit) {
            self.note(RunNotice::Started(header));
        }
        Ok(())
    }

    /// Prepares the directory of checkpoints, in which only this run saves from now on.
    fn take_over_checkpoints(&mut self, unreadable: &[PathBuf]) -> Result<(), Failure> {
        let roots = Roots::of(&self.shared.run, &self.hooks);
        let recorded = &self.shared.run.removed_checkpoints;
        let taken = self.checkpointer.take_over(&roots, unreadable, recorded);
        let (removals, aside) = call!(self, Trainer, "begin", taken)?;
        let Progress { step, epoch, .. } = self.state.progress;
        self.note_removed(step, epoch, removals);
        self.note_texts(aside);
        Ok(())
    }

    /// Records the weights at the end of training.
    pub(crate) fn record_weights(&mut self, module: &M) {
        if self.journal.recording.is_some() {
            self.enter(Callee::Module, "weights");
            let weights = module.weights();
            self.journal.record_result(|recorder| recorder.weights(&weights?));
        }
    }

    /// Records how the call ended. A call whose weights, metrics or outcome could not be written has failed.
    pub(crate) fn end_recording(&mut self) -> Result<(), Failure> {
        if self.journal.recording.is_none() {
            return Ok(());
        }
        self.journal.record_line(&mut self.shared, &self.state.progress, self.state.phase);
        self.journal.record_result(|recorder| recorder.flush());
        self.enter(Callee::Trainer, "end");
        check_missing(&self.journal, &mut self.ending, &mut self.state);
        let metrics = self.shared.metrics.to_map();
        let time = self.shared.elapsed().as_secs_f64();
        let (stage, progress, hooks) = (self.state.stage, self.state.progress, self.hooks.list());
        let (outcome, hook_costs, sinks) = (
            self.ending.outcome.clone(),
            self.accounts.hook_costs(&self.hooks, &*self.shared.clock),
            SinkDeliveries::all(&self.hooks),
        );
        let failures = std::mem::take(&mut self.journal.notices.failures);
        let identity = self.journal.identity.clone();
        let best = Best::of(&self.hooks, &self.shared.run.checkpoints).map(|best| best.path);
        let ending = CallEnd {
            stage,
            best,
            identity: &identity,
            outcome: &outcome,
            progress,
            metrics: &metrics,
            hooks,
            hook_costs,
            sinks,
            failures: &failures,
            time,
        };
        self.journal.record_result(|recorder| recorder.end(&ending));
        self.journal.notices.failures = failures;
        let missing = check_missing(&self.journal, &mut self.ending, &mut self.state);
        if let Some(recording) = &mut self.journal.recording {
            recording.end_call();
        }
        missing.map_or(Ok(()), |why| Err(self.failed(why.into(), false)))
    }

    /// Passes a notice to the journal.
    pub(crate) fn note(&mut self, notice: RunNotice) {
        self.journal.note(notice, &self.hooks, &self.shared, &self.state.progress);
    }

    /// After waiting for a loader: reports the end of a stall. Called once per batch, so it must be cheap.
    #[inline]
    pub(crate) fn after_wait(&mut self) {
        if let Some((warnings, end)) = self.loaders.watch.end_of_stall() {
            // The watch has recorded and shown them; hooks can only be called from this thread.
            for warning in &warnings {
                self.journal.queue_for_hooks(warning, true, &self.hooks);
            }
            self.note(end);
        }
    }
}

/// Changes the outcome to a failure if a result of the call could not be written, and returns the error.
fn check_missing(journal: &Journal, ending: &mut Ending, state: &mut LoopState) -> Option<String> {
    let why = journal.recording.as_ref()?.missing()?;
    if !matches!(ending.outcome, Outcome::Failed { .. } | Outcome::Interrupted { .. }) {
        (state.status, ending.outcome) = (Status::Error, Outcome::Failed { error: why.clone() });
    }
    Some(why)
}
