//! The toy as module, data, strategy and hook that record every call in a [`CallLog`]. A test can inject errors, panics and
//! decisions into the calls.

mod call_log;
mod data;
mod hook;
mod module;
mod shared_vec;
mod strategy;

pub use call_log::{CallLog, InjectedAction, RecordedCall};
pub use data::RecordingData;
pub use hook::RecordingHook;
pub use module::RecordingModule;
pub use shared_vec::SharedVec;
pub use strategy::RecordingStrategy;
