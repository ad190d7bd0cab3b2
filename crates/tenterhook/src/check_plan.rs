//! Checks the plan before step 1.

use tenterhook_core::plan::{self, DeclaredMetric, NoValidation, RunFacts, TRAIN_LOSS};
use tenterhook_core::{Failure, Phase, PlanError, Stage, epoch_label};

use crate::call::Call;
use crate::journal::RunNotice;
use crate::loops::Callee;
use crate::loops::fit::Training;
use crate::module::Module;

/// When the next check for metrics that hooks read but that are not logged is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum UnloggedCheck {
    #[default]
    AfterValidation,
    AfterEpoch,
    Reported,
}

impl<M: Module> Call<'_, M> {
    /// Fails before step 1 if the plan has errors, and reports its warnings.
    pub(crate) fn check_plan(&mut self, training: &Training<M::Batch>) -> Result<(), Failure> {
        let (warnings, refusals): (Vec<_>, Vec<_>) =
            self.all_plan_errors(training).into_iter().partition(PlanError::is_warning);
        for warning in warnings {
            self.run.note(RunNotice::PlanProblem(warning));
        }
        if refusals.is_empty() || self.options.lenient {
            for refusal in refusals {
                self.run.note(RunNotice::PlanProblem(refusal));
            }
            return Ok(());
        }
        self.run.enter(Callee::Trainer, "plan");
        let all: Vec<_> = refusals.iter().map(ToString::to_string).collect();
        Err(self.run.failed(format!("refused before step 1: {}", all.join("\nalso refused: ")).into(), false))
    }

    /// Reports unmet needs of hooks before an evaluation, which can run without them.
    pub(crate) fn report_unmet_needs(&mut self) {
        for lack in plan::environment_problems(&self.run.hooks.declared()) {
            self.run.note(RunNotice::PlanProblem(lack));
        }
    }

    /// The errors and warnings ([`PlanError::is_warning`]) of the plan. Only the data's set-up is run.
    pub(crate) fn plan_errors(&mut self) -> Result<Vec<PlanError>, (Failure, Vec<Failure>)> {
        let (mut failures, mut errors) = (Vec::new(), Vec::new());
        self.guarded(Callee::Data, "setup", &mut failures, |call| call.data.setup(Stage::Fit));
        if failures.is_empty() {
            self.shielded(&mut failures, |call| {
                call.prepare_evaluation()?;
                let training = call.training()?;
                errors = call.all_plan_errors(&training);
                Ok(())
            });
        }
        self.guarded(Callee::Data, "teardown", &mut failures, |call| call.data.teardown(Stage::Fit));
        let mut failures = failures.into_iter();
        failures.next().map_or(Ok(errors), |first| Err((first, failures.collect())))
    }

    /// Reports once the metrics that hooks read and that are not logged by the end of the first validation.
    /// Training metrics and those that hooks write are checked at the end of the epoch; so are all metrics if
    /// there is no validation. The plan refuses them earlier only if the module declares its metrics.
    pub(crate) fn report_unlogged(&mut self, after: UnloggedCheck) {
        let (shared, progress) = (&self.run.shared, &self.run.state.progress);
        let expected = if shared.run.validation.enabled { self.unlogged } else { UnloggedCheck::AfterEpoch };
        if after != expected || self.unlogged == UnloggedCheck::Reported || self.run.ending.signal.is_some() {
            return;
        }
        let declared = self.run.hooks.declared();
        let comes_later =
            |name: &str| name.starts_with("train/") || declared.iter().any(|spec| spec.writes_to(name));
        let had_validation = self.unlogged == UnloggedCheck::AfterEpoch;
        let is_there = |name: &str| {
            let waits = comes_later(name);
            let is_due = match after {
                UnloggedCheck::AfterValidation => !waits,
                _ => waits || !had_validation,
            };
            !is_due || name == TRAIN_LOSS || shared.metrics.get(name).is_some() || shared.board.has(name)
        };
        let epoch = epoch_label(progress.epoch, shared.run.total_epochs);
        let (label, next) = match after {
            UnloggedCheck::AfterValidation => {
                (format!("the validation in {epoch}"), UnloggedCheck::AfterEpoch)
            }
            _ => (epoch, UnloggedCheck::Reported),
        };
        let missing = plan::not_logged(&declared, &label, &shared.metrics.names(), is_there);
        self.unlogged = next;
        for missing in missing {
            self.run.note(RunNotice::PlanProblem(missing));
        }
    }

    /// Refuses settings that manual optimization would ignore, like Lightning.
    pub(crate) fn check_manual(&mut self) -> Result<(), Failure> {
        if self.module.automatic_optimization() {
            return Ok(());
        }
        let limits = &self.run.limits;
        let ignored = if limits.clip.is_some() {
            "gradient_clip_val"
        } else if limits.accumulate > 1 {
            "accumulate_grad_batches"
        } else {
            return Ok(());
        };
        self.run.enter(Callee::Trainer, "settings");
        let error =
            format!("`{ignored}` has no effect with manual optimization; unset it, and let the module do it");
        Err(self.run.failed(error.into(), false))
    }

    fn all_plan_errors(&self, training: &Training<M::Batch>) -> Vec<PlanError> {
        let limits = &self.run.limits;
        let validation = &self.run.shared.run.validation;
        let no_validation = if validation.enabled {
            let too_late =
                limits.max_epochs.zip(validation.every_n_epochs).filter(|(max, every)| every > max);
            too_late.map(|(max, every)| NoValidation {
                why: format!("`check_val_every_n_epoch = {every}`, but there are only {max} epochs"),
                fix: "lower it".to_owned(),
            })
        } else {
            Some(NoValidation {
                why: "there is nothing to validate on".to_owned(),
                fix: "give validation data, or raise `limit_val_batches`".to_owned(),
            })
        };
        let per_epoch = training.stream.length();
        let batches =
            per_epoch.zip(limits.max_epochs).map(|(batches, epochs)| batches.saturating_mul(epochs));
        let steps = limits.horizon(per_epoch, self.module.automatic_optimization()).steps;
        let metrics = self.module.metrics().map(|metrics| with_loaders(metrics, &self.run.loaders.names[1]));
        let mut world = RunFacts { metrics, no_validation, steps, epochs: limits.max_epochs, batches };
        if limits.fast_dev_run {
            // A dry run is too short for most cadences.
            (world.steps, world.epochs, world.batches) = (None, None, None);
        }
        plan::check(&self.run.hooks.declared(), &world)
    }
}

/// With several validation loaders, a metric is also logged for each of them.
fn with_loaders(metrics: Vec<DeclaredMetric>, loaders: &[String]) -> Vec<DeclaredMetric> {
    let of_loaders = metrics.iter().filter(|metric| metric.phase == Phase::Validate && loaders.len() > 1);
    let of_loaders = of_loaders.flat_map(|metric| {
        loaders.iter().map(|loader| DeclaredMetric::new(format!("{}/{loader}", metric.name), metric.phase))
    });
    let of_loaders: Vec<_> = of_loaders.collect();
    [metrics, of_loaders].concat()
}
