//! How the loop writes down what happens: one branch where nothing is written.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenterhook_core::{Event, Failure, Histogram, Outcome, Phase, Progress, Stage, Status};

use tenterhook_files::FilePosition;

use crate::checkpoint::Best;
use crate::journal::{RunNotice, Then, UnreadNotice};
use crate::loops::{Loop, Who};
use crate::module::Module;
use crate::run::{
    CallEnd, HistogramLine, JournalEntry, JournalEvent, MetricsLine, Recorder, RunHeader, RunStart,
    StartReport,
};

/// A recorder, shared with the thread that watches for stalls.
pub(crate) type SharedRecorder = Arc<Mutex<Box<dyn Recorder>>>;

/// What was logged: its time, numbers, and histograms.
type Logged = (f64, BTreeMap<String, f64>, BTreeMap<String, Histogram>);

/// A recorder, and whether people have been told that it failed.
pub(crate) struct Recording {
    shared: SharedRecorder,
    /// What was told.
    told: Option<String>,
    /// What the call should leave behind and could not write.
    missing: Vec<String>,
    /// How many lines had been lost before the call.
    lost_before: u64,
}

impl Recording {
    pub(crate) fn new(recorder: Box<dyn Recorder>) -> Recording {
        Recording { shared: Arc::new(Mutex::new(recorder)), told: None, missing: Vec::new(), lost_before: 0 }
    }

    /// The recorder. What was written before somebody panicked with it is whole.
    pub(crate) fn recorder(&self) -> MutexGuard<'_, Box<dyn Recorder>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: Module> Loop<M> {
    /// Writes down what was logged since the last line. Everybody has received the event by now, so what
    /// hooks and module logged in it stands on the same line.
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

    /// Writes down what was logged since the last line, and returns it. Both files get the same time, by which readers
    /// join their lines.
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

    /// Writes down what update hooks did, where that is wanted.
    pub(crate) fn record_updates(&mut self) {
        let touched = self.hooks.take_traced();
        if !touched.is_empty() {
            let time = self.shared.elapsed().as_secs_f64();
            self.record(|recorder| recorder.updates(&touched, time));
        }
    }

    /// The same at a moment at which nothing should be held back.
    pub(crate) fn record_all_metrics(&mut self, module: &mut M, of: Phase) -> Result<(), Failure> {
        let told = self.record_metrics(module, of);
        self.record(|recorder| recorder.flush());
        told
    }

    /// Tells people, and writes it down.
    pub(crate) fn note(&mut self, mut notice: RunNotice) {
        let told = self.journal.notices.is_told(&mut notice);
        if self.hooks.wants(Event::Notice) && !self.journal.held && !self.ending.closing {
            self.journal.unread.push(UnreadNotice::new(&notice, told));
        }
        if self.journal.recording.is_some() {
            self.record_event(JournalEvent::from(&notice));
        }
        self.journal.notices.push(notice, told);
    }

    /// Writes down what ends the run, or came while it was ending. Whoever called the trainer tells people.
    pub(crate) fn note_failure(&mut self, failure: &Failure, then: Then) {
        self.journal.notices.failures.count(failure, then);
        if self.journal.recording.is_some() {
            self.record_event_at(failure.step, failure.epoch, JournalEvent::failed(failure, 1, then));
        }
    }

    /// Begins to watch for loaders that keep the loop waiting: those of an evaluation, or those that it trains with.
    pub(crate) fn watch_loaders(&mut self, evaluates: bool) {
        self.loaders.watch.desk.at(&self.state.progress, evaluates);
        let elapsed = self.shared.elapsed();
        let recorder = self.journal.recording.as_ref().map(|recording| &recording.shared);
        self.loaders.watch.begin(&self.journal.notices.readers, recorder, elapsed);
    }

    /// A loader has been waited for. Asked once per batch, so it must be cheap.
    #[inline]
    pub(crate) fn waited(&mut self) {
        if let Some(notice) = self.loaders.watch.goes_on() {
            self.note(notice);
        }
    }

    pub(crate) fn record_event(&mut self, what: JournalEvent) {
        let Progress { step, epoch, .. } = self.state.progress;
        self.record_event_at(step, epoch, what);
    }

    /// Writes down what happened to something of an earlier step.
    pub(crate) fn record_event_at(&mut self, step: u64, epoch: u64, what: JournalEvent) {
        let time = self.shared.elapsed().as_secs_f64();
        self.record(|recorder| recorder.event(JournalEntry { step, epoch, time, what }));
    }

    /// What cannot be written while the run is under way is told once and does not end it; [`Loop::end_recording`]
    /// makes it an error.
    pub(crate) fn record(
        &mut self,
        write: impl FnOnce(&mut dyn Recorder) -> Result<(), tenterhook_core::BoxError>,
    ) {
        let Some(recording) = &mut self.journal.recording else { return };
        let written = write(&mut **recording.recorder());
        if let Some(error) = written.err().filter(|_| recording.told.is_none()) {
            recording.told = Some(error.to_string());
            self.journal.notices.push(RunNotice::Unwritten(error), true);
        }
    }

    /// Everything was accepted: now there may be traces of the run.
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
        // Dry runs and rehearsals are no runs that anybody looks for later.
        let introduces =
            self.journal.notices.introduces && stage == Stage::Fit && !run.fast_dev_run && !run.rehearsal;
        let Some(recording) = &self.journal.recording else {
            let header = introduces.then(|| RunHeader::new(&beginning));
            if self.checkpointer.kept {
                self.continue_numbering()?;
            }
            if let Some(header) = header {
                self.note(RunNotice::Began(header));
            }
            if self.limits.trace_updates && self.state.stage == Stage::Fit {
                let text =
                    "`trace_updates` is on, but without a run directory there is nowhere to write them";
                self.note(RunNotice::Said { hook: "trainer".into(), text: text.into() });
            }
            return Ok(());
        };
        let mut recorder = recording.recorder();
        let own = || introduces.then(|| RunHeader::new(&beginning));
        let begun = recorder.begin(&beginning);
        let begun = begun.map(|begun| StartReport { header: begun.header.or_else(own), ..begun });
        drop(recorder);
        self.at(Who::Trainer, "begin");
        let begun = self.checked(begun)?;
        self.shared.run.removed_checkpoints = begun.removed_checkpoints;
        if begun.earlier_part_ended {
            // Training announces everything before it ends.
            self.checkpointer.announcements.durable.clear();
        }
        if stage == Stage::Fit {
            self.take_over_checkpoints(&begun.unreadable_checkpoints)?;
        }
        if !begun.missing.is_empty() {
            self.note(RunNotice::Unwritten(begun.missing.join("; ").into()));
        }
        if let Some(header) = begun.header.filter(|_| stage == Stage::Fit) {
            self.note(RunNotice::Began(header));
        }
        Ok(())
    }

    /// The weights as training leaves them.
    pub(crate) fn record_weights(&mut self, module: &M) {
        if self.journal.recording.is_some() {
            self.at(Who::Module, "weights");
            let weights = module.weights();
            self.record_lasting(|recorder| recorder.weights(&weights?));
        }
    }

    /// Writes something that the call must leave behind.
    fn record_lasting(
        &mut self,
        write: impl FnOnce(&mut dyn Recorder) -> Result<(), tenterhook_core::BoxError>,
    ) {
        let Some(recording) = &mut self.journal.recording else { return };
        let written = write(&mut **recording.recorder());
        recording.missing.extend(written.err().map(|error| error.to_string()));
    }

    /// Writes down how the call ended. A call whose weights, metrics or outcome are not on the disk has failed, however
    /// well the training went.
    pub(crate) fn end_recording(&mut self) -> Result<(), Failure> {
        if self.journal.recording.is_none() {
            return Ok(());
        }
        self.record_line(self.state.phase);
        self.record_lasting(|recorder| recorder.flush());
        self.at(Who::Trainer, "end");
        self.judge_missing();
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
        self.record_lasting(|recorder| recorder.end(&ending));
        self.journal.notices.failures = failures;
        let missing = self.judge_missing();
        if let Some(recording) = &mut self.journal.recording {
            recording.missing.clear();
            let lost = recording.recorder().lost();
            recording.lost_before = lost;
        }
        missing.map_or(Ok(()), |why| Err(self.failed(why.into(), false)))
    }

    /// What the call should have left behind and could not write. Where something is missing, the outcome is a failure.
    fn judge_missing(&mut self) -> Option<String> {
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
            let first = recording.told.as_deref().unwrap_or("the reason is not known");
            missing.push(format!("{lost} lines of metrics and events are lost ({first})"));
        }
        missing.dedup();
        (!missing.is_empty())
            .then(|| format!("what the run should leave is not on the disk: {}", missing.join("; ")))
    }

    /// Whether the run was asked to end by a signal. Asked once per batch, so it must be cheap.
    #[inline]
    pub(crate) fn is_interrupted(&mut self) -> bool {
        // On several ranks all of them heed it where they agree.
        if self.ranks.several {
            return self.is_any_interrupted();
        }
        if self.ending.interrupt.is_requested() {
            self.heed_interruption();
            return true;
        }
        false
    }

    fn is_any_interrupted(&mut self) -> bool {
        let signal = self.ranks.signal.clone();
        if let Some(signal) = signal {
            self.heed_signal(signal);
        }
        self.ending.signal.is_some()
    }

    #[cold]
    fn heed_interruption(&mut self) {
        self.heed_signal(self.ending.interrupt.signal());
    }

    pub(crate) fn heed_signal(&mut self, signal: String) {
        if self.ending.signal.is_none() {
            self.ending.signal = Some(signal.clone());
            self.checkpointer.emergency.hurry.store(true, Ordering::Relaxed);
            self.state.status = Status::Interrupted;
            self.note(RunNotice::Interrupted { signal });
        }
    }

    /// How the run has ended, as far as it was not a failure.
    pub(crate) fn note_outcome(&mut self) {
        let interrupted = self.ending.signal.clone().map(|signal| Outcome::Interrupted { signal });
        let stopped = self.flow.stop.clone().filter(|_| self.may_stop());
        let stopped = stopped.map(|(by, reason)| Outcome::Stopped { by, reason });
        self.ending.outcome = interrupted.or(stopped).unwrap_or_default();
        self.state.status = match self.ending.outcome {
            Outcome::Interrupted { .. } => Status::Interrupted,
            _ => Status::Completed,
        };
    }
}
