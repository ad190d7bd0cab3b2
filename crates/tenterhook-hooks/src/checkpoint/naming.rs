//! Under which name a checkpoint is saved.

use std::path::{Path, PathBuf};

use tenterhook_core::Moment;
use tenterhook_core::plan::TRAIN_LOSS;

use super::options::LAST;
use super::{Checkpoint, filename};

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
        let Some(missing) = missing.filter(|_| !self.told_missing) else { return };
        let names = known.names().join("`, `");
        moment.say(format!(
            "`filename` names the metric `{missing}`, which was not logged yet, so `nan` stands for it; there \
             are: `{names}`"
        ));
        self.told_missing = true;
    }

    /// The name, with a version behind it when it is taken by one that stays.
    pub(super) fn free_path(&mut self, moment: &Moment<'_>, leaving: &[PathBuf]) -> PathBuf {
        self.tell_missing(moment);
        let last = self.options.save_last.is_on().then(|| self.last_path(moment));
        let name = filename::fill(self.template(), self.options.auto_insert_metric_name, moment);
        let is_free = |path: &Path| {
            last.as_deref() != Some(path)
                && (leaving.iter().any(|old| old == path) || !is_taken(moment, path))
        };
        self.version(&name, is_free)
    }

    /// Where `last` is: this run's own, which is replaced, or at first a name that no other run has taken.
    pub(super) fn last_path(&mut self, moment: &Moment<'_>) -> PathBuf {
        let directory = self.options.dirpath.clone().unwrap_or_default();
        let own = self.memory.last.take().filter(|own| own.parent() == Some(&directory));
        let path = own.unwrap_or_else(|| self.version(LAST, |path| !is_taken(moment, path)));
        self.memory.last.insert(path).clone()
    }

    /// The name, or the first of its versions, that is free.
    fn version(&self, name: &str, is_free: impl Fn(&Path) -> bool) -> PathBuf {
        let directory = self.options.dirpath.clone().unwrap_or_default();
        let versions = (1..).map(|version| format!("{name}-v{version}"));
        let mut paths = std::iter::once(name.to_owned()).chain(versions).map(|name| directory.join(name));
        paths.find(|path| is_free(path)).unwrap_or_else(|| directory.join(name))
    }
}

/// Whether something stands there, be it a link that leads nowhere.
fn is_taken(moment: &Moment<'_>, path: &Path) -> bool {
    moment.run.checkpoints.join(path).symlink_metadata().is_ok()
}
