//! The toy as module, data, strategy and hook that record every call on a [`Tape`], and in which anything can be made to
//! happen.

mod hook;
mod module;
mod others;
mod seen;
mod tape;

pub use hook::RecordingHook;
pub use module::RecordingModule;
pub use others::{RecordingData, RecordingStrategy};
pub use seen::Seen;
pub use tape::{Call, Happening, Tape};
