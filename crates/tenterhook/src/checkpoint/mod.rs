//! Checkpoints: what they hold, how they are taken and written, and how a run goes on from one.
//!
//! The training thread assembles a checkpoint (`saving.rs`) at one of the places from which a run can go on
//! (`position.rs`), and the writer (`writer.rs`) makes it durable (`store/`) while training goes on.

mod admit;
mod afterwards;
mod best;
mod contents;
mod disk;
mod emergency;
mod hook_states;
mod hook_tensors;
mod position;
mod restore;
mod roots;
mod saving;
mod store;
mod writer;

pub use afterwards::Afterwards;
pub use best::Best;
pub use contents::Contents;
pub use disk::{problems, read, read_state};
pub use hook_states::{hook_problems, refused_hook_states};
pub use hook_tensors::weights_to_evaluate;
pub use position::{Place, Position};
pub use roots::{CheckpointPath, Save};
pub use saving::Announcement;
pub(crate) use saving::Saves;
pub use store::{
    About, Condition, FORMAT, Listed, Newest, OnUnreadable, Unreadable, WEIGHTS, list, newest_whole, verify,
};
pub(crate) use store::{LATEST, is_unreadable, paths};

pub use crate::losses::LossesState;
