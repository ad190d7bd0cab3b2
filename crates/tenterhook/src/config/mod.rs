//! The configuration of a run: layers of TOML, checked against JSON schemas, with all errors reported at
//! once.
//!
//! The layers, each overriding the one before: built-in defaults, the task's defaults, the file, environment
//! variables such as `TENTER__TRAINER__MAX_EPOCHS=3`, and `--set trainer.max_epochs=3`. Tables merge by
//! key; lists and simple values replace. The keys `task`, `device`, `runs_dir`, `[trainer]`, `[[hooks]]` and
//! `[hooks_config]` are common to all tasks, everything else belongs to the task.
//!
//! Options are serde structs that derive `JsonSchema`; `--print-config` prints their doc comments. Each layer
//! becomes a tree of values with their origins (`tree.rs`). A table with another `use` replaces that of the
//! layer below, so that the options of one optimizer do not leak into another. `[hooks_config]` becomes the
//! same tables as `[[hooks]]`.
//!
//! `check.rs` compares the tree with the JSON schema of its type in one pass, which finds unknown and missing
//! keys, wrong types and unknown words. Each error is then repaired (the value is removed, or replaced by an
//! example) and serde decodes the rest. Errors that only a type detects, such as the format of a time, come
//! from serde as a [`DecodeError`] with its path (`decode.rs`). Errors that are caused by a repair are not
//! reported.
//!
//! Hooks are tables under `[[hooks]]` ([`HookKeys`] are the keys that all of them have), or flags and tables
//! in `[hooks_config]`, or both. A file that has either replaces all hooks of the task.
//!
//! ```
//! use tenterhook::config::Sources;
//! use tenterhook::registry::Registry;
//! use tenterhook::task::{AnyTask, Program};
//! use tenterhook::toy::ToyTask;
//!
//! let (tasks, registry): (Vec<Box<dyn AnyTask>>, _) = (vec![Box::new(ToyTask)], Registry::default());
//! let sources = Sources { sets: vec!["trainer.max_epochs=2".into()], ..Sources::default() };
//! let config = sources.resolve(&tasks, &registry)?;
//! let mut trainer = config.trainer(&registry)?;
//! # // A test keeps no run directory and writes no key into the user's home.
//! # let mut trainer = config.bare_trainer(&registry)?;
//! let report = config.program(&tasks, &registry)?.fit(&mut trainer)?;
//! assert_eq!(report.progress.epochs_done, 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod changes;
pub(crate) mod check;
mod class_paths;
pub(crate) mod decode;
mod full_schema;
pub(crate) mod hash;
pub(crate) mod hook_keys;
mod hooks;
pub(crate) mod hooks_config;
mod key_path;
mod layers;
pub(crate) mod messages;
mod print;
mod resolve;
pub(crate) mod schema;
mod schema_words;
pub(crate) mod secrets;
pub(crate) mod tree;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tenterhook_core::PlanError;
use toml::Table;

use crate::problems::render::SourceMap;
use crate::registry::Registry;
use crate::run::RunDirectoryOptions;
use crate::settings::Settings;
use crate::task::{AnyTask, BuildContext, Program};
use crate::trainer::{RunError, Trainer};
use hash::with_defaults;
use hooks::HookLocation;
use schema::Schema;

pub use crate::problems::{ConfigError, Problem};
pub use changes::{ChangeRules, ConfigChange, Impact, change_error, change_notice};
pub use decode::DecodeError;
pub use full_schema::config_schema;
pub use hook_keys::HookKeys;
pub use hooks::HookTable;
pub use resolve::Sources;

/// The top-level keys that all tasks have in common.
pub(crate) const COMMON_KEYS: &[&str] = &["task", "device", "runs_dir", "trainer", "hooks", "hooks_config"];

/// The descriptions of top-level keys.
mod about {
    pub(super) const TASK: &str = "The task to train.";
    pub(super) const DEVICE: &str = "The compute device.";
    pub(super) const RUNS_DIR: &str = "The directory that holds the run directories.";
    pub(super) const TRAINER: &str = "The trainer: length of training, validation, logging, checkpoints.";
}

/// A complete, checked configuration: all layers merged, defaults filled in.
#[derive(Clone, Debug)]
pub struct Config {
    /// The task's name.
    pub task: String,
    /// The compute device.
    pub device: String,
    /// The directory that holds the run directories.
    pub runs_dir: PathBuf,
    /// The `[trainer]` table.
    pub trainer: Settings,
    /// The hooks of `[[hooks]]` and `[hooks_config]`, in registration order.
    pub hooks: Vec<HookTable>,
    /// The task's own options, with defaults.
    pub options: Table,
    task_schema: Value,
    hook_schemas: Vec<Value>,
    /// Where each hook is written.
    hook_locations: Vec<HookLocation>,
    source_map: SourceMap,
}

impl Config {
    /// Reads a file with `[trainer]` and `[[hooks]]` but without a task. Only built-in hooks are known.
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        Sources::file(path).resolve(&[], &Registry::default())
    }

    /// A trainer with these settings and hooks and with a run directory below `runs_dir`, like that of
    /// `tenter train`. A dry run (`fast_dev_run`) has no run directory.
    pub fn trainer(&self, registry: &Registry) -> Result<Trainer, ConfigError> {
        let trainer = self.bare_trainer(registry)?;
        let dry = self.trainer.fast_dev_run.is_on();
        Ok(if dry { trainer } else { trainer.with_run_directory(self.run_directory()) })
    }

    /// The run directory of a training run with this configuration, without secrets.
    #[must_use]
    pub fn run_directory(&self) -> RunDirectoryOptions {
        let options = RunDirectoryOptions::in_dir(&self.runs_dir);
        let command = options.command.iter().map(|argument| self.without_secrets(argument)).collect();
        RunDirectoryOptions {
            config: self.to_toml(),
            config_hash: Some(self.hash()),
            task: Some(self.task.clone()).filter(|task| !task.is_empty()),
            device: Some(self.device.clone()),
            command,
            ..options
        }
    }

    /// A trainer with these settings and hooks, without a run directory.
    pub fn bare_trainer(&self, registry: &Registry) -> Result<Trainer, ConfigError> {
        let mut trainer = match Trainer::new(self.trainer.clone()) {
            Ok(trainer) => trainer.with_config(self.to_json()).with_change_rules(self.change_rules(registry)),
            Err(RunError::Settings(_)) => {
                let problems = self.trainer.problems().into_iter().map(|problem| problem.below("trainer"));
                return Err(self.error(problems));
            }
            Err(error) => return Err(ConfigError::plain(error.to_string())),
        };
        let mut problems = Vec::new();
        for (index, table) in self.hooks.iter().enumerate() {
            let registered = table.register(&mut trainer, registry);
            problems.extend(registered.err().map(|problem| self.hook_location(index).locate(problem)));
        }
        if problems.is_empty() { Ok(trainer) } else { Err(self.error(problems)) }
    }

    /// The rules for harmless changes when a run resumes with this configuration.
    #[must_use]
    pub fn change_rules(&self, registry: &Registry) -> ChangeRules {
        ChangeRules::new(registry, self.task_schema.clone())
    }

    /// Builds the module and the data of the task.
    pub fn program<'t>(
        &self,
        tasks: &'t [Box<dyn AnyTask>],
        registry: &Registry,
    ) -> Result<Box<dyn Program + 't>, ConfigError> {
        let Some(task) = tasks.iter().find(|task| task.name() == self.task) else {
            let problem = Problem::new("task", format!("there is no task named `{}`", self.task));
            return Err(self.error([problem]));
        };
        let build = BuildContext {
            device: &self.device,
            seed: self.trainer.seed,
            registry,
            allow_large: self.trainer.allow_large,
        };
        task.program(self.options.clone(), &build).map_err(|problems| self.error(problems))
    }

    /// An error that shows where these problems were written, like those found while reading.
    pub fn error(&self, problems: impl IntoIterator<Item = Problem>) -> ConfigError {
        self.source_map.error(&problems.into_iter().collect::<Vec<_>>())
    }

    /// Where a hook is written. A hook that was added to `hooks` afterwards counts as a `[[hooks]]` table.
    fn hook_location(&self, index: usize) -> HookLocation {
        self.hook_locations.get(index).cloned().unwrap_or_else(|| HookLocation::in_hooks(index))
    }

    /// The text of a problem, with the line it is about.
    #[must_use]
    pub fn problem_text(&self, problem: &Problem) -> String {
        self.source_map.text(problem)
    }

    /// A plan error as a problem of this configuration: of the option it is about, or else of the hook's
    /// table.
    #[must_use]
    pub fn problem_of(&self, error: &PlanError, trainer: &Trainer) -> Problem {
        let problem = Problem::new("", &*error.what).fix(&*error.fix);
        let registered = trainer.hooks().names();
        let index = registered.iter().position(|name| *name == error.hook);
        let Some((index, table)) = index.and_then(|index| Some((index, self.hooks.get(index)?))) else {
            return problem;
        };
        let key = error.key.filter(|key| table.has(key)).unwrap_or_default();
        self.hook_location(index).locate(Problem { key: key.to_owned(), ..problem })
    }

    /// The complete configuration as commented TOML. Reading it gives the same configuration, except for
    /// secrets, which are left out.
    #[must_use]
    pub fn to_toml(&self) -> String {
        print::to_toml(self)
    }

    /// Masks the secrets of this configuration in a text, such as a command line.
    #[must_use]
    pub fn without_secrets(&self, text: &str) -> String {
        let of_hooks = self.hooks.iter().zip(&self.hook_schemas);
        let tables = of_hooks.map(|(hook, schema)| (&hook.options, schema));
        let tables = tables.chain([(&self.options, &self.task_schema)]);
        let secrets = tables.flat_map(|(table, schema)| secrets::values(table.clone(), Schema::new(schema)));
        secrets.fold(text.to_owned(), |text, secret| text.replace(&secret, secrets::MASK))
    }

    /// The complete configuration as JSON, with secrets masked.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let hooks = self.hooks.iter().zip(&self.hook_schemas).map(|(hook, schema)| {
            let schema = Schema::new(schema);
            let options = secrets::masked(with_defaults(hook.options.clone(), schema), schema);
            HookTable { options, ..hook.clone() }
        });
        let hooks: Vec<_> = hooks.collect();
        let mut all = json!({
            "task": self.task,
            "device": self.device,
            "runs_dir": self.runs_dir,
            "trainer": self.trainer,
            "hooks": hooks,
        });
        let options = json!(secrets::masked(self.options.clone(), Schema::new(&self.task_schema)));
        if let (Some(all), Value::Object(options)) = (all.as_object_mut(), options) {
            all.extend(options);
        }
        all
    }
}

#[cfg(test)]
mod tests;
