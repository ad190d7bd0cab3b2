//! Uploads checkpoints one after the other on the worker thread, which owns the async runtime.
//!
//! At its start the worker sends one test request, so that missing credentials or a missing bucket are reported at the start
//! of training and not at the first checkpoint.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt};
use tenterhook_core::{BoxError, EffectPermit, HookResult};
use tokio::runtime::{Builder, Runtime};

use super::checkpoint_files::{self, MANIFEST};
use super::copy::{CopyError, CopyOutcome, copy};
use super::destination::{Destination, RequestLimits, Variables};
use super::error_text::{error_text, prevents_uploads};
use crate::worker::{Work, WorkerContext};

/// How often a running upload checks the deadline of the worker.
const DEADLINE_CHECK: Duration = Duration::from_millis(50);
/// The maximum time for the request at the start and its retry. Uploads wait for it.
const FIRST_REQUEST: Duration = Duration::from_secs(10);

/// The items that the worker receives.
#[derive(Debug)]
pub(super) struct Item {
    /// The run's id.
    pub(super) run: String,
    /// The directory to which names are relative.
    pub(super) root: PathBuf,
    /// The checkpoint; `None` is all checkpoints in `root`.
    pub(super) checkpoint: Option<PathBuf>,
}

#[derive(Debug)]
pub(super) struct Uploader {
    pub(super) outside: EffectPermit,
    /// The run's id.
    pub(super) run: String,
    pub(super) destination: Destination,
    /// The option `to`, for messages.
    pub(super) to: String,
    pub(super) limits: RequestLimits,
    pub(super) variables: Variables,
    /// Number of checkpoints that were removed or replaced before their upload.
    pub(super) dropped: Arc<AtomicU64>,
    /// Whether the request at the start failed.
    pub(super) start_failed: Arc<AtomicBool>,
    /// Opened by the first upload.
    pub(super) connection: Option<Connection>,
}

#[derive(Debug)]
pub(super) struct Connection {
    runtime: Runtime,
    store: Arc<dyn ObjectStore>,
    /// The prefix of all keys.
    prefix: Key,
}

impl Work for Uploader {
    type Item = Item;

    fn start(&mut self, cx: &WorkerContext) -> HookResult {
        let asked = self.ask(cx);
        if asked.is_err() {
            self.start_failed.store(true, Ordering::Release);
        }
        asked
    }

    fn process(&mut self, item: Item, cx: &WorkerContext) -> HookResult {
        let Some(checkpoint) = &item.checkpoint else { return self.upload_missing(&item, cx) };
        if self.upload(&item, checkpoint, cx)? == CopyOutcome::Gone {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Uploader {
    /// Requests a manifest, which need not exist, to test the destination. Directories were checked before step 1.
    fn ask(&self, cx: &WorkerContext) -> HookResult {
        if self.destination.directory().is_some() {
            return Ok(());
        }
        let cannot = |why: &str| -> BoxError { format!("cannot upload to {}: {why}", self.to).into() };
        let limits = RequestLimits {
            timeout: self.limits.timeout.min(FIRST_REQUEST / 2),
            retries: self.limits.retries.min(1),
        };
        let Connection { runtime, store, prefix } = self.connect(limits).map_err(|why| cannot(&why))?;
        let manifest = key(&prefix, &self.run, Path::new(MANIFEST));
        let manifest = manifest.ok_or_else(|| cannot("the run's id is not a valid key there"))?;
        match runtime.block_on(until_deadline(store.get(&manifest), cx)) {
            Some(Err(error)) if prevents_uploads(&error) => {
                Err(cannot(&error_text(&CopyError::Store(error), limits, &self.variables)))
            }
            // At the end of the run, the uploads themselves report failures.
            Some(_) | None => Ok(()),
        }
    }

    /// Uploads all checkpoints on the disk that the destination lacks. A failure does not stop the others.
    fn upload_missing(&mut self, item: &Item, cx: &WorkerContext) -> HookResult {
        let mut result = Ok(());
        let all = checkpoint_files::list(&item.root);
        let all =
            all.map_err(|error| format!("cannot read the checkpoints in {}: {error}", item.root.display()))?;
        for checkpoint in all {
            let uploaded = self.upload(item, &checkpoint, cx);
            if result.is_ok() {
                result = uploaded.map(drop);
            }
            if cx.deadline_passed() {
                break;
            }
        }
        result
    }

    fn upload(&mut self, item: &Item, checkpoint: &Path, cx: &WorkerContext) -> HookResult<CopyOutcome> {
        // A checkpoint outside of the root is named by its last path component.
        let last = || checkpoint.file_name().map_or(checkpoint, Path::new);
        let name = checkpoint.strip_prefix(&item.root).unwrap_or_else(|_| last());
        let cannot = |why: &str| -> BoxError {
            format!("cannot upload checkpoint {} to {}: {why}", name.display(), self.to).into()
        };
        if self.connection.is_none() {
            self.connection = Some(self.connect(self.limits).map_err(|why| cannot(&why))?);
        }
        let Some(Connection { runtime, store, prefix }) = &self.connection else {
            return Err(cannot("there is no connection"));
        };
        let to = key(prefix, &item.run, name).ok_or_else(|| cannot("its name is not a valid key there"))?;
        let copied = runtime.block_on(until_deadline(copy(store.as_ref(), checkpoint, &to), cx));
        match copied {
            None => Err(cannot("the run ended before it was complete (`flush_timeout`)")),
            Some(copied) => copied.map_err(|error| cannot(&error_text(&error, self.limits, &self.variables))),
        }
    }

    fn connect(&self, limits: RequestLimits) -> Result<Connection, String> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("no runtime can be started: {error}"))?;
        let (store, prefix) = self.destination.open(self.outside, limits, &self.variables)?;
        Ok(Connection { runtime, store, prefix })
    }
}

/// The key of a checkpoint.
fn key(prefix: &Key, run: &str, name: &Path) -> Option<Key> {
    let parts = [prefix.as_ref(), run, name.to_str()?];
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    Key::parse(parts.join("/")).ok()
}

/// The result of the work, or `None` if the worker's deadline passes first.
async fn until_deadline<T>(work: impl Future<Output = T>, cx: &WorkerContext) -> Option<T> {
    let mut work = std::pin::pin!(work);
    loop {
        match tokio::time::timeout(DEADLINE_CHECK, work.as_mut()).await {
            Ok(done) => return Some(done),
            Err(_) if cx.deadline_passed() => return None,
            Err(_) => {}
        }
    }
}
