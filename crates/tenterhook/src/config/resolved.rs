//! A configuration that has been read and works.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tenterhook_core::PlanError;
use toml::Table;

use super::differences::ChangeRules;
use super::hash::filled;
use super::hooks::{HookTable, Written};
use super::print;
use super::resolve::Sources;
use super::schema::Schema;
use super::secrets;
use crate::problems::render::Places;
use crate::problems::{ConfigError, Problem};
use crate::registry::Registry;
use crate::run::RunDirectoryPlan;
use crate::settings::Settings;
use crate::task::{AnyTask, Build, Program};
use crate::trainer::{RunError, Trainer};

/// What would run: every layer applied, everything checked that can be checked without building it.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The name of the task.
    pub task: String,
    /// The device to compute on.
    pub device: String,
    /// The directory of all runs.
    pub runs_dir: PathBuf,
    /// `[trainer]`.
    pub trainer: Settings,
    /// `[[hooks]]` and what `[hooks_config]` comes to, in the order in which they are registered.
    pub hooks: Vec<HookTable>,
    /// The task's own keys, complete with their defaults.
    pub options: Table,
    pub(super) task_schema: Value,
    pub(super) hook_schemas: Vec<Value>,
    /// Where each hook was written.
    pub(super) written: Vec<Written>,
    pub(super) places: Places,
}

impl Resolved {
    /// Reads a file that has `[trainer]` and `[[hooks]]` and no task, with the built-in hooks.
    pub fn read(path: &Path) -> Result<Resolved, ConfigError> {
        Sources::file(path).resolve(&[], &Registry::default())
    }

    /// A trainer with these settings and hooks that keeps a run directory below `runs_dir`, as `tenter train` does. A
    /// dry run (`fast_dev_run`) keeps none.
    pub fn trainer(&self, registry: &Registry) -> Result<Trainer, ConfigError> {
        let trainer = self.bare_trainer(registry)?;
        let dry = self.trainer.fast_dev_run.is_on();
        Ok(if dry { trainer } else { trainer.with_run_directory(self.run_directory()) })
    }

    /// The run directory of a training with this configuration. It holds no secrets.
    #[must_use]
    pub fn run_directory(&self) -> RunDirectoryPlan {
        let plan = RunDirectoryPlan::below(&self.runs_dir);
        let command = plan.command.iter().map(|argument| self.without_secrets(argument)).collect();
        RunDirectoryPlan {
            config: self.to_toml(),
            config_hash: Some(self.hash()),
            task: Some(self.task.clone()).filter(|task| !task.is_empty()),
            device: Some(self.device.clone()),
            command,
            ..plan
        }
    }

    /// A trainer with these settings and hooks that keeps no run directory.
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
            problems.extend(registered.err().map(|problem| self.written(index).problem(problem)));
        }
        if problems.is_empty() { Ok(trainer) } else { Err(self.error(problems)) }
    }

    /// The rules that judge a run that resumes with this configuration instead of its own.
    #[must_use]
    pub fn change_rules(&self, registry: &Registry) -> ChangeRules {
        ChangeRules::new(registry, self.task_schema.clone())
    }

    /// The module and the data of the task, ready to run with a trainer.
    pub fn program<'t>(
        &self,
        tasks: &'t [Box<dyn AnyTask>],
        registry: &Registry,
    ) -> Result<Box<dyn Program + 't>, ConfigError> {
        let Some(task) = tasks.iter().find(|task| task.name() == self.task) else {
            let problem = Problem::new("task", format!("there is no task named `{}`", self.task));
            return Err(self.error([problem]));
        };
        let build = Build {
            device: &self.device,
            seed: self.trainer.seed,
            registry,
            allow_large: self.trainer.allow_large,
        };
        task.program(self.options.clone(), &build).map_err(|problems| self.error(problems))
    }

    /// Problems found later, shown like those found while reading: where they are written, and the fix.
    pub fn error(&self, problems: impl IntoIterator<Item = Problem>) -> ConfigError {
        self.places.error(&problems.into_iter().collect::<Vec<_>>())
    }

    /// Where a hook was written; one that was added to `hooks` since then was not.
    fn written(&self, index: usize) -> Written {
        self.written.get(index).cloned().unwrap_or_else(|| Written::in_hooks(index))
    }

    /// One problem as people read it.
    #[must_use]
    pub fn problem_text(&self, problem: &Problem) -> String {
        self.places.text(problem)
    }

    /// What the plan refuses as a problem of this configuration: of the option that it is about, or else of the hook's
    /// table.
    #[must_use]
    pub fn problem_of(&self, refused: &PlanError, trainer: &Trainer) -> Problem {
        let problem = Problem::new("", &*refused.what).fix(&*refused.fix);
        let registered = trainer.hooks().names();
        let index = registered.iter().position(|name| *name == refused.hook);
        let Some((index, table)) = index.and_then(|index| Some((index, self.hooks.get(index)?))) else {
            return problem;
        };
        let key = refused.key.filter(|key| table.has(key)).unwrap_or_default();
        self.written(index).problem(Problem { key: key.to_owned(), ..problem })
    }

    /// The complete configuration, commented, ready to edit. Read back, it resolves to the same, but for secrets:
    /// they are not in it.
    #[must_use]
    pub fn to_toml(&self) -> String {
        print::page(self)
    }

    /// A text, such as a command line, with a mask in the place of each secret of this configuration.
    #[must_use]
    pub fn without_secrets(&self, text: &str) -> String {
        let of_hooks = self.hooks.iter().zip(&self.hook_schemas);
        let tables = of_hooks.map(|(hook, schema)| (&hook.options, schema));
        let tables = tables.chain([(&self.options, &self.task_schema)]);
        let secrets = tables.flat_map(|(table, schema)| secrets::texts(table.clone(), Schema::new(schema)));
        secrets.fold(text.to_owned(), |text, secret| text.replace(&secret, secrets::MASK))
    }

    /// The complete configuration, for programs. Secrets are masked.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let hooks = self.hooks.iter().zip(&self.hook_schemas).map(|(hook, schema)| {
            let schema = Schema::new(schema);
            let options = secrets::masked(filled(hook.options.clone(), schema), schema);
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
