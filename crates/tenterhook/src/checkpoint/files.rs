//! Converting the contents of a checkpoint to its files and back.

use std::path::Path;

use serde_json::Value;
use tenterhook_core::BoxError;

use super::store::{
    self, CheckpointError, Disk, FileContent, GRADIENTS, HOOKS, OPTIMIZERS, STATE, STATE_LIMIT,
    VerifiedCheckpoint, WEIGHTS,
};
use super::{CheckpointContents, hook_tensors};
use crate::tensors::TensorMap;

/// Writes a checkpoint atomically.
pub(super) fn write(
    disk: &dyn Disk,
    path: &Path,
    contents: &CheckpointContents,
    hook_tensors: &TensorMap,
) -> Result<(), BoxError> {
    let mut state = serde_json::to_vec_pretty(contents)?;
    state.push(b'\n');
    if state.len() as u64 > STATE_LIMIT {
        let text = format!(
            "the {STATE} of checkpoint {} would have {} bytes, more than the limit of {STATE_LIMIT}; store large hook \
             state as tensors",
            path.display(),
            state.len()
        );
        return Err(text.into());
    }
    let tensors = [
        (WEIGHTS, &contents.weights, true),
        (OPTIMIZERS, &contents.optimizers.tensors, !contents.weights_only),
        (GRADIENTS, &contents.gradients, !contents.gradients.is_empty()),
        (HOOKS, hook_tensors, !hook_tensors.is_empty()),
    ];
    let mut files = Vec::new();
    for (file, tensors, _) in tensors.into_iter().filter(|(.., is_written)| *is_written) {
        files.push((file, FileContent::tensors(&path.join(file), tensors)?));
    }
    files.push((STATE, FileContent::Bytes(&state)));
    store::write(disk, path, &files)
}

/// Verifies a checkpoint and reads all of it.
pub fn read(path: &Path) -> Result<CheckpointContents, BoxError> {
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
        hook_tensors::restore_into(&files.tensors(HOOKS)?, &mut contents.hooks)?;
    }
    Ok(contents)
}

/// Verifies a checkpoint and reads everything but tensors.
pub fn read_state(path: &Path) -> Result<CheckpointContents, CheckpointError> {
    state_of(path, &store::open(path)?)
}

/// Reads everything but tensors of an open checkpoint. The error names the entry.
pub(super) fn state_of(
    path: &Path,
    files: &VerifiedCheckpoint,
) -> Result<CheckpointContents, CheckpointError> {
    let damaged = |problem: String| CheckpointError::damaged(&path.join(STATE), problem);
    let bytes = files.bytes(STATE)?;
    let state: Value = serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
    if let Some(problem) = too_large(&state) {
        return Err(damaged(problem));
    }
    serde_path_to_error::deserialize(state).map_err(|error| damaged(error.to_string()))
}

/// The largest count that is accepted: more than any run reaches, and far from an overflow.
const LARGEST_COUNT: u64 = 1 << 62;

/// The entries of the state whose numbers are not counts of the trainer.
const NOT_COUNTED: [&str; 6] = ["board", "config", "data", "entries", "hooks", "streams"];

/// Finds a count of the trainer that is too large.
fn too_large(state: &Value) -> Option<String> {
    let mut parts = state.as_object()?.iter().filter(|(key, _)| !NOT_COUNTED.contains(&key.as_str()));
    parts.find_map(|(key, value)| {
        let number = largest(value).filter(|number| *number > LARGEST_COUNT)?;
        Some(format!("{key} holds the count {number}, which is too large for any run"))
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

/// All problems of a checkpoint, file by file; empty if it is whole.
#[must_use]
pub fn problems(path: &Path) -> Vec<CheckpointError> {
    let found = store::problems(path);
    if found.is_empty() { read_state(path).err().into_iter().collect() } else { found }
}
