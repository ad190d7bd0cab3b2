//! What was called, and what hooks saw.

pub use tenterhook_testkit::recording::{RecordingHook as Recorder, Seen, Tape};
