//! The data and the strategy, recording everything that is asked of them.

use tenterhook::data::Loaders;
use tenterhook::toy::{ToyBatch, ToyData};
use tenterhook::{BoxError, DataModule, Failure, Loader, Progress, Split, Stage, Strategy};

use super::tape::Tape;

pub(crate) struct RecordingData {
    data: ToyData,
    tape: Tape,
}

impl RecordingData {
    pub(super) fn new(data: ToyData, tape: Tape) -> RecordingData {
        RecordingData { data, tape }
    }

    fn note(&self, event: &'static str) {
        self.tape.note("data", event, None);
    }
}

impl DataModule<ToyBatch> for RecordingData {
    fn loaders(&mut self, split: Split) -> Result<Loaders<ToyBatch>, BoxError> {
        let loaders = self.data.loaders(split)?.into_iter().enumerate();
        Ok(loaders
            .map(|(index, inner)| Box::new(Numbered { name: format!("dataloader_idx_{index}"), inner }) as _)
            .collect())
    }
    fn setup(&mut self, _: Stage) -> Result<(), BoxError> {
        self.note("setup");
        Ok(())
    }
    fn teardown(&mut self, _: Stage) -> Result<(), BoxError> {
        self.note("teardown");
        Ok(())
    }
    fn on_exception(&mut self, _: &Failure) -> Result<(), BoxError> {
        self.note("on_exception");
        Ok(())
    }
}

/// A loader under the name that Lightning would log it by.
struct Numbered {
    name: String,
    inner: Box<dyn Loader<ToyBatch>>,
}

impl Loader<ToyBatch> for Numbered {
    fn name(&self) -> &str {
        &self.name
    }
    fn batches(&self) -> Option<u64> {
        self.inner.batches()
    }
    fn seek(&mut self, epoch: u64, batch: u64, shuffled: bool) -> Result<(), BoxError> {
        self.inner.seek(epoch, batch, shuffled)
    }
    fn next(&mut self) -> Result<Option<ToyBatch>, BoxError> {
        self.inner.next()
    }
}

pub(crate) struct RecordingStrategy {
    tape: Tape,
}

impl RecordingStrategy {
    pub(super) fn new(tape: Tape) -> RecordingStrategy {
        RecordingStrategy { tape }
    }

    fn note(&self, event: &'static str, batch: Option<(u64, usize)>) {
        self.tape.note("strategy", event, batch);
    }
}

macro_rules! recording_strategy {
    ($($handler:ident)*) => {
        impl Strategy for RecordingStrategy {
            fn setup(&mut self, _: Stage) -> Result<(), BoxError> {
                self.note("setup", None);
                Ok(())
            }
            fn teardown(&mut self, _: Stage) -> Result<(), BoxError> {
                self.note("teardown", None);
                Ok(())
            }
            fn on_exception(&mut self, _: &Failure) -> Result<(), BoxError> {
                self.note("on_exception", None);
                Ok(())
            }
            $(
                fn $handler(&mut self, at: &Progress) -> Result<(), BoxError> {
                    self.note(stringify!($handler), Some((at.batches.saturating_sub(1), 0)));
                    Ok(())
                }
            )*
        }
    };
}

tenterhook::for_each_strategy_handler!(recording_strategy);
