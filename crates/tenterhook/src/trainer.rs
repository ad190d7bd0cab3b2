//! The trainer: hooks, settings, and the calls `fit`, `validate`, `test` and `predict`.

mod built_ins;
mod calls;
mod clock;
mod rehearsal;
mod setup;

use std::path::Path;

use tenterhook_core::{
    AnyHook, Blackboard, FromOptions, Hook, HookInfo, HookRunner, OptionError, Progress, Registration,
    RosterError, RunInfo, RunState,
};

use crate::accounts::TimeSpent;
use crate::checkpoint::Best;
use crate::journal::JournalSetup;
pub use crate::report::{Predictions, Report, RunError};
use crate::resume::ResumeOptions;
use crate::run::{Interrupt, new_id};
use crate::settings::Settings;
use crate::strategy::{Solo, Strategy};
pub(crate) use clock::{BatchClock, WallClock};

/// Trains and evaluates a module on data, with hooks.
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
    shared: RunState,
    strategy: Box<dyn Strategy>,
    resume: ResumeOptions,
    /// Problems of the plan are only reported.
    lenient: bool,
    journal: JournalSetup,
    /// The handle that ends calls from outside.
    interrupt: Option<Interrupt>,
    /// The directory of checkpoints was set.
    has_checkpoint_root: bool,
    /// The progress of the last training, for evaluations after it.
    progress: Progress,
    /// The time of the calls so far, if accounting is enabled.
    spent: TimeSpent,
}

/// An error in building or registering a hook.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddError {
    /// The options are invalid.
    #[error(transparent)]
    Options(#[from] OptionError),
    /// The hook cannot be registered, for example because its name is taken.
    #[error(transparent)]
    Roster(#[from] RosterError),
}

impl Trainer {
    /// A trainer with these settings. Returns an error if they are invalid.
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
        Ok(Trainer {
            shared: RunState::new(run, settings.seed, Box::new(WallClock::start())),
            settings,
            hooks: HookRunner::default(),
            strategy: Box::new(Solo),
            resume: ResumeOptions::default(),
            lenient: false,
            journal: JournalSetup::default(),
            interrupt: None,
            has_checkpoint_root: false,
            progress: Progress::default(),
            spent: TimeSpent::default(),
        })
    }

    /// Registers a hook with its own name, tier and policy.
    pub fn add_hook(&mut self, hook: impl Into<AnyHook>) -> Result<(), RosterError> {
        self.hooks.add(hook)
    }

    /// Registers several hooks; `hooks![a, b]` lists hooks of different types.
    pub fn with_hooks(
        mut self,
        hooks: impl IntoIterator<Item = impl Into<AnyHook>>,
    ) -> Result<Trainer, RosterError> {
        hooks.into_iter().try_for_each(|hook| self.add_hook(hook))?;
        Ok(self)
    }

    /// Makes a hook of this type from its options, and registers it.
    ///
    /// ```
    /// use tenterhook::hooks::{EarlyStopping, EarlyStoppingOptions};
    /// use tenterhook::{Settings, Trainer};
    ///
    /// let mut trainer = Trainer::new(Settings::default())?;
    /// trainer.add_hook_type::<EarlyStopping>(EarlyStoppingOptions::new("val/loss"))?;
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

    /// Enables a hook.
    pub fn enable_hook(&mut self, name: &str) -> Result<(), RosterError> {
        self.hooks.enable(name)
    }

    /// Disables a hook: it receives no events, and keeps its place and its state.
    pub fn disable_hook(&mut self, name: &str) -> Result<(), RosterError> {
        self.hooks.disable(name)
    }

    /// All hooks.
    #[must_use]
    pub fn list_hooks(&self) -> Vec<HookInfo> {
        self.hooks.list()
    }

    /// The directory of checkpoints.
    #[must_use]
    pub fn checkpoints(&self) -> &Path {
        &self.shared.run.checkpoints
    }

    /// The best checkpoint of the first hook that tracks one.
    #[must_use]
    pub fn best_checkpoint(&self) -> Option<Best> {
        Best::of(&self.hooks, self.checkpoints())
    }

    /// The blackboard of hooks and module, to set or read values between calls.
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
    pub fn board(&self) -> &Blackboard {
        &self.shared.board
    }

    /// Id, directory, device and other facts of the run.
    #[must_use]
    pub fn run_info(&self) -> &RunInfo {
        &self.shared.run
    }

    /// A hook, by its name and type.
    #[must_use]
    pub fn hook<H: Hook>(&self, name: &str) -> Option<&H> {
        self.hooks.hook(name)
    }

    /// The hooks and their plan.
    #[must_use]
    pub fn hooks(&self) -> &HookRunner {
        &self.hooks
    }
}
