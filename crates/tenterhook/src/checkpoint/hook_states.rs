//! Whether the states of hooks in a checkpoint can be loaded.

use std::path::Path;

use tenterhook_core::{AnyHook, backtraces};

use super::disk::read;
use super::store::{STATE, Unreadable};
use crate::config::HookTable;
use crate::registry::Registry;

/// What is wrong with the states of hooks in a whole checkpoint. The hooks are made as the checkpoint's configuration says,
/// or with default options; those that this registry does not have are not checked.
#[must_use]
pub fn hook_problems(path: &Path, registry: &Registry) -> Vec<Unreadable> {
    let damaged = |problem: String| Unreadable::damaged(&path.join(STATE), problem);
    let contents = match read(path) {
        Ok(contents) => contents,
        Err(error) => return vec![damaged(error.to_string())],
    };
    let tables = contents.config.get("hooks").cloned().unwrap_or_default();
    let tables: Vec<HookTable> = serde_json::from_value(tables).unwrap_or_default();
    let mut hooks: Vec<(String, AnyHook)> = Vec::new();
    for table in tables {
        let Ok(hook) = registry.hook(&table.common.use_, &table.options) else { continue };
        let taken: Vec<_> = hooks.iter().map(|(name, _)| name.clone()).collect();
        hooks.push((table.registered_name(&hook, &taken), hook));
    }
    let mut problems = Vec::new();
    for (name, state) in contents.hooks.iter().filter(|(_, state)| !state.is_empty()) {
        let configured = hooks.iter_mut().find(|(of, _)| of == name).map(|(_, hook)| hook);
        let mut by_default = registry.hook(name, toml::Table::new()).ok();
        let Some(hook) = configured.or(by_default.as_mut()) else { continue };
        if let Err(error) = backtraces::caught("", || hook.load_state(state)) {
            problems.push(damaged(format!("hooks.{name}: {error}")));
        }
    }
    problems
}
