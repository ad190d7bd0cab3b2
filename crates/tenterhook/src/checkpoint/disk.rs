//! A checkpoint's contents as the files of its directory, and back.

use std::path::Path;

use serde_json::Value;
use tenterhook_core::BoxError;

use super::store::{
    self, Content, Disk, GRADIENTS, HOOKS, OPTIMIZERS, STATE, STATE_LIMIT, Unreadable, Verified, WEIGHTS,
};
use super::{Contents, hook_tensors};
use crate::tensors::TensorMap;

/// Writes a checkpoint whole or not at all.
pub(super) fn write(
    disk: &dyn Disk,
    path: &Path,
    contents: &Contents,
    hook_tensors: &TensorMap,
) -> Result<(), BoxError> {
    let mut state = serde_json::to_vec_pretty(contents)?;
    state.push(b'\n');
    if state.len() as u64 > STATE_LIMIT {
        let text = format!(
            "the {STATE} of checkpoint {} would have {} bytes, and at most {STATE_LIMIT} are read; keep large states of \
             hooks in tensors",
            path.display(),
            state.len()
        );
        return Err(text.into());
    }
    let mut files = vec![(WEIGHTS, Content::Tensors(&contents.weights))];
    if !contents.weights_only {
        files.push((OPTIMIZERS, Content::Tensors(&contents.optimizers.tensors)));
    }
    for (file, tensors) in [(GRADIENTS, &contents.gradients), (HOOKS, hook_tensors)] {
        if !tensors.is_empty() {
            files.push((file, Content::Tensors(tensors)));
        }
    }
    files.push((STATE, Content::Bytes(&state)));
    store::write(disk, path, &files)
}

/// Reads a checkpoint that is whole.
pub fn read(path: &Path) -> Result<Contents, BoxError> {
    let files = store::open(path)?;
    let mut contents = state_of(path, &files)?;
    contents.weights = files.tensors(WEIGHTS)?;
    if !contents.weights_only {
        contents.optimizers.tensors = files.tensors(OPTIMIZERS)?;
    }
    if files.has(GRADIENTS) {
        contents.gradients = files.tensors(GRADIENTS)?;
    }
    if files.has(HOOKS) {
        hook_tensors::give_back(&files.tensors(HOOKS)?, &mut contents.hooks)?;
    }
    Ok(contents)
}

/// Reads what a checkpoint holds besides tensors.
pub fn read_state(path: &Path) -> Result<Contents, Unreadable> {
    state_of(path, &store::open(path)?)
}

/// The same for one that is open. The error names the entry.
pub(super) fn state_of(path: &Path, files: &Verified) -> Result<Contents, Unreadable> {
    let damaged = |problem: String| Unreadable::damaged(&path.join(STATE), problem);
    let bytes = files.bytes(STATE)?;
    let state: Value = serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
    if let Some(problem) = too_large(&state) {
        return Err(damaged(problem));
    }
    serde_path_to_error::deserialize(state).map_err(|error| damaged(error.to_string()))
}

/// The largest count in a state: far more than any run counts, and far from an overflow.
const LARGEST_COUNT: u64 = 1 << 62;

/// Parts of a state whose numbers are not the trainer's own counts.
const NOT_COUNTED: [&str; 6] = ["board", "config", "data", "entries", "hooks", "streams"];

/// A count of the trainer's own state that is too large to count on from.
fn too_large(state: &Value) -> Option<String> {
    let mut parts = state.as_object()?.iter().filter(|(key, _)| !NOT_COUNTED.contains(&key.as_str()));
    parts.find_map(|(key, value)| {
        let number = largest(value).filter(|number| *number > LARGEST_COUNT)?;
        Some(format!("{key} holds the count {number}, which no run comes to"))
    })
}

fn largest(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64(),
        Value::Array(values) => values.iter().filter_map(largest).max(),
        Value::Object(fields) => fields.values().filter_map(largest).max(),
        _ => None,
    }
}

/// Everything that is wrong with a checkpoint, file by file; nothing when it is whole.
#[must_use]
pub fn problems(path: &Path) -> Vec<Unreadable> {
    let found = store::problems(path);
    if found.is_empty() { read_state(path).err().into_iter().collect() } else { found }
}
