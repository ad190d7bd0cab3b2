//! Names that outlive a power cut: a new name is on the disk once its directory is synced.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Syncs the directory that a path lies in, so that a file that was made or renamed there keeps its name.
///
/// # Errors
/// The error of the system.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    File::open(parent_of(path))?.sync_all()
}

/// Makes a directory and those above it that do not exist, and syncs the parent of each new one.
///
/// # Errors
/// The error of the system.
pub fn create_directories(path: &Path) -> io::Result<()> {
    let missing: Vec<_> =
        path.ancestors().take_while(|made| !made.as_os_str().is_empty() && !made.exists()).collect();
    fs::create_dir_all(path)?;
    missing.into_iter().rev().try_for_each(sync_parent)
}

fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_made_as_deep_as_they_are_named() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("a/b/c");
        create_directories(&deep).unwrap();
        create_directories(&deep).unwrap();
        assert!(deep.is_dir());
        fs::write(deep.join("file"), "").unwrap();
        create_directories(&deep.join("file/d")).unwrap_err();
    }

    #[test]
    fn a_name_without_a_directory_lies_in_the_working_directory() {
        assert_eq!(parent_of(Path::new("runs")), Path::new("."));
        assert_eq!(parent_of(Path::new("a/runs")), Path::new("a"));
        sync_parent(Path::new("runs")).unwrap();
    }
}
