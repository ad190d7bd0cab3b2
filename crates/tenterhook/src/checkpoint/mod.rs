//! Checkpoints: their contents, how they are taken and written.
//!
//! The training thread assembles a checkpoint (`loops/saving.rs`) at one of the points from which a run can be resumed
//! ([`ResumePoint`]), and the writer (`writer.rs`) makes it durable (`store/`) while training continues.
//!
//! - **Contents.** Besides weights, optimizers, schedules, hook states and random streams: the gradients of
//!   an open accumulation window, the status of hooks, metrics that are not written yet, checkpoints that are
//!   not announced yet, pending saves, and the lengths of the run's files. It also has the configuration and
//!   the fingerprints of data, program and processor.
//! - **Store.** It writes to a hidden name, syncs, writes a manifest with a BLAKE3 hash per file, syncs, and
//!   exchanges the names atomically. Then it updates `latest` and removes replaced checkpoints. All disk
//!   operations go through the trait `Disk`, so that tests can simulate an error, a kill or a power cut at
//!   each of them.
//! - **Writer.** A thread for each save, one after the other. The training thread takes handles of shared
//!   tensors and continues. The writer first copies the tensors into the memory of the last save, and then
//!   writes at the lowest priority. Large files bypass the page cache.
//! - **Numbers.** Checkpoints are numbered, and a run resumes from the whole one with the largest number. So
//!   after a resume from an older checkpoint, the abandoned later ones are not used.
//! - **Announcements.** A checkpoint is announced with its own step, epoch and metrics, once it is durable. A
//!   resume announces the remaining ones, marked `again`.
//! - **Signals.** After a signal only the emergency checkpoint is taken, before the end events. An
//!   interrupted validation runs again from its start, so the state before it is kept until it ends.
//! - **Removals.** A checkpoint lists those that it replaces, and is durable before they are removed, so a
//!   resumed run can tell which were removed.

mod announcements;
mod best;
mod checkpointer;
mod contents;
mod emergency;
mod files;
mod hook_states;
mod hook_tensors;
mod post_save;
mod ranks;
mod roots;
mod store;
mod writer;

pub use crate::resume::ResumePoint;
pub use announcements::Announcement;
pub use best::Best;
pub(crate) use checkpointer::Checkpointer;
pub use checkpointer::PendingSave;
pub use contents::CheckpointContents;
pub(crate) use emergency::{emergencies_in, emergency_name};
pub use files::{problems, read, read_state};
pub use hook_states::{hook_problems, refused_hook_states};
pub use hook_tensors::weights_to_evaluate;
pub use post_save::PostSave;
pub(crate) use post_save::{PendingPostSave, Removals};
pub(crate) use ranks::finished_on_all_ranks;
pub(crate) use roots::Roots;
pub use roots::{CheckpointPath, Save};
pub use store::{
    CheckpointError, CheckpointSummary, FORMAT, Integrity, ListedCheckpoint, NewestCheckpoint, OnUnreadable,
    WEIGHTS, list, newest_whole, verify,
};
pub(crate) use store::{LATEST, STATE, is_unreadable, largest_number, paths};

pub(crate) use writer::{FinishedSave, SaveJob, SavePaths, WeightsToSave};

pub use crate::losses::LossesState;
