//! Validation, test and prediction: one walk over the loaders, with each one's own events.

use std::collections::BTreeMap;

use tenterhook_core::{Event, Failure, Phase, Stage, Tensors};

use crate::call::Call;
use crate::check_plan::UnloggedCheck;
use crate::checkpoint::ResumePoint;
use crate::cx::Cx;
use crate::data::{BatchData, Split, Waited, of_loader};
use crate::loops::{BatchPlace, Who};
use crate::module::Module;
use crate::outputs::Outputs;
use crate::settings::ValInterval;

/// Delivers one of the six events that the three kinds of evaluation have each in their own name.
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

/// What a step of an evaluation left.
struct Evaluated {
    loss: Option<f64>,
    metrics: BTreeMap<String, f64>,
    outputs: Outputs,
}

impl<M: Module> Call<'_, M> {
    /// The data that this call evaluates on.
    pub(crate) fn evaluation_split(&self) -> Split {
        match self.run.state.stage {
            Stage::Fit | Stage::Validate => Split::Validate,
            Stage::Test => Split::Test,
            Stage::Predict => Split::Predict,
        }
    }

    /// Makes the loaders that this call will evaluate on, once.
    pub(crate) fn prepare_evaluation(&mut self) -> Result<(), Failure> {
        self.evaluation = self.loaders(self.evaluation_split())?;
        let limits = &self.run.limits;
        let any =
            self.evaluation.1.iter().any(|batches| *batches != Some(0)) && !self.evaluation.0.is_empty();
        let validation = &mut self.run.shared.run.validation;
        validation.enabled = any;
        validation.every_n_epochs = limits.check_val_every_n_epoch;
        validation.at_epoch_end = limits.validates_at_epoch_end();
        Ok(())
    }

    pub(crate) fn evaluate(&mut self, phase: Phase) -> Result<(), Failure> {
        let sanity = phase == Phase::SanityCheck;
        let batches: Vec<u64> = self.evaluation.1.iter().map(|batches| batches.unwrap_or(u64::MAX)).collect();
        if self.evaluation.0.is_empty() || batches.iter().all(|batches| *batches == 0) {
            return Ok(());
        }
        self.run.note_before_validation(phase)?;
        self.run.state.train_batch = self.run.state.batch;
        self.run.state.phase = phase;
        self.run.shared.metrics.begin_evaluation();
        self.run.at(Who::Module, "eval_mode");
        self.module.eval_mode();
        evaluation_event!(self, phase, ValidationStart TestStart PredictStart {});
        evaluation_event!(self, phase, ValidationEpochStart TestEpochStart PredictEpochStart {});
        for (loader, batches) in batches.into_iter().enumerate() {
            let batches = if sanity { batches.min(self.run.limits.sanity_steps) } else { batches };
            self.evaluate_loader(phase, loader, batches)?;
        }
        self.run.shared.metrics.set_loader(None);
        // What was cut short has no results.
        if self.run.ending.signal.is_none() {
            self.run.reduce_metrics()?;
            self.run.shared.metrics.close();
        }
        evaluation_event!(self, phase, ValidationEpochEnd TestEpochEnd PredictEpochEnd {});
        evaluation_event!(self, phase, ValidationEnd TestEnd PredictEnd {});
        self.end_evaluation(phase)
    }

    /// The rest of a validation whose `on_validation_end` had reached the hooks when the checkpoint was taken.
    pub(crate) fn resume_validation_end(&mut self) -> Result<(), Failure> {
        self.run.state.phase = Phase::Validate;
        self.run.at(Who::Module, "eval_mode");
        self.module.eval_mode();
        event_rest!(self, ValidationEnd);
        self.end_evaluation(Phase::Validate)
    }

    /// Everybody has been told of its end; training goes on as if it had not been.
    fn end_evaluation(&mut self, phase: Phase) -> Result<(), Failure> {
        // Whoever swapped weights in for this may have been disabled or gated since; training needs its own.
        self.run.swap_back(self.module)?;
        self.module.train_mode();
        self.run.shared.metrics.end_evaluation();
        if let ValInterval::Time(_) = self.run.limits.val_check {
            self.run.state.last_validation = self.run.time_of_all();
        }
        self.run.checkpointer.emergency.before_validation = None;
        self.run.state.batch = self.run.state.train_batch;
        if phase == Phase::Validate && self.run.state.stage == Stage::Fit {
            self.report_unlogged(UnloggedCheck::AfterValidation);
        }
        // Only now: what is logged on the way no longer belongs to it.
        if phase == Phase::SanityCheck { Ok(()) } else { self.run.record_all_metrics(self.module, phase) }
    }

    fn evaluate_loader(&mut self, phase: Phase, loader: usize, batches: u64) -> Result<(), Failure> {
        self.run.watch_loaders(true);
        self.run.at(Who::Data, "seek");
        let waiting = self.run.loaders.watch.desk.waits_for(loader);
        let begun = self.evaluation.0[loader].seek(self.run.state.progress.epochs_done, 0, false);
        drop(waiting);
        self.run.waited();
        let name = self.evaluation.0[loader].name().to_owned();
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
            self.run.at(Who::Data, "next");
            self.run.loaders.watch.desk.at(&self.run.state.progress, true);
            let waiting = self.run.loaders.watch.desk.waits_for(loader);
            let batch = self.evaluation.0[loader].next_unless(&|| self.run.ending.interrupt.is_requested());
            drop(waiting);
            self.run.waited();
            let batch = batch.map_err(|error| of_loader(&name, error));
            let batch = self.run.checked(batch)?;
            let batch = match self.run.agree_on_batch(self.module, batch, |batch| (batch, false))? {
                Waited::Batch(batch) => batch,
                Waited::Ended => break,
                Waited::GaveUp => continue,
            };
            self.run.state.batch = BatchPlace { index, loader, is_last: index + 1 == batches };
            self.run.shared.metrics.set_batch_size(batch.size());
            self.evaluate_batch(phase, &batch, &name)?;
            index += 1;
        }
        Ok(())
    }

    fn evaluate_batch(&mut self, phase: Phase, batch: &M::Batch, name: &str) -> Result<(), Failure> {
        evaluation_event!(self, phase, ValidationBatchStart TestBatchStart PredictBatchStart { batch: self.run.view(batch, name) });
        let BatchPlace { index, loader, .. } = self.run.state.batch;
        let seed = self.run.step_seed(phase, index ^ (loader as u64) << 32);
        self.run.at(Who::Module, "reseed");
        self.module.reseed(seed);
        let ends = match phase {
            Phase::Test => Event::TestBatchEnd,
            Phase::Predict => Event::PredictBatchEnd,
            Phase::Train | Phase::Validate | Phase::SanityCheck => Event::ValidationBatchEnd,
        };
        let wanted = self.run.hooks.wants(ends);
        self.run.shared.metrics.begin_batch(wanted);
        self.run.values.outputs = wanted.then(Outputs::default);
        if phase == Phase::Predict {
            return self.predict_batch(batch, name);
        }
        let test = phase == Phase::Test;
        self.run.at(Who::Module, if test { "test_step" } else { "validation_step" });
        let cx = &mut Cx::new(&mut self.run);
        let done =
            if test { self.module.test_step(batch, cx) } else { self.module.validation_step(batch, cx) };
        self.run.checked(done)?;
        self.run.after_module(self.module)?;
        let Evaluated { loss, metrics, outputs } = self.evaluated(phase);
        let (batch_metrics, outputs) = (&metrics, &outputs);
        if test {
            event!(
                self,
                TestBatchEnd {
                    batch: self.run.view(batch, name),
                    loss,
                    batch_metrics,
                    outputs: Tensors::new(outputs)
                }
            );
        } else {
            event!(
                self,
                ValidationBatchEnd {
                    batch: self.run.view(batch, name),
                    loss,
                    batch_metrics,
                    outputs: Tensors::new(outputs)
                }
            );
        }
        Ok(())
    }

    /// What the module's step left for the hooks that receive the end of its batch.
    fn evaluated(&mut self, phase: Phase) -> Evaluated {
        let metrics = self.run.shared.metrics.take_batch();
        let loss = metrics.get(phase.loss_metric()).copied();
        Evaluated { loss, metrics, outputs: self.run.values.outputs.take().unwrap_or_default() }
    }

    fn predict_batch(&mut self, batch: &M::Batch, name: &str) -> Result<(), Failure> {
        self.run.at(Who::Module, "predict_step");
        let prediction = self.module.predict_step(batch, &mut Cx::new(&mut self.run));
        let prediction = self.run.checked(prediction)?;
        self.run.after_module(self.module)?;
        let Evaluated { loss, metrics, outputs } = self.evaluated(Phase::Predict);
        event!(
            self,
            PredictBatchEnd {
                batch: self.run.view(batch, name),
                prediction: &prediction,
                loss,
                batch_metrics: &metrics,
                outputs: Tensors::new(&outputs)
            }
        );
        if let Some(of_loader) = self.predictions.last_mut() {
            of_loader.push(prediction);
        }
        Ok(())
    }
}
