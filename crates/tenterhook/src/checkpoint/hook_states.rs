//! Whether the states of hooks in a checkpoint can be loaded.

use std::path::Path;

use serde_json::Value;
use tenterhook_core::{AnyHook, OnError, State, backtraces};

use super::disk::read;
use super::store::{STATE, Unreadable};
use crate::config::HookTable;
use crate::registry::Registry;

/// What is wrong with the states of hooks in a whole checkpoint. The hooks are made as the checkpoint's configuration says,
/// or with default options; those that this registry does not have are not checked.
#[must_use]
pub fn hook_problems(path: &Path, registry: &Registry) -> Vec<Unreadable> {
    let contents = match read(path) {
        Ok(contents) => contents,
        Err(error) => return vec![damaged(path, &error.to_string())],
    };
    let mut hooks = made(&contents.config, registry);
    let mut problems = Vec::new();
    for (name, state) in &contents.hooks {
        let configured = hooks.iter_mut().find(|(of, ..)| of == name).map(|(_, hook, _)| hook);
        let mut by_default = registry.hook(name, toml::Table::new()).ok();
        let Some(hook) = configured.or(by_default.as_mut()) else { continue };
        problems.extend(problem(path, name, hook, state));
    }
    problems
}

/// The states in a checkpoint that hooks of this configuration cannot load and whose errors end the run. A resume is
/// refused for them before it starts.
#[must_use]
pub fn refused_hook_states(path: &Path, config: &Value, registry: &Registry) -> Vec<Unreadable> {
    let contents = match read(path) {
        Ok(contents) => contents,
        Err(error) => return vec![damaged(path, &error.to_string())],
    };
    let hooks = made(config, registry).into_iter().filter(|(.., on_error)| *on_error == OnError::Abort);
    let refused = hooks.filter_map(|(name, mut hook, _)| {
        let state = contents.hooks.get(&name)?;
        problem(path, &name, &mut hook, state)
    });
    refused.collect()
}

/// The hooks of a configuration, with their names and what their errors do.
fn made(config: &Value, registry: &Registry) -> Vec<(String, AnyHook, OnError)> {
    let tables = config.get("hooks").cloned().unwrap_or_default();
    let tables: Vec<HookTable> = serde_json::from_value(tables).unwrap_or_default();
    let mut hooks: Vec<(String, AnyHook, OnError)> = Vec::new();
    for table in tables {
        let Ok(hook) = registry.hook(&table.common.use_, &table.options) else { continue };
        let taken: Vec<_> = hooks.iter().map(|(name, ..)| name.clone()).collect();
        let name = table.registered_name(&hook, &taken);
        let on_error = table.common.on_error.unwrap_or(hook.spec().policy.on_error);
        hooks.push((name, table.common.gate(hook), on_error));
    }
    hooks
}

fn problem(path: &Path, name: &str, hook: &mut AnyHook, state: &State) -> Option<Unreadable> {
    let loaded =
        if state.is_empty() { Ok(()) } else { backtraces::catch_panic("", || hook.load_state(state)) };
    loaded.err().map(|error| damaged(path, &format!("hooks.{name}: {error}")))
}

fn damaged(path: &Path, problem: &str) -> Unreadable {
    Unreadable::damaged(&path.join(STATE), problem)
}
