//! Hooks that send the events of a run to files, services and commands.

pub(crate) mod csv;
pub(crate) mod exec;
#[cfg(feature = "http")]
pub(crate) mod heartbeat;
pub(crate) mod jsonl;
#[cfg(feature = "http")]
pub(crate) mod notify;
pub(crate) mod tensorboard;
#[cfg(feature = "upload")]
pub(crate) mod upload;
