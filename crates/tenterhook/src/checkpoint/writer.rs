//! The threads that write checkpoints while training goes on.

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

use super::afterwards::{Removed, set_aside_damaged};
use super::announcing::Announcement;
use super::contents::Contents;
use super::disk;
use super::hook_tensors;
use super::store::{self, Disk, RealDisk};
use crate::module::{Saved, Snapshot};
use crate::run::EVENTS;
use crate::tensors::{Buffers, TensorMap};

/// How a failed save is tried again.
const BACKOFF: Backoff =
    Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(8), retries: 4 };

/// Pauses are waited for in slices, so that they can be cut short.
const SLICE: Duration = Duration::from_millis(50);

/// A checkpoint to be written.
pub(super) struct Job {
    /// How it is announced.
    pub(super) saved: Announcement,
    pub(super) places: Places,
    pub(super) contents: Contents,
    pub(super) snapshot: Snapshot,
    pub(super) weights: Weights,
    /// The run's directory, which the checkpoint's marks are about.
    pub(super) run: Option<PathBuf>,
    /// It is tried several times.
    pub(super) retries: bool,
    /// But at once, because the run ends.
    pub(super) hurry: Arc<AtomicBool>,
}

/// Where a checkpoint goes.
pub(super) struct Places {
    pub(super) path: PathBuf,
    /// To be removed once it is durable.
    pub(super) replaces: Vec<PathBuf>,
    /// Links to be pointed at it then.
    pub(super) link: Option<PathBuf>,
    pub(super) latest: Option<PathBuf>,
}

/// Whose weights a checkpoint holds.
pub(super) enum Weights {
    /// The module's, with these in the place of some.
    Modules(NamedTensors),
    /// Those that the module was trained with, while others are swapped in.
    Own(Arc<TensorMap>),
}

impl Weights {
    /// The module's as they are.
    pub(super) fn modules() -> Weights {
        Weights::Modules(NamedTensors::default())
    }
}

/// What became of it.
pub(super) struct Done {
    pub(super) saved: Announcement,
    pub(super) path: PathBuf,
    pub(super) weights_only: bool,
    /// What was set aside because it had the name of the checkpoint or of a link to it.
    pub(super) set_aside: Vec<String>,
    /// What was removed for it.
    pub(super) result: Result<Removed, BoxError>,
}

impl Job {
    /// Writes the checkpoint. When its numbers have been brought over, and training no longer shares them, something
    /// else may come first.
    pub(super) fn carry_out(self, disk: &dyn Disk, buffers: &Buffers, first: impl FnOnce()) -> Done {
        let Job { saved, places, mut contents, snapshot, weights, run, retries, hurry } = self;
        let Places { path, replaces, link, latest } = places;
        let weights_only = contents.weights_only;
        let read = backtraces::caught("", || snapshot.read(buffers));
        // Lengths that are asked for no more.
        buffers.give_back();
        first();
        let mut set_aside = Vec::new();
        let write = || -> Result<(), BoxError> {
            let Saved { weights: mut modules, optimizers, gradients } = read?;
            contents.optimizers = optimizers;
            contents.gradients = gradients;
            contents.weights = match weights {
                Weights::Own(own) => Arc::unwrap_or_clone(own),
                Weights::Modules(instead) => {
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
                sync_marks(disk, &contents, run.as_deref())?;
                disk::write(disk, &path, &contents, &hook_tensors)?;
                latest.iter().chain(&link).try_for_each(|link| store::point(disk, link, &path))
            };
            // A run that ends has no time to wait, and tries again at once.
            let waits = || !hurry.load(Ordering::Relaxed);
            let backoff = if retries { BACKOFF } else { Backoff { retries: 0, ..BACKOFF } };
            let pause = |_: &BoxError, time: Duration| {
                (0..time.as_millis() / SLICE.as_millis()).take_while(|_| waits()).for_each(|_| sleep(SLICE));
                true
            };
            backoff.retry(attempt, pause).map_err(|(error, _)| error)
        };
        let result = backtraces::caught("", write).map(|()| Removed::of(disk, replaces));
        Done { saved, path, weights_only, set_aside, result }
    }
}

/// The lines that a checkpoint's marks speak of must outlive a power cut, as the checkpoint does.
fn sync_marks(disk: &dyn Disk, contents: &Contents, run: Option<&Path>) -> Result<(), BoxError> {
    let Some(run) = run else { return Ok(()) };
    let check = |path: &Path, synced: io::Result<()>| match synced {
        // A file that was taken away is no reason to save nothing.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        synced => synced.map_err(cannot("sync", path)),
    };
    let marked = contents.marks.iter().map(|position| position.file.below(run));
    // The journal says what earlier saves removed.
    for path in marked.chain([run.join(EVENTS)]) {
        check(&path, disk.sync_file(&path))?;
    }
    // The directory, too: a file may be new in it.
    Ok(check(run, disk.sync_directory(run))?)
}

/// The writer: a thread for each save, one after the other.
///
/// A save begins as urgent as training is, to let go of the tensors that it shares with it: what training changes while
/// they are shared it must copy. From then on it takes what training leaves of the machine.
#[derive(Default)]
pub(super) struct Writer {
    running: VecDeque<JoinHandle<Done>>,
    /// Ends with the save that was begun last.
    before: Option<Receiver<()>>,
    /// What saves copy into, each where the one before did.
    buffers: Buffers,
    /// What was written here and now, because the run wants it so.
    done: Vec<Done>,
}

impl Writer {
    /// Writes a checkpoint: in the background, or now.
    pub(super) fn start(&mut self, job: Job, background: bool) {
        if !background {
            return self.done.push(job.carry_out(&RealDisk, &Buffers::default(), || ()));
        }
        let (until_it_ends, ends) = channel();
        let before = self.before.replace(ends);
        // Several saves of one moment copy everything each; the memory of one is kept.
        let buffers = if self.running.is_empty() { self.buffers.clone() } else { Buffers::default() };
        let (saved, path) = (job.saved.clone(), job.places.path.clone());
        let weights_only = job.contents.weights_only;
        let keep = backtraces::like_caller();
        let work = move || {
            let _keeping = keep();
            let done = job.carry_out(&RealDisk, &buffers, || {
                yield_to_training();
                // It sends nothing: that it is gone is the news.
                let _ = before.map(|before| before.recv());
            });
            drop(until_it_ends);
            done
        };
        match Builder::new().name("checkpoint".into()).spawn(work) {
            Ok(thread) => self.running.push_back(thread),
            Err(error) => {
                let error = format!("cannot start a thread to write checkpoint {}: {error}", path.display());
                // The next one would not wait for those before this one.
                self.done = self.finished(true);
                let result = Err(error.into());
                self.done.push(Done { saved, path, weights_only, set_aside: Vec::new(), result });
            }
        }
    }

    /// What has been done since the last call; all of it where that is waited for.
    pub(super) fn finished(&mut self, wait: bool) -> Vec<Done> {
        let mut done = std::mem::take(&mut self.done);
        while let Some(thread) = self.running.pop_front_if(|thread| wait || thread.is_finished()) {
            // Its panics are caught where it writes.
            done.extend(thread.join());
        }
        done
    }
}

/// On Linux each thread has a priority of its own.
fn yield_to_training() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(19);
}

/// A checkpoint that was begun is finished, whatever becomes of the run.
impl Drop for Writer {
    fn drop(&mut self) {
        self.finished(true);
    }
}
