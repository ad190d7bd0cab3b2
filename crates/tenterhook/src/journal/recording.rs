//! Recording: how the journal passes metrics, events and results to the recorder.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenterhook_core::{
    BoxError, Event, FINDS_NAN, Failure, Histogram, HookDecision, HookRunner, Origin, Phase, Progress,
    Request, RosterChange, RosterRequest, RunState, Status, Tier,
};

use crate::journal::{Consequence, Journal, PendingNotice, RunNotice};
use crate::run::{HistogramLine, JournalEntry, JournalEvent, MetricsLine, Recorder};

/// A recorder, shared with the thread that watches for stalls.
pub(crate) type SharedRecorder = Arc<Mutex<Box<dyn Recorder>>>;

/// A line of metrics: its time, the numbers and the histograms.
pub(crate) type Logged = (f64, BTreeMap<String, f64>, BTreeMap<String, Histogram>);

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

    /// What could not be written in this call.
    pub(crate) fn missing(&self) -> Option<String> {
        let mut missing = self.missing.clone();
        let lost = self.recorder().lost().saturating_sub(self.lost_before);
        if lost > 0 {
            let first = self.first_error.as_deref().unwrap_or("the reason is not known");
            missing.push(format!("{lost} lines of metrics and events are lost ({first})"));
        }
        missing.dedup();
        (!missing.is_empty())
            .then(|| format!("results of the run could not be written: {}", missing.join("; ")))
    }

    /// Ends the call: what is missing now does not count for the next one.
    pub(crate) fn end_call(&mut self) {
        self.missing.clear();
        let lost = self.recorder().lost();
        self.lost_before = lost;
    }
}

impl Journal {
    /// Records the metrics and histograms that were logged since the last line, and returns them. Both lines
    /// have the same time, by which readers join them.
    pub(crate) fn record_line(
        &mut self,
        shared: &mut RunState,
        progress: &Progress,
        stage: Phase,
    ) -> Option<Logged> {
        let metrics = shared.metrics.take_changes();
        let has_histograms = shared.metrics.has_histograms();
        if metrics.is_none() && !has_histograms {
            return None;
        }
        let Progress { step, epoch, epochs_done, .. } = *progress;
        let (time, epoch_end) = (shared.elapsed().as_secs_f64(), epochs_done > epoch);
        if let Some(metrics) = &metrics {
            self.record(|recorder| {
                recorder.metrics(&MetricsLine { step, epoch, epoch_end, stage, time, metrics })
            });
        }
        let mut histograms = BTreeMap::new();
        if has_histograms {
            histograms = shared.metrics.take_histograms();
            let line = HistogramLine { step, epoch, stage, time, histograms: &histograms };
            self.record(|recorder| recorder.histograms(&line));
        }
        Some((time, metrics.unwrap_or_default(), histograms))
    }

    /// Records which update hooks changed which gradients (`trace_updates`).
    pub(crate) fn record_updates(&mut self, hooks: &mut HookRunner, shared: &RunState) {
        let touched = hooks.take_gradient_changes();
        if !touched.is_empty() {
            let time = shared.elapsed().as_secs_f64();
            self.record(|recorder| recorder.updates(&touched, time));
        }
    }

    /// Passes a notice to the recorder, to the readers and, with the next event, to hooks.
    pub(crate) fn note(
        &mut self,
        mut notice: RunNotice,
        hooks: &HookRunner,
        shared: &RunState,
        progress: &Progress,
    ) {
        let shown = self.notices.is_shown(&mut notice);
        if shown {
            self.notices.readers.tell(&notice);
        }
        self.note_told(notice, shown, hooks, shared, progress);
    }

    /// Passes a notice to the recorder and to hooks. Readers have received it, if they should.
    pub(crate) fn note_told(
        &mut self,
        notice: RunNotice,
        shown: bool,
        hooks: &HookRunner,
        shared: &RunState,
        progress: &Progress,
    ) {
        self.queue_for_hooks(&notice, shown, hooks);
        if self.recording.is_some() {
            self.record_event(shared, progress.step, progress.epoch, JournalEvent::from(&notice));
        }
        self.notices.keep(notice);
    }

    /// Hooks receive the notice with the next event.
    pub(crate) fn queue_for_hooks(&mut self, notice: &RunNotice, shown: bool, hooks: &HookRunner) {
        if hooks.wants(Event::Notice) && !self.held && !self.closing {
            self.pending.push(PendingNotice::new(notice, shown));
        }
    }

    /// Reports a loss that is not finite, once per call.
    pub(crate) fn check_finite(
        &mut self,
        loss: f64,
        hooks: &HookRunner,
        shared: &RunState,
        progress: &Progress,
    ) {
        if !loss.is_finite() && !std::mem::replace(&mut self.reported_not_finite, true) {
            let guarded = hooks.declared().iter().any(|spec| spec.provides.iter().any(|it| it == FINDS_NAN));
            let notice = RunNotice::NotFinite { loss, step: progress.step, guarded };
            self.note(notice, hooks, shared, progress);
        }
    }

    /// Records failures of hooks and changes of the list of hooks.
    pub(crate) fn note_changes_of_hooks(
        &mut self,
        hooks: &mut HookRunner,
        shared: &RunState,
        progress: &Progress,
        status: Status,
    ) {
        for mut contained in hooks.take_contained() {
            contained.afterwards = status == Status::Error;
            if let (Origin::Hook(hook), true) = (&contained.failure.origin, contained.disabled) {
                self.disabled.push((hook.clone(), contained.failure.to_string()));
            }
            self.note(RunNotice::Contained(contained), hooks, shared, progress);
        }
        for refused in hooks.take_refused_changes() {
            self.note(RunNotice::Refused(refused), hooks, shared, progress);
        }
        for changed in hooks.take_roster_changes() {
            // Hooks that were disabled after a failure are listed above.
            if let RosterChange { by: Some(by), change: RosterRequest::Disable(hook) } = &changed {
                self.disabled.push((hook.clone(), format!("requested by `{by}`")));
            }
            self.note(RunNotice::Changed(changed), hooks, shared, progress);
        }
    }

    /// Records a decision. Two kinds are too frequent for notices: swaps of weights are only written to
    /// `events.jsonl`, and saves of checkpoint hooks have separate entries there.
    pub(crate) fn note_decision(
        &mut self,
        decided: &HookDecision,
        hooks: &HookRunner,
        shared: &RunState,
        progress: &Progress,
    ) {
        let (flows, requests) = (decided.decision.flows(), decided.decision.requests());
        let only = |wanted: fn(&Request) -> bool| flows.is_empty() && requests.iter().all(wanted);
        let notice = || RunNotice::Decided { step: progress.step, decided: decided.clone() };
        if only(|request| matches!(request, Request::SwapWeights(_) | Request::SwapBack)) {
            self.record_event(shared, progress.step, progress.epoch, JournalEvent::from(&notice()));
        } else if !(only(|request| matches!(request, Request::Save(_)))
            && hooks.tier(&decided.hook) == Some(Tier::Checkpoint))
        {
            self.note(notice(), hooks, shared, progress);
        }
    }

    /// Records a failure that ends the run, or that follows it. It is no notice, because the call returns it.
    pub(crate) fn note_failure(&mut self, failure: &Failure, then: Consequence, shared: &RunState) {
        self.notices.failures.count(failure, then);
        if self.recording.is_some() {
            let what = JournalEvent::failed(failure, 1, then);
            self.record_event(shared, failure.step, failure.epoch, what);
        }
    }

    /// Records an event of this step.
    pub(crate) fn record_event(&mut self, shared: &RunState, step: u64, epoch: u64, what: JournalEvent) {
        let time = shared.elapsed().as_secs_f64();
        self.record(|recorder| recorder.event(JournalEntry { step, epoch, time, what }));
    }

    /// Calls the recorder. An error during the run is reported once and does not end it; at the end of the
    /// call it is a failure.
    pub(crate) fn record(&mut self, write: impl FnOnce(&mut dyn Recorder) -> Result<(), BoxError>) {
        let Some(recording) = &mut self.recording else { return };
        let written = write(&mut **recording.recorder());
        if let Some(error) = written.err().filter(|_| recording.first_error.is_none()) {
            recording.first_error = Some(error.to_string());
            let notice = RunNotice::WriteFailed(error);
            self.notices.readers.tell(&notice);
            if !self.held && !self.closing {
                self.pending.push(PendingNotice::new(&notice, true));
            }
            self.notices.keep(notice);
        }
    }

    /// Calls the recorder for a result of the call. An error makes the call fail at its end.
    pub(crate) fn record_result(&mut self, write: impl FnOnce(&mut dyn Recorder) -> Result<(), BoxError>) {
        let Some(recording) = &mut self.recording else { return };
        let written = write(&mut **recording.recorder());
        recording.missing.extend(written.err().map(|error| error.to_string()));
    }

    /// The recorder, if there is one, for the watch of the loaders.
    pub(crate) fn shared_recorder(&self) -> Option<&SharedRecorder> {
        self.recording.as_ref().map(|recording| &recording.shared)
    }
}
