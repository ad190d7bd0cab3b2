//! The thread that writes checkpoints while training goes on.

use std::fs::File;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::Duration;

use tenterhook_core::failure::panic_message;
use tenterhook_core::{BoxError, NamedTensors};

use super::contents::Contents;
use super::disk;
use super::hook_tensors;
use super::store::{self, RealDisk};
use crate::module::{Saved, Snapshot};
use crate::tensors::TensorMap;

/// How long to wait before each further attempt.
const PAUSES: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4), Duration::from_secs(8)];

/// They are waited for in slices, so that they can be cut short.
const SLICE: Duration = Duration::from_millis(50);

/// A checkpoint to be written.
pub(super) struct Job {
    pub(super) path: PathBuf,
    pub(super) contents: Contents,
    pub(super) snapshot: Snapshot,
    pub(super) weights: Weights,
    /// To be removed once it is durable.
    pub(super) replaces: Vec<PathBuf>,
    /// Links to be pointed at it then.
    pub(super) link: Option<PathBuf>,
    pub(super) latest: Option<PathBuf>,
    /// The run's directory, which the checkpoint's marks are about.
    pub(super) run: Option<PathBuf>,
    /// It is tried several times.
    pub(super) retries: bool,
    /// But at once, because the run ends.
    pub(super) hurry: Arc<AtomicBool>,
}

/// Whose weights a checkpoint holds.
pub(super) enum Weights {
    /// The module's, with these in the place of some.
    Modules(NamedTensors),
    /// Those that the module was trained with, while others are swapped in.
    Own(Arc<TensorMap>),
}

/// What became of it.
pub(super) struct Done {
    pub(super) path: PathBuf,
    pub(super) step: u64,
    pub(super) epoch: u64,
    pub(super) weights_only: bool,
    /// What was removed.
    pub(super) result: Result<Vec<PathBuf>, BoxError>,
}

impl Job {
    fn carry_out(self) -> Done {
        let Job { path, mut contents, snapshot, weights, replaces, link, latest, run, retries, hurry } = self;
        let progress = contents.progress;
        let weights_only = contents.weights_only;
        let write = || -> Result<(), BoxError> {
            let Saved { weights: mut modules, optimizers, gradients } = snapshot.read()?;
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
                sync_marks(&contents, run.as_deref())?;
                disk::write(&path, &contents, &hook_tensors)?;
                latest.iter().chain(&link).try_for_each(|link| store::point(&RealDisk, link, &path))
            };
            let mut written = attempt();
            for pause in PAUSES.iter().filter(|_| retries) {
                if written.is_ok() {
                    break;
                }
                // A run that ends has no time to wait.
                let waits = || !hurry.load(Ordering::Relaxed);
                (0..pause.as_millis() / SLICE.as_millis()).take_while(|_| waits()).for_each(|_| sleep(SLICE));
                written = attempt();
            }
            written
        };
        let written = catch_unwind(AssertUnwindSafe(write));
        let written = written.unwrap_or_else(|panic| Err(panic_message(&*panic).into()));
        let result = written.map(|()| {
            // A checkpoint that cannot be removed is one too many, which is no reason to fail.
            replaces.into_iter().filter(|old| store::remove(&RealDisk, old).is_ok()).collect()
        });
        let (step, epoch) = (progress.step, progress.epoch);
        Done { path, step, epoch, weights_only, result }
    }
}

/// The lines that a checkpoint's marks speak of must outlive a power cut, as the checkpoint does.
fn sync_marks(contents: &Contents, run: Option<&std::path::Path>) -> Result<(), BoxError> {
    let Some(run) = run else { return Ok(()) };
    // The directory, too: a file may be new in it.
    let marked = contents.marks.iter().map(|mark| run.join(&mark.file));
    for path in marked.chain([run.to_owned()]) {
        match File::open(&path).and_then(|file| file.sync_all()) {
            // Somebody has taken it away, which is no reason to save nothing.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            synced => synced.map_err(|error| format!("cannot sync {}: {error}", path.display()))?,
        }
    }
    Ok(())
}

/// The writer: a thread that is started with the first save, and the saves it has been handed.
#[derive(Default)]
pub(super) struct Writer {
    thread: Option<Thread>,
    /// What was written here and now, because the run wants it so.
    done: Vec<Done>,
}

struct Thread {
    jobs: Option<Sender<Job>>,
    done: Receiver<Done>,
    in_flight: usize,
    handle: Option<JoinHandle<()>>,
}

impl Writer {
    /// Writes a checkpoint: in the background, or now. Without a thread it is now, too.
    pub(super) fn start(&mut self, job: Job, background: bool) {
        if background && self.thread.is_none() {
            self.thread = Thread::start().ok();
        }
        let Some(thread) = self.thread.as_mut().filter(|_| background) else {
            return self.done.push(job.carry_out());
        };
        if let Some(refused) = thread.hand(job) {
            self.done.push(refused.carry_out());
        }
    }

    /// What has been done since the last call; all of it where that is waited for.
    pub(super) fn finished(&mut self, wait: bool) -> Vec<Done> {
        let mut done = std::mem::take(&mut self.done);
        if let Some(thread) = &mut self.thread {
            while thread.in_flight > 0 {
                let next = if wait { thread.done.recv().ok() } else { thread.done.try_recv().ok() };
                let Some(next) = next else { break };
                thread.in_flight -= 1;
                done.push(next);
            }
        }
        done
    }
}

/// Nobody waits for a checkpoint, and training needs every core; on Linux each thread has a priority of its own.
fn yield_to_training() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(19);
}

impl Thread {
    fn start() -> std::io::Result<Thread> {
        let (jobs, to_do) = channel::<Job>();
        let (finished, done) = channel();
        let work = move || {
            yield_to_training();
            for job in to_do {
                if finished.send(job.carry_out()).is_err() {
                    break;
                }
            }
        };
        let handle = Builder::new().name("checkpoints".into()).spawn(work)?;
        Ok(Thread { jobs: Some(jobs), done, in_flight: 0, handle: Some(handle) })
    }

    /// Hands a job over; it comes back when the thread is gone.
    fn hand(&mut self, job: Job) -> Option<Job> {
        let Some(jobs) = &self.jobs else { return Some(job) };
        match jobs.send(job) {
            Ok(()) => {
                self.in_flight += 1;
                None
            }
            Err(refused) => Some(refused.0),
        }
    }
}

/// A checkpoint that was begun is finished, whatever becomes of the run.
impl Drop for Thread {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(handle) = self.handle.take() {
            let _ = handle.join();
        }
    }
}
