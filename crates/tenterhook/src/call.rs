//! One call of the trainer (`fit`, `validate`, `test`, `predict`): set-up, body and teardown, and the
//! clean-up after a failure.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tenterhook_core::failure::panic_message;
use tenterhook_core::plan::TRAIN_LOSS;
use tenterhook_core::{
    BoxError, Exception, Failure, HookRunner, LogOptions, Metrics, Outcome, Stage, Status, Teardown,
};

use crate::check_plan::UnloggedCheck;
use crate::cx::Aborting;
use crate::data::{DataModule, Loaders, Split};
use crate::journal::Consequence;
use crate::loops::{Callee, Loop};
use crate::module::Module;
use crate::resume::{Resume, ResumeOptions};
use crate::train_stream::TrainStream;

pub(crate) struct Call<'t, M: Module> {
    pub(crate) run: Loop<M>,
    pub(crate) module: &'t mut M,
    pub(crate) data: &'t mut dyn DataModule<M::Batch>,
    /// The evaluation loaders and their limits.
    pub(crate) evaluation: LimitedLoaders<M::Batch>,
    /// The training batches, until training takes them.
    pub(crate) train_stream: Option<TrainStream<M::Batch>>,
    /// The predictions of each loader.
    pub(crate) predictions: Vec<Vec<M::Prediction>>,
    pub(crate) resume: Resume,
    /// The data of this call has been fingerprinted.
    pub(crate) identified: bool,
    pub(crate) options: CallOptions,
    /// When to report metrics that hooks read but that were not logged.
    pub(crate) unlogged: UnloggedCheck,
    torn_down: TornDown,
}

/// Settings of a call.
#[derive(Clone, Copy)]
pub(crate) struct CallOptions {
    pub(crate) seed: u64,
    pub(crate) deterministic: bool,
    /// Problems of the plan are only reported.
    pub(crate) lenient: bool,
}

/// The parts that the user supplies.
type UserParts<'t, M> = (&'t mut M, &'t mut dyn DataModule<<M as Module>::Batch>);

/// Loaders, and the number of batches to use of each; `None` is all.
pub(crate) type LimitedLoaders<B> = (Loaders<B>, Vec<Option<u64>>);

/// The parts that are already torn down.
#[derive(Default)]
struct TornDown {
    strategy: bool,
    data: bool,
    module: bool,
}

impl<'t, M: Module> Call<'t, M> {
    pub(crate) fn new(
        run: Loop<M>,
        (module, data): UserParts<'t, M>,
        options: CallOptions,
        resume: ResumeOptions,
    ) -> Call<'t, M> {
        Call {
            run,
            module,
            data,
            evaluation: Default::default(),
            train_stream: None,
            predictions: Vec::new(),
            resume: Resume::new(resume),
            identified: false,
            options,
            unlogged: UnloggedCheck::default(),
            torn_down: TornDown::default(),
        }
    }

    /// Runs the call. After a failure, `on_exception` and then the rest of teardown run exactly once. Returns
    /// the first failure and those that followed it. If the checkpoint is refused, only the data module has
    /// been set up, and only it is torn down.
    pub(crate) fn run(
        &mut self,
        body: impl FnOnce(&mut Call<'t, M>) -> Result<(), Failure>,
    ) -> Result<(), (Failure, Vec<Failure>)> {
        let ran = catch_unwind(AssertUnwindSafe(|| {
            self.set_up()?;
            body(self)?;
            self.run.state.status = Status::Completed;
            if let Some(signal) = self.run.ending.signal.clone() {
                self.run.state.status = Status::Interrupted;
                self.run.ending.outcome = Outcome::Interrupted { signal };
            }
            self.finish_saves()?;
            self.tear_down()
        }));
        let failure = match ran {
            Ok(Ok(())) => return self.finished(),
            Ok(Err(failure)) => failure,
            // The runner catches the panics of hooks, so this one comes from the module, the data or the
            // trainer.
            Err(panic) => self.run.failed(panic_message(&*panic).into(), true),
        };
        let mut later = Vec::new();
        let failure = first_failure(&mut self.run.hooks, failure, &mut later);
        self.run.ranks.leave(&failure);
        later.append(&mut self.run.ending.later);
        let run = &mut self.run;
        run.accounts.end_steps(&mut run.hooks, &*run.shared.clock);
        // Other hooks may have failed earlier in the same event.
        self.shielded(&mut later, |call| {
            let Loop { journal, hooks, shared, state, .. } = &mut call.run;
            journal.note_changes_of_hooks(hooks, shared, &state.progress, state.status);
            Ok(())
        });
        self.abort(&failure);
        // The metrics of an unfinished evaluation are discarded.
        self.run.shared.metrics.end_evaluation();
        self.run.journal.closing = true;
        if self.resume.validating {
            let stage = self.run.state.stage;
            self.guarded(Callee::Data, "teardown", &mut later, |call| call.data.teardown(stage));
        } else {
            self.report(&failure, &mut later);
            self.tear_down_the_rest(&mut later);
            later.extend(self.finish_hooks());
        }
        self.note_later(&later);
        Err((failure, later))
    }

    /// After a teardown without failures. Worker threads of hooks may still fail.
    fn finished(&mut self) -> Result<(), (Failure, Vec<Failure>)> {
        let mut later = self.finish_hooks();
        if later.is_empty() {
            return Ok(());
        }
        let first = later.remove(0);
        self.abort(&first);
        self.note_later(&later);
        Err((first, later))
    }

    fn abort(&mut self, failure: &Failure) {
        self.run.journal.note_failure(failure, Consequence::Aborts, &self.run.shared);
        self.run.state.status = Status::Error;
        self.run.ending.outcome = Outcome::Failed { error: failure.to_string() };
    }

    fn note_later(&mut self, later: &[Failure]) {
        for failure in later {
            let then = Consequence::Afterwards { disabled: false };
            self.run.journal.note_failure(failure, then, &self.run.shared);
        }
    }

    /// Waits for the worker threads of hooks.
    fn finish_hooks(&mut self) -> Vec<Failure> {
        let mut failures = self.run.hooks.finish(&self.run.state.progress, &self.run.shared);
        self.shielded(&mut failures, |call| call.run.after_event(call.module));
        failures
    }

    fn set_up(&mut self) -> Result<(), Failure> {
        let stage = self.run.state.stage;
        self.agree_on_start()?;
        if stage == Stage::Fit {
            self.run.shared.metrics.begin_fit();
        }
        self.run.hooks.publish(&self.run.shared);
        self.run.hooks.begin_call();
        self.run.enter(Callee::Module, "prepare");
        self.module.prepare(self.options.seed, self.options.deterministic);
        self.run.enter(Callee::Data, "setup");
        self.data.join(self.run.ranks.world);
        call!(self.run, Data, "setup", self.data.setup(stage))?;
        self.run.checkpointer.data = self.data.state();
        self.resume.validating = true;
        self.validate_resume()?;
        self.resume.validating = false;
        self.run.enter(Callee::Module, "metrics");
        reserve_metrics(&self.run.shared.metrics, &*self.module);
        emit!(self.run, self.module, Setup { stage, config: &self.run.shared.run.config });
        call!(self.run, Module, "setup", self.module.setup(stage))?;
        call!(self.run, Module, "configure_model", self.module.configure_model())?;
        self.restore()?;
        call!(self.run, Strategy, "setup", self.run.ranks.strategy.setup(stage))?;
        self.run.enter(Callee::Module, "params");
        self.run.shared.run.parameters = count_parameters(self.module);
        // A module may declare more metrics once it is built and restored.
        self.run.enter(Callee::Module, "metrics");
        reserve_metrics(&self.run.shared.metrics, &*self.module);
        if stage == Stage::Fit {
            let stream = self.open_train_stream()?;
            let horizon = self.run.limits.horizon(stream.length(), self.module.automatic_optimization());
            let (run, limits) = (&mut self.run.shared.run, &self.run.limits);
            (run.total_epochs, run.total_steps) = (horizon.epochs, horizon.steps);
            (run.min_epochs, run.min_steps) = (limits.min_epochs, limits.min_steps);
            run.epoch_batches = stream.length();
            run.total_batches = limits.total_batches(stream.length());
            self.train_stream = Some(stream);
            self.run.update.optimization =
                call!(self.run, Module, "configure_optimizers", self.module.configure_optimizers(horizon))?;
        }
        self.compare_modules()
    }

    fn tear_down(&mut self) -> Result<(), Failure> {
        let stage = self.run.state.stage;
        self.torn_down.strategy = true;
        call!(self.run, Strategy, "teardown", self.run.ranks.strategy.teardown(stage))?;
        if stage == Stage::Fit {
            event!(self, FitEnd { outcome: &self.run.ending.outcome });
        }
        self.torn_down.data = true;
        call!(self.run, Data, "teardown", self.data.teardown(stage))?;
        self.run.journal.closing = true;
        let (run_cx, outcome) = (run_cx!(self.run, self.module), &self.run.ending.outcome);
        self.run.hooks.deliver(&Teardown::new(run_cx, stage, outcome))?;
        self.run.after_event(self.module)?;
        self.torn_down.module = true;
        call!(self.run, Module, "teardown", self.module.teardown(stage))
    }

    /// Delivers `on_exception` to hooks, module, data and strategy. Further failures are collected and do not
    /// stop the delivery.
    fn report(&mut self, failure: &Failure, later: &mut Vec<Failure>) {
        self.deliver_to_all_hooks(later, |call| {
            let run_cx = run_cx!(call.run, call.module);
            call.run.hooks.deliver_despite_failures(&Exception::new(run_cx, failure))
        });
        self.shielded(later, |call| call.run.save_after_failure(call.module));
        self.shielded(later, Call::finish_saves);
        self.guarded(Callee::Module, "on_exception", later, |call| call.module.on_exception(failure));
        self.guarded(Callee::Data, "on_exception", later, |call| call.data.on_exception(failure));
        self.guarded(Callee::Strategy, "on_exception", later, |call| {
            call.run.ranks.strategy.on_exception(failure)
        });
    }

    fn tear_down_the_rest(&mut self, later: &mut Vec<Failure>) {
        let stage = self.run.state.stage;
        if !std::mem::replace(&mut self.torn_down.strategy, true) {
            self.guarded(Callee::Strategy, "teardown", later, |call| call.run.ranks.strategy.teardown(stage));
        }
        if !std::mem::replace(&mut self.torn_down.data, true) {
            self.guarded(Callee::Data, "teardown", later, |call| call.data.teardown(stage));
        }
        self.deliver_to_all_hooks(later, |call| {
            let (run_cx, outcome) = (run_cx!(call.run, call.module), &call.run.ending.outcome);
            call.run.hooks.deliver_despite_failures(&Teardown::new(run_cx, stage, outcome))
        });
        if !std::mem::replace(&mut self.torn_down.module, true) {
            self.guarded(Callee::Module, "teardown", later, |call| call.module.teardown(stage));
        }
    }

    /// Delivers an event to all hooks, even after failures, and applies their decisions.
    fn deliver_to_all_hooks(
        &mut self,
        later: &mut Vec<Failure>,
        deliver: impl FnOnce(&mut Self) -> Vec<Failure>,
    ) {
        let mut failed = Vec::new();
        self.shielded(later, |call| {
            failed = deliver(call);
            Ok(())
        });
        later.append(&mut failed);
        self.shielded(later, |call| call.run.after_event(call.module));
    }

    /// Runs a part of the clean-up that calls user code. Its failure is collected and does not stop the
    /// clean-up.
    pub(crate) fn guarded(
        &mut self,
        callee: Callee,
        place: &'static str,
        later: &mut Vec<Failure>,
        part: impl FnOnce(&mut Self) -> Result<(), BoxError>,
    ) {
        self.run.enter(callee, place);
        self.shielded(later, |call| {
            let done = part(call);
            call.run.checked(done)
        });
    }

    /// Runs a part of the clean-up. Its failure or panic is collected and does not stop the clean-up. Returns
    /// `false` after a panic.
    pub(crate) fn shielded(
        &mut self,
        later: &mut Vec<Failure>,
        part: impl FnOnce(&mut Self) -> Result<(), Failure>,
    ) -> bool {
        let ran = catch_unwind(AssertUnwindSafe(|| part(self)));
        let ended = ran.is_ok();
        match ran {
            Ok(done) => later.extend(done.err()),
            Err(panic) => later.push(self.run.failed(panic_message(&*panic).into(), true)),
        }
        later.append(&mut self.run.ending.later);
        ended
    }

    /// Makes the loaders of a split, and applies the limits to them. With a limit of 0 there are none.
    pub(crate) fn loaders(&mut self, split: Split) -> Result<LimitedLoaders<M::Batch>, Failure> {
        if self.run.limits.batch_limit(split).is_zero() {
            return Ok((Vec::new(), vec![Some(0)]));
        }
        let loaders = call!(self.run, Data, "loaders", self.data.loaders(split))?;
        let names: Vec<_> = loaders.iter().map(|loader| loader.name().to_owned()).collect();
        if let Some(twice) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
            let error =
                format!("two {} loaders are called `{}`; give them different names", split.key(), twice.1);
            return Err(self.run.failed(error.into(), false));
        }
        self.run.loaders.watch.wait.set_names(split, &names);
        self.run.loaders.names[usize::from(split != Split::Train)] = names;
        let limits = &self.run.limits;
        let batches: Result<Vec<_>, _> =
            loaders.iter().map(|loader| limits.batches(split, loader.batches())).collect();
        let batches = call!(self.run, Trainer, "limits", batches.map_err(Into::into))?;
        Ok((loaders, batches))
    }

    /// Logs the epoch's mean loss.
    pub(crate) fn log_epoch_loss(&mut self) {
        use tenterhook_core::run_context::LossHistory;
        if let Some(mean) = self.run.values.losses.average() {
            let run = &mut self.run;
            run.journal.check_finite(mean, &run.hooks, &run.shared, &run.state.progress);
            self.run.shared.metrics.log(TRAIN_LOSS, mean, LogOptions::STEP);
        }
    }

    /// Creates the run directory, after all checks.
    pub(crate) fn begin_recording(&mut self) -> Result<(), Failure> {
        let (engine, resume) = (self.module.engine(), &self.resume);
        self.run.begin_recording(
            self.options.seed,
            engine,
            resume.from.as_deref(),
            &resume.file_positions,
        )?;
        self.report_changes();
        Ok(())
    }
}

/// A hook's failure within a step of the module is deferred until the step returns, and precedes a failure of
/// the step. The step's failure is dropped if it only passes on the hook's failure.
fn first_failure(hooks: &mut HookRunner, failure: Failure, later: &mut Vec<Failure>) -> Failure {
    let Some(of_hook) = hooks.take_aborted() else { return failure };
    later.extend(Some(failure).filter(|failure| !failure.error.is::<Aborting>()));
    of_hook
}

/// Reserves the metric names of module and trainer, which hooks may not log.
fn reserve_metrics(metrics: &Metrics, module: &impl Module) {
    let declared = module.metrics().into_iter().flatten().map(|metric| metric.name);
    metrics.reserve(declared.chain([TRAIN_LOSS.to_owned()]));
}

/// The number of trainable parameters.
fn count_parameters(module: &impl Module) -> u64 {
    let params = module.params();
    let trained = (0..params.count()).filter(|index| params.is_trained(*index));
    trained.map(|index| params.shape(index).iter().product::<usize>() as u64).sum()
}
