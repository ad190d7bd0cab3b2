//! Runs that only try something out: nothing of them is shown, and nothing is left behind.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenterhook_core::Clock;

use super::Trainer;
use crate::journal::{Readers, Recording};
use crate::run::{Interrupt, RunDirectory, RunDirectoryPlan};

/// A clock by which every training batch takes a second, so that whatever goes by time does so at the same batch in
/// every rehearsal, however long the hooks take.
#[derive(Clone, Default)]
pub(crate) struct BatchClock(Arc<AtomicU64>);

impl BatchClock {
    /// A batch begins.
    pub(crate) fn tick(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Clock for BatchClock {
    fn elapsed(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::Relaxed))
    }
}

impl Trainer {
    /// Makes this a dry run whose files all go below a scratch directory, which the caller removes. Hooks run no
    /// commands, send no requests and write nothing elsewhere, whatever their options say.
    #[must_use]
    pub fn rehearsing_in(mut self, scratch: &Path) -> Trainer {
        self.shared.run.rehearsal = true;
        self.with_checkpoints_in(scratch.join("checkpoints"))
    }

    /// Makes the next call a rehearsal: hooks write below this directory, notices are swallowed, and the handle that
    /// is returned ends the call, as the one that is given does. What hooks receive is noted. One that goes on from a checkpoint may do so with fewer hooks. Time comes from
    /// `clock`, and `max_time` is no limit. Everything else stays as it is set.
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
        self.notify = Readers::one(|_| {});
        self.shared.run.rehearsal = true;
        let kept = RunDirectory::new(RunDirectoryPlan {
            runs_dir: directory.to_path_buf(),
            device: Some(self.shared.run.device.clone()),
            ..RunDirectoryPlan::default()
        });
        kept.place().set_in(&mut self.shared.run);
        self.recording = Some(Recording::new(Box::new(kept)));
        self.resume.accept_other_hooks = true;
        self.interrupt = interrupt.inner();
        self.hooks.note_received();
        self.interrupt.clone()
    }

    /// Lets the plan refuse nothing, as [`Trainer::lenient`] does.
    pub(crate) fn refuse_nothing(&mut self) {
        self.lenient = true;
    }
}
