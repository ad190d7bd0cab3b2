//! Checking whether the hook states in a checkpoint can be loaded.

use std::path::Path;

use serde_json::Value;
use tenterhook_core::{AnyHook, OnError, State, backtraces};

use super::contents::CheckpointContents;
use super::files::read;
use super::store::{CheckpointError, STATE};
use crate::config::HookTable;
use crate::registry::Registry;

/// The problems of the hook states in a whole checkpoint. The hooks are built from the checkpoint's configuration or
/// with default options; hooks that are not in this registry are not checked.
#[must_use]
pub fn hook_problems(path: &Path, registry: &Registry) -> Vec<CheckpointError> {
    with_contents(path, |contents| {
        let mut hooks = build_hooks(&contents.config, registry);
        let mut problems = Vec::new();
        for (name, state) in &contents.hooks {
            let configured = hooks.iter_mut().find(|(of, ..)| of == name).map(|(_, hook, _)| hook);
            let mut by_default = registry.hook(name, toml::Table::new()).ok();
            let Some(hook) = configured.or(by_default.as_mut()) else { continue };
            problems.extend(problem(path, name, hook, state));
        }
        problems
    })
}

/// The states in a checkpoint that hooks of this configuration cannot load and whose errors would end the
/// run. With any of these, a resume is refused before it starts.
#[must_use]
pub fn refused_hook_states(path: &Path, config: &Value, registry: &Registry) -> Vec<CheckpointError> {
    with_contents(path, |contents| {
        let hooks = build_hooks(config, registry).into_iter();
        let refused =
            hooks.filter(|(.., on_error)| *on_error == OnError::Abort).filter_map(|(name, mut hook, _)| {
                let state = contents.hooks.get(&name)?;
                problem(path, &name, &mut hook, state)
            });
        refused.collect()
    })
}

/// Checks the contents of a checkpoint, or returns why it cannot be read.
fn with_contents(
    path: &Path,
    check: impl FnOnce(&CheckpointContents) -> Vec<CheckpointError>,
) -> Vec<CheckpointError> {
    match read(path) {
        Ok(contents) => check(&contents),
        Err(error) => vec![damaged(path, &error.to_string())],
    }
}

/// The hooks of a configuration, with their names and error policies.
fn build_hooks(config: &Value, registry: &Registry) -> Vec<(String, AnyHook, OnError)> {
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

fn problem(path: &Path, name: &str, hook: &mut AnyHook, state: &State) -> Option<CheckpointError> {
    let loaded =
        if state.is_empty() { Ok(()) } else { backtraces::catch_panic("", || hook.load_state(state)) };
    loaded.err().map(|error| damaged(path, &format!("hooks.{name}: {error}")))
}

fn damaged(path: &Path, problem: &str) -> CheckpointError {
    CheckpointError::damaged(&path.join(STATE), problem)
}
