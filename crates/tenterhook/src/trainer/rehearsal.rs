//! Runs that only try something out: nothing of them is shown, and nothing is left behind.

use std::path::Path;

use super::{BatchClock, Trainer};
use crate::journal::{Readers, Recording};
use crate::run::{Interrupt, RunDirectory, RunDirectoryPlan};

impl Trainer {
    /// Makes the next call a rehearsal: hooks write below this directory, notices are swallowed, and the handle that
    /// is returned ends the call, as the one that is given does. What hooks receive is noted. A resume may do with fewer
    /// hooks. Time comes from `clock`, and `max_time` is no limit. Everything else stays as it is set.
    pub(crate) fn rehearse_in(
        &mut self,
        directory: &Path,
        clock: BatchClock,
        interrupt: &Interrupt,
    ) -> Interrupt {
        self.shared.clock = Box::new(clock);
        if self.settings.max_time.take().is_some() {
            // With a limit of time, that of epochs is none unless it is set.
            self.settings.max_epochs.get_or_insert(-1);
        }
        self.journal.readers = Readers::one(|_| {});
        self.shared.run.rehearsal = true;
        let kept = RunDirectory::new(RunDirectoryPlan {
            runs_dir: directory.to_path_buf(),
            device: Some(self.shared.run.device.clone()),
            ..RunDirectoryPlan::default()
        });
        kept.location().set_in(&mut self.shared.run);
        self.journal.recording = Some(Recording::new(Box::new(kept)));
        self.resume.accept_other_hooks = true;
        let interrupt = self.interrupt.insert(interrupt.inner()).clone();
        self.hooks.note_received();
        interrupt
    }

    /// Lets the plan refuse nothing, as [`Trainer::lenient`] does.
    pub(crate) fn refuse_nothing(&mut self) {
        self.lenient = true;
    }
}
