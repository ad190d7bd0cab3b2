//! The best checkpoint of a run.

use std::path::{Path, PathBuf};

use tenterhook_core::HookRunner;
use tenterhook_hooks::Checkpoint;

/// The best checkpoint of the first hook that keeps one.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Best {
    /// Its directory.
    pub path: PathBuf,
    /// The monitored metric and its value.
    pub score: Option<(String, f64)>,
}

impl Best {
    /// The best checkpoint of the first hook that has one; paths are relative to `root`.
    pub(crate) fn of(hooks: &HookRunner, root: &Path) -> Option<Best> {
        hooks.list().iter().find_map(|hook| {
            let checkpoint = hooks.hook::<Checkpoint>(&hook.name)?;
            let (path, score) = checkpoint.best()?;
            let score = checkpoint.monitor().map(str::to_owned).zip(score);
            // The path is absolute if the hook has its own directory.
            Some(Best { path: root.join(path), score })
        })
    }
}
