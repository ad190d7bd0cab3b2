//! The state of a run's saves. `loops/saving.rs` takes the checkpoints.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tenterhook_core::{BoxError, Event};

use super::announcements::Announcements;
use super::emergency::Emergency;
use super::post_save::{PendingPostSave, Removals, unrecorded_removals};
use super::roots::{Roots, Save};
use super::store::{self, RealDisk, largest_number};
use super::writer::Writer;
use crate::data::DataState;

/// A requested save that is not taken yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PendingSave {
    /// The save.
    pub save: Save,
    /// The hook that requested it and is charged for its time; `module` for the module.
    pub by: String,
    /// The event at which it was requested.
    pub event: Event,
}

/// The saves of a run.
#[derive(Default)]
pub(crate) struct Checkpointer {
    pub(crate) writer: Writer,
    /// The number of the last save.
    pub(crate) number: u64,
    /// The state of the data module, if it has one.
    pub(crate) data: Option<DataState>,
    /// The saves to take at the next resume point.
    pub(crate) pending: Vec<PendingSave>,
    pub(crate) announcements: Announcements,
    /// Training has begun or has resumed, so checkpoints may be taken.
    pub(crate) ready: bool,
    /// The work after the save of the checkpoint that training resumes from.
    pub(crate) pending_post_save: Option<PendingPostSave>,
    /// Whether the run keeps checkpoints, so that a signal leaves one.
    pub(crate) kept: bool,
    pub(crate) emergency: Emergency,
}

impl Checkpointer {
    /// The pending saves that may be taken now. After a signal, the end events run in the middle of an epoch, and
    /// the run resumes from the checkpoint that was taken before them.
    pub(crate) fn take_valid(&mut self, signalled: bool) -> Vec<PendingSave> {
        let mut requested = std::mem::take(&mut self.pending);
        requested.retain(|requested| requested.save.weights_only || !signalled);
        requested
    }

    /// Continues the numbers of the checkpoints in this directory.
    pub(crate) fn continue_numbering(&mut self, root: &Path) -> Result<(), BoxError> {
        self.number = self.number.max(largest_number(root)?);
        Ok(())
    }

    /// Prepares the directory of checkpoints, in which only this run saves from now on: sets aside the checkpoints
    /// that the resume skips, removes leftovers of a killed process, and finishes the work after its last save.
    /// Returns the removed checkpoints, of which `recorded` are known, and a notice for each that was set aside.
    pub(crate) fn take_over(
        &mut self,
        roots: &Roots,
        unreadable: &[PathBuf],
        recorded: &[PathBuf],
    ) -> Result<(Removals, Vec<String>), BoxError> {
        let aside = roots.set_aside(&RealDisk, unreadable)?;
        self.continue_numbering(roots.own())?;
        let pending_post_save = self.pending_post_save.take();
        // It also refuses a directory of checkpoints that is a symbolic link.
        roots.latest()?;
        store::clean_up(&RealDisk, roots.own())?;
        let mut finished = match pending_post_save {
            Some(left) => left.finish(&RealDisk, roots)?,
            None => Removals::default(),
        };
        finished.removed.extend(unrecorded_removals(roots, recorded));
        Ok((finished, aside))
    }
}
