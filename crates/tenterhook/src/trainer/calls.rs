//! The calls of the trainer. Each moves the parts of the trainer into a loop, runs it, and moves them back.

use tenterhook_core::run_context::FixedClock;
use tenterhook_core::{
    Failure, HookInfo, Origin, Phase, PlanError, RunInfo, RunState, Stage, Status, Tier, backtraces,
};

use super::Trainer;
use crate::accounts::Accounts;
use crate::call::{Call, CallOptions};
use crate::data::DataModule;
use crate::journal::{Journal, RunNotice};
use crate::loops::Loop;
use crate::module::Module;
use crate::report::{Predictions, Report, RunError};
use crate::resume::ResumeOptions;
use crate::run::SinkDeliveries;
use crate::settings::{Limits, Settings};
use crate::strategy::Solo;

impl Trainer {
    /// The errors with which `fit` would refuse to start, and its warnings ([`PlanError::is_warning`]). Only
    /// the data is set up.
    pub fn plan_errors<M: Module>(
        &mut self,
        module: &mut M,
        data: &mut dyn DataModule<M::Batch>,
    ) -> Result<Vec<PlanError>, RunError> {
        let mut refusals = Vec::new();
        self.with_call(Stage::Fit, module, data, |call| {
            refusals = call.plan_errors()?;
            Ok(())
        })?;
        Ok(refusals)
    }

    /// Trains from step 0. A second call continues with the current weights and hooks, and counts from 0
    /// again.
    #[allow(clippy::redundant_closure_for_method_calls)] // the method itself is not general enough in its lifetime
    pub fn fit<M: Module>(
        &mut self,
        module: &mut M,
        data: &mut dyn DataModule<M::Batch>,
    ) -> Result<Report, RunError> {
        self.run_call(Stage::Fit, module, data, |call| call.fit()).map(|(report, _)| report)
    }

    /// Evaluates on the validation data.
    pub fn validate<M: Module>(
        &mut self,
        module: &mut M,
        data: &mut dyn DataModule<M::Batch>,
    ) -> Result<Report, RunError> {
        self.evaluate(Stage::Validate, Phase::Validate, module, data).map(|(report, _)| report)
    }

    /// Evaluates on the test data.
    pub fn test<M: Module>(
        &mut self,
        module: &mut M,
        data: &mut dyn DataModule<M::Batch>,
    ) -> Result<Report, RunError> {
        self.evaluate(Stage::Test, Phase::Test, module, data).map(|(report, _)| report)
    }

    /// Predicts. Returns the predictions of each loader, in order.
    pub fn predict<M: Module>(
        &mut self,
        module: &mut M,
        data: &mut dyn DataModule<M::Batch>,
    ) -> Result<Predictions<M>, RunError> {
        self.evaluate(Stage::Predict, Phase::Predict, module, data)
    }

    fn evaluate<M: Module>(
        &mut self,
        stage: Stage,
        phase: Phase,
        module: &mut M,
        data: &mut dyn DataModule<M::Batch>,
    ) -> Result<Predictions<M>, RunError> {
        self.run_call(stage, module, data, |call| {
            call.run.state.status = Status::Training;
            call.announce_restored()?;
            call.report_unmet_needs();
            call.prepare_evaluation()?;
            call.fingerprint_evaluation()?;
            call.begin_recording()?;
            call.evaluate(phase)
        })
    }

    fn run_call<M: Module>(
        &mut self,
        stage: Stage,
        module: &mut M,
        data: &mut dyn DataModule<M::Batch>,
        body: impl FnOnce(&mut Call<'_, M>) -> Result<(), Failure>,
    ) -> Result<Predictions<M>, RunError> {
        if stage == Stage::Fit
            && let Some(location) = self.journal.next_location()
        {
            location.set_in(&mut self.shared.run);
        }
        self.with_call(stage, module, data, |call| {
            let ran = call.run(body);
            let ended = match (ran, call.run.end_recording()) {
                (Ok(()), ended) => ended.map_err(|failure| (failure, Vec::new())),
                (Err((first, mut later)), ended) => {
                    later.extend(ended.err());
                    Err((first, later))
                }
            };
            call.run.end_on_all(ended)
        })
    }

    fn with_call<M: Module>(
        &mut self,
        stage: Stage,
        module: &mut M,
        data: &mut dyn DataModule<M::Batch>,
        body: impl FnOnce(&mut Call<'_, M>) -> Result<(), (Failure, Vec<Failure>)>,
    ) -> Result<Predictions<M>, RunError> {
        let _keeping = self.settings.debug.then(backtraces::capture);
        let run = self.begin(stage);
        // Only the next call restores the checkpoint.
        let resume = ResumeOptions { checkpoint: self.resume.checkpoint.take(), ..self.resume.clone() };
        let Settings { seed, deterministic, .. } = self.settings;
        let options = CallOptions { seed, deterministic, lenient: self.lenient };
        let mut call = Call::new(run, (module, data), options, resume);
        let ran = body(&mut call);
        let Call { run, predictions, .. } = call;
        let report = self.end(run);
        match ran {
            Ok(()) => Ok((report, predictions)),
            Err((failure, later)) => Err(RunError::Failed { failure, later, report: Box::new(report) }),
        }
    }

    /// Makes the loop of a call, and moves the trainer's parts into it.
    fn begin<M: Module>(&mut self, stage: Stage) -> Loop<M> {
        let nothing = RunState::new(RunInfo::default(), 0, Box::new(FixedClock::default()));
        let (hooks, shared) = (std::mem::take(&mut self.hooks), std::mem::replace(&mut self.shared, nothing));
        let strategy = std::mem::replace(&mut self.strategy, Box::new(Solo));
        let mut run =
            Loop::new(hooks, shared, Limits::of(&self.settings), stage, self.journal.open(), strategy);
        let (is_recorded, rehearsal) = (run.journal.recording.is_some(), run.shared.run.rehearsal);
        run.hooks.trace_gradient_changes(self.settings.trace_updates && is_recorded);
        let accounts = self.settings.account_hooks && !rehearsal;
        run.accounts = Accounts::open(&mut run.hooks, &*run.shared.clock, accounts, self.spent);
        if run.hooks.has_budgets() && !self.settings.account_hooks && !rehearsal {
            let text = "hooks have budgets, but `account_hooks` is off, so their time is not measured";
            run.note(RunNotice::Said { hook: Origin::TRAINER.into(), text: text.into() });
        }
        if let Some(interrupt) = &self.interrupt {
            run.ending.interrupt = interrupt.clone();
            run.checkpointer.emergency.is_armed = true;
        }
        let saves_some = |hook: &HookInfo| hook.tier == Tier::Checkpoint;
        let keeps = self.has_checkpoint_root || is_recorded || run.hooks.list().iter().any(saves_some);
        run.checkpointer.kept = keeps && stage == Stage::Fit && !run.limits.fast_dev_run && !rehearsal;
        if stage != Stage::Fit {
            // An evaluation has the progress of the last training.
            run.state.progress = self.progress;
        }
        run
    }

    /// Moves the parts back into the trainer, and makes the report.
    fn end<M: Module>(&mut self, run: Loop<M>) -> Report {
        let clock = &*run.shared.clock;
        let hook_costs = run.accounts.hook_costs(&run.hooks, clock);
        self.spent = run.accounts.spent(&run.hooks, clock);
        let sinks = SinkDeliveries::all(&run.hooks);
        let Loop { hooks, shared, state, ending, journal, ranks, .. } = run;
        let Journal { notices, recording, .. } = journal;
        (self.hooks, self.shared, self.progress) = (hooks, shared, state.progress);
        self.strategy = ranks.strategy;
        let recording = recording.or(ranks.unused_recording);
        let lines_lost = recording.as_ref().map_or(0, |recording| recording.recorder().lost());
        self.journal.recording = recording;
        Report {
            outcome: ending.outcome,
            progress: self.progress,
            metrics: self.shared.metrics.to_map(),
            notices: notices.kept,
            notices_left_out: notices.not_kept,
            failures: notices.failures,
            hook_costs,
            sinks,
            lines_lost,
        }
    }
}
