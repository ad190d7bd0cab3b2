//! Saves on several ranks: rank 0 writes, and all of them learn at the same place what became of it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tenterhook_core::{BoxError, Failure};

use super::afterwards::Removed;
use super::announcing::Announcement;
use super::writer::Done;
use crate::loops::Loop;
use crate::module::Module;

/// What became of a save, as rank 0 tells the others.
#[derive(Serialize, Deserialize)]
struct Told {
    saved: Announcement,
    path: PathBuf,
    weights_only: bool,
    /// Why it failed.
    error: Option<String>,
    removed: Vec<PathBuf>,
}

impl Told {
    fn of(done: &Done) -> Told {
        let Done { saved, path, weights_only, result, .. } = done;
        Told {
            saved: saved.clone(),
            path: path.clone(),
            weights_only: *weights_only,
            error: result.as_ref().err().map(ToString::to_string),
            removed: result.as_ref().map(|removed| removed.removed.clone()).unwrap_or_default(),
        }
    }

    fn done(self) -> Done {
        let Told { saved, path, weights_only, error, removed } = self;
        let result = match error {
            Some(error) => Err(BoxError::from(format!("rank 0 could not save a checkpoint: {error}"))),
            None => Ok(Removed { removed, notices: Vec::new() }),
        };
        Done { saved, path, weights_only, set_aside: Vec::new(), result }
    }
}

impl<M: Module> Loop<M> {
    /// Call site `saves`: what became of the saves that rank 0 has finished.
    pub(super) fn done_on_all(&mut self, done: Vec<Done>) -> Result<Vec<Done>, Failure> {
        if !self.ranks.several {
            return Ok(done);
        }
        let told: Vec<_> = done.iter().map(Told::of).collect();
        let told = self.collective("saves", |ranks| ranks.broadcast("saves", &told))?;
        if self.ranks.world.is_main() {
            return Ok(done);
        }
        Ok(told.into_iter().map(Told::done).collect())
    }
}
