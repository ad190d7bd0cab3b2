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
use crate::terminal::{self, print_stderr};

/// The command line of `tenter` with your own tasks, hooks, schedules and optimizers.
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
/// The first task is the default for configurations without `task`.
pub struct App {
    name: &'static str,
    /// The beginning of suggested commands.
    pub(crate) command: &'static str,
    pub(crate) tasks: Vec<Box<dyn AnyTask>>,
    pub(crate) registry: Registry,
    /// Registrations that failed, such as for a duplicate name.
    errors: Vec<String>,
}

impl App {
    /// A program with the built-in hooks and schedules, and without tasks.
    #[must_use]
    pub fn new(name: &'static str) -> App {
        App { name, command: name, tasks: Vec::new(), registry: Registry::default(), errors: Vec::new() }
    }

    /// The command that starts this program, such as `cargo run --release --`, for the commands that it suggests.
    /// Default: the name.
    #[must_use]
    pub fn invoked_as(mut self, command: &'static str) -> App {
        self.command = command;
        self
    }

    /// Adds a task: a module and its data.
    #[must_use]
    pub fn task(mut self, task: impl Task) -> App {
        if self.tasks.iter().any(|known| known.name() == Task::name(&task)) {
            self.errors.push(format!("there are two tasks named `{}`", Task::name(&task)));
        }
        self.tasks.push(Box::new(task));
        self
    }

    /// Adds a hook that a configuration can `use`, and how to build it from its options. The first line of the
    /// options' doc comment is its purpose in `hooks` and in the schema.
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
        self.errors.extend(self.registry.add_hook(name, make).err().map(|error| error.to_string()));
        self
    }

    /// Adds a hook type that a configuration can `use` under its path, such as `my_crate::hooks::MyHook`.
    #[must_use]
    pub fn hook_type<H: FromOptions>(mut self) -> App {
        self.errors.extend(self.registry.add_hook_type::<H>().err().map(|error| error.to_string()));
        self
    }

    /// Adds a schedule that a configuration can `use`, and how to build it from its options.
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
        self.errors.extend(self.registry.add_scheduler(name, make).err().map(|error| error.to_string()));
        self
    }

    /// Adds an optimizer of an engine that `[optimizer]` can `use`.
    #[must_use]
    pub fn optimizer<E, O>(mut self, name: &str) -> App
    where
        E: Engine,
        O: OptimizerOptions<E> + DeserializeOwned + JsonSchema,
    {
        self.errors.extend(self.registry.add_optimizer::<E, O>(name).err().map(|error| error.to_string()));
        self
    }

    /// Runs the command of the process's arguments. Replaces the panic hook of the process, so panics are
    /// printed like other messages.
    #[must_use]
    pub fn run(self) -> ExitCode {
        terminal::install_panic_hook();
        self.run_with(std::env::args_os())
    }

    /// Runs the command of these arguments; the first is the name of the program.
    #[must_use]
    pub fn run_with(self, arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
        if let Some(error) = self.errors.first() {
            return CommandError::new(error).at(self.name).report();
        }
        let command = Arguments::command().name(self.name).bin_name(self.name);
        let parsed = command.try_get_matches_from(arguments);
        let arguments = match parsed.and_then(|matches| Arguments::from_arg_matches(&matches)) {
            Ok(arguments) => arguments,
            Err(error) => {
                if error.use_stderr() {
                    print_stderr(error.render().to_string().trim_end());
                    return ExitCode::from(WRONG_INPUT);
                }
                // Help is our own text, so it needs no escaping.
                let _ = error.print();
                return ExitCode::SUCCESS;
            }
        };
        let result = match arguments.command {
            Command::Train(train) => commands::train::run(&self, &train),
            Command::Resume(resume) => commands::resume::run(&self, &resume),
            Command::Validate(evaluate) => commands::evaluate::validate(&self, &evaluate),
            Command::Test(evaluate) => commands::evaluate::test(&self, &evaluate),
            Command::Predict(evaluate) => commands::evaluate::predict(&self, &evaluate),
            Command::Init(init) => commands::init::run(&self, &init),
            Command::New(new) => commands::new::run(&new),
            Command::Hooks(hooks) => commands::hooks::run(&self, &hooks),
            Command::Schema => Ok(commands::schema::run(&self)),
            Command::Trace(trace) => commands::trace::run(&self, &trace),
            Command::Plan(plan) => commands::plan::run(&self, &plan),
            Command::Points(points) => commands::points::run(&self, &points),
            Command::VerifyNeutral(verify) => commands::verify_neutral::run(&self, &verify),
            Command::Runs(runs) => commands::runs::run(&runs),
            Command::Show(show) => commands::show::run(&show),
            Command::Checkpoints(checkpoints) => commands::checkpoints::run(&self, &checkpoints),
            Command::Export(export) => commands::export::run(&export),
            Command::Compare(compare) => commands::compare::run(&compare),
        };
        terminal::exit_code(result.unwrap_or_else(CommandError::report), FAILED)
    }
}
