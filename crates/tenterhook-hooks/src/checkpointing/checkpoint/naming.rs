//! Chooses the name of a checkpoint.
//!
//! **Invariant.** The choice depends on the run's state, not on the disk at that time: a save may be in progress, and a
//! resumed run finds checkpoints that it is about to save again.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use tenterhook_core::plan::TRAIN_LOSS;
use tenterhook_core::{HookResult, Key, RunContext};
use tenterhook_files::RelPath;

use super::options::LAST;
use super::{Checkpoint, filename};

/// The names taken in this run, each with its hook. They are only compared, never opened.
const NAMES: Key<BTreeMap<PathBuf, String>> = Key::new("checkpoint/names");

impl Checkpoint {
    pub(super) fn template(&self) -> &str {
        self.options.filename.as_deref().unwrap_or(filename::DEFAULT)
    }

    /// Reports once that a metric of `filename` has no value.
    fn report_missing(&mut self, run_cx: &RunContext<'_>) {
        let known = run_cx.metrics();
        // The training loss can always be read.
        let is_missing = |name: &&str| *name != TRAIN_LOSS && known.get(name).is_none();
        let missing = filename::metrics(self.template()).into_iter().find(is_missing);
        let Some(missing) = missing.filter(|_| !self.state.missing_reported) else { return };
        let names = known.names().join("`, `");
        run_cx.say(format!(
            "`filename` has the metric `{missing}`, which is not logged yet; it is replaced by `nan`. Logged so \
             far: `{names}`"
        ));
        self.state.missing_reported = true;
    }

    /// A free name from the template: with a version suffix if the plain one is taken.
    pub(super) fn free_path(&mut self, run_cx: &RunContext<'_>, leaving: &[RelPath]) -> HookResult<RelPath> {
        self.report_missing(run_cx);
        let last = self.options.save_last.is_on().then(|| self.last_path(run_cx)).transpose()?;
        let name = filename::fill(self.template(), self.options.auto_insert_metric_name, run_cx);
        let taken = self.taken(run_cx);
        let is_free = |path: &RelPath| {
            last.as_ref() != Some(&self.at(path)) && (leaving.contains(path) || !taken(path))
        };
        version(&name, is_free)
    }

    /// The path of `last`: this run's own, which is overwritten, or at first a free name.
    pub(super) fn last_path(&mut self, run_cx: &RunContext<'_>) -> HookResult<PathBuf> {
        let name = match self.state.last.take() {
            Some(own) => own,
            None => version(LAST, |path| !self.taken(run_cx)(path))?,
        };
        let path = self.at(&name);
        reserve_name(run_cx, &path);
        self.state.last = Some(name);
        Ok(path)
    }

    /// The path below `dirpath`, which is relative to the checkpoints' root unless it is absolute.
    pub(super) fn at(&self, path: &RelPath) -> PathBuf {
        path.below(self.options.dirpath.as_deref().unwrap_or(Path::new("")))
    }

    /// Whether a name is taken, by another run or by a hook of this run.
    fn taken<'t>(&'t self, run_cx: &RunContext<'_>) -> impl Fn(&RelPath) -> bool + use<'t> {
        let names = run_cx.board().get(NAMES).unwrap_or_default();
        let of_others = self.state.taken.as_ref();
        move |path| names.contains_key(&self.at(path)) || of_others.is_some_and(|taken| taken.contains(path))
    }

    /// Records once per training which names exist in `dirpath`, unless it is in the run's own directory.
    pub(super) fn record_existing_names(&mut self, run_cx: &RunContext<'_>) -> HookResult {
        if self.state.taken.is_some() {
            return Ok(());
        }
        let directory = self.directory(run_cx);
        let is_own = run_cx.run.directory.as_ref().is_some_and(|run| directory.starts_with(run));
        let mut taken = BTreeSet::new();
        if !is_own {
            let outline = filename::outline(self.template(), self.options.auto_insert_metric_name);
            collect_names(&directory, None, outline.split('/').count(), &mut taken)?;
            let prefix = filename::prefix(self.template(), self.options.auto_insert_metric_name);
            taken.retain(|path: &RelPath| {
                path.as_str().starts_with(&prefix) || path.as_str().starts_with(LAST)
            });
        }
        self.state.taken = Some(taken);
        Ok(())
    }

    /// The directory of the hook's checkpoints.
    pub(super) fn directory(&self, run_cx: &RunContext<'_>) -> PathBuf {
        run_cx.run.checkpoints.join(self.options.dirpath.as_deref().unwrap_or(Path::new("")))
    }
}

/// The name, or else its first free version.
fn version(name: &str, is_free: impl Fn(&RelPath) -> bool) -> HookResult<RelPath> {
    let mut path = RelPath::new(name)?;
    for version in 1.. {
        if is_free(&path) {
            break;
        }
        path = RelPath::new(format!("{name}-v{version}"))?;
    }
    Ok(path)
}

/// Collects the names in a directory and its subdirectories down to this depth, links included. A name that is not a
/// [`RelPath`] is skipped: no checkpoint can have it.
fn collect_names(
    root: &Path,
    below: Option<&RelPath>,
    depth: usize,
    found: &mut BTreeSet<RelPath>,
) -> HookResult {
    let directory = below.map_or_else(|| root.to_owned(), |below| below.below(root));
    let entries = match std::fs::read_dir(&directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.and_then(Iterator::collect::<io::Result<Vec<_>>>),
    };
    let entries = entries.map_err(|error| format!("cannot read {}: {error}", directory.display()))?;
    for entry in entries {
        let Some(path) = RelPath::of(&entry.path(), root) else { continue };
        if depth > 1 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect_names(root, Some(&path), depth - 1, found)?;
        }
        found.insert(path);
    }
    Ok(())
}

/// Marks a name as taken, for the other checkpoint hooks of this run.
pub(super) fn reserve_name(run_cx: &RunContext<'_>, path: &Path) {
    let mut names = run_cx.board().get(NAMES).unwrap_or_default();
    if !names.contains_key(path) {
        names.insert(path.to_owned(), run_cx.hook_name().to_string());
        run_cx.board().put(NAMES, names);
    }
}

/// Marks names as free again.
pub(super) fn release_names(run_cx: &RunContext<'_>, paths: &[PathBuf]) {
    let mut names = run_cx.board().get(NAMES).unwrap_or_default();
    let before = names.len();
    names.retain(|path, _| !paths.contains(path));
    if names.len() < before {
        run_cx.board().put(NAMES, names);
    }
}
