//! Checkpoints: what they hold, how they are taken and written, and how a run goes on from one.
//!
//! The training thread assembles a checkpoint (`saving.rs`) at one of the places from which a run can go on
//! (`position.rs`), and the writer (`writer.rs`) makes it durable (`store/`) while training goes on.

mod afterwards;
mod best;
mod contents;
mod disk;
mod emergency;
mod hook_states;
mod hook_tensors;
mod roots;
mod saving;
mod store;
mod writer;

pub use crate::resume::ResumePoint;
pub use afterwards::Afterwards;
pub(crate) use afterwards::LeftOpen;
pub use best::Best;
pub use contents::Contents;
pub use disk::{problems, read, read_state};
pub use hook_states::{hook_problems, refused_hook_states};
pub use hook_tensors::weights_to_evaluate;
pub use roots::{CheckpointPath, Save};
pub(crate) use saving::Checkpointer;
pub use saving::{Announcement, Requested};
pub use store::{
    About, Condition, FORMAT, Listed, Newest, OnUnreadable, Unreadable, WEIGHTS, list, newest_whole, verify,
};
pub(crate) use store::{LATEST, STATE, is_unreadable, largest_number, paths};

pub use crate::losses::LossesState;
