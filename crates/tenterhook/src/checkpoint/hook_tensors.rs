//! The tensors in hook states, which a checkpoint keeps in a separate file.

use std::path::Path;

use tenterhook_core::BoxError;
use tenterhook_core::runner::HookStates;

use super::files::state_of;
use super::store::{self, HOOKS, WEIGHTS};
use crate::tensors::TensorMap;

/// The entry with the name of the hook whose tensors are evaluated instead of the weights, such as their average.
const EVALUATE_WITH: &str = tenterhook_core::state::EVALUATE_WITH;

/// Moves the tensors out of the states and names them as a checkpoint does: `<hook>/<tensor>`.
pub(super) fn take(states: &mut HookStates) -> TensorMap {
    let mut all = TensorMap::default();
    for (hook, state) in states {
        for (name, shape, values) in std::mem::take(&mut state.tensors).iter() {
            all.insert_f32(format!("{hook}/{name}"), shape, values);
        }
    }
    all
}

/// Moves tensors back into their states.
pub(super) fn restore_into(all: &TensorMap, states: &mut HookStates) -> Result<(), BoxError> {
    let mut hooks: Vec<_> = states.keys().cloned().collect();
    // A hook's name may be the prefix of another's.
    hooks.sort_by_key(|hook| std::cmp::Reverse(hook.len()));
    for (full, tensor) in all.iter() {
        let owner = hooks.iter().find_map(|hook| Some((hook, full.strip_prefix(hook)?.strip_prefix('/')?)));
        let (hook, name) = owner.ok_or_else(|| format!("tensor `{full}` of {HOOKS} belongs to no hook"))?;
        let values = tensor.to_f32().map_err(|problem| format!("tensor `{full}` of {HOOKS}: {problem}"))?;
        if let Some(state) = states.get_mut(hook) {
            let so_far = std::mem::take(&mut state.tensors);
            state.tensors = so_far.with(name, tensor.shape.clone(), values);
        }
    }
    Ok(())
}

/// The weights of a checkpoint or a run that were evaluated: the average that a hook kept for evaluation, or else
/// the weights themselves.
pub fn weights_to_evaluate(directory: &Path) -> Result<TensorMap, BoxError> {
    let weights = directory.join(WEIGHTS);
    // The directory of a run has weights and no state.
    if store::holds_weights_alone(directory) {
        return Ok(TensorMap::read(&weights)?);
    }
    let files = store::open(directory)?;
    let contents = state_of(directory, &files)?;
    let averaging = contents.entries.get(EVALUATE_WITH).and_then(serde_json::Value::as_str);
    let Some(hook) = averaging else { return files.tensors(WEIGHTS) };
    let prefix = format!("{hook}/");
    let of_hook = files.tensors(HOOKS)?;
    let own = of_hook
        .into_iter()
        .filter_map(|(name, tensor)| Some((name.strip_prefix(&prefix)?.to_owned(), tensor)));
    Ok(own.collect())
}

#[cfg(test)]
mod tests {
    use tenterhook_core::{NamedTensors, State};

    use super::*;

    fn states(hooks: &[(&str, &str, f32)]) -> HookStates {
        let state = |name: &str, value| State::empty().with_tensors(NamedTensors::from([(name, [value])]));
        hooks.iter().map(|(hook, name, value)| ((*hook).to_owned(), state(name, *value))).collect()
    }

    #[test]
    fn tensors_go_back_to_the_hook_they_came_from() {
        let before = states(&[("a", "w", 1.0), ("a/b", "w", 2.0), ("c", "b/w", 3.0)]);
        let mut after = before.clone();
        let taken = take(&mut after);
        assert_eq!(taken.names().collect::<Vec<_>>(), ["a/b/w", "a/w", "c/b/w"]);
        assert!(after.values().all(|state| state.tensors.is_empty()));
        restore_into(&taken, &mut after).expect("all of them have owners");
        assert_eq!(after, before);
        after.remove("c");
        let error = restore_into(&taken, &mut after).expect_err("its hook is gone").to_string();
        assert_eq!(error, "tensor `c/b/w` of hooks.safetensors belongs to no hook");
    }
}
