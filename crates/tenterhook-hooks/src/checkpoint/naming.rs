//! Under which name a checkpoint is saved.
//!
//! **Invariant.** A name is chosen by what the run knows, and not by what is on the disk by then: a save may still be
//! going on, and a resumed run finds there what it is about to save again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use tenterhook_core::plan::TRAIN_LOSS;
use tenterhook_core::{Key, Moment};

use super::options::LAST;
use super::{Checkpoint, filename};

/// The names that are taken in this run, and by which hook.
const NAMES: Key<BTreeMap<PathBuf, String>> = Key::new("checkpoint/names");

impl Checkpoint {
    pub(super) fn template(&self) -> &str {
        self.options.filename.as_deref().unwrap_or(filename::DEFAULT)
    }

    /// Says once that the name has no value for a metric.
    fn tell_missing(&mut self, moment: &Moment<'_>) {
        let known = moment.metrics();
        // The training loss is read when it is asked for.
        let is_missing = |name: &&str| *name != TRAIN_LOSS && known.get(name).is_none();
        let missing = filename::metrics(self.template()).into_iter().find(is_missing);
        let Some(missing) = missing.filter(|_| !self.memory.told_missing) else { return };
        let names = known.names().join("`, `");
        moment.say(format!(
            "`filename` names the metric `{missing}`, which was not logged yet, so `nan` stands for it; there \
             are: `{names}`"
        ));
        self.memory.told_missing = true;
    }

    /// The name, with a version behind it when it is taken by one that stays.
    pub(super) fn free_path(&mut self, moment: &Moment<'_>, leaving: &[PathBuf]) -> PathBuf {
        self.tell_missing(moment);
        let last = self.options.save_last.is_on().then(|| self.last_path(moment));
        let name = filename::fill(self.template(), self.options.auto_insert_metric_name, moment);
        let taken = self.taken(moment);
        let is_free = |path: &Path| {
            last.as_deref() != Some(path) && (leaving.iter().any(|old| old == path) || !taken(path))
        };
        self.version(&name, is_free)
    }

    /// Where `last` is: this run's own, which is replaced, or at first a name that no other run has taken.
    pub(super) fn last_path(&mut self, moment: &Moment<'_>) -> PathBuf {
        let directory = self.options.dirpath.clone().unwrap_or_default();
        let own = self.memory.last.take().filter(|own| own.parent() == Some(&directory));
        let path = own.unwrap_or_else(|| {
            let taken = self.taken(moment);
            self.version(LAST, |path| !taken(path))
        });
        take_name(moment, &path);
        self.memory.last.insert(path).clone()
    }

    /// Whether another run, or somebody in this one, has taken a name.
    fn taken<'t>(&'t self, moment: &Moment<'_>) -> impl Fn(&Path) -> bool + use<'t> {
        let names = moment.board().get(NAMES).unwrap_or_default();
        let of_others = self.memory.taken.as_ref();
        move |path| names.contains_key(path) || of_others.is_some_and(|taken| taken.contains(path))
    }

    /// Notes once per training what others have left where its checkpoints go. The run's own directory is nobody
    /// else's.
    pub(super) fn note_names_of_others(&mut self, moment: &Moment<'_>) {
        if self.memory.taken.is_some() {
            return;
        }
        let root = &moment.run.checkpoints;
        let directory = self.options.dirpath.clone().unwrap_or_default();
        let is_own = moment.run.directory.as_ref().is_some_and(|run| root.join(&directory).starts_with(run));
        let mut taken = BTreeSet::new();
        if !is_own {
            let outline = filename::outline(self.template(), self.options.auto_insert_metric_name);
            note(root, &directory, outline.split('/').count(), &mut taken);
            let begins = filename::beginning(self.template(), self.options.auto_insert_metric_name);
            taken.retain(|path: &PathBuf| {
                let name = path.strip_prefix(&directory).unwrap_or(path).to_string_lossy().into_owned();
                name.starts_with(&begins) || name.starts_with(LAST)
            });
        }
        self.memory.taken = Some(taken);
    }

    /// The name, or the first of its versions, that is free.
    fn version(&self, name: &str, is_free: impl Fn(&Path) -> bool) -> PathBuf {
        let directory = self.options.dirpath.clone().unwrap_or_default();
        let versions = (1..).map(|version| format!("{name}-v{version}"));
        let mut paths = std::iter::once(name.to_owned()).chain(versions).map(|name| directory.join(name));
        paths.find(|path| is_free(path)).unwrap_or_else(|| directory.join(name))
    }
}

/// Notes what is in a directory, and so deep below it; be it a link that leads nowhere.
fn note(root: &Path, directory: &Path, depth: usize, found: &mut BTreeSet<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(root.join(directory)) else { return };
    for entry in entries.flatten() {
        let path = directory.join(entry.file_name());
        if depth > 1 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            note(root, &path, depth - 1, found);
        }
        found.insert(path);
    }
}

/// Tells the other checkpoint hooks of this run that a name is taken.
pub(super) fn take_name(moment: &Moment<'_>, path: &Path) {
    let mut names = moment.board().get(NAMES).unwrap_or_default();
    if !names.contains_key(path) {
        names.insert(path.to_owned(), moment.hook_name().to_string());
        moment.board().put(NAMES, names);
    }
}

/// Tells that these names are free again.
pub(super) fn leave_names(moment: &Moment<'_>, paths: &[PathBuf]) {
    let mut names = moment.board().get(NAMES).unwrap_or_default();
    let before = names.len();
    names.retain(|path, _| !paths.contains(path));
    if names.len() < before {
        moment.board().put(NAMES, names);
    }
}
