//! The four calls: the loop is made from what the trainer holds, runs, and is taken apart again.

use tenterhook_core::moment::FixedClock;
use tenterhook_core::{
    Failure, HookInfo, Phase, PlanError, RunInfo, Shared, Stage, Status, Tier, backtraces,
};

use super::Trainer;
use crate::call::{Call, CallOptions};
use crate::data::DataModule;
use crate::journal::Journal;
use crate::loops::Loop;
use crate::module::Module;
use crate::report::{Predictions, Report, RunError};
use crate::resume::ResumeOptions;
use crate::settings::{Limits, Settings};
use crate::strategy::Solo;

impl Trainer {
    /// What the plan would refuse before step 1 of a `fit`, and what it would only warn of
    /// ([`PlanError::is_warning`]). Nothing is run; only the data is set up.
    pub fn refusals<M: Module>(
        &mut self,
        module: &mut M,
        data: &mut dyn DataModule<M::Batch>,
    ) -> Result<Vec<PlanError>, RunError> {
        let mut refusals = Vec::new();
        self.in_session(Stage::Fit, module, data, |session| {
            refusals = session.refusals()?;
            Ok(())
        })?;
        Ok(refusals)
    }

    /// Trains, from step 0: a second call goes on with the weights and the hooks as they are, and counts anew.
    #[allow(clippy::redundant_closure_for_method_calls)] // the method itself is not general enough in its lifetime
    pub fn fit<M: Module>(
        &mut self,
        module: &mut M,
        data: &mut dyn DataModule<M::Batch>,
    ) -> Result<Report, RunError> {
        self.call(Stage::Fit, module, data, |session| session.fit()).map(|(report, _)| report)
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

    /// Predicts: the predictions of every loader, in order.
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
        self.call(stage, module, data, |session| {
            session.run.state.status = Status::Training;
            session.announce_restored()?;
            session.report_lacks();
            session.prepare_evaluation()?;
            session.identify_evaluation()?;
            session.begin_recording()?;
            session.evaluate(phase)
        })
    }

    fn call<M: Module>(
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
        self.in_session(stage, module, data, |session| {
            let ran = session.run(body);
            let ended = match (ran, session.run.end_recording()) {
                (Ok(()), ended) => ended.map_err(|failure| (failure, Vec::new())),
                (Err((first, mut later)), ended) => {
                    later.extend(ended.err());
                    Err((first, later))
                }
            };
            session.run.end_on_all(ended)
        })
    }

    fn in_session<M: Module>(
        &mut self,
        stage: Stage,
        module: &mut M,
        data: &mut dyn DataModule<M::Batch>,
        body: impl FnOnce(&mut Call<'_, M>) -> Result<(), (Failure, Vec<Failure>)>,
    ) -> Result<Predictions<M>, RunError> {
        let _keeping = self.settings.debug.then(backtraces::keep);
        let run = self.begin(stage);
        // A checkpoint is restored by the next call alone.
        let resume = ResumeOptions { checkpoint: self.resume.checkpoint.take(), ..self.resume.clone() };
        let Settings { seed, deterministic, .. } = self.settings;
        let options = CallOptions { seed, deterministic, lenient: self.lenient };
        let mut session = Call::new(run, (module, data), options, resume);
        let ran = body(&mut session);
        let Call { run, predictions, .. } = session;
        let report = self.end(run);
        match ran {
            Ok(()) => Ok((report, predictions)),
            Err((failure, later)) => Err(RunError::Failed { failure, later, report: Box::new(report) }),
        }
    }

    /// The loop of a call, which has what the trainer holds until the call ends.
    fn begin<M: Module>(&mut self, stage: Stage) -> Loop<M> {
        let nothing = Shared::new(RunInfo::default(), 0, Box::new(FixedClock::default()));
        let (hooks, shared) = (std::mem::take(&mut self.hooks), std::mem::replace(&mut self.shared, nothing));
        let strategy = std::mem::replace(&mut self.strategy, Box::new(Solo));
        let mut run =
            Loop::new(hooks, shared, Limits::of(&self.settings), stage, self.journal.open(), strategy);
        let (is_recorded, rehearsal) = (run.journal.recording.is_some(), run.shared.run.rehearsal);
        run.hooks.trace_updates(self.settings.trace_updates && is_recorded);
        run.open_accounts(self.settings.account_hooks && !rehearsal, self.spent);
        if let Some(interrupt) = &self.interrupt {
            run.ending.interrupt = interrupt.clone();
            run.checkpointer.emergency.is_possible = true;
        }
        let saves_some = |hook: &HookInfo| hook.tier == Tier::Checkpoint;
        let keeps = self.placed || is_recorded || run.hooks.list().iter().any(saves_some);
        run.checkpointer.kept = keeps && stage == Stage::Fit && !run.limits.fast_dev_run && !rehearsal;
        if stage != Stage::Fit {
            // An evaluation does not count; it happens where training stands.
            run.state.progress = self.progress;
        }
        run
    }

    /// Takes back what the loop of a call had, and reports what it came to.
    fn end<M: Module>(&mut self, run: Loop<M>) -> Report {
        let (hook_costs, sinks) = (run.hook_costs(), run.sinks());
        self.spent = run.spent();
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
