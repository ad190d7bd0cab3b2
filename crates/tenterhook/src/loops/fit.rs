//! `fit`, from its first event to its last, in the order in which they fire.
//!
//! [`Call::fit`] → [`Call::train`] → [`Call::epoch`] → [`Call::batches`] → [`Call::batch`]. Forward, backward
//! and the optimizer step of a batch are in `update.rs`, validation is in `evaluate.rs`.

use std::time::Duration;

use tenterhook_core::metrics::MetricsState;
use tenterhook_core::random::RandomStreams;
use tenterhook_core::{Blackboard, Event, Failure, Origin, Phase, RunState, Scalar, Status};

use crate::accounts::{since, stopwatch};
use crate::call::Call;
use crate::check_plan::UnloggedCheck;
use crate::checkpoint::ResumePoint;
use crate::data::{BatchData, Fetch, Split};
use crate::loops::Callee;
use crate::module::{Interval, Module};
use crate::settings::ValInterval;
use crate::train_stream::{TrainBatch, TrainStream};

/// Metrics, blackboard and random streams: the state that hooks change.
struct SharedSnapshot {
    metrics: MetricsState,
    board: Blackboard,
    streams: RandomStreams,
}

impl SharedSnapshot {
    fn of(shared: &RunState) -> SharedSnapshot {
        let streams = shared.streams.borrow().clone();
        SharedSnapshot { metrics: shared.metrics.state(), board: shared.board.clone(), streams }
    }

    fn restore(self, shared: &mut RunState) {
        shared.metrics.restore(self.metrics);
        shared.board = self.board;
        shared.streams.replace(self.streams);
    }
}

/// The training batches, and when to validate.
pub(crate) struct Training<B> {
    pub(crate) stream: TrainStream<B>,
    /// Validate every n batches. `None`: at the end of an epoch of unknown length, or by time.
    val_check: Option<u64>,
}

impl<M: Module> Call<'_, M> {
    pub(crate) fn fit(&mut self) -> Result<(), Failure> {
        self.fingerprint_training()?;
        let restored = self.resume.point.is_some().then(|| SharedSnapshot::of(&self.run.shared));
        self.run.shared.metrics.set_step(self.run.state.progress.step);
        event!(self, FitStart { config: &self.run.shared.run.config });
        self.restore_optimizers()?;
        self.announce_restored()?;
        self.check_manual()?;
        self.prepare_evaluation()?;
        self.fingerprint_evaluation()?;
        self.sanity_check()?;
        self.train(restored)
    }

    /// Runs a few validation batches to find mistakes early. Metrics, blackboard and random streams are reset
    /// afterwards; only a request to stop remains in effect, as in Lightning.
    fn sanity_check(&mut self) -> Result<(), Failure> {
        let resumed = self.resume.point.is_some();
        if self.run.limits.sanity_steps == 0 || self.evaluation.0.is_empty() || resumed {
            return Ok(());
        }
        let before = SharedSnapshot::of(&self.run.shared);
        self.run.state.phase = Phase::SanityCheck;
        event!(self, SanityCheckStart {});
        self.evaluate(Phase::SanityCheck)?;
        event!(self, SanityCheckEnd {});
        self.run.state.phase = Phase::Train;
        before.restore(&mut self.run.shared);
        Ok(())
    }

    /// All epochs. `restored` is the shared state of the checkpoint: on a resume the events up to
    /// `on_train_start` fire again, and their effects on it are undone.
    fn train(&mut self, restored: Option<SharedSnapshot>) -> Result<(), Failure> {
        let mut training = self.training()?;
        self.run.agree(self.module, "decisions")?;
        let mut resumed = self.resume.point.take();
        if resumed.is_none() {
            self.run.state.train_began = self.run.ranks.time(&self.run.shared);
            self.run.state.last_validation = self.run.state.train_began;
        }
        self.check_max_time();
        let no_batches = self.run.limits.batch_limit(Split::Train).is_zero();
        let done = no_batches
            || (resumed.is_none()
                && self.run.state.training_is_done(
                    &self.run.limits,
                    &self.run.flow,
                    training.stream.length(),
                ));
        if done || self.run.is_interrupted() {
            let run = &mut self.run;
            run.ending.set_outcome(&mut run.state, &run.flow, &run.limits);
            return Ok(());
        }
        self.check_plan(&training)?;
        self.begin_recording()?;
        self.run.state.status = Status::Training;
        self.run.checkpointer.ready = resumed.is_none();
        event!(self, TrainStart { config: &self.run.shared.run.config });
        if let Some(restored) = restored {
            restored.restore(&mut self.run.shared);
        }
        if let Some(weights) = self.resume.swap_in.take() {
            let swapped = self.run.swap_weights(self.module, &weights)?;
            self.run.checked(swapped)?;
        }
        let mut within_epoch = resumed.take_if(|point| point.is_within_epoch());
        self.run.checkpointer.ready |= within_epoch.is_none();
        while within_epoch.is_some()
            || (!self.run.state.training_is_done(&self.run.limits, &self.run.flow, training.stream.length())
                && !self.run.is_interrupted())
        {
            self.epoch(&mut training, within_epoch.take())?;
            self.report_unlogged(UnloggedCheck::AfterEpoch);
            // The end event of an interrupted epoch has fired, but the epoch does not count as completed.
            self.run.state.progress.epochs_done -= u64::from(self.run.ending.epoch_interrupted);
            self.run.state.progress.epoch += 1;
            self.run.state.progress.batches = 0;
            self.announce_checkpoints()?;
            // More was trained after the checkpoint of `on_train_end`, so the event fires again in full.
            resumed = None;
        }
        if self.run.ending.signal.is_some() {
            self.run.save_emergency(self.module, ResumePoint::BetweenEpochs)?;
        }
        self.finish_saves()?;
        if self.run.hooks.has_budgets() && self.run.hooks.is_accounting() {
            self.run.report_overruns(true);
        }
        let run = &mut self.run;
        run.ending.set_outcome(&mut run.state, &run.flow, &run.limits);
        self.run.deliver_notices(self.module)?;
        if resumed == Some(ResumePoint::TrainEnd) {
            event_rest!(self, TrainEnd);
        } else {
            event!(self, TrainEnd { outcome: &self.run.ending.outcome });
        }
        self.run.record_all_metrics(self.module, Phase::Train)?;
        self.run.record_weights(self.module);
        Ok(())
    }

    /// One epoch, or the rest of one after a resume.
    fn epoch(
        &mut self,
        training: &mut Training<M::Batch>,
        resumed: Option<ResumePoint>,
    ) -> Result<(), Failure> {
        if resumed == Some(ResumePoint::EpochEnd) {
            self.run.checkpointer.ready = true;
            event_rest!(self, TrainEpochEnd);
        } else {
            self.batches(training, resumed)?;
            let run = &mut self.run;
            run.accounts.end_steps(&mut run.hooks, &*run.shared.clock);
            self.run.state.progress.epochs_done += 1;
            self.log_epoch_loss();
            self.run.reduce_metrics()?;
            self.run.shared.metrics.finish_aggregates();
            event!(self, TrainEpochEnd {});
        }
        // After an interrupted validation, the metric of a plateau scheduler is missing.
        if self.run.state.batch.is_last && self.run.ending.signal.is_none() {
            self.run.step_schedulers(self.module, Interval::Epoch, true)?;
        }
        self.run.record_all_metrics(self.module, Phase::Train)?;
        Ok(())
    }

    /// The batches of an epoch with the validations between them, from the start or from the resume point.
    fn batches(
        &mut self,
        training: &mut Training<M::Batch>,
        resumed: Option<ResumePoint>,
    ) -> Result<(), Failure> {
        let run = &mut self.run;
        run.loaders.begin_watch(false, &run.journal, &run.shared, &run.state.progress);
        self.run.enter(Callee::Data, "seek");
        let begun = training.stream.begin(self.run.state.progress.epoch, self.run.state.progress.batches);
        self.run.after_wait();
        self.run.checked(begun)?;
        let mut ended = false;
        if let Some(point) = resumed {
            self.run.checkpointer.ready = true;
            ended = self.resume_epoch(training, point)?;
        } else {
            self.run.state.batch.is_last = false;
            self.run.flow.end_epoch = false;
            self.run.values.losses.begin_epoch();
            self.run.shared.metrics.begin_epoch();
            event!(self, TrainEpochStart {});
        }
        let run = &mut self.run;
        run.accounts.begin_steps(&mut run.hooks, &*run.shared.clock, run.state.progress.total_batches);
        while !ended && !self.run.state.epoch_is_done(&self.run.limits, &self.run.flow) {
            if self.run.is_interrupted() && self.can_interrupt() {
                return self.run.save_emergency(self.module, ResumePoint::BatchDone);
            }
            let timed = stopwatch(&*self.run.shared.clock, self.run.hooks.wants(Event::TrainBatchStart));
            let batch = match self.fetch(training)? {
                Fetch::Batch(batch) => batch,
                Fetch::End => break,
                Fetch::Cancelled => continue,
            };
            let wait = since(&*self.run.shared.clock, timed);
            if self.run.is_interrupted() && self.can_interrupt() {
                // The signal came while waiting for data, so the batch has not begun.
                return self.run.save_emergency(self.module, ResumePoint::BatchDone);
            }
            let left = self.batch(&training.stream, batch, wait)?;
            ended = left || self.after_batch(training)?;
        }
        Ok(())
    }

    fn fetch(&mut self, training: &mut Training<M::Batch>) -> Result<Fetch<TrainBatch<M::Batch>>, Failure> {
        self.run.enter(Callee::Data, "next");
        self.run.loaders.watch.wait.set_position(&self.run.state.progress, false);
        let cancellable = !self.run.ranks.several || self.can_interrupt();
        let fetched = training.stream.next(&|| cancellable && self.run.ending.interrupt.is_requested());
        self.run.after_wait();
        let fetched = self.run.checked(fetched)?;
        self.run.agree_on_batch(self.module, fetched, |fetched| (&fetched.batch, fetched.is_last))
    }

    /// One micro-batch. Returns `true` when a hook ended the epoch before the training step.
    fn batch(
        &mut self,
        stream: &TrainStream<M::Batch>,
        fetched: TrainBatch<M::Batch>,
        wait: Duration,
    ) -> Result<bool, Failure> {
        let TrainBatch { batch, loader, is_last } = fetched;
        let name = stream.name(loader);
        let run = &mut self.run;
        run.state.begin_batch(loader, is_last, run.limits.accumulate);
        run.shared.metrics.set_step(run.state.progress.current_step());
        run.shared.metrics.set_batch_size(batch.size());
        (run.flow.skip_batch, run.flow.skip_update) = (false, false);
        event!(self, TrainBatchStart { batch: self.run.state.view(&batch, name), wait });
        self.run.agree(self.module, "skipped batches")?;
        if std::mem::take(&mut self.run.flow.end_epoch) {
            self.run.state.batch.is_last = true;
            self.run.state.leave_batch(&self.run.shared.metrics);
            self.run.step_schedulers(self.module, Interval::Step, false)?;
            self.run.step_schedulers(self.module, Interval::Epoch, false)?;
            return Ok(true);
        }

        let losses_before = self.run.values.losses.len();
        let mut used_lr = None;
        if !std::mem::take(&mut self.run.flow.skip_batch) {
            used_lr = self.run.train_on(self.module, &batch, name)?;
        }
        let has_loss = self.run.values.losses.len() > losses_before;

        if used_lr.is_some() {
            self.run.step_schedulers(self.module, Interval::Step, false)?;
        }
        if is_last {
            self.run.step_schedulers(self.module, Interval::Epoch, false)?;
        }
        if let Some(lr) = used_lr {
            self.run.step_end(self.module, 0, lr)?;
        }
        event!(
            self,
            TrainBatchEnd {
                batch: self.run.state.view(&batch, name),
                loss: has_loss.then(|| Scalar::new(self.run.values.losses.current())),
            }
        );
        self.end_batch()?;
        Ok(false)
    }

    /// After `on_train_batch_end`.
    pub(crate) fn end_batch(&mut self) -> Result<(), Failure> {
        self.run.state.leave_batch(&self.run.shared.metrics);
        self.run.check_budgets(self.module)?;
        self.check_max_time();
        self.run.deliver_notices(self.module)
    }

    /// After a batch: records its metrics, and validates if that is due. Returns `true` when the epoch ends
    /// here.
    pub(crate) fn after_batch(&mut self, training: &Training<M::Batch>) -> Result<bool, Failure> {
        self.run.record_metrics(self.module, Phase::Train)?;
        if self.validation_is_due(training) {
            if self.run.is_interrupted() {
                self.run.save_emergency(self.module, ResumePoint::ValidationDue)?;
                return Ok(true);
            }
            let run = &mut self.run;
            run.accounts.end_steps(&mut run.hooks, &*run.shared.clock);
            self.evaluate(Phase::Validate)?;
            self.run.state.phase = Phase::Train;
            let run = &mut self.run;
            run.accounts.begin_steps(&mut run.hooks, &*run.shared.clock, run.state.progress.total_batches);
        }
        self.after_validation()
    }

    /// After a batch and its validation. Returns `true` when the epoch ends here.
    pub(crate) fn after_validation(&mut self) -> Result<bool, Failure> {
        if self.run.state.progress.step_counted && self.run.ending.signal.is_none() {
            self.run.step_schedulers(self.module, Interval::Step, true)?;
        }
        self.announce_checkpoints()?;
        let ends = std::mem::take(&mut self.run.flow.end_epoch);
        if ends && !std::mem::replace(&mut self.run.state.batch.is_last, true) {
            self.run.step_schedulers(self.module, Interval::Epoch, false)?;
        }
        Ok(ends)
    }

    /// Whether training can be interrupted here. Where gradients cannot be saved, the accumulation window is
    /// completed first.
    fn can_interrupt(&self) -> bool {
        self.module.saves_gradients()
            || !self.run.checkpointer.kept
            || !self.run.state.is_within_window(&self.run.limits, &*self.module)
    }
}

/// When training ends, and when validations are due; Lightning's rules.
impl<M: Module> Call<'_, M> {
    /// Requests a stop after `max_time`.
    fn check_max_time(&mut self) {
        let Some(max) = self.run.limits.max_time else { return };
        if self.run.ranks.time(&self.run.shared).saturating_sub(self.run.state.train_began) >= max {
            self.run.flow.stop.get_or_insert((Origin::TRAINER.into(), "`max_time` is over".into()));
        }
    }

    fn validation_is_due(&mut self, training: &Training<M::Batch>) -> bool {
        let run = &mut self.run;
        let requested = std::mem::take(&mut run.flow.validate);
        if !run.shared.run.validation.due_in(run.state.progress.epoch) {
            return requested && run.shared.run.validation.enabled;
        }
        if requested || run.flow.stops(&run.limits, &run.state.progress) {
            return true;
        }
        if let ValInterval::Time(interval) = run.limits.val_check {
            return run.ranks.time(&run.shared).saturating_sub(run.state.last_validation) >= interval.0;
        }
        let across_epochs = run.limits.check_val_every_n_epoch.is_none();
        let position =
            if across_epochs { run.state.progress.total_batches } else { run.state.progress.batches };
        match training.val_check {
            Some(every) => position.is_multiple_of(every),
            None => run.state.batch.is_last,
        }
    }

    /// Makes the training loaders, and applies the limits to them.
    pub(crate) fn open_train_stream(&mut self) -> Result<TrainStream<M::Batch>, Failure> {
        let (loaders, batches) = self.loaders(Split::Train)?;
        let seed = self.run.shared.streams.borrow().seed();
        let (shuffled, wait) = (self.run.limits.shuffled, self.run.loaders.watch.wait.clone());
        self.run.enter(Callee::Data, "interleave");
        let interleave = self.data.interleave();
        let stream = TrainStream::new(loaders, &batches, interleave, shuffled, seed, wait);
        self.run.checked(stream.map_err(Into::into))
    }

    /// The training batches, and when to validate.
    pub(crate) fn training(&mut self) -> Result<Training<M::Batch>, Failure> {
        let stream = match self.train_stream.take() {
            Some(stream) => stream,
            None => self.open_train_stream()?,
        };
        let length = stream.length();
        let val_check = self.run.limits.val_check_batches(length).map_err(Into::into);
        let val_check = call!(self.run, Trainer, "val_check_interval", val_check)?;
        Ok(Training { stream, val_check })
    }
}
