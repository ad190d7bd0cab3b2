//! Resolves the layers of a configuration into a [`Config`].

use std::collections::BTreeMap;
use std::path::PathBuf;

use tenterhook_core::HookRunner;
use toml::{Table, Value};

use super::COMMON_KEYS;
use super::Config;
use super::check::read_all;
use super::decode::{ErrorKind, read, unexpected};
use super::hooks::{HookLocation, HookTable};
use super::hooks_config::{self, HOOKS_CONFIG, HookDraft};
use super::key_path;
use super::layers::{self, PREFIX};
use super::messages::{TableContext, suggestion};
use super::schema::{Schema, schema_of};
use super::secrets;
use super::tree::{Kind, Node, Origin, USE};
use crate::problems::render::SourceMap;
use crate::problems::{ConfigError, Part, Problem};
use crate::registry::Registry;
use crate::settings::Settings;
use crate::task::AnyTask;

/// The layers of a configuration above the task's defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// A TOML file.
    pub file: Option<PathBuf>,
    /// Environment variables. Only those that begin with `TENTER__` count.
    pub environment: Vec<(String, String)>,
    /// The values of `--set`, such as `trainer.max_epochs=3`.
    pub sets: Vec<String>,
}

impl Sources {
    /// Only a file.
    pub fn file(path: impl Into<PathBuf>) -> Sources {
        Sources { file: Some(path.into()), ..Sources::default() }
    }

    /// Adds the `TENTER__` environment variables of this process.
    #[must_use]
    pub fn with_process_environment(mut self) -> Sources {
        let ours = std::env::vars_os().filter_map(|(name, value)| {
            let name = name.into_string().ok().filter(|name| name.starts_with(PREFIX))?;
            Some((name, value.to_string_lossy().into_owned()))
        });
        self.environment.extend(ours);
        self.environment.sort();
        self
    }

    /// Resolves and checks the configuration. The first task is the default.
    ///
    /// # Errors
    /// All problems found in the layers.
    pub fn resolve(&self, tasks: &[Box<dyn AnyTask>], registry: &Registry) -> Result<Config, ConfigError> {
        let (mut file, mut source_map) = match &self.file {
            Some(path) => layers::file(path)?,
            None => (Node::empty_table(Origin::Default), SourceMap::default()),
        };
        let (assignments, mut found) = layers::assignments(&self.environment, &self.sets);

        // The layers above the task's defaults name the task.
        let mut named = file.clone();
        for assignment in assignments.iter().filter(|assignment| assignment.steps == ["task"]) {
            assignment.apply(&mut named, registry).unwrap_or_default();
        }
        let task = match named.text("task") {
            Some(name) => tasks.iter().find(|task| task.name() == name),
            None => tasks.first(),
        };

        let mut tree = Node::empty_table(Origin::Default);
        if let Some(task) = task {
            match layers::defaults(task.defaults()) {
                Ok(defaults) => tree.merge(defaults),
                Err(error) => {
                    let message = format!("the defaults of task `{}` are invalid: {error}", task.name());
                    found.push(Problem::new("", message));
                }
            }
        }
        if ALL_HOOKS.iter().any(|key| file.child(key).is_some()) {
            // Hooks in the file, in either form, replace those of the task.
            for key in ALL_HOOKS {
                tree.remove(key);
            }
        }
        key_path::rename_aliases(&mut tree, registry);
        key_path::rename_aliases(&mut file, registry);
        tree.merge(file);
        for assignment in assignments {
            found.extend(assignment.apply(&mut tree, registry).err());
        }
        source_map.task = task.map(|task| task.name().to_owned()).unwrap_or_default();
        source_map.tree = tree;
        Resolver::new(found, source_map).resolve(tasks, task.map(AsRef::as_ref), registry)
    }
}

/// The keys under which hooks can be written.
const ALL_HOOKS: &[&str] = &["hooks", HOOKS_CONFIG];

/// Decodes the merged layers, table by table.
struct Resolver {
    found: Vec<Problem>,
    top: BTreeMap<String, Node>,
    source_map: SourceMap,
}

impl Resolver {
    fn new(found: Vec<Problem>, source_map: SourceMap) -> Resolver {
        let top = match &source_map.tree.kind {
            Kind::Table(entries) => entries.clone(),
            Kind::Array(_) | Kind::Leaf(_) => BTreeMap::new(),
        };
        Resolver { found, top, source_map }
    }

    fn resolve(
        mut self,
        tasks: &[Box<dyn AnyTask>],
        task: Option<&dyn AnyTask>,
        registry: &Registry,
    ) -> Result<Config, ConfigError> {
        let name = self.text("task", task.map(AnyTask::name).unwrap_or_default());
        // Only a program without tasks has a configuration without a task.
        let is_none = |name: &String| name.is_empty() && tasks.is_empty();
        if let (None, Some(name)) = (task, name.as_ref().filter(|name| !is_none(name))) {
            let known: Vec<_> = tasks.iter().map(|task| task.name()).collect();
            let problem = Problem::new("task", format!("there is no task named `{name}`"));
            self.found.push(problem.with_fix(suggestion(name, &known)));
        }
        let device = self.text("device", "cpu");
        let runs_dir = self.text("runs_dir", "runs");
        let trainer = self.trainer();
        let hooks = self.hooks(registry);
        self.check_budgets(trainer.as_ref(), &hooks);
        let options = self.options(task, registry, name.is_some_and(|name| !is_none(&name)));
        let (Some(trainer), Some(options), true) = (trainer, options, self.found.is_empty()) else {
            return Err(self.source_map.error(&self.found));
        };
        let (hooks, hook_locations): (Vec<_>, Vec<_>) = hooks.into_iter().unzip();
        let schemas = hooks.iter().map(|hook| {
            let entry = registry.hooks().find(|entry| entry.name == hook.common.use_);
            entry.map(|entry| entry.schema.clone()).unwrap_or_default()
        });
        Ok(Config {
            task: task.map(|task| task.name().to_owned()).unwrap_or_default(),
            device: device.unwrap_or_default(),
            runs_dir: runs_dir.unwrap_or_default().into(),
            trainer,
            hook_schemas: schemas.collect(),
            hooks,
            hook_locations,
            options,
            task_schema: task.map(|task| registry.schema_of(task)).unwrap_or_default(),
            source_map: self.source_map,
        })
    }

    /// A top-level text.
    fn text(&mut self, key: &str, default: &str) -> Option<String> {
        let Some(node) = self.top.remove(key) else { return Some(default.to_owned()) };
        match node.value() {
            Value::String(text) => Some(text),
            other => {
                let kind = ErrorKind::wrong_type(unexpected(&other), "a text");
                self.found.push(Problem::new(key, kind.to_string()));
                None
            }
        }
    }

    fn trainer(&mut self) -> Option<Settings> {
        let table =
            self.top.remove("trainer").map_or_else(|| Value::Table(Table::new()), |node| node.value());
        let schema = schema_of::<Settings>();
        let schema = Schema::new(&schema);
        let context = TableContext { key: "trainer", called: "[trainer]".into(), also: &[], schema };
        let settings = context.read(table, &read::<Settings>, &mut self.found);
        let problems = settings.iter().flat_map(Settings::problems);
        self.found.extend(problems.map(|problem| problem.below("trainer")));
        settings
    }

    /// The hooks of `[[hooks]]` and then those of `[hooks_config]`, with their locations.
    fn hooks(&mut self, registry: &Registry) -> Vec<(HookTable, HookLocation)> {
        let mut drafts = self.tables();
        if let Some(node) = self.top.remove(HOOKS_CONFIG) {
            let more = hooks_config::drafts(&node, &mut drafts, registry, &mut self.found);
            for draft in &more {
                hooks_config::add_missing_table(&mut self.source_map.tree, &draft.location);
            }
            drafts.extend(more);
        }
        for draft in &drafts {
            let hook = draft.table.get(USE).and_then(Value::as_str);
            if let Some(entry) = hook.and_then(|hook| registry.hook_named(hook)) {
                let schema = Schema::new(entry.schema);
                self.source_map.secrets.extend(secrets::values(draft.table.clone(), schema));
                self.source_map.secrets.extend(secrets::possible_secrets(&draft.table, schema));
            }
        }
        let mut runner = HookRunner::default();
        let tables = drafts.into_iter().filter_map(|HookDraft { location, table }| {
            let read = HookTable::read(&location, &table, registry, &mut runner, &mut self.found)?;
            Some((read, location))
        });
        tables.collect()
    }

    /// Budgets of hooks need the accounts of the trainer.
    fn check_budgets(&mut self, trainer: Option<&Settings>, hooks: &[(HookTable, HookLocation)]) {
        if trainer.is_none_or(|trainer| trainer.account_hooks) {
            return;
        }
        for (_, location) in hooks.iter().filter(|(hook, _)| hook.common.budget.is_some()) {
            let message = "`budget` has no effect here: `account_hooks` is off in [trainer]";
            let problem =
                Problem::new("budget", message).fix("remove `budget`, or set `account_hooks = true`");
            self.found.push(location.locate(problem));
        }
    }

    fn tables(&mut self) -> Vec<HookDraft> {
        let Some(node) = self.top.remove("hooks") else { return Vec::new() };
        let Kind::Array(items) = node.kind else {
            let problem = Problem::new("hooks", "`hooks` is not a list of tables");
            self.found.push(problem.fix("write each hook as a table that begins with [[hooks]]"));
            return Vec::new();
        };
        let tables = items.iter().enumerate().filter_map(|(index, item)| {
            if let Value::Table(table) = item.value() {
                return Some(HookDraft { location: HookLocation::in_hooks(index), table });
            }
            let problem = Problem::new(format!("hooks.{index}"), "a hook is a table");
            self.found.push(problem.fix("write it as a table that begins with [[hooks]]"));
            None
        });
        tables.collect()
    }

    /// The remaining keys: the task's own options, with defaults.
    fn options(&mut self, task: Option<&dyn AnyTask>, registry: &Registry, named: bool) -> Option<Table> {
        let rest = std::mem::take(&mut self.top);
        if task.is_none() && named {
            // The valid keys of an unknown task are unknown.
            return None;
        }
        let tree = Value::Table(rest.iter().map(|(key, node)| (key.clone(), node.value())).collect());
        let schema = task.map_or_else(schema_of::<NoTask>, |task| registry.schema_of(task));
        if let Value::Table(own) = &tree {
            self.source_map.secrets.extend(secrets::values(own.clone(), Schema::new(&schema)));
        }
        let read = |tree: Value| match task {
            Some(task) => task.complete(tree),
            None => read::<NoTask>(tree).map(|NoTask {}| Table::new()),
        };
        let schema = Schema::new(&schema);
        let (options, errors) = read_all(tree, schema, &Table::new(), &read);
        let context = TableContext { key: "", called: "the configuration".into(), also: COMMON_KEYS, schema };
        self.found.extend(errors.iter().map(|error| {
            let problem = context.problem(error);
            let of_hooks = problem.part == Part::Key && hooks_config::has_key(&problem.key);
            if of_hooks { problem.fix("it belongs in [hooks_config]") } else { problem }
        }));
        options
    }
}

/// The options of a configuration without a task.
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoTask {}
