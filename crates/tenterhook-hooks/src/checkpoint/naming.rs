//! Under which name a checkpoint is saved.

use std::path::PathBuf;

use tenterhook_core::Moment;

use super::{Checkpoint, filename};

impl Checkpoint {
    pub(super) fn template(&self) -> &str {
        self.options.filename.as_deref().unwrap_or(filename::DEFAULT)
    }

    /// Says once that the name has no value for a metric.
    fn tell_missing(&mut self, moment: &Moment<'_>) {
        let known = moment.metrics();
        let missing = filename::metrics(self.template()).into_iter().find(|name| known.get(name).is_none());
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
        let template = self.template();
        let name = filename::fill(template, self.options.auto_insert_metric_name, moment);
        let directory = self.options.dirpath.clone().unwrap_or_default();
        let versions = (1..).map(|version| format!("{name}-v{version}"));
        let mut names = std::iter::once(name.clone()).chain(versions).map(|name| directory.join(name));
        let is_free = |path: &PathBuf| leaving.contains(path) || !moment.run.checkpoints.join(path).exists();
        names.find(is_free).unwrap_or_else(|| directory.join(&name))
    }
}
