//! Recording: how the loop passes metrics, events and weights to the recorder.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenterhook_core::{BoxError, Event, Failure, Histogram, Origin, Outcome, Phase, Progress, Stage, Status};

use tenterhook_files::FilePosition;

use crate::checkpoint::Best;
use crate::journal::{Consequence, PendingNotice, RunNotice};
use crate::loops::{Callee, Loop};
use crate::module::Module;
use crate::run::{
    CallEnd, HistogramLine, JournalEntry, JournalEvent, MetricsLine, Recorder, RunHeader, RunStart,
    StartReport,
};

/// A recorder, shared with the thread that watches for stalls.
pub(crate) type SharedRecorder = Arc<Mutex<Box<dyn Recorder>>>;

/// A line of metrics: its time, the numbers and the histograms.
type Logged = (f64, BTreeMap<String, f64>, BTreeMap<String, Histogram>);

/// A recorder and its write errors.
pub(crate) struct Recording {
    shared: SharedRecorder,
    /// The first error, which was reported.
    first_error: Option<String>,
    /// Results of the call that could not be written.
    missing: Vec<String>,
    /// The number of lines lost before the call.
    lost_before: u64,
}

impl Recording {
    pub(crate) fn new(recorder: Box<dyn Recorder>) -> Recording {
        let shared = Arc::new(Mutex::new(recorder));
        Recording { shared, first_error: None, missing: Vec::new(), lost_before: 0 }
    }

    /// The recorder. It stays usable after a panic while it was locked, because lines are written whole.
    pub(crate) fn recorder(&self) -> MutexGuard<'_, Box<dyn Recorder>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: Module> Loop<M> {
    /// Records the metrics that were logged since the last line, and delivers `on_log`. Called when all
    /// receivers have the event, so that its metrics are on one line.
    #[inline]
    pub(crate) fn record_metrics(&mut self, module: &mut M, of: Phase) -> Result<(), Failure> {
        let is_wanted = self.journal.recording.is_some() || self.hooks.wants(Event::Log);
        if let Some((time, metrics, histograms)) = is_wanted.then(|| self.record_line(of)).flatten() {
            let progress = self.state.progress;
            let (epoch_end, metrics) = (progress.epochs_done > progress.epoch, &metrics);
            emit!(self, module, Log { of, epoch_end, time, metrics, histograms: &histograms });
        }
        Ok(())
    }

    /// Records the metrics and histograms that were logged since the last line, and returns them. Both lines
    /// have the same time, by which readers join them.
    fn record_line(&mut self, stage: Phase) -> Option<Logged> {
        let metrics = self.shared.metrics.take_changes();
        let has_histograms = self.shared.metrics.has_histograms();
        if metrics.is_none() && !has_histograms {
            return None;
        }
        let Progress { step, epoch, epochs_done, .. } = self.state.progress;
        let (time, epoch_end) = (self.shared.elapsed().as_secs_f64(), epochs_done > epoch);
        if let Some(metrics) = &metrics {
            self.record(|recorder| {
                recorder.metrics(&MetricsLine { step, epoch, epoch_end, stage, time, metrics })
            });
        }
        let mut histograms = BTreeMap::new();
        if has_histograms {
            histograms = self.shared.metrics.take_histograms();
            let line = HistogramLine { step, epoch, stage, time, histograms: &histograms };
            self.record(|recorder| recorder.histograms(&line));
        }
        Some((time, metrics.unwrap_or_default(), histograms))
    }

    /// Records which update hooks changed which gradients (`trace_updates`).
    pub(crate) fn record_updates(&mut self) {
        let touched = self.hooks.take_gradient_changes();
        if !touched.is_empty() {
            let time = self.shared.elapsed().as_secs_f64();
            self.record(|recorder| recorder.updates(&touched, time));
        }
    }

    /// Records metrics and flushes the recorder.
    pub(crate) fn record_all_metrics(&mut self, module: &mut M, of: Phase) -> Result<(), Failure> {
        let delivered = self.record_metrics(module, of);
        self.record(|recorder| recorder.flush());
        delivered
    }

    /// Passes a notice to the recorder, to the readers and, with the next event, to hooks.
    pub(crate) fn note(&mut self, mut notice: RunNotice) {
        let shown = self.journal.notices.is_shown(&mut notice);
        self.pass_on(notice, shown, shown);
    }

    /// Passes a notice on that another thread has shown to the readers.
    pub(crate) fn note_shown(&mut self, notice: RunNotice) {
        self.pass_on(notice, true, false);
    }

    fn pass_on(&mut self, notice: RunNotice, shown: bool, tell: bool) {
        self.queue_for_hooks(&notice, shown);
        if self.journal.recording.is_some() {
            self.record_event(JournalEvent::from(&notice));
        }
        self.journal.notices.push(notice, tell);
    }

    /// Hooks receive the notice with the next event.
    fn queue_for_hooks(&mut self, notice: &RunNotice, shown: bool) {
        if self.hooks.wants(Event::Notice) && !self.journal.held && !self.ending.closing {
            self.journal.pending.push(PendingNotice::new(notice, shown));
        }
    }

    /// Records a failure that ends the run, or that follows it. It is no notice, because the call returns it.
    pub(crate) fn note_failure(&mut self, failure: &Failure, then: Consequence) {
        self.journal.notices.failures.count(failure, then);
        if self.journal.recording.is_some() {
            self.record_event_at(failure.step, failure.epoch, JournalEvent::failed(failure, 1, then));
        }
    }

    /// Starts watching for stalls of the training or evaluation loaders.
    pub(crate) fn watch_loaders(&mut self, evaluates: bool) {
        self.loaders.watch.wait.set_position(&self.state.progress, evaluates);
        let elapsed = self.shared.elapsed();
        let recorder = self.journal.recording.as_ref().map(|recording| &recording.shared);
        self.loaders.watch.begin(&self.journal.notices.readers, recorder, elapsed);
    }

    /// After waiting for a loader: reports the end of a stall. Called once per batch, so it must be cheap.
    #[inline]
    pub(crate) fn after_wait(&mut self) {
        if let Some((warnings, end)) = self.loaders.watch.end_of_stall() {
            // The watch has recorded and shown them; hooks can only be called from this thread.
            for warning in &warnings {
                self.queue_for_hooks(warning, true);
            }
            self.note(end);
        }
    }

    pub(crate) fn record_event(&mut self, what: JournalEvent) {
        let Progress { step, epoch, .. } = self.state.progress;
        self.record_event_at(step, epoch, what);
    }

    /// Records an event of an earlier step.
    pub(crate) fn record_event_at(&mut self, step: u64, epoch: u64, what: JournalEvent) {
        let time = self.shared.elapsed().as_secs_f64();
        self.record(|recorder| recorder.event(JournalEntry { step, epoch, time, what }));
    }

    /// Calls the recorder. An error during the run is reported once and does not end it;
    /// [`Loop::end_recording`] makes it a failure.
    pub(crate) fn record(&mut self, write: impl FnOnce(&mut dyn Recorder) -> Result<(), BoxError>) {
        let Some(recording) = &mut self.journal.recording else { return };
        let written = write(&mut **recording.recorder());
        if let Some(error) = written.err().filter(|_| recording.first_error.is_none()) {
            recording.first_error = Some(error.to_string());
            let notice = RunNotice::WriteFailed(error);
            self.queue_for_hooks(&notice, true);
            self.journal.notices.push(notice, true);
        }
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
                self.continue_numbering()?;
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
        if stage == Stage::Fit {
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

    /// Records the weights at the end of training.
    pub(crate) fn record_weights(&mut self, module: &M) {
        if self.journal.recording.is_some() {
            self.enter(Callee::Module, "weights");
            let weights = module.weights();
            self.record_result(|recorder| recorder.weights(&weights?));
        }
    }

    /// Calls the recorder for a result of the call. An error makes the call fail at its end.
    fn record_result(&mut self, write: impl FnOnce(&mut dyn Recorder) -> Result<(), BoxError>) {
        let Some(recording) = &mut self.journal.recording else { return };
        let written = write(&mut **recording.recorder());
        recording.missing.extend(written.err().map(|error| error.to_string()));
    }

    /// Records how the call ended. A call whose weights, metrics or outcome could not be written has failed.
    pub(crate) fn end_recording(&mut self) -> Result<(), Failure> {
        if self.journal.recording.is_none() {
            return Ok(());
        }
        self.record_line(self.state.phase);
        self.record_result(|recorder| recorder.flush());
        self.enter(Callee::Trainer, "end");
        self.check_missing();
        let metrics = self.shared.metrics.to_map();
        let time = self.shared.elapsed().as_secs_f64();
        let (stage, progress, hooks) = (self.state.stage, self.state.progress, self.hooks.list());
        let (outcome, hook_costs, sinks) = (self.ending.outcome.clone(), self.hook_costs(), self.sinks());
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
        self.record_result(|recorder| recorder.end(&ending));
        self.journal.notices.failures = failures;
        let missing = self.check_missing();
        if let Some(recording) = &mut self.journal.recording {
            recording.missing.clear();
            let lost = recording.recorder().lost();
            recording.lost_before = lost;
        }
        missing.map_or(Ok(()), |why| Err(self.failed(why.into(), false)))
    }

    /// Changes the outcome to a failure if a result of the call could not be written, and returns the error.
    fn check_missing(&mut self) -> Option<String> {
        let why = self.missing()?;
        if !matches!(self.ending.outcome, Outcome::Failed { .. } | Outcome::Interrupted { .. }) {
            (self.state.status, self.ending.outcome) =
                (Status::Error, Outcome::Failed { error: why.clone() });
        }
        Some(why)
    }

    fn missing(&self) -> Option<String> {
        let recording = self.journal.recording.as_ref()?;
        let mut missing = recording.missing.clone();
        let lost = recording.recorder().lost().saturating_sub(recording.lost_before);
        if lost > 0 {
            let first = recording.first_error.as_deref().unwrap_or("the reason is not known");
            missing.push(format!("{lost} lines of metrics and events are lost ({first})"));
        }
        missing.dedup();
        (!missing.is_empty())
            .then(|| format!("results of the run could not be written: {}", missing.join("; ")))
    }
}
