//! The threads that write checkpoints while training continues.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::Duration;

use tenterhook_core::{BoxError, NamedTensors, backtraces};
use tenterhook_files::{Backoff, cannot};

use super::announcements::Announcement;
use super::contents::CheckpointContents;
use super::files;
use super::hook_tensors;
use super::post_save::{Removals, set_aside_damaged};
use super::roots::{CheckpointPath, Roots, Save};
use super::store::{self, Disk, RealDisk};
use crate::module::{Snapshot, SnapshotData};
use crate::run::EVENTS;
use crate::tensors::{Buffers, TensorMap};

/// The retries of a failed save.
const BACKOFF: Backoff =
    Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(8), retries: 4 };

/// Pauses are slept in slices, so that they can be cut short.
const SLICE: Duration = Duration::from_millis(50);

/// A checkpoint to write.
pub(crate) struct SaveJob {
    /// Its announcement.
    pub(crate) saved: Announcement,
    pub(crate) paths: SavePaths,
    pub(crate) contents: CheckpointContents,
    pub(crate) snapshot: Snapshot,
    pub(crate) weights: WeightsToSave,
    /// The run's directory, with the files that the checkpoint has positions of.
    pub(crate) run: Option<PathBuf>,
    /// Whether a failed attempt is retried.
    pub(crate) retries: bool,
    /// Retries without pauses, because the run ends.
    pub(crate) hurry: Arc<AtomicBool>,
}

/// The paths of a save.
pub(crate) struct SavePaths {
    pub(crate) path: PathBuf,
    /// The checkpoints to remove once this one is durable.
    pub(crate) replaces: Vec<PathBuf>,
    /// The link to set to it then.
    pub(crate) link: Option<PathBuf>,
    /// The link to the newest checkpoint, unless this one holds weights alone.
    pub(crate) latest: Option<PathBuf>,
}

impl SavePaths {
    pub(crate) fn of(
        roots: &Roots,
        name: &CheckpointPath,
        replaces: &[CheckpointPath],
        request: &Save,
    ) -> Result<SavePaths, BoxError> {
        Ok(SavePaths {
            replaces: replaces.iter().map(|old| roots.for_writing(old)).collect::<Result<_, _>>()?,
            link: request.link.as_ref().map(|link| roots.for_writing(link)).transpose()?,
            latest: (!request.weights_only).then(|| roots.latest()).transpose()?,
            path: roots.for_writing(name)?,
        })
    }
}

/// The source of a checkpoint's weights.
pub(crate) enum WeightsToSave {
    /// The module's weights, some of them replaced by these.
    Modules(NamedTensors),
    /// The trained weights, while others are swapped into the module.
    Own(Arc<TensorMap>),
}

impl WeightsToSave {
    /// The module's weights, unchanged.
    pub(crate) fn modules() -> WeightsToSave {
        WeightsToSave::Modules(NamedTensors::default())
    }
}

/// The result of a save.
pub(crate) struct FinishedSave {
    pub(crate) saved: Announcement,
    pub(crate) path: PathBuf,
    pub(crate) weights_only: bool,
    /// Notices of damaged checkpoints that were set aside because this save needed their names.
    pub(crate) set_aside: Vec<String>,
    /// The removal of the checkpoints that it replaces.
    pub(crate) result: Result<Removals, BoxError>,
}

impl SaveJob {
    /// Writes the checkpoint. Calls `first` after it has copied the tensors that it shares with training, and before
    /// it writes.
    pub(crate) fn run(self, disk: &dyn Disk, buffers: &Buffers, first: impl FnOnce()) -> FinishedSave {
        let SaveJob { saved, paths, mut contents, snapshot, weights, run, retries, hurry } = self;
        let SavePaths { path, replaces, link, latest } = paths;
        let weights_only = contents.weights_only;
        let read = backtraces::catch_panic("", || snapshot.read(buffers));
        // Some buffers may have lengths that are no longer needed.
        buffers.free_unused();
        first();
        let mut set_aside = Vec::new();
        let write = || -> Result<(), BoxError> {
            let SnapshotData { weights: mut modules, optimizers, gradients } = read?;
            contents.optimizers = optimizers;
            contents.gradients = gradients;
            contents.weights = match weights {
                WeightsToSave::Own(own) => Arc::unwrap_or_clone(own),
                WeightsToSave::Modules(instead) => {
                    for (name, shape, values) in instead.iter() {
                        modules.insert_f32(name, shape, values);
                    }
                    modules
                }
            };
            let hook_tensors = hook_tensors::take(&mut contents.hooks);
            let attempt = || -> Result<(), BoxError> {
                for name in [Some(&path), latest.as_ref(), link.as_ref()].into_iter().flatten() {
                    set_aside.extend(set_aside_damaged(disk, name)?);
                }
                sync_marked_files(disk, &contents, run.as_deref())?;
                files::write(disk, &path, &contents, &hook_tensors)?;
                latest.iter().chain(&link).try_for_each(|link| store::set_link(disk, link, &path))
            };
            // A run that ends retries at once.
            let waits = || !hurry.load(Ordering::Relaxed);
            let backoff = if retries { BACKOFF } else { Backoff { retries: 0, ..BACKOFF } };
            let pause = |_: &BoxError, time: Duration| {
                (0..time.as_millis() / SLICE.as_millis()).take_while(|_| waits()).for_each(|_| sleep(SLICE));
                true
            };
            backoff.retry(attempt, pause).map_err(|(error, _)| error)
        };
        let result = backtraces::catch_panic("", write).map(|()| Removals::of(disk, replaces));
        FinishedSave { saved, path, weights_only, set_aside, result }
    }
}

/// Syncs the files of the run up to the checkpoint's positions, so that a power cut does not lose them.
fn sync_marked_files(
    disk: &dyn Disk,
    contents: &CheckpointContents,
    run: Option<&Path>,
) -> Result<(), BoxError> {
    let Some(run) = run else { return Ok(()) };
    let check = |path: &Path, synced: io::Result<()>| match synced {
        // A deleted file is no reason not to save.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        synced => synced.map_err(cannot("sync", path)),
    };
    let marked = contents.file_positions.iter().map(|position| position.file.below(run));
    // The journal records the checkpoints that earlier saves removed.
    for path in marked.chain([run.join(EVENTS)]) {
        check(&path, disk.sync_file(&path))?;
    }
    // A file may be new in the directory.
    Ok(check(run, disk.sync_directory(run))?)
}

/// The writer: one thread per save, one after the other.
///
/// A save begins with the priority of training, to copy the tensors that it shares with training: training must copy
/// a tensor that it changes while it is shared. Then it continues with the lowest priority.
#[derive(Default)]
pub(crate) struct Writer {
    running: VecDeque<JoinHandle<FinishedSave>>,
    /// Disconnects when the last started save ends.
    before: Option<Receiver<()>>,
    /// The memory that saves copy into, reused by the next save.
    buffers: Buffers,
    /// Results of saves without a thread.
    done: Vec<FinishedSave>,
}

impl Writer {
    /// Writes a checkpoint in the background or, if `background` is false, before it returns.
    pub(crate) fn start(&mut self, job: SaveJob, background: bool) {
        if !background {
            return self.done.push(job.run(&RealDisk, &Buffers::default(), || ()));
        }
        let (until_it_ends, ends) = channel();
        let before = self.before.replace(ends);
        // Concurrent saves need separate buffers; only those of one save are kept.
        let buffers = if self.running.is_empty() { self.buffers.clone() } else { Buffers::default() };
        let (saved, path) = (job.saved.clone(), job.paths.path.clone());
        let weights_only = job.contents.weights_only;
        let keep = backtraces::inherit();
        let work = move || {
            let _keeping = keep();
            let done = job.run(&RealDisk, &buffers, || {
                yield_to_training();
                // Never sends; the disconnect is the signal.
                let _ = before.map(|before| before.recv());
            });
            drop(until_it_ends);
            done
        };
        match Builder::new().name("checkpoint".into()).spawn(work) {
            Ok(thread) => self.running.push_back(thread),
            Err(error) => {
                let error = format!("cannot start a thread to write checkpoint {}: {error}", path.display());
                // Otherwise the next save would not wait for the earlier ones.
                self.done = self.finished(true);
                let result = Err(error.into());
                self.done.push(FinishedSave { saved, path, weights_only, set_aside: Vec::new(), result });
            }
        }
    }

    /// The saves that have finished since the last call; with `wait`, all of them.
    pub(crate) fn finished(&mut self, wait: bool) -> Vec<FinishedSave> {
        let mut done = std::mem::take(&mut self.done);
        while let Some(thread) = self.running.pop_front_if(|thread| wait || thread.is_finished()) {
            // Panics are caught inside the thread.
            done.extend(thread.join());
        }
        done
    }
}

/// Lowers the priority of this thread, where threads have their own (Linux).
fn yield_to_training() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(19);
}

/// Finishes all saves that were started.
impl Drop for Writer {
    fn drop(&mut self) {
        self.finished(true);
    }
}
