//! The data and the strategy, recording everything that is asked of them.

use tenterhook::data::{Interleave, Loaders};
use tenterhook::toy::{ToyBatch, ToyData};
use tenterhook::{BoxError, DataModule, Failure, Loader, Progress, Split, Stage, Strategy};

use super::tape::{Tape, raised};

const DATA: &str = "data";
const STRATEGY: &str = "strategy";

/// The toy's data, recording every call.
pub struct RecordingData {
    data: ToyData,
    tape: Tape,
    numbered: bool,
}

impl RecordingData {
    /// These batches.
    #[must_use]
    pub fn new(data: ToyData, tape: &Tape) -> RecordingData {
        RecordingData { data, tape: tape.clone(), numbered: false }
    }

    /// With loaders under the names that Lightning logs them by: `dataloader_idx_0` and so on.
    #[must_use]
    pub fn numbered(self) -> RecordingData {
        RecordingData { numbered: true, ..self }
    }
}

impl DataModule<ToyBatch> for RecordingData {
    fn loaders(&mut self, split: Split) -> Result<Loaders<ToyBatch>, BoxError> {
        self.tape.note(DATA, "loaders")?;
        let loaders = self.data.loaders(split)?.into_iter().enumerate();
        let named = |index, inner: &dyn Loader<ToyBatch>| {
            if self.numbered { format!("dataloader_idx_{index}") } else { inner.name().to_owned() }
        };
        let recording = |(index, inner): (usize, Box<dyn Loader<ToyBatch>>)| -> Box<dyn Loader<ToyBatch>> {
            Box::new(RecordingLoader { name: named(index, &*inner), inner, tape: self.tape.clone() })
        };
        Ok(loaders.map(recording).collect())
    }
    fn interleave(&self) -> Interleave {
        self.data.interleave()
    }
    fn setup(&mut self, _: Stage) -> Result<(), BoxError> {
        self.tape.note(DATA, "setup")
    }
    fn teardown(&mut self, _: Stage) -> Result<(), BoxError> {
        self.tape.note(DATA, "teardown")
    }
    fn on_exception(&mut self, _: &Failure) -> Result<(), BoxError> {
        self.tape.note(DATA, "on_exception")
    }
}

struct RecordingLoader {
    name: String,
    inner: Box<dyn Loader<ToyBatch>>,
    tape: Tape,
}

impl Loader<ToyBatch> for RecordingLoader {
    fn name(&self) -> &str {
        &self.name
    }
    fn batches(&self) -> Option<u64> {
        self.inner.batches()
    }
    fn seek(&mut self, epoch: u64, batch: u64, shuffled: bool) -> Result<(), BoxError> {
        self.tape.note(DATA, "seek")?;
        self.inner.seek(epoch, batch, shuffled)
    }
    fn next(&mut self) -> Result<Option<ToyBatch>, BoxError> {
        self.tape.note(DATA, "next")?;
        self.inner.next()
    }
}

/// A strategy that does nothing but record.
pub struct RecordingStrategy {
    tape: Tape,
}

impl RecordingStrategy {
    /// On this tape.
    #[must_use]
    pub fn new(tape: &Tape) -> RecordingStrategy {
        RecordingStrategy { tape: tape.clone() }
    }
}

macro_rules! recording_strategy {
    ($($handler:ident)*) => {
        impl Strategy for RecordingStrategy {
            fn setup(&mut self, _: Stage) -> Result<(), BoxError> {
                self.tape.note(STRATEGY, "setup")
            }
            fn teardown(&mut self, _: Stage) -> Result<(), BoxError> {
                self.tape.note(STRATEGY, "teardown")
            }
            fn on_exception(&mut self, _: &Failure) -> Result<(), BoxError> {
                self.tape.note(STRATEGY, "on_exception")
            }
            $(
                fn $handler(&mut self, at: &Progress) -> Result<(), BoxError> {
                    let place = stringify!($handler);
                    let batch = (at.batches.saturating_sub(1), 0);
                    raised(self.tape.record(STRATEGY, place, Some(batch)), STRATEGY, place).map(|_| ())
                }
            )*
        }
    };
}

tenterhook::for_each_strategy_handler!(recording_strategy);
