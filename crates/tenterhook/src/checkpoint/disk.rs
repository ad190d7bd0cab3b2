//! Checkpoints on disk: written whole or not at all.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use tenterhook_core::BoxError;

use super::{Contents, FORMAT, hook_tensors};
use crate::tensors::TensorMap;

/// The names of the files within a checkpoint's directory.
pub(super) const STATE: &str = "state.json";
/// The weights, in the directory of a checkpoint and of a run.
pub const WEIGHTS: &str = "weights.safetensors";
const OPTIMIZERS: &str = "optimizer.safetensors";
/// The gradients of an accumulation window that had not ended; only where there are some.
const GRADIENTS: &str = "gradients.safetensors";
/// The tensors of hooks' states, as `<hook>/<tensor>`; only where a hook has some.
pub(super) const HOOKS: &str = "hooks.safetensors";

pub(super) fn cannot(what: &str, path: &Path, error: &std::io::Error) -> BoxError {
    format!("cannot {what} checkpoint {}: {error}", path.display()).into()
}

/// Writes a checkpoint whole or not at all: to a temporary name, synced, renamed.
pub(super) fn write(path: &Path, contents: &Contents, hook_tensors: &TensorMap) -> Result<(), BoxError> {
    let parent = path.parent().unwrap_or_else(|| Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let unfinished = parent.join(format!(".{name}.unfinished"));
    fill(&unfinished, contents, hook_tensors)?;
    put_in_place(&unfinished, path).map_err(|error| cannot("write", path, &error))
}

/// Makes the directory with all its files, each of them synced.
fn fill(directory: &Path, contents: &Contents, hook_tensors: &TensorMap) -> Result<(), BoxError> {
    let begun = || {
        remove(directory)?;
        fs::create_dir_all(directory)
    };
    begun().map_err(|error| cannot("write", directory, &error))?;
    contents.weights.write(&directory.join(WEIGHTS))?;
    if !contents.weights_only {
        contents.optimizers.tensors.write(&directory.join(OPTIMIZERS))?;
    }
    if !contents.gradients.is_empty() {
        contents.gradients.write(&directory.join(GRADIENTS))?;
    }
    if !hook_tensors.is_empty() {
        hook_tensors.write(&directory.join(HOOKS))?;
    }
    let path = directory.join(STATE);
    let written = || {
        let mut file = File::create(&path)?;
        serde_json::to_writer_pretty(&mut file, contents)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        File::open(directory)?.sync_all()
    };
    written().map_err(|error| cannot("write", &path, &error))
}

fn put_in_place(unfinished: &Path, path: &Path) -> std::io::Result<()> {
    let parent = path.parent().unwrap_or_else(|| Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // What stands there makes way only when the new one is whole, and goes only when that has its place.
    let replaced = parent.join(format!(".{name}.replaced"));
    remove(&replaced)?;
    if path.symlink_metadata().is_ok() {
        fs::rename(path, &replaced)?;
    }
    fs::rename(unfinished, path)?;
    remove(&replaced)?;
    File::open(parent)?.sync_all()
}

/// Removes a checkpoint, or a link to one. That somebody else has done so already is no error.
pub(super) fn remove(path: &Path) -> std::io::Result<()> {
    match path.symlink_metadata() {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Points a link at a checkpoint, replacing whatever stood there.
pub(super) fn relink(link: &Path, checkpoint: &Path) -> std::io::Result<()> {
    let target = match (checkpoint.parent(), checkpoint.file_name()) {
        (parent, Some(name)) if parent == link.parent() => PathBuf::from(name),
        _ => checkpoint.canonicalize()?,
    };
    remove(link)?;
    std::os::unix::fs::symlink(target, link)
}

/// Reads a checkpoint.
pub fn read(path: &Path) -> Result<Contents, BoxError> {
    let mut contents = read_state(path)?;
    contents.weights = TensorMap::read(&path.join(WEIGHTS))?;
    if !contents.weights_only {
        contents.optimizers.tensors = TensorMap::read(&path.join(OPTIMIZERS))?;
    }
    let gradients = path.join(GRADIENTS);
    if gradients.exists() {
        contents.gradients = TensorMap::read(&gradients)?;
    }
    let hooks = path.join(HOOKS);
    if hooks.exists() {
        hook_tensors::give_back(&TensorMap::read(&hooks)?, &mut contents.hooks)?;
    }
    Ok(contents)
}

/// Reads what a checkpoint holds besides tensors.
pub(super) fn read_state(path: &Path) -> Result<Contents, BoxError> {
    let file = path.join(STATE);
    let text = fs::read_to_string(&file).map_err(|error| cannot("read", &file, &error))?;
    let contents: Contents = serde_json::from_str(&text)
        .map_err(|error| format!("checkpoint {} is damaged: {error}", file.display()))?;
    if contents.format > FORMAT {
        let (found, known) = (contents.format, FORMAT);
        return Err(format!(
            "checkpoint {} has format {found}, this program reads up to {known}; use a newer one",
            file.display()
        )
        .into());
    }
    Ok(contents)
}
