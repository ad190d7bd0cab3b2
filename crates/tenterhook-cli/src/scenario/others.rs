//! The data and the strategy, recording everything that is asked of them.

use tenterhook::data::Loaders;
use tenterhook::toy::{ToyBatch, ToyData};
use tenterhook::{BoxError, DataModule, Failure, Progress, Split, Stage, Strategy};

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
        self.data.loaders(split)
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
