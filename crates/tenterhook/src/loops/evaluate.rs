//! Validation, test and prediction. They share one loop over the loaders and differ in their events.

use tenterhook_core::{Event, Failure, Phase, Stage, Tensors};

use crate::call::Call;
use crate::check_plan::UnloggedCheck;
use crate::checkpoint::ResumePoint;
use crate::cx::Cx;
use crate::data::{BatchData, Fetch, Split, of_loader};
use crate::loops::{BatchPlace, Callee};
use crate::module::Module;
use crate::outputs::Outputs;
use crate::settings::ValInterval;

/// Delivers the event of this kind of evaluation.
macro_rules! evaluation_event {
    ($call:expr, $phase:expr, $Validation:ident $Test:ident $Predict:ident $fields:tt) => {
        match $phase {
            Phase::Test => {
                event!($call, $Test $fields);
            }
            Phase::Predict => {
                event!($call, $Predict $fields);
            }
            Phase::Train | Phase::Validate | Phase::SanityCheck => {
                event!($call, $Validation $fields);
            }
        }
    };
}

impl<M: Module> Call<'_, M> {
    /// Makes the evaluation loaders, once per call.
    pub(crate) fn prepare_evaluation(&mut self) -> Result<(), Failure> {
        self.evaluation = self.loaders(Split::evaluated_in(self.run.state.stage))?;
        let limits = &self.run.limits;
        let any =
            self.evaluation.1.iter().any(|batches| *batches != Some(0)) && !self.evaluation.0.is_empty();
        let validation = &mut self.run.shared.run.validation;
        validation.enabled = any;
        validation.every_n_epochs = limits.check_val_every_n_epoch;
        validation.at_epoch_end = limits.validates_at_epoch_end();
        Ok(())
    }

    /// One evaluation, from its first event to its last.
    pub(crate) fn evaluate(&mut self, phase: Phase) -> Result<(), Failure> {
        let batches: Vec<u64> = self.evaluation.1.iter().map(|batches| batches.unwrap_or(u64::MAX)).collect();
        if self.evaluation.0.is_empty() || batches.iter().all(|batches| *batches == 0) {
            return Ok(());
        }
        self.run.note_before_validation(phase)?;
        self.run.state.train_batch = self.run.state.batch;
        self.run.state.phase = phase;
        self.run.shared.metrics.begin_evaluation();
        self.run.enter(Callee::Module, "eval_mode");
        self.module.eval_mode();
        evaluation_event!(self, phase, ValidationStart TestStart PredictStart {});
        evaluation_event!(self, phase, ValidationEpochStart TestEpochStart PredictEpochStart {});
        for (loader, batches) in batches.into_iter().enumerate() {
            let most = if phase == Phase::SanityCheck { self.run.limits.sanity_steps } else { u64::MAX };
            self.evaluate_loader(phase, loader, batches.min(most))?;
        }
        self.run.shared.metrics.set_loader(None);
        // An interrupted evaluation has no results.
        if self.run.ending.signal.is_none() {
            self.run.reduce_metrics()?;
            self.run.shared.metrics.finish_aggregates();
        }
        evaluation_event!(self, phase, ValidationEpochEnd TestEpochEnd PredictEpochEnd {});
        evaluation_event!(self, phase, ValidationEnd TestEnd PredictEnd {});
        self.end_evaluation(phase)
    }

    /// Completes a validation of which hooks had received `on_validation_end` when the checkpoint was taken.
    pub(crate) fn resume_validation_end(&mut self) -> Result<(), Failure> {
        self.run.state.phase = Phase::Validate;
        self.run.enter(Callee::Module, "eval_mode");
        self.module.eval_mode();
        event_rest!(self, ValidationEnd);
        self.end_evaluation(Phase::Validate)
    }

    /// After the last event of an evaluation: returns to the state of training.
    fn end_evaluation(&mut self, phase: Phase) -> Result<(), Failure> {
        // The hook that swapped weights in may have been disabled since, and training needs the module's own
        // weights.
        self.run.swap_back(self.module)?;
        self.module.train_mode();
        self.run.shared.metrics.end_evaluation();
        if let ValInterval::Time(_) = self.run.limits.val_check {
            self.run.state.last_validation = self.run.ranks.time(&self.run.shared);
        }
        self.run.checkpointer.emergency.before_validation = None;
        self.run.state.batch = self.run.state.train_batch;
        if phase == Phase::Validate && self.run.state.stage == Stage::Fit {
            self.report_unlogged(UnloggedCheck::AfterValidation);
        }
        // Metrics that were logged up to here belong to the evaluation.
        if phase == Phase::SanityCheck { Ok(()) } else { self.run.record_all_metrics(self.module, phase) }
    }

    fn evaluate_loader(&mut self, phase: Phase, loader: usize, batches: u64) -> Result<(), Failure> {
        let run = &mut self.run;
        run.loaders.begin_watch(true, &run.journal, &run.shared, &run.state.progress);
        self.run.enter(Callee::Data, "seek");
        let name = self.evaluation.0[loader].name().to_owned();
        let waiting = self.run.loaders.watch.wait.begin(loader);
        let begun = self.evaluation.0[loader].seek(self.run.state.progress.epochs_done, 0, false);
        drop(waiting);
        self.run.after_wait();
        self.run.checked(begun.map_err(|error| of_loader(&name, error)))?;
        let several = self.evaluation.0.len() > 1;
        self.run.shared.metrics.set_loader(several.then_some(name.as_str()));
        if phase == Phase::Predict {
            self.predictions.push(Vec::new());
        }
        let mut index = 0;
        while index < batches {
            if self.run.is_interrupted() {
                if phase == Phase::Validate && self.run.state.stage == Stage::Fit {
                    self.run.save_emergency(self.module, ResumePoint::ValidationDue)?;
                }
                break;
            }
            self.run.enter(Callee::Data, "next");
            self.run.loaders.watch.wait.set_position(&self.run.state.progress, true);
            let waiting = self.run.loaders.watch.wait.begin(loader);
            let batch = self.evaluation.0[loader].next_unless(&|| self.run.ending.interrupt.is_requested());
            drop(waiting);
            self.run.after_wait();
            let batch = self.run.checked(batch.map_err(|error| of_loader(&name, error)))?;
            let batch = match self.run.agree_on_batch(self.module, batch, |batch| (batch, false))? {
                Fetch::Batch(batch) => batch,
                Fetch::End => break,
                Fetch::Cancelled => continue,
            };
            self.run.state.batch = BatchPlace { index, loader, is_last: index + 1 == batches };
            self.run.shared.metrics.set_batch_size(batch.size());
            self.evaluate_batch(phase, &batch, &name)?;
            index += 1;
        }
        Ok(())
    }

    fn evaluate_batch(&mut self, phase: Phase, batch: &M::Batch, name: &str) -> Result<(), Failure> {
        evaluation_event!(
            self,
            phase,
            ValidationBatchStart TestBatchStart PredictBatchStart { batch: self.run.state.view(batch, name) }
        );
        let BatchPlace { index, loader, .. } = self.run.state.batch;
        let seed = self.run.ranks.step_seed(&self.run.shared, phase, index ^ (loader as u64) << 32);
        self.run.enter(Callee::Module, "reseed");
        self.module.reseed(seed);
        let end = match phase {
            Phase::Test => Event::TestBatchEnd,
            Phase::Predict => Event::PredictBatchEnd,
            Phase::Train | Phase::Validate | Phase::SanityCheck => Event::ValidationBatchEnd,
        };
        let wanted = self.run.hooks.wants(end);
        self.run.shared.metrics.begin_evaluation_batch(wanted);
        self.run.values.outputs = wanted.then(Outputs::default);

        let (run, module) = (&mut self.run, &mut *self.module);
        let mut prediction = None;
        match phase {
            Phase::Test => call!(run, Module, "test_step", module.test_step(batch, &mut Cx::new(run)))?,
            Phase::Predict => {
                let predicted =
                    call!(run, Module, "predict_step", module.predict_step(batch, &mut Cx::new(run)))?;
                prediction = Some(predicted);
            }
            Phase::Train | Phase::Validate | Phase::SanityCheck => {
                call!(run, Module, "validation_step", module.validation_step(batch, &mut Cx::new(run)))?;
            }
        }
        run.after_module(module)?;

        let metrics = run.shared.metrics.take_evaluation_batch_metrics();
        let loss = metrics.get(phase.loss_metric()).copied();
        let outputs = run.values.outputs.take().unwrap_or_default();
        macro_rules! batch_end {
            ($Event:ident $($prediction:ident)?) => {
                event!(
                    self,
                    $Event {
                        batch: self.run.state.view(batch, name),
                        $($prediction,)?
                        loss,
                        batch_metrics: &metrics,
                        outputs: Tensors::new(&outputs),
                    }
                )
            };
        }
        match (phase, &prediction) {
            (_, Some(prediction)) => {
                batch_end!(PredictBatchEnd prediction);
            }
            (Phase::Test, None) => {
                batch_end!(TestBatchEnd);
            }
            (_, None) => {
                batch_end!(ValidationBatchEnd);
            }
        }
        if let Some(of_loader) = self.predictions.last_mut() {
            of_loader.extend(prediction);
        }
        Ok(())
    }
}
