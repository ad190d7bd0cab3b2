//! From the sources of a configuration to what would run.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tenterhook_core::HookRunner;
use toml::{Table, Value};

use super::COMMON_KEYS;
use super::check::read_all;
use super::hooks::{HookTable, Written};
use super::hooks_config::{self, Draft, HOOKS_CONFIG};
use super::layers::{self, PREFIX};
use super::located;
use super::read::{Fault, read, unexpected};
use super::resolved::Resolved;
use super::schema::{Schema, schema_of};
use super::secrets;
use super::tree::{Kind, Node, Origin, USE};
use super::words::{Place, suggestion};
use crate::problems::render::Places;
use crate::problems::{ConfigError, Part, Problem};
use crate::registry::Registry;
use crate::settings::Settings;
use crate::task::AnyTask;

/// Where a configuration comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// A TOML file.
    pub file: Option<PathBuf>,
    /// Environment variables; those that begin with `TENTER__` count.
    pub environment: Vec<(String, String)>,
    /// What `--set` gave, such as `trainer.max_epochs=3`.
    pub sets: Vec<String>,
}

impl Sources {
    /// A file, and nothing else.
    pub fn file(path: impl Into<PathBuf>) -> Sources {
        Sources { file: Some(path.into()), ..Sources::default() }
    }

    /// The same with the environment variables of this process that are meant for us.
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

    /// What would run, or everything that is wrong. The first task is the one that runs when none is
    /// named.
    pub fn resolve(&self, tasks: &[Box<dyn AnyTask>], registry: &Registry) -> Result<Resolved, ConfigError> {
        let (mut file, mut places) = match &self.file {
            Some(path) => layers::file(path)?,
            None => (Node::empty_table(Origin::Default), Places::default()),
        };
        let (assignments, mut found) = layers::assignments(&self.environment, &self.sets);

        // The task is named in the layers above its own defaults.
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
                    let message = format!("the defaults of task `{}` do not read: {error}", task.name());
                    found.push(Problem::new("", message));
                }
            }
        }
        if ALL_HOOKS.iter().any(|key| file.child(key).is_some()) {
            // Who writes hooks in either form writes all of them.
            for key in ALL_HOOKS {
                tree.take(key);
            }
        }
        located::all_by_own_names(&mut tree, registry);
        located::all_by_own_names(&mut file, registry);
        tree.merge(file);
        for assignment in assignments {
            found.extend(assignment.apply(&mut tree, registry).err());
        }
        places.task = task.map(|task| task.name().to_owned()).unwrap_or_default();
        places.tree = tree;
        Reading::new(found, places).all(tasks, task.map(AsRef::as_ref), registry)
    }
}

/// The keys under which hooks can be written.
const ALL_HOOKS: &[&str] = &["hooks", HOOKS_CONFIG];

/// Reads the merged tree, table by table.
struct Reading {
    found: Vec<Problem>,
    top: BTreeMap<String, Node>,
    places: Places,
}

impl Reading {
    fn new(found: Vec<Problem>, places: Places) -> Reading {
        let top = match &places.tree.kind {
            Kind::Table(entries) => entries.clone(),
            Kind::Array(_) | Kind::Leaf(_) => BTreeMap::new(),
        };
        Reading { found, top, places }
    }

    fn all(
        mut self,
        tasks: &[Box<dyn AnyTask>],
        task: Option<&dyn AnyTask>,
        registry: &Registry,
    ) -> Result<Resolved, ConfigError> {
        let name = self.word("task", task.map(AnyTask::name).unwrap_or_default());
        // Only a program without tasks has a configuration of no task.
        let is_none = |name: &String| name.is_empty() && tasks.is_empty();
        if let (None, Some(name)) = (task, name.as_ref().filter(|name| !is_none(name))) {
            let known: Vec<_> = tasks.iter().map(|task| task.name()).collect();
            let problem = Problem::new("task", format!("there is no task named `{name}`"));
            self.found.push(problem.fixed(suggestion(name, &known)));
        }
        let device = self.word("device", "cpu");
        let runs_dir = self.word("runs_dir", "runs");
        let trainer = self.trainer();
        let hooks = self.hooks(registry);
        self.check_budgets(trainer.as_ref(), &hooks);
        let options = self.options(task, registry, name.is_some_and(|name| !is_none(&name)));
        let (Some(trainer), Some(options), true) = (trainer, options, self.found.is_empty()) else {
            return Err(self.places.error(&self.found));
        };
        let (hooks, written): (Vec<_>, Vec<_>) = hooks.into_iter().unzip();
        let schemas = hooks.iter().map(|hook| {
            let listed = registry.hooks().find(|listed| listed.name == hook.common.use_);
            listed.map(|listed| listed.schema.clone()).unwrap_or_default()
        });
        Ok(Resolved {
            task: task.map(|task| task.name().to_owned()).unwrap_or_default(),
            device: device.unwrap_or_default(),
            runs_dir: runs_dir.unwrap_or_default().into(),
            trainer,
            hook_schemas: schemas.collect(),
            hooks,
            written,
            options,
            task_schema: task.map(|task| registry.schema_of(task)).unwrap_or_default(),
            places: self.places,
        })
    }

    /// A top-level key that holds a text.
    fn word(&mut self, key: &str, default: &str) -> Option<String> {
        let Some(node) = self.top.remove(key) else { return Some(default.to_owned()) };
        if let Value::String(word) = node.value() {
            return Some(word);
        }
        let fault = Fault::wrong_type(unexpected(&node.value()), "a text");
        self.found.push(Problem::new(key, fault.to_string()));
        None
    }

    fn trainer(&mut self) -> Option<Settings> {
        let tree = self.top.remove("trainer").map_or_else(|| Value::Table(Table::new()), |node| node.value());
        let schema = schema_of::<Settings>();
        let schema = Schema::new(&schema);
        let (settings, misfits) = read_all(tree, schema, &Table::new(), &read::<Settings>);
        let place = Place { key: "trainer", called: "[trainer]".into(), also: &[], schema };
        self.found.extend(misfits.iter().map(|misfit| place.problem(misfit)));
        let problems = settings.iter().flat_map(Settings::problems);
        self.found.extend(problems.map(|problem| problem.below("trainer")));
        settings
    }

    /// `[[hooks]]`, and then what `[hooks_config]` comes to; each with the place where it was written.
    fn hooks(&mut self, registry: &Registry) -> Vec<(HookTable, Written)> {
        let mut drafts = self.tables();
        if let Some(node) = self.top.remove(HOOKS_CONFIG) {
            let more = hooks_config::drafts(&node, &mut drafts, registry, &mut self.found);
            for draft in &more {
                hooks_config::stand_in(&mut self.places.tree, &draft.written);
            }
            drafts.extend(more);
        }
        for draft in &drafts {
            let hook = draft.table.get(USE).and_then(Value::as_str);
            if let Some(listed) = hook.and_then(|hook| registry.hook_named(hook)) {
                let schema = Schema::new(listed.schema);
                self.places.secrets.extend(secrets::texts(draft.table.clone(), schema));
                self.places.secrets.extend(secrets::misplaced(&draft.table, schema));
            }
        }
        let mut runner = HookRunner::default();
        let tables = drafts.into_iter().filter_map(|Draft { written, table }| {
            let read = HookTable::read(&written, &table, registry, &mut runner, &mut self.found)?;
            Some((read, written))
        });
        tables.collect()
    }

    /// What a hook takes is known only where account is kept.
    fn check_budgets(&mut self, trainer: Option<&Settings>, hooks: &[(HookTable, Written)]) {
        if trainer.is_none_or(|trainer| trainer.account_hooks) {
            return;
        }
        for (_, written) in hooks.iter().filter(|(hook, _)| hook.common.budget.is_some()) {
            let message = "`budget` has no effect here: `account_hooks` is off in [trainer]";
            let problem = Problem::new("budget", message).fix("take one of them away");
            self.found.push(written.problem(problem));
        }
    }

    fn tables(&mut self) -> Vec<Draft> {
        let Some(node) = self.top.remove("hooks") else { return Vec::new() };
        let Kind::Array(items) = node.kind else {
            let problem = Problem::new("hooks", "`hooks` is not a list of tables");
            self.found.push(problem.fix("write each hook as a table that begins with [[hooks]]"));
            return Vec::new();
        };
        let tables = items.iter().enumerate().filter_map(|(index, item)| {
            if let Value::Table(table) = item.value() {
                return Some(Draft { written: Written::in_hooks(index), table });
            }
            let problem = Problem::new(format!("hooks.{index}"), "a hook is a table");
            self.found.push(problem.fix("write it as a table that begins with [[hooks]]"));
            None
        });
        tables.collect()
    }

    /// Everything else: the task's own keys, complete with their defaults.
    fn options(&mut self, task: Option<&dyn AnyTask>, registry: &Registry, named: bool) -> Option<Table> {
        let rest = std::mem::take(&mut self.top);
        if task.is_none() && named {
            // It names a task that there is not, so nobody knows which keys are right.
            return None;
        }
        let tree = Value::Table(rest.iter().map(|(key, node)| (key.clone(), node.value())).collect());
        let schema = task.map_or_else(schema_of::<NoTask>, |task| registry.schema_of(task));
        if let Value::Table(own) = &tree {
            self.places.secrets.extend(secrets::texts(own.clone(), Schema::new(&schema)));
        }
        let read = |tree: Value| match task {
            Some(task) => task.complete(tree),
            None => read::<NoTask>(tree).map(|NoTask {}| Table::new()),
        };
        let schema = Schema::new(&schema);
        let (options, misfits) = read_all(tree, schema, &Table::new(), &read);
        let place = Place { key: "", called: "the configuration".into(), also: COMMON_KEYS, schema };
        self.found.extend(misfits.iter().map(|misfit| {
            let problem = place.problem(misfit);
            let of_hooks = problem.of == Part::Key && hooks_config::has_key(&problem.key);
            if of_hooks { problem.fix("it belongs into [hooks_config]") } else { problem }
        }));
        options
    }
}

/// The keys of no task.
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoTask {}
