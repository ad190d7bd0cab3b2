//! Compares the recorded checkpoints with those on the disk.

use std::io::ErrorKind;

use tenterhook_core::{HookResult, RunContext};
use tenterhook_files::RelPath;

use super::Checkpoint;
use super::naming::{release_names, reserve_name};
use super::top_k::TopK;

impl Checkpoint {
    /// Updates the records after a resume: the run or a user may have removed checkpoints.
    pub(super) fn reconcile(&mut self, run_cx: &RunContext<'_>) -> HookResult {
        if self.state.scored_by.is_some() && self.state.scored_by != self.options.monitor {
            run_cx.say("`monitor` has changed: the checkpoints kept by the old metric stay on the disk and are not ranked any more");
            self.state.top_k = TopK::default();
        }
        let (directory, removed) = (self.directory(run_cx), &run_cx.run.removed_checkpoints);
        let mut there = Vec::new();
        for kept in self.state.top_k.paths() {
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
        let missing = self.state.top_k.reconcile(|path| there.contains(path), was_removed);
        if !missing.is_empty() {
            let missing: Vec<_> = missing.iter().map(|path| self.at(path)).collect();
            let names: Vec<_> = missing.iter().map(|path| path.display().to_string()).collect();
            run_cx.say(format!(
                "`{}` no longer exists, though this run did not remove it; it is not ranked among the best any \
                 more",
                names.join("`, `")
            ));
            release_names(run_cx, &missing);
        }
        self.publish_best(run_cx);
        Ok(())
    }

    /// Forgets saves that failed since the last call, and restores the checkpoints that they would have replaced.
    pub(super) fn forget_failed_saves(&mut self, run_cx: &RunContext<'_>) {
        let failed = &run_cx.run.unsaved_checkpoints;
        if *failed == self.failed_saves {
            return;
        }
        let mut known = std::mem::replace(&mut self.failed_saves, failed.clone());
        let directory = self.directory(run_cx);
        for path in failed {
            if let Some(at) = known.iter().position(|old| old == path) {
                known.swap_remove(at);
                continue;
            }
            // Another hook's checkpoint, in another directory.
            let Some(path) = RelPath::of(path, &directory) else { continue };
            self.state.top_k.forget(&path);
            if let Some(at) = self.state.replaced.iter().rposition(|(by, _)| *by == path) {
                let (_, replaced) = self.state.replaced.remove(at);
                replaced.paths().iter().for_each(|path| reserve_name(run_cx, &self.at(path)));
                self.state.top_k.restore(replaced);
            }
            if self.state.last.as_ref() == Some(&path) {
                self.state.last_saved_at = None;
            }
        }
        self.publish_best(run_cx);
    }
}
