//! Rehearsals: runs of `verify-neutral` that print nothing and leave no files.

use std::path::Path;

use super::{BatchClock, Trainer};
use crate::journal::{Readers, Recording};
use crate::run::{Interrupt, RunDirectory, RunDirectoryOptions};

impl Trainer {
    /// Makes the next call a rehearsal: hooks write below this directory, notices are dropped, received
    /// events are counted, time comes from `clock`, `max_time` is ignored, and a resume accepts missing
    /// hooks. Both `interrupt` and the returned handle end the call.
    pub(crate) fn rehearse_in(
        &mut self,
        directory: &Path,
        clock: BatchClock,
        interrupt: &Interrupt,
    ) -> Interrupt {
        self.shared.clock = Box::new(clock);
        if self.settings.max_time.take().is_some() {
            // With `max_time`, an unset `max_epochs` means no limit.
            self.settings.max_epochs.get_or_insert(-1);
        }
        self.journal.readers = Readers::one(|_| {});
        self.shared.run.rehearsal = true;
        let kept = RunDirectory::new(RunDirectoryOptions {
            runs_dir: directory.to_path_buf(),
            device: Some(self.shared.run.device.clone()),
            ..RunDirectoryOptions::default()
        });
        kept.location().set_in(&mut self.shared.run);
        self.journal.recording = Some(Recording::new(Box::new(kept)));
        self.resume.accept_other_hooks = true;
        let interrupt = self.interrupt.insert(interrupt.inner()).clone();
        self.hooks.record_received();
        interrupt
    }

    /// Like [`Trainer::lenient`].
    pub(crate) fn make_lenient(&mut self) {
        self.lenient = true;
    }
}
