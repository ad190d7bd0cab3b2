//! What the ledger says, and what is really there.

use std::io::ErrorKind;

use tenterhook_core::{HookResult, RunContext};
use tenterhook_files::RelPath;

use super::Checkpoint;
use super::ledger::Ledger;
use super::naming::{leave_names, take_name};

impl Checkpoint {
    /// After a resume: the run may have removed some since, and people others.
    pub(super) fn reconcile(&mut self, run_cx: &RunContext<'_>) -> HookResult {
        if self.memory.judged_by.is_some() && self.memory.judged_by != self.options.monitor {
            run_cx.say("`monitor` is another metric than before, so what was kept by the old one stays and counts no longer");
            self.memory.ledger = Ledger::default();
        }
        let (directory, removed) = (self.directory(run_cx), &run_cx.run.removed_checkpoints);
        let mut there = Vec::new();
        for kept in self.memory.ledger.paths() {
            let path = kept.below(&directory);
            if run_cx.run.pending_checkpoints.contains(&path) {
                there.push(kept);
                continue;
            }
            match path.metadata() {
                Ok(found) if found.is_dir() => there.push(kept),
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(format!("cannot read checkpoint {}: {error}", path.display()).into());
                }
                _ => {}
            }
        }
        let was_removed = |path: &RelPath| removed.contains(&path.below(&directory));
        let missing = self.memory.ledger.reconcile(|path| there.contains(path), was_removed);
        if !missing.is_empty() {
            let missing: Vec<_> = missing.iter().map(|path| self.at(path)).collect();
            let names: Vec<_> = missing.iter().map(|path| path.display().to_string()).collect();
            run_cx.say(format!(
                "`{}` is not there any more, though this run did not remove it; it counts no longer among the \
                 best",
                names.join("`, `")
            ));
            leave_names(run_cx, &missing);
        }
        self.publish_best(run_cx);
        Ok(())
    }

    /// Forgets what could not be written, as far as that is news.
    pub(super) fn drop_unsaved(&mut self, run_cx: &RunContext<'_>) {
        let failed = &run_cx.run.unsaved_checkpoints;
        if *failed == self.unsaved {
            return;
        }
        let mut known = std::mem::replace(&mut self.unsaved, failed.clone());
        let directory = self.directory(run_cx);
        for path in failed {
            if let Some(at) = known.iter().position(|old| old == path) {
                known.swap_remove(at);
                continue;
            }
            // Another hook has asked for one that is elsewhere.
            let Some(path) = RelPath::of(path, &directory) else { continue };
            self.memory.ledger.forget(&path);
            if let Some(at) = self.memory.made_way.iter().rposition(|(way_of, _)| *way_of == path) {
                let (_, made_way) = self.memory.made_way.remove(at);
                made_way.paths().iter().for_each(|path| take_name(run_cx, &self.at(path)));
                self.memory.ledger.take_back(made_way);
            }
            if self.memory.last.as_ref() == Some(&path) {
                self.memory.last_is_of = None;
            }
        }
        self.publish_best(run_cx);
    }
}
