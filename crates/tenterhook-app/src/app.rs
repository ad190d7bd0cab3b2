//! `App`: a command line over tasks, hooks, schedules and optimizers.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use tenterhook::optim::{Engine, OptimizerOptions};
use tenterhook::registry::Registry;
use tenterhook::schedule::Scheduler;
use tenterhook::task::{AnyTask, Task};
use tenterhook::{AnyHook, BoxError, FromOptions};

use crate::arguments::{Arguments, Command};
use crate::commands;
use crate::error::{CommandError, FAILED, WRONG_INPUT};
use crate::terminal::{self, tell};

/// A command line over tasks, hooks, schedules and optimizers: `tenter`'s own, with yours in it.
///
/// ```no_run
/// use std::process::ExitCode;
/// use tenterhook::toy::ToyTask;
/// use tenterhook_app::App;
///
/// fn main() -> ExitCode {
///     App::new("mine").task(ToyTask).run()
/// }
/// ```
///
/// The first task is the one that runs when a configuration names none.
pub struct App {
    name: &'static str,
    /// What suggested commands begin with.
    pub(crate) command: &'static str,
    pub(crate) tasks: Vec<Box<dyn AnyTask>>,
    pub(crate) registry: Registry,
    wrong: Vec<String>,
}

impl App {
    /// A program of this name, with the built-in hooks and schedules, and no tasks yet.
    #[must_use]
    pub fn new(name: &'static str) -> App {
        App { name, command: name, tasks: Vec::new(), registry: Registry::default(), wrong: Vec::new() }
    }

    /// How people call this program, where that is not its name: the commands that it suggests begin so.
    #[must_use]
    pub fn called_by(mut self, command: &'static str) -> App {
        self.command = command;
        self
    }

    /// Adds a task: a module with its data.
    #[must_use]
    pub fn task(mut self, task: impl Task) -> App {
        if self.tasks.iter().any(|known| known.name() == Task::name(&task)) {
            self.wrong.push(format!("there are two tasks named `{}`", Task::name(&task)));
        }
        self.tasks.push(Box::new(task));
        self
    }

    /// Adds a hook that a configuration can `use`, made from its options. The first line of the options' doc comment is
    /// its purpose, in `hooks` and in the schema.
    #[must_use]
    pub fn hook<O, H, E>(
        mut self,
        name: &str,
        make: impl Fn(O) -> Result<H, E> + Send + Sync + 'static,
    ) -> App
    where
        O: DeserializeOwned + JsonSchema,
        H: Into<AnyHook>,
        E: Into<BoxError>,
    {
        self.wrong.extend(self.registry.add_hook(name, make).err().map(|error| error.to_string()));
        self
    }

    /// Adds the hooks of this type, which a configuration can `use` under its path, such as
    /// `my_crate::hooks::MyHook`.
    #[must_use]
    pub fn hook_type<H: FromOptions>(mut self) -> App {
        self.wrong.extend(self.registry.add_hook_type::<H>().err().map(|error| error.to_string()));
        self
    }

    /// Adds a schedule that a configuration can `use`, made from its options.
    #[must_use]
    pub fn scheduler<O, S, E>(
        mut self,
        name: &str,
        make: impl Fn(O) -> Result<S, E> + Send + Sync + 'static,
    ) -> App
    where
        O: DeserializeOwned + JsonSchema,
        S: Scheduler,
        E: Into<BoxError>,
    {
        self.wrong.extend(self.registry.add_scheduler(name, make).err().map(|error| error.to_string()));
        self
    }

    /// Adds an optimizer of an engine, with its options, that `[optimizer]` can `use`.
    #[must_use]
    pub fn optimizer<E, O>(mut self, name: &str) -> App
    where
        E: Engine,
        O: OptimizerOptions<E> + DeserializeOwned + JsonSchema,
    {
        self.wrong.extend(self.registry.add_optimizer::<E, O>(name).err().map(|error| error.to_string()));
        self
    }

    /// Runs what the program was called with. Panics are printed like other messages, so the panic hook of the process is
    /// replaced.
    #[must_use]
    pub fn run(self) -> ExitCode {
        terminal::tell_panics();
        self.run_with(std::env::args_os())
    }

    /// Runs what these arguments say; the first is the program's name.
    #[must_use]
    pub fn run_with(self, arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
        if let Some(wrong) = self.wrong.first() {
            return CommandError::new(wrong).at(self.name).tell();
        }
        let command = Arguments::command().name(self.name).bin_name(self.name);
        let parsed = command.try_get_matches_from(arguments);
        let arguments = match parsed.and_then(|matches| Arguments::from_arg_matches(&matches)) {
            Ok(arguments) => arguments,
            Err(error) => {
                if error.use_stderr() {
                    tell(error.render().to_string().trim_end());
                    return ExitCode::from(WRONG_INPUT);
                }
                // Help is our own text, in clap's own style.
                let _ = error.print();
                return ExitCode::SUCCESS;
            }
        };
        let done = match arguments.command {
            Command::Train(train) => commands::train::run(&self, &train),
            Command::Resume(resume) => commands::resume::run(&self, &resume),
            Command::Validate(evaluate) => commands::evaluate::validate(&self, &evaluate),
            Command::Test(evaluate) => commands::evaluate::test(&self, &evaluate),
            Command::Predict(evaluate) => commands::evaluate::predict(&self, &evaluate),
            Command::Init { file, settings, force } => commands::init::run(&self, &file, &settings, force),
            Command::New(new) => commands::new::run(&new),
            Command::Hooks(hooks) => commands::hooks::run(&self, &hooks),
            Command::Schema => Ok(commands::schema::run(&self)),
            Command::Trace { file, settings, json, all, stage, batches } => {
                let shown = commands::trace::Shown { json, all, stage, batches };
                commands::trace::run(&self, &file, &settings, shown)
            }
            Command::Plan { config, settings, json } => commands::plan::run(&self, &config, &settings, json),
            Command::Points(points) => commands::points::run(&self, &points),
            Command::VerifyNeutral(verify) => commands::verify_neutral::run(&self, &verify),
            Command::Runs(runs) => commands::runs::run(&runs),
            Command::Show(show) => commands::show::run(&show),
            Command::Checkpoints(checkpoints) => commands::checkpoints::run(&self, &checkpoints),
            Command::Export(export) => commands::export::run(&export),
            Command::Compare(compare) => commands::compare::run(&compare),
        };
        terminal::exit_code(done.unwrap_or_else(CommandError::tell), FAILED)
    }
}
