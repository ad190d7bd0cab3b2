//! Writing and removing checkpoints, and setting links to them.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use tenterhook_core::BoxError;
use tenterhook_files::{SMALL_FILE, read_bounded};

use super::disk::{Disk, DiskError};
use super::manifest::{FileDigest, HashingWriter, Manifest};
use super::swap::{remove_leftovers, swap_in};
use super::{FORMAT, MANIFEST, REMOVED, UNFINISHED, hidden_name, parent_of};
use crate::tensors::{AsFile, TensorMap};

/// The content of a file.
pub(crate) enum FileContent<'a> {
    /// Bytes.
    Bytes(&'a [u8]),
    /// Tensors, as safetensors.
    Tensors(AsFile<'a>),
}

impl<'a> FileContent<'a> {
    /// Tensors for this file. The error names the file.
    pub(crate) fn tensors(file: &Path, tensors: &'a TensorMap) -> Result<FileContent<'a>, String> {
        tensors.as_file().map(FileContent::Tensors).map_err(|error| format!("{}: {error}", file.display()))
    }

    fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        match self {
            FileContent::Bytes(bytes) => out.write_all(bytes),
            FileContent::Tensors(tensors) => tensors.write_to(out),
        }
    }
}

/// Writes a checkpoint of these files, by name, and syncs it. Atomically replaces one of the same name. After an error
/// the directory is as it was.
pub(crate) fn write(disk: &dyn Disk, path: &Path, files: &[(&str, FileContent<'_>)]) -> Result<(), BoxError> {
    let written = || {
        make_parents(disk, path)?;
        check_replaceable(path)?;
        remove_leftovers(disk, path)
    };
    written().map_err(DiskError::of("write checkpoint", path))?;
    let unfinished = hidden_name(path, UNFINISHED);
    if let Err(error) = fill(disk, &unfinished, path, files) {
        // The unfinished checkpoint may have filled the disk. If this fails too, the next save or start
        // removes it.
        let _ = disk.remove(&unfinished);
        return Err(error.into());
    }
    Ok(swap_in(disk, path).map_err(DiskError::of("write checkpoint", path))?)
}

/// Writes all files and the manifest into a directory.
fn fill(
    disk: &dyn Disk,
    unfinished: &Path,
    path: &Path,
    files: &[(&str, FileContent<'_>)],
) -> Result<(), DiskError> {
    disk.make_directory(unfinished).map_err(DiskError::of("write checkpoint", path))?;
    let mut digests = BTreeMap::new();
    for (name, content) in files {
        let digest = write_hashed(disk, &unfinished.join(name), content);
        digests
            .insert((*name).to_owned(), digest.map_err(DiskError::of("write checkpoint", &path.join(name)))?);
    }
    let manifest = || {
        let text = Manifest::text(FORMAT, digests)?;
        disk.write(&unfinished.join(MANIFEST), &mut |out| out.write_all(text.as_bytes()))
    };
    manifest().map_err(DiskError::of("write checkpoint", &path.join(MANIFEST)))?;
    // Syncing after all writes is many times as fast as syncing after each.
    for name in files.iter().map(|(name, _)| *name).chain([MANIFEST]) {
        let synced = disk.sync_file(&unfinished.join(name));
        synced.map_err(DiskError::of("write checkpoint", &path.join(name)))?;
    }
    disk.sync_directory(unfinished).map_err(DiskError::of("write checkpoint", path))
}

fn write_hashed(disk: &dyn Disk, file: &Path, content: &FileContent<'_>) -> io::Result<FileDigest> {
    let mut digest = None;
    disk.write(file, &mut |out| {
        let mut buffered = BufWriter::with_capacity(1 << 16, HashingWriter::new(out));
        content.write_to(&mut buffered)?;
        let hashing = buffered.into_inner().map_err(io::IntoInnerError::into_error)?;
        digest = Some(hashing.digest());
        Ok(())
    })?;
    digest.ok_or_else(|| io::Error::other("nothing was written"))
}

/// Creates the parent directories of a checkpoint, and syncs each new one.
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

/// Refuses to remove or replace anything but checkpoints and links, as a directory without a manifest of ours may
/// belong to the user. [Hidden names](hidden_name) are always ours.
fn check_replaceable(path: &Path) -> io::Result<()> {
    let refused = |why: &str| Err(io::Error::new(ErrorKind::InvalidInput, why));
    match path.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if found.is_symlink() => return Ok(()),
        Ok(found) if !found.is_dir() => return refused("it is a file, not a checkpoint"),
        Ok(_) => {}
    }
    match has_manifest(path) {
        Ok(true) => Ok(()),
        Ok(false) => refused("it is a directory without the manifest of a checkpoint"),
        Err(error) => refused(&format!("the existing manifest cannot be read: {error}")),
    }
}

/// Whether a directory has a manifest of ours, of any format.
pub(super) fn has_manifest(directory: &Path) -> io::Result<bool> {
    match read_bounded(&directory.join(MANIFEST), SMALL_FILE) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        read => Ok(Manifest::is_manifest(&read?)),
    }
}

/// Removes a checkpoint or a link to one; no other function removes a checkpoint under its own name. Does nothing if
/// there is none.
pub(crate) fn remove(disk: &dyn Disk, path: &Path) -> Result<(), BoxError> {
    let removed = || {
        check_replaceable(path)?;
        remove_leftovers(disk, path)?;
        match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
            Ok(found) if !found.is_dir() => return disk.remove(path),
            Ok(_) => {}
        }
        // Removing a tree is not atomic, and half a checkpoint must not keep the name.
        let hidden = hidden_name(path, REMOVED);
        disk.rename(path, &hidden)?;
        disk.sync_directory(parent_of(path))?;
        disk.remove(&hidden)
    };
    Ok(removed().map_err(DiskError::of("remove checkpoint", path))?)
}

/// Makes a link lead to a checkpoint. Atomically replaces a link or a checkpoint of its name.
pub(crate) fn set_link(disk: &dyn Disk, link: &Path, target: &Path) -> Result<(), BoxError> {
    let linked = || {
        make_parents(disk, link)?;
        check_replaceable(link)?;
        remove_leftovers(disk, link)?;
        disk.link(&hidden_name(link, UNFINISHED), &link_target(link, target)?)?;
        swap_in(disk, link)
    };
    Ok(linked().map_err(DiskError::of("link checkpoint", link))?)
}

/// The text of a link: relative within the link's directory, so that the directory can be moved; otherwise absolute.
fn link_target(link: &Path, target: &Path) -> io::Result<PathBuf> {
    let inside = target.strip_prefix(parent_of(link)).or_else(|error| match target.parent() {
        Some(parent) if parent_of(link) == Path::new(".") && parent.as_os_str().is_empty() => Ok(target),
        _ => Err(error),
    });
    match inside {
        Ok(inside) => Ok(inside.to_owned()),
        Err(_) => target.canonicalize(),
    }
}
