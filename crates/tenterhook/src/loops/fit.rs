//! `fit`, from the first event to the last, in the order in which they fire.
//!
//! One batch is `Call::batch` here, with forward, backward and update in `step.rs`.

use std::time::Duration;

use tenterhook_core::metrics::MetricsState;
use tenterhook_core::random::Streams;
use tenterhook_core::{Board, Event, Failure, Phase, Scalar, Status};

use crate::call::Call;
use crate::check_plan::UnloggedCheck;
use crate::checkpoint::ResumePoint;
use crate::data::{BatchData, Split, Waited};
use crate::feed::{Feed, Fetched};
use crate::loops::{Who, Window};
use crate::module::{Interval, Module};
use crate::settings::ValInterval;

/// What hooks leave in metrics, board and random streams.
type Traces = (MetricsState, Board, Streams);

/// The training data, and when to validate.
pub(crate) struct Training<B> {
    pub(crate) feed: Feed<B>,
    /// Validate after so many batches; `None` is at the end of an epoch of unknown length, or by time.
    val_check: Option<u64>,
}

impl<M: Module> Call<'_, M> {
    pub(crate) fn fit(&mut self) -> Result<(), Failure> {
        self.fingerprint_training()?;
        let restored = self.resume.point.is_some().then(|| self.traces());
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

    /// What hooks leave in metrics, board and random streams.
    fn traces(&self) -> Traces {
        let shared = &self.run.shared;
        (shared.metrics.state(), shared.board.clone(), shared.streams.borrow().clone())
    }

    fn forget_traces(&mut self, (metrics, board, streams): Traces) {
        self.run.shared.metrics.restore(metrics);
        self.run.shared.board = board;
        self.run.shared.streams.replace(streams);
    }

    /// A few validation batches, to find mistakes early. Leaves no trace in metrics, board or random
    /// streams; only a request to stop counts, as in Lightning.
    fn sanity_check(&mut self) -> Result<(), Failure> {
        let resumed = self.resume.point.is_some();
        if self.run.limits.sanity_steps == 0 || self.evaluation.0.is_empty() || resumed {
            return Ok(());
        }
        let traces = self.traces();
        self.run.state.phase = Phase::SanityCheck;
        event!(self, SanityCheckStart {});
        self.evaluate(Phase::SanityCheck)?;
        event!(self, SanityCheckEnd {});
        self.run.state.phase = Phase::Train;
        self.forget_traces(traces);
        Ok(())
    }

    /// `restored`: what a checkpoint held of metrics, board and random streams. What is left there by the events of a
    /// beginning, which come again after a resume, is forgotten.
    fn train(&mut self, restored: Option<Traces>) -> Result<(), Failure> {
        let mut training = self.training()?;
        self.run.agree(self.module, "decisions")?;
        let mut resumed = self.resume.point.take();
        if resumed.is_none() {
            self.run.state.train_began = self.run.time_of_all();
            self.run.state.last_validation = self.run.state.train_began;
        }
        self.stop_when_time_is_over();
        let nothing_to_do = self.run.limits.batch_limit(Split::Train).is_zero()
            || (resumed.is_none() && self.is_done(&training));
        if nothing_to_do || self.run.is_interrupted() {
            self.run.note_outcome();
            return Ok(());
        }
        self.check_plan(&training)?;
        self.begin_recording()?;
        self.run.state.status = Status::Training;
        self.run.checkpointer.ready = resumed.is_none();
        event!(self, TrainStart { config: &self.run.shared.run.config });
        if let Some(traces) = restored {
            self.forget_traces(traces);
        }
        if let Some(weights) = self.resume.swap_in.take() {
            let swapped = self.run.swap_weights(self.module, &weights)?;
            self.run.checked(swapped)?;
        }
        let mut within = resumed.take_if(|point| point.is_within_epoch());
        self.run.checkpointer.ready |= within.is_none();
        while within.is_some() || (!self.is_done(&training) && !self.run.is_interrupted()) {
            self.epoch(&mut training, within.take())?;
            self.report_unlogged(UnloggedCheck::AfterEpoch);
            // Its end has been told, so that everybody can finish; it is not done.
            self.run.state.progress.epochs_done -= u64::from(self.run.ending.cut_short);
            self.run.state.progress.epoch += 1;
            self.run.state.progress.batches = 0;
            self.announce_checkpoints()?;
            // The run has more to do than when it ended.
            resumed = None;
        }
        if self.run.ending.signal.is_some() {
            self.run.save_emergency(self.module, ResumePoint::BetweenEpochs)?;
        }
        self.finish_saves()?;
        self.run.judge_budgets_at_the_end();
        self.run.note_outcome();
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

    /// One epoch, or the rest of one that has begun.
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
            self.run.end_steps();
            self.run.state.progress.epochs_done += 1;
            self.log_epoch_loss();
            self.run.reduce_metrics()?;
            self.run.shared.metrics.close();
            event!(self, TrainEpochEnd {});
        }
        // What a scheduler on a plateau waits for is missing when its validation was cut short.
        if self.run.state.batch.is_last && self.run.ending.signal.is_none() {
            self.run.step_schedulers(self.module, Interval::Epoch, true)?;
        }
        self.run.record_all_metrics(self.module, Phase::Train)?;
        Ok(())
    }

    /// The batches of an epoch with the validations between them, from its start or from where it was left.
    fn batches(
        &mut self,
        training: &mut Training<M::Batch>,
        resumed: Option<ResumePoint>,
    ) -> Result<(), Failure> {
        self.run.watch_loaders(false);
        self.run.at(Who::Data, "seek");
        let begun = training.feed.begin(self.run.state.progress.epoch, self.run.state.progress.batches);
        self.run.waited();
        self.run.checked(begun)?;
        let mut ended = false;
        if let Some(point) = resumed {
            self.run.checkpointer.ready = true;
            ended = self.take_up(training, point)?;
        } else {
            self.run.state.batch.is_last = false;
            self.run.flow.end_epoch = false;
            self.run.values.losses.begin_epoch();
            self.run.shared.metrics.begin_epoch();
            event!(self, TrainEpochStart {});
        }
        self.run.begin_steps();
        while !ended && !self.epoch_is_done() {
            if self.run.is_interrupted() && self.can_be_left() {
                return self.run.save_emergency(self.module, ResumePoint::BatchDone);
            }
            let timed = self.run.stopwatch(Event::TrainBatchStart);
            self.run.at(Who::Data, "next");
            self.run.loaders.watch.desk.at(&self.run.state.progress, false);
            let may_give_up = !self.run.ranks.several || self.can_be_left();
            let fetched = training.feed.next(&|| may_give_up && self.run.ending.interrupt.is_requested());
            self.run.waited();
            let fetched = self.run.checked(fetched)?;
            let fetched =
                self.run.agree_on_batch(self.module, fetched, |fetched| (&fetched.batch, fetched.is_last))?;
            let fetched = match fetched {
                Waited::Batch(fetched) => fetched,
                Waited::Ended => break,
                Waited::GaveUp => continue,
            };
            let wait = self.run.since(timed);
            if self.run.is_interrupted() && self.can_be_left() {
                // While waiting for data: this batch has not begun.
                return self.run.save_emergency(self.module, ResumePoint::BatchDone);
            }
            let left = self.batch(&training.feed, fetched, wait)?;
            if left || self.after_batch(training)? {
                break;
            }
        }
        Ok(())
    }

    /// Whether a signal can be heeded here: a module that cannot save gradients ends its accumulation window first.
    fn can_be_left(&self) -> bool {
        self.module.saves_gradients()
            || !self.run.checkpointer.kept
            || !self.run.is_within_window(self.module)
    }

    /// What follows a batch: its line of metrics, and a validation when it is due. `true` when the epoch ends here.
    pub(crate) fn after_batch(&mut self, training: &Training<M::Batch>) -> Result<bool, Failure> {
        self.run.record_metrics(self.module, Phase::Train)?;
        if self.validation_is_due(training) {
            if self.run.is_interrupted() {
                self.run.save_emergency(self.module, ResumePoint::ValidationDue)?;
                return Ok(true);
            }
            self.run.end_steps();
            self.evaluate(Phase::Validate)?;
            self.run.state.phase = Phase::Train;
            self.run.begin_steps();
        }
        self.after_validation()
    }

    /// What follows a batch and its validation. `true` when the epoch ends here.
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

    /// What follows `on_train_batch_end`.
    pub(crate) fn end_batch(&mut self) -> Result<(), Failure> {
        self.run.leave_batch();
        self.run.judge_budgets(self.module)?;
        self.stop_when_time_is_over();
        self.run.deliver_notices(self.module)
    }

    /// One micro-batch. `true` when the epoch was left before its step.
    fn batch(
        &mut self,
        feed: &Feed<M::Batch>,
        fetched: Fetched<M::Batch>,
        wait: Duration,
    ) -> Result<bool, Failure> {
        let run = &mut self.run;
        let Fetched { batch, loader, is_last } = fetched;
        let name = feed.name(loader);
        run.state.batch.index = run.state.progress.batches;
        run.state.batch.loader = loader;
        run.state.batch.is_last = is_last;
        run.state.before_batch = Some(run.state.progress);
        run.state.progress.batches += 1;
        run.state.progress.total_batches += 1;
        run.state.progress.step_counted = false;
        run.shared.metrics.set_step(run.state.progress.current_step());
        run.shared.metrics.set_batch_size(batch.size());
        let window_begins = run.state.batch.index.is_multiple_of(run.limits.accumulate);
        let window_ends = run.state.progress.batches.is_multiple_of(run.limits.accumulate);
        if window_begins {
            run.state.window = Window::Closed;
        }
        (run.flow.skip_batch, run.flow.skip_update) = (false, false);

        event!(self, TrainBatchStart { batch: self.run.view(&batch, name), wait });
        self.run.agree(self.module, "skipped batches")?;

        let (run, module) = (&mut self.run, &mut *self.module);
        if std::mem::take(&mut run.flow.end_epoch) {
            run.state.batch.is_last = true;
            run.leave_batch();
            run.step_schedulers(module, Interval::Step, false)?;
            run.step_schedulers(module, Interval::Epoch, false)?;
            return Ok(true);
        }

        let mut has_loss = false;
        let mut stepped = None;
        if !std::mem::take(&mut run.flow.skip_batch) {
            let (samples, tokens) = run.samples_and_tokens(&batch);
            run.state.progress.samples += samples;
            run.state.progress.tokens += tokens;
            let losses_before = run.values.losses.len();
            let loss = run.forward(module, &batch, name)?;
            let loss = run.loss_of_all(loss)?;
            if module.automatic_optimization() {
                if run.state.window == Window::Closed {
                    run.zero_grad(module, 0..run.update.optimization.optimizers)?;
                    run.state.window = Window::Open;
                }
                if let Some(loss) = loss {
                    run.backward(module, &loss, run.limits.accumulate as f64)?;
                    run.values.losses.push(loss.map(M::detach));
                    run.agree(module, "skipped updates")?;
                    // Gradients that must not be used are in the window's sum, so the whole window is skipped.
                    if std::mem::take(&mut run.flow.skip_update) {
                        run.state.window = Window::Skipped;
                    }
                    if (window_ends || is_last) && run.state.window == Window::Open {
                        stepped = run.update(module, 0..run.update.optimization.optimizers)?;
                    }
                }
            } else if let Some(loss) = loss.filter(|_| run.values.losses.len() == losses_before) {
                // What a manual step returns is its loss, unless it was propagated back already.
                run.values.losses.push(loss.map(M::detach));
            }
            has_loss = run.values.losses.len() > losses_before;
        }

        if stepped.is_some() {
            run.step_schedulers(module, Interval::Step, false)?;
        }
        if is_last {
            run.step_schedulers(module, Interval::Epoch, false)?;
        }
        if let Some(lr) = stepped {
            run.step_end(module, 0, lr)?;
        }
        event!(
            self,
            TrainBatchEnd {
                batch: self.run.view(&batch, name),
                loss: has_loss.then(|| Scalar::new(self.run.values.losses.current())),
            }
        );
        self.end_batch()?;
        Ok(false)
    }
}

/// When loops end and validations begin; Lightning's rules.
impl<M: Module> Call<'_, M> {
    /// Whether no further epoch begins.
    fn is_done(&self, training: &Training<M::Batch>) -> bool {
        let run = &self.run;
        training.feed.length() == Some(0)
            || run.steps_are_done()
            || run.limits.max_epochs.is_some_and(|max| run.state.progress.epochs_done >= max)
            || run.stops()
    }

    /// Whether no further batch of this epoch begins.
    fn epoch_is_done(&self) -> bool {
        self.run.state.batch.is_last || self.run.steps_are_done() || self.run.stops()
    }

    fn stop_when_time_is_over(&mut self) {
        let Some(max) = self.run.limits.max_time else { return };
        if self.run.time_of_all().saturating_sub(self.run.state.train_began) >= max {
            self.run.flow.stop.get_or_insert(("trainer".into(), "`max_time` is over".into()));
        }
    }

    fn validation_is_due(&mut self, training: &Training<M::Batch>) -> bool {
        let run = &mut self.run;
        let asked = std::mem::take(&mut run.flow.validate);
        if !run.shared.run.validation.due_in(run.state.progress.epoch) {
            return asked && run.shared.run.validation.enabled;
        }
        if asked || run.stops() {
            return true;
        }
        if let ValInterval::Time(interval) = run.limits.val_check {
            return run.time_of_all().saturating_sub(run.state.last_validation) >= interval.0;
        }
        let across_epochs = run.limits.check_val_every_n_epoch.is_none();
        let position =
            if across_epochs { run.state.progress.total_batches } else { run.state.progress.batches };
        match training.val_check {
            Some(every) => position.is_multiple_of(every),
            None => run.state.batch.is_last,
        }
    }

    /// Asks the data for its training loaders, and works out how much of them to use.
    pub(crate) fn training_feed(&mut self) -> Result<Feed<M::Batch>, Failure> {
        let (loaders, batches) = self.loaders(Split::Train)?;
        self.run.at(Who::Data, "turns");
        let seed = self.run.shared.streams.borrow().seed();
        let feed = Feed::new(loaders, &batches, self.data.turns(), self.run.limits.shuffled, seed);
        let feed = self.run.checked(feed.map_err(Into::into))?;
        Ok(feed.watched(&self.run.loaders.watch.desk))
    }

    /// The training batches, and when to validate.
    pub(crate) fn training(&mut self) -> Result<Training<M::Batch>, Failure> {
        let feed = match self.feed.take() {
            Some(feed) => feed,
            None => self.training_feed()?,
        };
        let val_check = self.run.limits.val_check_batches(feed.length());
        self.run.at(Who::Trainer, "val_check_interval");
        let val_check = self.run.checked(val_check.map_err(Into::into))?;
        Ok(Training { feed, val_check })
    }
}
