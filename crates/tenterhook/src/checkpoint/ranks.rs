//! Saves with several ranks: rank 0 writes, and all ranks learn the result at the same place.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tenterhook_core::BoxError;

use super::announcements::Announcement;
use super::post_save::Removals;
use super::writer::FinishedSave;
use crate::loops::ranks::Ranks;

/// A [`FinishedSave`] as rank 0 sends it: with the checkpoints that it removed, or its error.
#[derive(Serialize, Deserialize)]
struct SentSave {
    saved: Announcement,
    path: PathBuf,
    weights_only: bool,
    result: Result<Vec<PathBuf>, String>,
}

impl From<&FinishedSave> for SentSave {
    fn from(save: &FinishedSave) -> SentSave {
        let FinishedSave { saved, path, weights_only, result, .. } = save;
        let result = result.as_ref().map(|removals| removals.removed.clone()).map_err(ToString::to_string);
        SentSave { saved: saved.clone(), path: path.clone(), weights_only: *weights_only, result }
    }
}

impl From<SentSave> for FinishedSave {
    fn from(SentSave { saved, path, weights_only, result }: SentSave) -> FinishedSave {
        // Rank 0 shows the notices.
        let result = match result {
            Ok(removed) => Ok(Removals { removed, ..Removals::default() }),
            Err(error) => Err(BoxError::from(format!("rank 0 could not save a checkpoint: {error}"))),
        };
        FinishedSave { saved, path, weights_only, set_aside: Vec::new(), result }
    }
}

/// Call site `saves`: the results of the saves that rank 0 has finished.
pub(crate) fn finished_on_all_ranks(
    ranks: &mut Ranks,
    finished: Vec<FinishedSave>,
) -> Result<Vec<FinishedSave>, BoxError> {
    let sent: Vec<_> = finished.iter().map(SentSave::from).collect();
    let received = ranks.broadcast("saves", &sent)?;
    if ranks.world.is_main() {
        return Ok(finished);
    }
    Ok(received.into_iter().map(FinishedSave::from).collect())
}
