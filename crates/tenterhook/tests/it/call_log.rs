//! What was called, and what hooks saw.

pub use tenterhook_testkit::recording::{CallLog, RecordingHook as Recorder, SharedVec};
