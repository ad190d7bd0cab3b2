//! Collects the identity of a run when it starts, and compares it with that of the checkpoint it resumes from.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use tenterhook_core::Failure;

use crate::call::Call;
use crate::config::refusal;
use crate::data::{Loaders, Split};
use crate::journal::{Readers, RunNotice};
use crate::loops::Who;
use crate::module::Module;
use crate::run::Identity;

/// Reading for longer than this is told.
const PATIENCE: Duration = Duration::from_secs(2);

impl<M: Module> Call<'_, M> {
    /// Fingerprints the program and the training data.
    pub(crate) fn identify_training(&mut self) -> Result<(), Failure> {
        let Some(feed) = self.feed.take() else { return Ok(()) };
        let identified = self.identify(Split::Train, feed.loaders());
        self.feed = Some(feed);
        identified
    }

    /// The same for the data that this call evaluates on.
    pub(crate) fn identify_evaluation(&mut self) -> Result<(), Failure> {
        let loaders = std::mem::take(&mut self.evaluation.0);
        let identified = self.identify(self.evaluation_split(), &loaders);
        self.evaluation.0 = loaders;
        identified
    }

    /// Fingerprints the program and all data of a fit, and refuses other data than that of the checkpoint. The loaders are
    /// made for this alone: those to train with may depend on a state of the data module that is restored later.
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
        match refusal("data", &other).filter(|_| !self.resume.options.accept_changes) {
            Some(refused) => self.refuse(refused),
            None => Ok(()),
        }
    }

    /// Nothing is read for a run that leaves nothing behind.
    fn keeps_identity(&self) -> bool {
        let run = &self.run.shared.run;
        let keeps = self.run.journal.recording.is_some() || self.run.checkpointer.kept;
        keeps && !run.rehearsal && !run.fast_dev_run
    }

    fn identify(&mut self, split: Split, loaders: &Loaders<M::Batch>) -> Result<(), Failure> {
        if self.identified || !self.keeps_identity() {
            return Ok(());
        }
        self.run.at(Who::Data, "fingerprint");
        let text = "computing fingerprints of data and program; those of large files are cached";
        let notice = RunNotice::Said { hook: "trainer".into(), text: text.into() };
        let collected = told_if_long(&self.run.journal.notices.readers, &notice, || {
            let mut found = Identity::of_this_process();
            for loader in loaders {
                if let Some(fingerprint) = loader.fingerprint()? {
                    found.data.insert(format!("{}/{}", split.key(), loader.name()), fingerprint);
                }
            }
            Ok(found)
        });
        let found = self.run.checked(collected)?;
        let data = std::mem::take(&mut self.run.journal.identity.data);
        self.run.journal.identity = found;
        self.run.journal.identity.data.extend(data);
        Ok(())
    }
}

/// Does some work, and tells what it is when it takes long.
fn told_if_long<T>(readers: &Readers, notice: &RunNotice, work: impl FnOnce() -> T) -> T {
    let (done, waits) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if waits.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                readers.tell(notice);
            }
        });
        let result = work();
        drop(done);
        result
    })
}
