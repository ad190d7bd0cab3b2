//! Writing a checkpoint, removing one, and pointing a link at one.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use tenterhook_core::BoxError;
use tenterhook_files::{SMALL_FILE, read_bounded};

use super::disk::{Disk, DiskError};
use super::manifest::{Hashing, Manifest, Sum};
use super::place::{clear, put_in_place};
use super::{FORMAT, MANIFEST, REMOVED, UNFINISHED, beside, parent_of};
use crate::tensors::{AsFile, TensorMap};

/// What a file is to hold.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Content<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// These tensors, as safetensors.
    Tensors(&'a TensorMap),
}

/// What a file is to hold, found to be in order.
enum Ready<'a> {
    Bytes(&'a [u8]),
    Tensors(AsFile<'a>),
}

impl Ready<'_> {
    fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Ready::Bytes(bytes) => out.write_all(bytes),
            Ready::Tensors(tensors) => tensors.write_to(out),
        }
    }
}

/// Writes a checkpoint of these files, by name, and waits until it is on the disk. One of the same name is replaced
/// at one instant. When it fails, it is as if nothing had been tried.
pub(crate) fn write(disk: &dyn Disk, path: &Path, files: &[(&str, Content<'_>)]) -> Result<(), BoxError> {
    // What cannot be written is refused before anything is touched.
    let ready = files.iter().map(|(name, content)| match content {
        Content::Bytes(bytes) => Ok((*name, Ready::Bytes(bytes))),
        Content::Tensors(tensors) => {
            let tensors =
                tensors.as_file().map_err(|error| format!("{}: {error}", path.join(name).display()))?;
            Ok((*name, Ready::Tensors(tensors)))
        }
    });
    let ready = ready.collect::<Result<Vec<_>, String>>()?;
    make_parents(disk, path).map_err(DiskError::of("write checkpoint", path))?;
    is_ours(path).map_err(DiskError::of("write checkpoint", path))?;
    clear(disk, path).map_err(DiskError::of("write checkpoint", path))?;
    let unfinished = beside(path, UNFINISHED);
    if let Err(error) = fill(disk, &unfinished, path, &ready) {
        // It may be what filled the disk. Where that fails too, the next save or start removes it.
        let _ = disk.remove(&unfinished);
        return Err(error.into());
    }
    put_in_place(disk, path).map_err(DiskError::of("write checkpoint", path))?;
    Ok(())
}

/// Makes the directory with all its files.
fn fill(
    disk: &dyn Disk,
    unfinished: &Path,
    path: &Path,
    files: &[(&str, Ready<'_>)],
) -> Result<(), DiskError> {
    disk.make_directory(unfinished).map_err(DiskError::of("write checkpoint", path))?;
    let mut sums = BTreeMap::new();
    for (name, content) in files {
        let sum = write_hashed(disk, &unfinished.join(name), content);
        sums.insert((*name).to_owned(), sum.map_err(DiskError::of("write checkpoint", &path.join(name)))?);
    }
    let manifest = || {
        let text = Manifest::text(FORMAT, sums)?;
        disk.write(&unfinished.join(MANIFEST), &mut |out| out.write_all(text.as_bytes()))
    };
    manifest().map_err(DiskError::of("write checkpoint", &path.join(MANIFEST)))?;
    // Only now: what is written together goes to the disk together, and waiting for each in turn takes many times as long.
    for name in files.iter().map(|(name, _)| *name).chain([MANIFEST]) {
        let synced = disk.sync_file(&unfinished.join(name));
        synced.map_err(DiskError::of("write checkpoint", &path.join(name)))?;
    }
    disk.sync_directory(unfinished).map_err(DiskError::of("write checkpoint", path))
}

fn write_hashed(disk: &dyn Disk, file: &Path, content: &Ready<'_>) -> io::Result<Sum> {
    let mut sum = None;
    disk.write(file, &mut |out| {
        let mut buffered = BufWriter::with_capacity(1 << 16, Hashing::new(out));
        content.write_to(&mut buffered)?;
        let hashing = buffered.into_inner().map_err(io::IntoInnerError::into_error)?;
        sum = Some(hashing.sum());
        Ok(())
    })?;
    sum.ok_or_else(|| io::Error::other("nothing was written"))
}

/// Makes the directories that a checkpoint lies in, each of which must be on the disk before it.
fn make_parents(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    let parent = parent_of(path);
    let missing: Vec<_> =
        parent.ancestors().take_while(|made| parent_of(made) != *made && !made.exists()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    disk.make_directory(parent)?;
    missing.into_iter().rev().try_for_each(|made| disk.sync_directory(parent_of(made)))
}

/// Refuses to remove or replace what is not a checkpoint or a link: a directory without a manifest of ours may be
/// anything. Hidden names of ours ([`beside`]) need none.
fn is_ours(path: &Path) -> io::Result<()> {
    let refused = |why: &str| Err(io::Error::new(ErrorKind::InvalidInput, why));
    match path.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if found.is_symlink() => return Ok(()),
        Ok(found) if !found.is_dir() => return refused("it is a file and no checkpoint"),
        Ok(_) => {}
    }
    match has_manifest(path) {
        Ok(true) => Ok(()),
        Ok(false) => refused("it is a directory without the manifest of a checkpoint"),
        Err(error) => refused(&format!("the manifest of what is there cannot be read: {error}")),
    }
}

/// Whether a directory has a manifest of ours, of any format.
pub(super) fn has_manifest(directory: &Path) -> io::Result<bool> {
    match read_bounded(&directory.join(MANIFEST), SMALL_FILE) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        read => Ok(Manifest::is_one(&read?)),
    }
}

/// Removes a checkpoint, or a link to one. No other function removes a checkpoint under its own name. It is
/// no error if nothing has the name.
pub(crate) fn remove(disk: &dyn Disk, path: &Path) -> Result<(), BoxError> {
    let removed = || {
        is_ours(path)?;
        clear(disk, path)?;
        match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
            Ok(found) if !found.is_dir() => return disk.remove(path),
            Ok(_) => {}
        }
        // A tree does not go at one instant; what is half gone must not have the name of a checkpoint.
        let hidden = beside(path, REMOVED);
        disk.rename(path, &hidden)?;
        disk.sync_directory(parent_of(path))?;
        disk.remove(&hidden)
    };
    Ok(removed().map_err(DiskError::of("remove checkpoint", path))?)
}

/// Points a link at a checkpoint. Whatever had its name is replaced at one instant.
pub(crate) fn point(disk: &dyn Disk, link: &Path, target: &Path) -> Result<(), BoxError> {
    let pointed = || {
        make_parents(disk, link)?;
        is_ours(link)?;
        clear(disk, link)?;
        disk.link(&beside(link, UNFINISHED), &seen_from(link, target)?)?;
        put_in_place(disk, link)
    };
    Ok(pointed().map_err(DiskError::of("link checkpoint", link))?)
}

/// What a link must say to lead to a target: within its own directory that can be moved as a whole.
fn seen_from(link: &Path, target: &Path) -> io::Result<PathBuf> {
    let inside = target.strip_prefix(parent_of(link)).or_else(|error| match target.parent() {
        Some(parent) if parent_of(link) == Path::new(".") && parent.as_os_str().is_empty() => Ok(target),
        _ => Err(error),
    });
    match inside {
        Ok(inside) => Ok(inside.to_owned()),
        Err(_) => target.canonicalize(),
    }
}
