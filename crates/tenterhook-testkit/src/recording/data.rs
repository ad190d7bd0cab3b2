//! The toy data, with every call recorded.

use tenterhook::data::{Interleave, Loaders};
use tenterhook::toy::{ToyBatch, ToyData};
use tenterhook::{BoxError, DataModule, Failure, Loader, Split, Stage};

use super::call_log::CallLog;

const DATA: &str = "data";

/// The toy data with every call recorded.
pub struct RecordingData {
    data: ToyData,
    call_log: CallLog,
    numbered: bool,
}

impl RecordingData {
    /// Records the calls of this data.
    #[must_use]
    pub fn new(data: ToyData, call_log: &CallLog) -> RecordingData {
        RecordingData { data, call_log: call_log.clone(), numbered: false }
    }

    /// Names the loaders as Lightning does in its logs: `dataloader_idx_0` and so on.
    #[must_use]
    pub fn numbered(self) -> RecordingData {
        RecordingData { numbered: true, ..self }
    }
}

impl DataModule<ToyBatch> for RecordingData {
    fn loaders(&mut self, split: Split) -> Result<Loaders<ToyBatch>, BoxError> {
        self.call_log.note(DATA, "loaders")?;
        let loaders = self.data.loaders(split)?.into_iter().enumerate();
        let named = |index, inner: &dyn Loader<ToyBatch>| {
            if self.numbered { format!("dataloader_idx_{index}") } else { inner.name().to_owned() }
        };
        let recording = |(index, inner): (usize, Box<dyn Loader<ToyBatch>>)| -> Box<dyn Loader<ToyBatch>> {
            Box::new(RecordingLoader { name: named(index, &*inner), inner, call_log: self.call_log.clone() })
        };
        Ok(loaders.map(recording).collect())
    }
    fn interleave(&self) -> Interleave {
        self.data.interleave()
    }
    fn setup(&mut self, _: Stage) -> Result<(), BoxError> {
        self.call_log.note(DATA, "setup")
    }
    fn teardown(&mut self, _: Stage) -> Result<(), BoxError> {
        self.call_log.note(DATA, "teardown")
    }
    fn on_exception(&mut self, _: &Failure) -> Result<(), BoxError> {
        self.call_log.note(DATA, "on_exception")
    }
}

struct RecordingLoader {
    name: String,
    inner: Box<dyn Loader<ToyBatch>>,
    call_log: CallLog,
}

impl Loader<ToyBatch> for RecordingLoader {
    fn name(&self) -> &str {
        &self.name
    }
    fn batches(&self) -> Option<u64> {
        self.inner.batches()
    }
    fn seek(&mut self, epoch: u64, batch: u64, shuffled: bool) -> Result<(), BoxError> {
        self.call_log.note(DATA, "seek")?;
        self.inner.seek(epoch, batch, shuffled)
    }
    fn next(&mut self) -> Result<Option<ToyBatch>, BoxError> {
        self.call_log.note(DATA, "next")?;
        self.inner.next()
    }
}
