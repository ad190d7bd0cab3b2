//! A complete save as the writer runs it, and its completion by a resume.

use std::sync::Arc;

use tenterhook_files::RelPath;

use super::*;
use crate::checkpoint::post_save::{PendingPostSave, PostSave, Removals};
use crate::checkpoint::roots::{CheckpointPath, Roots};
use crate::checkpoint::writer::{SaveJob, SavePaths, WeightsToSave};
use crate::checkpoint::{Announcement, CheckpointContents, LossesState, read_state};
use crate::module::{OptimizerState, Snapshot, SnapshotData};
use crate::run::FilePosition;
use crate::tensors::Buffers;

/// A file of the run, and its content up to the checkpoint's position.
pub const MARKED: (&str, &str) = ("metrics.jsonl", "{\"step\":30}\n");

/// The name and the number of the saved checkpoint.
pub const SAVED: (&str, u64) = ("deep/b", 3);

fn named(name: &str) -> CheckpointPath {
    RelPath::new(name).unwrap().into()
}

fn contents() -> CheckpointContents {
    let length = MARKED.1.len() as u64;
    let post_save = PostSave { replaces: vec![named("older"), named("a")], link: Some(named("last")) };
    let mut state: serde_json::Value = serde_json::from_slice(&state(SAVED.1)).unwrap();
    state["metrics"] = json!(tenterhook_core::metrics::MetricsState::default());
    state["progress"] = json!(tenterhook_core::Progress::default());
    let rest = json!({
        "weights_only": false,
        "resume_point": "batch_end",
        "loops": {},
        "runner": tenterhook_core::runner::RunnerState::default(),
        "elapsed": std::time::Duration::ZERO,
        "optimizers": OptimizerState::default(),
        "hooks": {},
        "entries": {},
        "losses": LossesState::default(),
        "board": {},
        "streams": tenterhook_core::random::RandomPositions::default(),
        "file_positions": [FilePosition { file: RelPath::new(MARKED.0).unwrap(), length }],
        "post_save": post_save,
    });
    state.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    serde_json::from_value(state).unwrap()
}

/// Appends a line to a file of the run, and saves a checkpoint that replaces `older` and `a`, with the links
/// `latest` and `last`.
pub fn carry_out(disk: &dyn Disk, root: &Path) -> Result<(), BoxError> {
    disk.write(&root.join(MARKED.0), &mut |out| out.write_all(MARKED.1.as_bytes()))?;
    let snapshot = Snapshot::new(|_| {
        let mut weights = TensorMap::default();
        weights.insert_f32("weight", [100], &[SAVED.1 as f32; 100]);
        Ok(SnapshotData { weights, optimizers: OptimizerState::default(), gradients: TensorMap::default() })
    });
    let contents = contents();
    let job = SaveJob {
        saved: Announcement::of(&contents, named(SAVED.0), None),
        paths: SavePaths {
            path: root.join(SAVED.0),
            replaces: vec![root.join("older"), root.join("a")],
            link: Some(root.join("last")),
            latest: Some(root.join("latest")),
        },
        contents,
        snapshot,
        weights: WeightsToSave::modules(),
        run: Some(root.to_owned()),
        retries: false,
        hurry: Arc::default(),
    };
    all_removed(job.run(disk, &Buffers::default(), || ()).result?)
}

/// The part of a resume before training: cleans up, and finishes the work after the newest save.
pub fn resume(disk: &dyn Disk, root: &Path) -> Result<(), BoxError> {
    clean_up(disk, root)?;
    let newest = newest_whole(root, OnUnreadable::Stop)?.path.unwrap();
    if number_of(&newest) != SAVED.1 {
        return Ok(());
    }
    let CheckpointContents { number, post_save, .. } = read_state(&newest)?;
    let pending_post_save = PendingPostSave { checkpoint: newest, number, post_save };
    all_removed(pending_post_save.finish(disk, &Roots::new(None, root.to_owned(), Vec::new()))?)
}

fn all_removed(Removals { notices, .. }: Removals) -> Result<(), BoxError> {
    notices.into_iter().next().map_or(Ok(()), |notice| Err(notice.into()))
}
