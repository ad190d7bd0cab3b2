//! A strategy that records every call.

use tenterhook::{BoxError, Failure, Progress, Stage, Strategy};

use super::call_log::{CallLog, raise};

const STRATEGY: &str = "strategy";

/// A strategy for one process that records every call.
pub struct RecordingStrategy {
    call_log: CallLog,
}

impl RecordingStrategy {
    /// Records into this log.
    #[must_use]
    pub fn new(call_log: &CallLog) -> RecordingStrategy {
        RecordingStrategy { call_log: call_log.clone() }
    }
}

macro_rules! recording_strategy {
    ($($handler:ident)*) => {
        impl Strategy for RecordingStrategy {
            fn setup(&mut self, _: Stage) -> Result<(), BoxError> {
                self.call_log.note(STRATEGY, "setup")
            }
            fn teardown(&mut self, _: Stage) -> Result<(), BoxError> {
                self.call_log.note(STRATEGY, "teardown")
            }
            fn on_exception(&mut self, _: &Failure) -> Result<(), BoxError> {
                self.call_log.note(STRATEGY, "on_exception")
            }
            $(
                fn $handler(&mut self, at: &Progress) -> Result<(), BoxError> {
                    let place = stringify!($handler);
                    let batch = (at.batches.saturating_sub(1), 0);
                    raise(self.call_log.record(STRATEGY, place, Some(batch)), STRATEGY, place).map(|_| ())
                }
            )*
        }
    };
}

tenterhook::for_each_strategy_handler!(recording_strategy);
