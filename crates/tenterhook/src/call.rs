//! One call of the trainer: set-up, a body, teardown, and what happens in between when something fails.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tenterhook_core::failure::panic_message;
use tenterhook_core::plan::TRAIN_LOSS;
use tenterhook_core::{BoxError, Exception, Failure, LogOptions, Outcome, Stage, Status, Teardown};

use crate::cx::Aborting;
use crate::data::{DataModule, Loaders, Split};
use crate::feed::Feed;
use crate::journal::Then;
use crate::loops::{Loop, Who};
use crate::module::{Horizon, Module};
use crate::refuse::Unlogged;
use crate::resume::{Resume, ResumeOptions};

pub(crate) struct Call<'t, M: Module> {
    pub(crate) run: Loop<M>,
    pub(crate) module: &'t mut M,
    pub(crate) data: &'t mut dyn DataModule<M::Batch>,
    /// The loaders that evaluations walk through, and how much of each to use.
    pub(crate) evaluation: LimitedLoaders<M::Batch>,
    /// The training batches, from their making to the beginning of training.
    pub(crate) feed: Option<Feed<M::Batch>>,
    /// What `predict` yields, by loader.
    pub(crate) predictions: Vec<Vec<M::Prediction>>,
    /// What is restored, and what waits for its moment.
    pub(crate) resume: Resume,
    /// All data of this call has been fingerprinted.
    pub(crate) identified: bool,
    pub(crate) options: CallOptions,
    /// When metrics that hooks read and nobody logs are reported next.
    pub(crate) unlogged: Unlogged,
    torn: Torn,
}

/// How the module is prepared, and what the plan may refuse.
#[derive(Clone, Copy)]
pub(crate) struct CallOptions {
    pub(crate) seed: u64,
    pub(crate) deterministic: bool,
    /// What the plan refuses is only reported.
    pub(crate) lenient: bool,
}

/// The parts that the user brings.
type UserParts<'t, M> = (&'t mut M, &'t mut dyn DataModule<<M as Module>::Batch>);

/// Loaders, and how many batches of each to use; `None` is until it ends.
pub(crate) type LimitedLoaders<B> = (Loaders<B>, Vec<Option<u64>>);

/// Who has been torn down already, so that nobody is twice.
#[derive(Default)]
struct Torn {
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
            feed: None,
            predictions: Vec::new(),
            resume: Resume::new(resume),
            identified: false,
            options,
            unlogged: Unlogged::default(),
            torn: Torn::default(),
        }
    }

    /// Runs the call to its end. After a failure: `on_exception`, then whatever of teardown is left,
    /// exactly once. The first failure is returned, with those that came after it. Where the checkpoint is refused, only
    /// the data module has been set up, and only it is torn down.
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
            // Hooks' panics are caught by the runner, so this is the module's, the data's or our own.
            Err(panic) => self.run.failed(panic_message(&*panic).into(), true),
        };
        let mut later = Vec::new();
        let failure = self.first(failure, &mut later);
        self.run.leave_ranks(&failure);
        later.append(&mut self.run.ending.later);
        self.run.end_steps();
        // What others failed by in the same event came before it.
        self.shielded(&mut later, |session| {
            session.run.note_news();
            Ok(())
        });
        self.run.note_failure(&failure, Then::Aborts);
        self.run.state.status = Status::Error;
        self.run.ending.outcome = Outcome::Failed { error: failure.to_string() };
        // What an evaluation was aggregating is void, and the next call logs for itself.
        self.run.shared.metrics.end_evaluation();
        self.run.ending.closing = true;
        if self.resume.admitting {
            let stage = self.run.state.stage;
            self.guarded(Who::Data, "teardown", &mut later, |session| session.data.teardown(stage));
        } else {
            self.report(&failure, &mut later);
            self.tear_down_the_rest(&mut later);
            later.extend(self.finish_hooks());
        }
        for failure in &later {
            self.run.note_failure(failure, Then::Afterwards { disabled: false });
        }
        Err((failure, later))
    }

    /// Everybody is torn down, and nothing has failed: what hooks have left to do may.
    fn finished(&mut self) -> Result<(), (Failure, Vec<Failure>)> {
        let mut failures = self.finish_hooks().into_iter();
        let Some(first) = failures.next() else { return Ok(()) };
        let later: Vec<_> = failures.collect();
        self.run.note_failure(&first, Then::Aborts);
        self.run.state.status = Status::Error;
        self.run.ending.outcome = Outcome::Failed { error: first.to_string() };
        for failure in &later {
            self.run.note_failure(failure, Then::Afterwards { disabled: false });
        }
        Err((first, later))
    }

    /// Hooks wait for what they handed to worker threads.
    fn finish_hooks(&mut self) -> Vec<Failure> {
        let mut failures = self.run.hooks.finish(&self.run.state.progress, &self.run.shared);
        self.shielded(&mut failures, |session| session.run.after_event(session.module));
        failures
    }

    /// A hook's failure within the module's step waits until that is over. If the step failed too, it was second, unless it
    /// only passed on what it was told.
    fn first(&mut self, failure: Failure, later: &mut Vec<Failure>) -> Failure {
        let Some(of_hook) = self.run.hooks.take_aborted() else { return failure };
        later.extend(Some(failure).filter(|failure| !failure.error.is::<Aborting>()));
        of_hook
    }

    fn set_up(&mut self) -> Result<(), Failure> {
        let stage = self.run.state.stage;
        self.agree_on_start()?;
        if stage == Stage::Fit {
            self.run.shared.metrics.begin_fit();
        }
        self.run.hooks.publish(&self.run.shared);
        self.run.hooks.begin_call();
        self.run.at(Who::Module, "prepare");
        self.module.prepare(self.options.seed, self.options.deterministic);
        self.run.at(Who::Data, "setup");
        self.data.join(self.run.ranks.world);
        let done = self.data.setup(stage);
        self.run.checked(done)?;
        self.run.checkpointer.data = self.data.state();
        self.resume.admitting = true;
        self.admit()?;
        self.resume.admitting = false;
        self.run.at(Who::Module, "metrics");
        self.reserve_metrics();
        emit!(self.run, self.module, Setup { stage, config: &self.run.shared.run.config });
        self.run.at(Who::Module, "setup");
        let done = self.module.setup(stage);
        self.run.checked(done)?;
        self.run.at(Who::Module, "configure_model");
        let done = self.module.configure_model();
        self.run.checked(done)?;
        self.restore()?;
        self.run.at(Who::Strategy, "setup");
        let done = self.run.ranks.strategy.setup(stage);
        self.run.checked(done)?;
        self.run.at(Who::Module, "params");
        self.run.shared.run.parameters = count_parameters(self.module);
        // Built and restored, it may have more to say.
        self.run.at(Who::Module, "metrics");
        self.reserve_metrics();
        if stage == Stage::Fit {
            let feed = self.training_feed()?;
            let horizon = self.horizon(&feed);
            self.run.shared.run.total_epochs = horizon.epochs;
            self.run.shared.run.total_steps = horizon.steps;
            self.run.shared.run.epoch_batches = feed.length();
            self.run.shared.run.min_epochs = self.run.limits.min_epochs;
            self.run.shared.run.min_steps = self.run.limits.min_steps;
            self.run.shared.run.total_batches = self.run.limits.total_batches(feed.length());
            self.feed = Some(feed);
            self.run.at(Who::Module, "configure_optimizers");
            let optimization = self.module.configure_optimizers(horizon);
            self.run.update.optimization = self.run.checked(optimization)?;
        }
        self.compare_modules()
    }

    /// What the module and the trainer log is theirs from the first event on.
    fn reserve_metrics(&self) {
        let declared = self.module.metrics().into_iter().flatten().map(|metric| metric.name);
        self.run.shared.metrics.reserve(declared.chain([TRAIN_LOSS.to_owned()]));
    }

    fn tear_down(&mut self) -> Result<(), Failure> {
        let stage = self.run.state.stage;
        self.run.at(Who::Strategy, "teardown");
        self.torn.strategy = true;
        let done = self.run.ranks.strategy.teardown(stage);
        self.run.checked(done)?;
        if stage == Stage::Fit {
            event!(self, FitEnd { outcome: &self.run.ending.outcome });
        }
        self.run.at(Who::Data, "teardown");
        self.torn.data = true;
        let done = self.data.teardown(stage);
        self.run.checked(done)?;
        self.run.ending.closing = true;
        let (moment, outcome) = (moment!(self.run, self.module), &self.run.ending.outcome);
        self.run.hooks.deliver(&Teardown::new(moment, stage, outcome))?;
        self.run.after_event(self.module)?;
        self.run.at(Who::Module, "teardown");
        self.torn.module = true;
        let done = self.module.teardown(stage);
        self.run.checked(done)
    }

    /// Tells everybody about the failure: hooks, module, data, strategy, whatever else fails on the way.
    fn report(&mut self, failure: &Failure, later: &mut Vec<Failure>) {
        let mut failed = Vec::new();
        self.shielded(later, |session| {
            let moment = moment!(session.run, session.module);
            failed = session.run.hooks.deliver_through(&Exception::new(moment, failure));
            Ok(())
        });
        later.append(&mut failed);
        self.shielded(later, |session| session.run.after_event(session.module));
        self.shielded(later, |session| session.run.save_after_failure(session.module));
        self.shielded(later, Call::finish_saves);
        self.guarded(Who::Module, "on_exception", later, |session| session.module.on_exception(failure));
        self.guarded(Who::Data, "on_exception", later, |session| session.data.on_exception(failure));
        self.guarded(Who::Strategy, "on_exception", later, |session| {
            session.run.ranks.strategy.on_exception(failure)
        });
    }

    fn tear_down_the_rest(&mut self, later: &mut Vec<Failure>) {
        let stage = self.run.state.stage;
        if !std::mem::replace(&mut self.torn.strategy, true) {
            self.guarded(Who::Strategy, "teardown", later, |session| {
                session.run.ranks.strategy.teardown(stage)
            });
        }
        if !std::mem::replace(&mut self.torn.data, true) {
            self.guarded(Who::Data, "teardown", later, |session| session.data.teardown(stage));
        }
        let mut failed = Vec::new();
        self.shielded(later, |session| {
            let (moment, outcome) = (moment!(session.run, session.module), &session.run.ending.outcome);
            failed = session.run.hooks.deliver_through(&Teardown::new(moment, stage, outcome));
            Ok(())
        });
        later.append(&mut failed);
        self.shielded(later, |session| session.run.after_event(session.module));
        if !std::mem::replace(&mut self.torn.module, true) {
            self.guarded(Who::Module, "teardown", later, |session| session.module.teardown(stage));
        }
    }

    /// Runs a part of the clean-up; what fails in it is noted and stops nothing.
    pub(crate) fn guarded(
        &mut self,
        who: Who,
        place: &'static str,
        later: &mut Vec<Failure>,
        part: impl FnOnce(&mut Self) -> Result<(), BoxError>,
    ) {
        self.run.at(who, place);
        self.shielded(later, |session| {
            let done = part(session);
            session.run.checked(done)
        });
    }

    /// Runs a part of the clean-up that says itself who failed. Whether it came to its end, be it by a failure.
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

    /// The loaders of a split, and how many batches of each to use. None at all when the limit is 0.
    pub(crate) fn loaders(&mut self, split: Split) -> Result<LimitedLoaders<M::Batch>, Failure> {
        if self.run.limits.amount(split).is_zero() {
            return Ok((Vec::new(), vec![Some(0)]));
        }
        self.run.at(Who::Data, "loaders");
        let loaders = self.data.loaders(split);
        let loaders = self.run.checked(loaders)?;
        let names: Vec<_> = loaders.iter().map(|loader| loader.name().to_owned()).collect();
        if let Some(twice) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
            let error =
                format!("two {} loaders are called `{}`; give each a name of its own", split.key(), twice.1);
            return Err(self.run.failed(error.into(), false));
        }
        self.run.loaders.watch.desk.name(split, &names);
        self.run.loaders.names[usize::from(split != Split::Train)] = names;
        self.run.at(Who::Trainer, "limits");
        let batches = loaders.iter().map(|loader| self.run.limits.batches(split, loader.batches()));
        let batches: Result<Vec<_>, _> = batches.collect();
        let batches = self.run.checked(batches.map_err(Into::into))?;
        Ok((loaders, batches))
    }

    /// How long training will be, as far as the limits and the data say.
    pub(crate) fn horizon(&self, feed: &Feed<M::Batch>) -> Horizon {
        let limits = &self.run.limits;
        // With manual optimization, only the module knows how many steps a batch has.
        let batches = feed.length().filter(|_| self.module.automatic_optimization());
        let per_epoch = batches.map(|batches| batches.div_ceil(limits.accumulate));
        Horizon::of(limits.max_steps, limits.max_epochs, per_epoch)
    }

    /// The epoch's mean loss, beside the last step's.
    pub(crate) fn log_epoch_loss(&mut self) {
        use tenterhook_core::moment::LossHistory;
        if let Some(mean) = self.run.values.losses.average() {
            self.run.check_finite(mean);
            self.run.shared.metrics.log(TRAIN_LOSS, mean, LogOptions::STEP);
        }
    }

    /// Everything was accepted: now there may be traces of the run.
    pub(crate) fn begin_recording(&mut self) -> Result<(), Failure> {
        let engine = self.module.engine();
        self.run.begin_recording(
            self.options.seed,
            engine,
            self.resume.from.as_deref(),
            &self.resume.file_positions,
        )?;
        self.report_changes();
        Ok(())
    }
}

/// How many numbers are trained.
fn count_parameters(module: &impl Module) -> u64 {
    let params = module.params();
    let trained = (0..params.count()).filter(|index| params.is_trained(*index));
    trained.map(|index| params.shape(index).iter().product::<usize>() as u64).sum()
}
