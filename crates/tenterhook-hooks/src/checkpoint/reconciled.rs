//! What the ledger says, and what is really there.

use std::path::Path;

use tenterhook_core::Moment;

use super::Checkpoint;
use super::ledger::Ledger;
use super::naming::{leave_names, take_name};

impl Checkpoint {
    /// After a resume: the run may have removed some since, and people others.
    pub(super) fn reconcile(&mut self, moment: &Moment<'_>) {
        if self.memory.judged_by.is_some() && self.memory.judged_by != self.options.monitor {
            moment.say("`monitor` is another metric than before, so what was kept by the old one stays and counts no longer");
            self.memory.ledger = Ledger::default();
        }
        let (root, removed) = (&moment.run.checkpoints, &moment.run.removed_checkpoints);
        let is_there = |path: &Path| root.join(path).is_dir();
        let missing = self.memory.ledger.reconcile(is_there, |path| removed.contains(&root.join(path)));
        if !missing.is_empty() {
            let names: Vec<_> = missing.iter().map(|path| path.display().to_string()).collect();
            moment.say(format!(
                "`{}` is not there any more, though this run did not remove it; it counts no longer among the \
                 best",
                names.join("`, `")
            ));
            leave_names(moment, &missing);
        }
        self.publish_best(moment);
    }

    /// Forgets what could not be written, as far as that is news.
    pub(super) fn drop_unsaved(&mut self, moment: &Moment<'_>) {
        let failed = &moment.run.unsaved_checkpoints;
        if *failed == self.unsaved {
            return;
        }
        let mut known = std::mem::replace(&mut self.unsaved, failed.clone());
        let root = &moment.run.checkpoints;
        for path in failed {
            if let Some(at) = known.iter().position(|old| old == path) {
                known.swap_remove(at);
                continue;
            }
            let path = path.strip_prefix(root).unwrap_or(path);
            self.memory.ledger.forget(path);
            if let Some(at) = self.memory.made_way.iter().rposition(|(way_of, _)| way_of == path) {
                let (_, made_way) = self.memory.made_way.remove(at);
                made_way.paths().iter().for_each(|path| take_name(moment, path));
                self.memory.ledger.take_back(made_way);
            }
            if self.memory.last.as_deref() == Some(path) {
                self.memory.last_is_of = None;
            }
        }
        self.publish_best(moment);
    }
}
