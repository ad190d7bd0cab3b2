//! Runs that only try something out: nothing of them is shown, and nothing is left behind.

use std::path::Path;

use super::Trainer;
use crate::run::{Interrupt, Recording, RunDirectory, RunDirectoryPlan};

impl Trainer {
    /// Makes the next call a rehearsal: hooks write below this directory, notices are swallowed, and the handle that
    /// is returned ends the call. One that goes on from a checkpoint may do so with fewer hooks. Everything else stays
    /// as it is set.
    pub(crate) fn rehearse_in(&mut self, directory: &Path) -> Interrupt {
        self.notify = Box::new(|_| {});
        let kept = RunDirectory::new(RunDirectoryPlan {
            runs_dir: directory.to_path_buf(),
            device: Some(self.shared.run.device.clone()),
            ..RunDirectoryPlan::default()
        });
        kept.place().set_in(&mut self.shared.run);
        self.recording = Some(Recording::new(Box::new(kept)));
        self.accepts_other_hooks = true;
        self.interrupt = Interrupt::new();
        self.interrupt.clone()
    }

    /// Lets the plan refuse nothing, as [`Trainer::lenient`] does.
    pub(crate) fn refuse_nothing(&mut self) {
        self.lenient = true;
    }
}
