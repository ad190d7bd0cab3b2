//! Fingerprints program and data when a run starts, and compares them with those of the checkpoint it resumes
//! from.

use std::panic::resume_unwind;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use tenterhook_core::{Failure, Origin};

use crate::call::Call;
use crate::config::change_error;
use crate::data::{Loaders, Split};
use crate::journal::{Readers, RunNotice};
use crate::loops::Callee;
use crate::module::Module;
use crate::run::Identity;

/// The time after which a notice says that fingerprints are being computed.
const NOTICE_AFTER: Duration = Duration::from_secs(2);

impl<M: Module> Call<'_, M> {
    /// Fingerprints the program and the training data.
    pub(crate) fn fingerprint_training(&mut self) -> Result<(), Failure> {
        let Some(feed) = self.train_stream.take() else { return Ok(()) };
        let identified = self.identify(Split::Train, feed.loaders());
        self.train_stream = Some(feed);
        identified
    }

    /// Fingerprints the program and the evaluation data.
    pub(crate) fn fingerprint_evaluation(&mut self) -> Result<(), Failure> {
        let loaders = std::mem::take(&mut self.evaluation.0);
        let identified = self.identify(Split::evaluated_in(self.run.state.stage), &loaders);
        self.evaluation.0 = loaders;
        identified
    }

    /// Fingerprints the program and all data of a fit, and refuses data that differs from that of the
    /// checkpoint. It uses separate loaders, because the training loaders may depend on state of the data
    /// module that is restored later.
    pub(crate) fn check_data(&mut self, saved: &Identity) -> Result<(), Failure> {
        if !self.keeps_identity() {
            return Ok(());
        }
        for split in [Split::Train, Split::Validate] {
            let (loaders, _) = self.loaders(split)?;
            self.identify(split, &loaders)?;
        }
        self.identified = true;
        self.resume.changes.extend(saved.environment_change(&self.run.journal.identity));
        let other = saved.data_changes(&self.run.journal.identity);
        self.refuse_if(change_error("data", &other).filter(|_| !self.resume.options.accept_changes))
    }

    /// Whether the run writes files. Otherwise the data is not read.
    fn keeps_identity(&self) -> bool {
        let run = &self.run.shared.run;
        let keeps = self.run.journal.recording.is_some() || self.run.checkpointer.kept;
        keeps && !run.rehearsal && !run.fast_dev_run
    }

    fn identify(&mut self, split: Split, loaders: &Loaders<M::Batch>) -> Result<(), Failure> {
        if self.identified || !self.keeps_identity() {
            return Ok(());
        }
        self.run.enter(Callee::Data, "fingerprint");
        let text = "computing fingerprints of data and program; those of large files are cached";
        let notice = RunNotice::Said { hook: Origin::TRAINER.into(), text: text.into() };
        let (collected, shown) = notify_if_slow(&self.run.journal.notices.readers, &notice, || {
            let mut found = Identity::current();
            for loader in loaders {
                if let Some(fingerprint) = loader.fingerprint()? {
                    found.data.insert(format!("{}/{}", split.key(), loader.name()), fingerprint);
                }
            }
            Ok(found)
        });
        if shown {
            let run = &mut self.run;
            run.journal.note_told(notice, true, &run.hooks, &run.shared, &run.state.progress);
        }
        let found = self.run.checked(collected)?;
        let data = std::mem::take(&mut self.run.journal.identity.data);
        self.run.journal.identity = found;
        self.run.journal.identity.data.extend(data);
        Ok(())
    }
}

/// Runs `work`, and shows a notice if it takes long. Returns whether it was shown.
fn notify_if_slow<T>(readers: &Readers, notice: &RunNotice, work: impl FnOnce() -> T) -> (T, bool) {
    let (done, waits) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let notifier = scope.spawn(move || {
            let is_slow = waits.recv_timeout(NOTICE_AFTER) == Err(RecvTimeoutError::Timeout);
            if is_slow {
                readers.tell(notice);
            }
            is_slow
        });
        let result = work();
        drop(done);
        (result, notifier.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}
