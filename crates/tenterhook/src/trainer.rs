//! The trainer: holds hooks and settings, and runs the four calls.

mod built_ins;
mod rehearsal;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tenterhook_core::moment::FixedClock;
use tenterhook_core::{
    AnyHook, Board, Clock, Failure, FromOptions, Hook, HookInfo, HookRunner, OptionError, Phase, PlanError,
    Progress, Registration, RosterError, RunInfo, Shared, Stage, Status, Tier, backtraces, printable,
};

use crate::accounts::Spent;
use crate::call::{Call, CallOptions};
use crate::checkpoint::Best;
use crate::config::ChangeRules;
use crate::data::DataModule;
use crate::journal::{Journal, Notices, Readers, Recording, RunNotice};
use crate::loops::Loop;
use crate::module::Module;
pub use crate::report::{Predictions, Report, RunError};
use crate::resume::ResumeOptions;
use crate::run::{Interrupt, Recorder, RunDirectory, RunDirectoryPlan, new_id};
use crate::settings::{Limits, Settings};
use crate::strategy::{Solo, Strategy};
pub(crate) use rehearsal::BatchClock;

/// Runs a module on data, with hooks.
///
/// ```
/// use tenterhook::toy::{Toy, ToyData};
/// use tenterhook::{Settings, Trainer, closure};
///
/// let mut trainer = Trainer::new(Settings { max_epochs: Some(2), ..Settings::default() })?;
/// trainer.add_hook(closure::on_train_epoch_end("print", |cx| {
///     println!("epoch {}: {:?}", cx.epoch, cx.metrics().get("train/loss"));
/// }))?;
/// let report = trainer.fit(&mut Toy::default(), &mut ToyData::default())?;
/// assert_eq!(report.progress.epochs_done, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Trainer {
    settings: Settings,
    hooks: HookRunner,
    shared: Shared,
    strategy: Box<dyn Strategy>,
    resume: ResumeOptions,
    lenient: bool,
    /// Where training stands, for the evaluations after it.
    progress: Progress,
    notify: Readers,
    recording: Option<Recording>,
    interrupt: Interrupt,
    /// Somebody else has the handle, so a signal may come.
    interruptible: bool,
    /// Somebody said where checkpoints go.
    placed: bool,
    /// The start of a run is told.
    introduces: bool,
    /// How long its calls took so far, where account is kept.
    spent: Spent,
}

/// Why a hook could not be made and registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddError {
    /// Its options are refused.
    #[error(transparent)]
    Options(#[from] OptionError),
    /// There is one of its name already.
    #[error(transparent)]
    Roster(#[from] RosterError),
}

/// The longest line of a notice on a terminal, in characters.
const LONGEST: usize = 2000;

/// Writes what hooks print to standard output, and other notices to standard error. A closed pipe does not end a
/// run.
#[allow(clippy::disallowed_methods)] // the default output of a program without `with_notices`
pub(crate) fn tell(notice: &RunNotice) {
    let text = printable::text(&notice.to_string(), LONGEST);
    let _ = match notice {
        RunNotice::Printed(_) => writeln!(std::io::stdout(), "{text}"),
        _ => writeln!(std::io::stderr(), "tenterhook: {text}"),
    };
}

/// The time since a trainer or a loop was made.
pub(crate) struct WallClock(pub(crate) Instant);

impl Clock for WallClock {
    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    // Read around every hook that is timed, so without a number of 128 bits in between.
    #[inline]
    fn nanos(&self) -> u64 {
        let since = self.0.elapsed();
        since.as_secs() * 1_000_000_000 + u64::from(since.subsec_nanos())
    }
}

impl Trainer {
    /// A trainer with these settings, which are checked.
    pub fn new(settings: Settings) -> Result<Trainer, RunError> {
        let problems = settings.problems();
        if !problems.is_empty() {
            return Err(RunError::Settings(problems.iter().map(ToString::to_string).collect()));
        }
        let id = new_id();
        let run = RunInfo {
            checkpoints: Path::new("runs").join(&id).join("checkpoints"),
            id,
            device: "cpu".into(),
            config: serde_json::json!({ "trainer": settings }),
            accumulate_grad_batches: settings.accumulate_grad_batches,
            fast_dev_run: settings.fast_dev_run.0 > 0,
            ..RunInfo::default()
        };
        let shared = Shared::new(run, settings.seed, Box::new(WallClock(Instant::now())));
        Ok(Trainer {
            settings,
            hooks: HookRunner::default(),
            shared,
            strategy: Box::new(Solo),
            resume: ResumeOptions::default(),
            lenient: false,
            progress: Progress::default(),
            notify: Readers::one(tell),
            recording: None,
            interrupt: Interrupt::new(),
            interruptible: false,
            placed: false,
            introduces: true,
            spent: Spent::default(),
        })
    }

    /// Distributes training by this strategy instead of using one process.
    #[must_use]
    pub fn with_strategy(mut self, strategy: impl Strategy + 'static) -> Trainer {
        self.strategy = Box::new(strategy);
        self
    }

    /// Takes time from another clock.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Clock + 'static) -> Trainer {
        self.shared.clock = Box::new(clock);
        self
    }

    /// Puts checkpoints below this directory.
    #[must_use]
    pub fn with_checkpoints_in(mut self, root: impl Into<PathBuf>) -> Trainer {
        self.shared.run.checkpoints = root.into();
        self.placed = true;
        self
    }

    /// Says what the whole configuration is, of which the trainer knows its settings alone. Hooks see it, and a
    /// checkpoint keeps it, so it must hold no secrets.
    #[must_use]
    pub fn with_config(mut self, config: serde_json::Value) -> Trainer {
        self.shared.run.config = config;
        self
    }

    /// Judges differences between this configuration and that of a restored checkpoint by these rules.
    #[must_use]
    pub fn with_change_rules(mut self, rules: ChangeRules) -> Trainer {
        self.resume.change_rules = Some(rules);
        self
    }

    /// Tells about contained failures and decisions in another way than on standard error.
    #[must_use]
    pub fn with_notices(mut self, notify: impl FnMut(&RunNotice) + Send + 'static) -> Trainer {
        self.notify = Readers::one(notify);
        self
    }

    /// Lets another reader have all notices, besides the terminal (or what [`with_notices`](Trainer::with_notices) put in
    /// its place), `events.jsonl` and hooks that receive `on_notice`.
    #[must_use]
    pub fn with_notice_reader(self, reader: impl FnMut(&RunNotice) + Send + 'static) -> Trainer {
        self.notify.add(reader);
        self
    }

    /// Does not say at the start of `fit` which run it is: its id, commit, configuration hash, seed, versions, machine,
    /// command and hooks ([`RunNotice::Began`]). `events.jsonl` of a run directory has it in any case.
    #[must_use]
    pub fn without_introduction(mut self) -> Trainer {
        self.introduces = false;
        self
    }

    /// Keeps a run directory. It is made when training really begins, right before `on_train_start`;
    /// evaluations after it write to it, too. Checkpoints go below it.
    #[must_use]
    pub fn with_run_directory(mut self, plan: RunDirectoryPlan) -> Trainer {
        if let Some(device) = &plan.device {
            self.shared.run.device.clone_from(device);
        }
        let directory = RunDirectory::new(plan);
        directory.place().set_in(&mut self.shared.run);
        self.with_recorder(directory)
    }

    /// Writes down what happens in another way than in a run directory.
    #[must_use]
    pub fn with_recorder(mut self, recorder: impl Recorder + 'static) -> Trainer {
        self.recording = Some(Recording::new(Box::new(recorder)));
        self
    }

    /// Ends calls when this handle says so.
    #[must_use]
    pub fn with_interrupt(mut self, interrupt: Interrupt) -> Trainer {
        (self.interrupt, self.interruptible) = (interrupt, true);
        self
    }

    /// The handle that ends calls from outside, in good order. Where the run keeps checkpoints, it leaves one.
    #[must_use]
    pub fn interrupt_handle(&mut self) -> Interrupt {
        self.interruptible = true;
        self.interrupt.clone()
    }

    /// Reports what the plan refuses, and runs all the same.
    #[must_use]
    pub fn lenient(mut self) -> Trainer {
        self.lenient = true;
        self
    }

    /// Lets the next call restore this checkpoint.
    #[must_use]
    pub fn restoring(mut self, checkpoint: impl Into<PathBuf>) -> Trainer {
        self.resume.checkpoint = Some(checkpoint.into());
        self
    }

    /// Restores a checkpoint although other hooks are registered than it holds: those it lacks begin
    /// anew, those it has too many are forgotten.
    #[must_use]
    pub fn accepting_other_hooks(mut self) -> Trainer {
        self.resume.accept_other_hooks = true;
        self
    }

    /// Restores a checkpoint although its run had other data, or another model, optimizer, seed or option that changes what
    /// is computed.
    #[must_use]
    pub fn accepting_changes(mut self) -> Trainer {
        self.resume.accept_changes = true;
        self
    }

    /// Registers a hook as it describes itself.
    pub fn add_hook(&mut self, hook: impl Into<AnyHook>) -> Result<(), RosterError> {
        self.hooks.add(hook)
    }

    /// Registers hooks that were made before the trainer was; `hooks![a, b]` lists hooks of different types.
    pub fn with_hooks(
        mut self,
        hooks: impl IntoIterator<Item = impl Into<AnyHook>>,
    ) -> Result<Trainer, RosterError> {
        hooks.into_iter().try_for_each(|hook| self.add_hook(hook))?;
        Ok(self)
    }

    /// Registers a hook by its type, made from these options.
    ///
    /// ```
    /// use tenterhook::hooks::{EarlyStopping, EarlyStoppingOptions};
    /// use tenterhook::{Settings, Trainer};
    ///
    /// let mut trainer = Trainer::new(Settings::default())?;
    /// trainer.add_hook_type::<EarlyStopping>(EarlyStoppingOptions::of("val/loss"))?;
    /// assert_eq!(trainer.list_hooks()[0].name, "early_stopping");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_hook_type<H: FromOptions>(&mut self, options: H::Options) -> Result<(), AddError> {
        Ok(self.add_hook(H::from_options(options)?)?)
    }

    /// Registers a hook under another name or policy, or disabled.
    pub fn register(&mut self, hook: impl Into<AnyHook>, how: Registration) -> Result<(), RosterError> {
        self.hooks.register(hook, how)
    }

    /// Removes a hook.
    pub fn remove_hook(&mut self, name: &str) -> Result<(), RosterError> {
        self.hooks.remove(name)
    }

    /// Lets a hook receive events again.
    pub fn enable_hook(&mut self, name: &str) -> Result<(), RosterError> {
        self.hooks.enable(name)
    }

    /// Lets a hook receive no events; it keeps its place and its state.
    pub fn disable_hook(&mut self, name: &str) -> Result<(), RosterError> {
        self.hooks.disable(name)
    }

    /// All hooks.
    #[must_use]
    pub fn list_hooks(&self) -> Vec<HookInfo> {
        self.hooks.list()
    }

    /// Where checkpoints are put.
    #[must_use]
    pub fn checkpoints(&self) -> &Path {
        &self.shared.run.checkpoints
    }

    /// The best checkpoint of the first hook that keeps one.
    #[must_use]
    pub fn best_checkpoint(&self) -> Option<Best> {
        Best::of(&self.hooks, self.checkpoints())
    }

    /// The board on which hooks and the module leave values for each other, to preset or to read between calls.
    ///
    /// ```
    /// use tenterhook::{Key, Settings, Trainer};
    ///
    /// const FOLD: Key<u32> = Key::new("fold");
    /// let trainer = Trainer::new(Settings::default())?;
    /// trainer.board().put(FOLD, 3);
    /// assert_eq!(trainer.board().get(FOLD), Some(3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn board(&self) -> &Board {
        &self.shared.board
    }

    /// The run's id, directory and device.
    #[must_use]
    pub fn run_info(&self) -> &RunInfo {
        &self.shared.run
    }

    /// A hook, by its name and type, to look at what it has seen.
    #[must_use]
    pub fn hook<H: Hook>(&self, name: &str) -> Option<&H> {
        self.hooks.hook(name)
    }

    /// The hooks and their plan.
    #[must_use]
    pub fn hooks(&self) -> &HookRunner {
        &self.hooks
    }

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
            && let Some(place) =
                self.recording.as_ref().and_then(|recording| recording.recorder().next_place())
        {
            place.set_in(&mut self.shared.run);
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
        let nothing = Shared::new(RunInfo::default(), 0, Box::new(FixedClock::default()));
        let (hooks, shared) = (std::mem::take(&mut self.hooks), std::mem::replace(&mut self.shared, nothing));
        let mut notices = Notices::new(self.notify.clone());
        notices.introduces = self.introduces;
        let journal = Journal::new(notices, self.recording.take());
        let _keeping = self.settings.debug.then(backtraces::keep);
        let strategy = std::mem::replace(&mut self.strategy, Box::new(Solo));
        let mut run = Loop::new(hooks, shared, Limits::of(&self.settings), stage, journal, strategy);
        run.hooks.trace_updates(self.settings.trace_updates && run.journal.recording.is_some());
        run.ending.interrupt = self.interrupt.clone();
        run.checkpointer.interruptible = self.interruptible;
        run.open_accounts(self.settings.account_hooks && !run.shared.run.rehearsal, self.spent);
        let saves_some = |hook: &HookInfo| hook.tier == Tier::Checkpoint;
        let keeps = self.placed || run.journal.recording.is_some() || run.hooks.list().iter().any(saves_some);
        run.checkpointer.kept =
            keeps && stage == Stage::Fit && !run.limits.fast_dev_run && !run.shared.run.rehearsal;
        // A checkpoint is restored by the next call alone.
        let resume = ResumeOptions { checkpoint: self.resume.checkpoint.take(), ..self.resume.clone() };
        let Settings { seed, deterministic, .. } = self.settings;
        let options = CallOptions { seed, deterministic, lenient: self.lenient };
        let mut session = Call::new(run, (module, data), options, resume);
        if stage != Stage::Fit {
            // An evaluation does not count; it happens where training stands.
            session.run.state.progress = self.progress;
        }
        let ran = body(&mut session);
        let Call { run, predictions, .. } = session;
        let (hook_costs, sinks) = (run.hook_costs(), run.sinks());
        self.spent = run.spent();
        let Loop { hooks, shared, state, ending, journal, ranks, .. } = run;
        let (progress, Journal { notices, recording, .. }) = (state.progress, journal);
        (self.hooks, self.shared, self.progress) = (hooks, shared, progress);
        self.strategy = ranks.strategy;
        let recording = recording.or(ranks.unused_recording);
        let lines_lost = recording.as_ref().map_or(0, |recording| recording.recorder().lost());
        self.recording = recording;
        let report = Report {
            outcome: ending.outcome,
            progress,
            metrics: self.shared.metrics.to_map(),
            notices: notices.kept,
            notices_left_out: notices.not_kept,
            failures: notices.failures,
            hook_costs,
            sinks,
            lines_lost,
        };
        match ran {
            Ok(()) => Ok((report, predictions)),
            Err((failure, later)) => Err(RunError::Failed { failure, later, report: Box::new(report) }),
        }
    }
}
