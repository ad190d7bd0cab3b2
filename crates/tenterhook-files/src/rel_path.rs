//! Paths from untrusted files, which cannot leave their root.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::read::link_error;

/// A relative path of plain names, joined by `/`: no root, no `..`, no `.`, not empty.
///
/// Paths in checkpoints and run directories are only read as this type. It is validated when it is parsed, so
/// the text of a path cannot lead out of the root. [`RelPath::for_writing`] also refuses symbolic links to
/// directories in the path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RelPath(String);

/// The error for a text that is no [`RelPath`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a path below its directory: it must be relative, without `.` and `..`", .0.escape_default())]
pub struct RelPathError(String);

impl RelPath {
    /// Parses a text.
    ///
    /// # Errors
    /// [`RelPathError`] if it could refer to a path outside of the root.
    pub fn new(text: impl Into<String>) -> Result<RelPath, RelPathError> {
        let text = text.into();
        let is_name =
            |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains(['\0', '\\']);
        // This check matters on Windows, where `:` is special; elsewhere it repeats the check of the parts.
        let is_plain = Path::new(&text).components().all(|part| matches!(part, Component::Normal(_)));
        if is_plain && text.split('/').all(is_name) { Ok(RelPath(text)) } else { Err(RelPathError(text)) }
    }

    /// `path` relative to `root`, if its text begins with `root`.
    #[must_use]
    pub fn of(path: &Path, root: &Path) -> Option<RelPath> {
        let below = path.strip_prefix(root).ok()?;
        let parts: Option<Vec<_>> = below.components().map(|part| part.as_os_str().to_str()).collect();
        RelPath::new(parts?.join("/")).ok()
    }

    /// The text, with `/` between names.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path below `root` for reading; symbolic links are followed.
    #[must_use]
    pub fn below(&self, root: &Path) -> PathBuf {
        root.join(&self.0)
    }

    /// The path below `root` for writing or removing; refuses symbolic links to directories in the path. The
    /// last name may be a symbolic link, since renaming over it or removing it does not follow it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if a directory in the path is a symbolic link, or the error of the system.
    pub fn for_writing(&self, root: &Path) -> io::Result<PathBuf> {
        let directories = self.0.rsplit_once('/').map_or("", |(directories, _)| directories);
        self.refuse_links(root, directories)
    }

    /// The path below `root` for opening a file in place; refuses symbolic links to directories in the path
    /// and as the last name.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if one of them is a symbolic link, or the error of the system.
    pub fn for_opening(&self, root: &Path) -> io::Result<PathBuf> {
        self.refuse_links(root, &self.0)
    }

    /// The path below `root`, if none of these names is a symbolic link.
    fn refuse_links(&self, root: &Path, names: &str) -> io::Result<PathBuf> {
        let mut path = root.to_owned();
        for name in names.split('/').filter(|name| !name.is_empty()) {
            path.push(name);
            match path.symlink_metadata() {
                Ok(found) if found.is_symlink() => return Err(link_error(&path)),
                Ok(_) => {}
                // The remaining names do not exist either.
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(self.below(root))
    }
}

impl TryFrom<String> for RelPath {
    type Error = RelPathError;

    fn try_from(text: String) -> Result<RelPath, RelPathError> {
        RelPath::new(text)
    }
}

impl From<RelPath> for String {
    fn from(path: RelPath) -> String {
        path.0
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_names_are_paths_and_everything_else_is_refused() {
        for good in ["a", "a/b", "epoch=1-step=2", "a..b", "...", ".hidden"] {
            assert_eq!(RelPath::new(good).unwrap().as_str(), good);
        }
        for bad in
            ["", "/", "/a", "..", "a/..", "../a", "a/../b", ".", "./a", "a/.", "a//b", "a/", "a\0b", "a\\b"]
        {
            assert!(RelPath::new(bad).is_err(), "{bad:?}");
            assert!(serde_json::from_value::<RelPath>(bad.into()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_path_is_split_and_joined_again() {
        let path = RelPath::of(Path::new("/r/a/b"), Path::new("/r")).unwrap();
        assert_eq!((path.as_str(), path.below(Path::new("/s"))), ("a/b", PathBuf::from("/s/a/b")));
        assert_eq!(RelPath::of(Path::new("/r"), Path::new("/r")), None, "the root itself");
        assert_eq!(RelPath::of(Path::new("/r/../x"), Path::new("/r")), None);
        assert_eq!(RelPath::of(Path::new("/other"), Path::new("/r")), None);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_on_the_way_is_not_followed_for_writing() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        std::fs::create_dir_all(root.join("real")).unwrap();
        std::os::unix::fs::symlink(directory.path(), root.join("link")).unwrap();
        let resolve = |text: &str| RelPath::new(text).unwrap().for_writing(&root);
        assert_eq!(resolve("real/new/deep").unwrap(), root.join("real/new/deep"));
        assert_eq!(resolve("link").unwrap(), root.join("link"), "the link itself can be replaced");
        assert_eq!(resolve("link/x").unwrap_err().kind(), ErrorKind::InvalidInput);
        let opened = |text: &str| RelPath::new(text).unwrap().for_opening(&root);
        assert_eq!(opened("real/new/deep").unwrap(), root.join("real/new/deep"));
        assert_eq!(opened("link").unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(opened("link/x").unwrap_err().kind(), ErrorKind::InvalidInput);
    }

    proptest! {
        #[test]
        fn every_accepted_path_stays_below_the_root(text in "[./a\\\\\0]{0,8}") {
            if let Ok(path) = RelPath::new(text) {
                let joined = path.below(Path::new("/root"));
                prop_assert!(joined.starts_with("/root") && joined != Path::new("/root"));
                prop_assert!(joined.components().all(|part| part != Component::ParentDir));
            }
        }
    }
}
