//! Records of calls and of values that hooks saw.

pub use tenterhook_testkit::recording::{CallLog, RecordingHook as Recorder, SharedVec};
