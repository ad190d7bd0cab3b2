//! Under which name a checkpoint is saved.
//!
//! **Invariant.** A name is chosen by what the run knows, and not by what is on the disk by then: a save may still be
//! going on, and a resumed run finds there what it is about to save again.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use tenterhook_core::plan::TRAIN_LOSS;
use tenterhook_core::{HookResult, Key, RunContext};
use tenterhook_files::RelPath;

use super::options::LAST;
use super::{Checkpoint, filename};

/// The names that are taken in this run, and by which hook. They are compared, and never opened.
const NAMES: Key<BTreeMap<PathBuf, String>> = Key::new("checkpoint/names");

impl Checkpoint {
    pub(super) fn template(&self) -> &str {
        self.options.filename.as_deref().unwrap_or(filename::DEFAULT)
    }

    /// Says once that the name has no value for a metric.
    fn tell_missing(&mut self, run_cx: &RunContext<'_>) {
        let known = run_cx.metrics();
        // The training loss is read when it is asked for.
        let is_missing = |name: &&str| *name != TRAIN_LOSS && known.get(name).is_none();
        let missing = filename::metrics(self.template()).into_iter().find(is_missing);
        let Some(missing) = missing.filter(|_| !self.memory.told_missing) else { return };
        let names = known.names().join("`, `");
        run_cx.say(format!(
            "`filename` names the metric `{missing}`, which was not logged yet, so `nan` stands for it; there \
             are: `{names}`"
        ));
        self.memory.told_missing = true;
    }

    /// The name, with a version behind it when it is taken by one that stays.
    pub(super) fn free_path(&mut self, run_cx: &RunContext<'_>, leaving: &[RelPath]) -> HookResult<RelPath> {
        self.tell_missing(run_cx);
        let last = self.options.save_last.is_on().then(|| self.last_path(run_cx)).transpose()?;
        let name = filename::fill(self.template(), self.options.auto_insert_metric_name, run_cx);
        let taken = self.taken(run_cx);
        let is_free = |path: &RelPath| {
            last.as_ref() != Some(&self.at(path)) && (leaving.contains(path) || !taken(path))
        };
        version(&name, is_free)
    }

    /// Where `last` is: this run's own, which is replaced, or at first a name that no other run has taken.
    pub(super) fn last_path(&mut self, run_cx: &RunContext<'_>) -> HookResult<PathBuf> {
        let name = match self.memory.last.take() {
            Some(own) => own,
            None => version(LAST, |path| !self.taken(run_cx)(path))?,
        };
        let path = self.at(&name);
        take_name(run_cx, &path);
        self.memory.last = Some(name);
        Ok(path)
    }

    /// The path for a request: below `dirpath`, which is below the checkpoints' root unless it is absolute.
    pub(super) fn at(&self, path: &RelPath) -> PathBuf {
        path.below(self.options.dirpath.as_deref().unwrap_or(Path::new("")))
    }

    /// Whether another run, or somebody in this one, has taken a name.
    fn taken<'t>(&'t self, run_cx: &RunContext<'_>) -> impl Fn(&RelPath) -> bool + use<'t> {
        let names = run_cx.board().get(NAMES).unwrap_or_default();
        let of_others = self.memory.taken.as_ref();
        move |path| names.contains_key(&self.at(path)) || of_others.is_some_and(|taken| taken.contains(path))
    }

    /// Notes once per training what others have left where its checkpoints go. The run's own directory is nobody
    /// else's.
    pub(super) fn note_names_of_others(&mut self, run_cx: &RunContext<'_>) -> HookResult {
        if self.memory.taken.is_some() {
            return Ok(());
        }
        let directory = self.directory(run_cx);
        let is_own = run_cx.run.directory.as_ref().is_some_and(|run| directory.starts_with(run));
        let mut taken = BTreeSet::new();
        if !is_own {
            let outline = filename::outline(self.template(), self.options.auto_insert_metric_name);
            note(&directory, None, outline.split('/').count(), &mut taken)?;
            let begins = filename::beginning(self.template(), self.options.auto_insert_metric_name);
            taken.retain(|path: &RelPath| {
                path.as_str().starts_with(&begins) || path.as_str().starts_with(LAST)
            });
        }
        self.memory.taken = Some(taken);
        Ok(())
    }

    /// The directory of its checkpoints.
    pub(super) fn directory(&self, run_cx: &RunContext<'_>) -> PathBuf {
        run_cx.run.checkpoints.join(self.options.dirpath.as_deref().unwrap_or(Path::new("")))
    }
}

/// The name, or the first of its versions, that is free.
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

/// Notes what is in a directory, and in those below it to this depth; a link counts, wherever it leads. A name that is
/// no [`RelPath`] is never chosen for a checkpoint.
fn note(root: &Path, below: Option<&RelPath>, depth: usize, found: &mut BTreeSet<RelPath>) -> HookResult {
    let directory = below.map_or_else(|| root.to_owned(), |below| below.below(root));
    let entries = match std::fs::read_dir(&directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.and_then(Iterator::collect::<io::Result<Vec<_>>>),
    };
    let entries = entries.map_err(|error| format!("cannot read {}: {error}", directory.display()))?;
    for entry in entries {
        let Some(path) = RelPath::of(&entry.path(), root) else { continue };
        if depth > 1 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            note(root, Some(&path), depth - 1, found)?;
        }
        found.insert(path);
    }
    Ok(())
}

/// Tells the other checkpoint hooks of this run that a name is taken.
pub(super) fn take_name(run_cx: &RunContext<'_>, path: &Path) {
    let mut names = run_cx.board().get(NAMES).unwrap_or_default();
    if !names.contains_key(path) {
        names.insert(path.to_owned(), run_cx.hook_name().to_string());
        run_cx.board().put(NAMES, names);
    }
}

/// Tells that these names are free again.
pub(super) fn leave_names(run_cx: &RunContext<'_>, paths: &[PathBuf]) {
    let mut names = run_cx.board().get(NAMES).unwrap_or_default();
    let before = names.len();
    names.retain(|path, _| !paths.contains(path));
    if names.len() < before {
        run_cx.board().put(NAMES, names);
    }
}
