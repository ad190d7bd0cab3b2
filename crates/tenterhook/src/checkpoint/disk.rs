//! A checkpoint's contents as the files of its directory, and back.

use std::path::Path;

use tenterhook_core::BoxError;

use super::store::{self, Content, GRADIENTS, HOOKS, OPTIMIZERS, RealDisk, STATE, Verified, WEIGHTS};
use super::{Contents, hook_tensors};
use crate::tensors::TensorMap;

/// Writes a checkpoint whole or not at all.
pub(super) fn write(path: &Path, contents: &Contents, hook_tensors: &TensorMap) -> Result<(), BoxError> {
    let mut state = serde_json::to_vec_pretty(contents)?;
    state.push(b'\n');
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
    store::write(&RealDisk, path, &files)
}

/// Reads a checkpoint that is whole.
pub fn read(path: &Path) -> Result<Contents, BoxError> {
    let files = store::open(path)?;
    let mut contents = read_state(path, &files)?;
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
pub(super) fn read_state(path: &Path, files: &Verified) -> Result<Contents, BoxError> {
    let contents = serde_json::from_slice(&files.bytes(STATE)?);
    Ok(contents.map_err(|error| format!("checkpoint {} is damaged: {error}", path.join(STATE).display()))?)
}
