//! The directories in which a run keeps checkpoints, and paths below them.
//!
//! **Invariant.** Every path that is saved to, linked, removed or announced is a [`CheckpointPath`], whether it comes
//! from a hook or from a checkpoint. Only [`Roots`] turns it into a path of the file system.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tenterhook_core::{BoxError, HookRunner, RunInfo, SaveRequest};
use tenterhook_files::RelPath;

use super::store::{self, Disk, LATEST};

/// The path of a checkpoint, relative to the checkpoints' root or to the directory that a hook declares as an
/// [effect](tenterhook_core::Effect::SaveCheckpoints). It cannot name anything outside of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointPath {
    /// The hook that declares the directory; `None` for the checkpoints' root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<String>,
    /// The path below that directory.
    pub path: RelPath,
}

impl From<RelPath> for CheckpointPath {
    fn from(path: RelPath) -> CheckpointPath {
        CheckpointPath { hook: None, path }
    }
}

/// A [`SaveRequest`] whose paths have been checked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Save {
    /// The checkpoint; `None` names it by epoch and step.
    pub path: Option<CheckpointPath>,
    /// Saves only the weights.
    pub weights_only: bool,
    /// The checkpoints to remove once this one is durable.
    pub replaces: Vec<CheckpointPath>,
    /// A link to set to it once it is durable.
    pub link: Option<CheckpointPath>,
    /// Its score if it is the best so far.
    #[serde(with = "tenterhook_core::number::option")]
    pub best_score: Option<f64>,
}

/// The directories in which a run keeps checkpoints. They come from the command line, the configuration and the
/// program.
pub(crate) struct Roots {
    /// The run's directory, if it has one.
    run: Option<PathBuf>,
    own: PathBuf,
    /// The other directories, by the hook that declares each.
    declared: Vec<(String, PathBuf)>,
}

impl Roots {
    /// The directories of a run with these hooks.
    pub(crate) fn of(run: &RunInfo, hooks: &HookRunner) -> Roots {
        let contained =
            |(hook, directory): (String, PathBuf)| (hook, run.checkpoints.join(run.contained(&directory)));
        let declared = hooks.checkpoint_directories().into_iter().map(contained).collect();
        Roots::new(run.directory.clone(), run.checkpoints.clone(), declared)
    }

    /// `own` is the checkpoints' root; `declared` are directories with the hooks that declare them.
    pub(super) fn new(run: Option<PathBuf>, own: PathBuf, declared: Vec<(String, PathBuf)>) -> Roots {
        Roots { run, own, declared }
    }

    /// The checkpoints' root.
    pub(crate) fn own(&self) -> &Path {
        &self.own
    }

    /// All directories.
    pub(super) fn all(&self) -> impl Iterator<Item = &Path> {
        let declared = self.declared.iter().map(|(_, directory)| directory.as_path());
        std::iter::once(self.own()).chain(declared)
    }

    /// Converts a path to one below a root. The error is for the hook that requested it.
    pub(super) fn checkpoint_path(&self, path: &Path) -> Result<CheckpointPath, BoxError> {
        self.find(&self.own.join(path)).ok_or_else(|| {
            format!(
                "{} is not below {}, where this run keeps its checkpoints; save there, or declare the directory with \
                 `Effect::SaveCheckpoints`",
                path.display(),
                self.own.display()
            )
            .into()
        })
    }

    /// Converts a path to one below a root, if it is below one.
    fn find(&self, path: &Path) -> Option<CheckpointPath> {
        let declared = |(hook, directory): &(String, PathBuf)| {
            Some(CheckpointPath { hook: Some(hook.clone()), path: RelPath::of(path, directory)? })
        };
        let own = RelPath::of(path, &self.own).map(CheckpointPath::from);
        own.or_else(|| self.declared.iter().find_map(declared))
    }

    /// Whether a checkpoint exists. `false` if its directory is no longer declared; an error if the file system
    /// cannot tell.
    pub(crate) fn holds(&self, path: &CheckpointPath) -> Result<bool, BoxError> {
        let Ok(place) = self.resolve(path) else { return Ok(false) };
        match place.metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(format!("cannot read checkpoint {}: {error}", place.display()).into()),
            Ok(found) => Ok(found.is_dir()),
        }
    }

    /// Sets aside the checkpoints that are in one of the directories. Returns a notice for each.
    pub(super) fn set_aside(&self, disk: &dyn Disk, paths: &[PathBuf]) -> Result<Vec<String>, BoxError> {
        let mut done = Vec::new();
        // A checkpoint elsewhere was found by a link, and links are not followed for writing.
        for path in paths.iter().filter_map(|path| self.find(path)) {
            let path = self.for_writing(&path)?;
            // The list may have several paths to the same checkpoint.
            if !matches!(store::exists(&path), Ok(false)) {
                let aside = store::set_aside(disk, &path)?;
                let (path, aside) = (path.display(), aside.display());
                done.push(format!("{path} cannot be read, and was set aside as {aside}"));
            }
        }
        Ok(done)
    }

    /// Whether the directory of a path is still declared. It is not if its hook is gone.
    pub(crate) fn is_declared(&self, path: &CheckpointPath) -> bool {
        self.directory_of(path).is_ok()
    }

    /// The path for reading.
    pub(crate) fn resolve(&self, path: &CheckpointPath) -> Result<PathBuf, BoxError> {
        Ok(path.path.below(self.directory_of(path)?))
    }

    /// The path for writing or removing. Symbolic links on the way to it are not followed.
    pub(super) fn for_writing(&self, path: &CheckpointPath) -> Result<PathBuf, BoxError> {
        let directory = self.directory_of(path)?;
        let place = path.path.below(directory);
        let of_run = self.run.as_ref().and_then(|run| Some((run, RelPath::of(&place, run)?)));
        let checked: io::Result<_> = match of_run {
            // The directory of checkpoints itself is a part of the run.
            Some((run, below)) => below.for_writing(run),
            None => path.path.for_writing(directory),
        };
        checked.map_err(|error| format!("cannot write checkpoint {}: {error}", place.display()).into())
    }

    /// The link to the newest checkpoint.
    pub(crate) fn latest(&self) -> Result<PathBuf, BoxError> {
        self.for_writing(&RelPath::new(LATEST)?.into())
    }

    fn directory_of(&self, path: &CheckpointPath) -> Result<&Path, BoxError> {
        let Some(hook) = &path.hook else { return Ok(&self.own) };
        let declared = self.declared.iter().find(|(name, _)| name == hook);
        let (_, directory) =
            declared.ok_or_else(|| format!("hook `{hook}` declares no directory for checkpoints"))?;
        Ok(directory)
    }
}

impl Save {
    /// Checks the paths of a request. In a rehearsal they are moved below its scratch directory.
    pub(crate) fn checked(
        request: &SaveRequest,
        run: &RunInfo,
        hooks: &HookRunner,
    ) -> Result<Save, BoxError> {
        let SaveRequest { path, weights_only, replaces, link, best_score } = request;
        let roots = Roots::of(run, hooks);
        let name = |path: &PathBuf| roots.checkpoint_path(&run.contained(path));
        Ok(Save {
            path: path.as_ref().map(name).transpose()?,
            weights_only: *weights_only,
            replaces: replaces.iter().map(name).collect::<Result<_, _>>()?,
            link: link.as_ref().map(name).transpose()?,
            best_score: *best_score,
        })
    }

    /// Whether the directories of all paths are declared.
    pub(crate) fn is_known(&self, roots: &Roots) -> bool {
        self.path.iter().chain(&self.replaces).chain(&self.link).all(|path| roots.is_declared(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots() -> Roots {
        let declared = vec![("far".to_owned(), "/srv/best".into())];
        Roots::new(None, "/run/checkpoints".into(), declared)
    }

    #[test]
    fn a_path_below_a_root_comes_back_and_every_other_is_refused() {
        for (text, hook, path) in [
            ("a", None, "a"),
            ("./a/b", None, "a/b"),
            ("/run/checkpoints/a", None, "a"),
            ("/srv/best/x/a", Some("far"), "x/a"),
        ] {
            let named = roots().checkpoint_path(Path::new(text)).expect(text);
            assert_eq!((named.hook.as_deref(), named.path.as_str()), (hook, path));
            let absolute = Path::new("/run/checkpoints").join(text);
            assert_eq!(roots().resolve(&named).expect(text), absolute.components().collect::<PathBuf>());
        }
        for text in [
            "..",
            "../a",
            "a/../../b",
            "/",
            "/etc",
            "/srv",
            "/srv/best",
            "/srv/best/../x",
            "/run/checkpoints",
            "",
        ] {
            assert!(roots().checkpoint_path(Path::new(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn a_path_in_the_directory_of_a_removed_hook_is_unknown() {
        let path = CheckpointPath { hook: Some("gone".into()), path: RelPath::new("a").expect("a name") };
        assert!(!roots().is_declared(&path));
        let error = roots().resolve(&path).expect_err("nothing is meant").to_string();
        assert_eq!(error, "hook `gone` declares no directory for checkpoints");
    }
}
