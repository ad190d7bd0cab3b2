//! What the worker does: one checkpoint after the other, on a runtime that lives here and nowhere else.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use object_store::ObjectStore;
use object_store::path::Path as Key;
use tenterhook_core::{BoxError, EffectPermit, HookResult};
use tokio::runtime::{Builder, Runtime};

use super::copy::{Copied, Failure, copy};
use super::destination::{Destination, Patience, Variables};
use super::source;
use super::words::in_words;
use crate::worker::{Desk, Work};

/// How often it is asked whether the time to end in is over.
const LOOK: Duration = Duration::from_millis(50);

/// What is handed over.
#[derive(Debug)]
pub(super) struct Item {
    /// The run's id.
    pub(super) run: String,
    /// The directory that names are relative to.
    pub(super) root: PathBuf,
    /// The checkpoint; `None` stands for all that are there.
    pub(super) checkpoint: Option<PathBuf>,
}

/// Uploads.
#[derive(Debug)]
pub(super) struct Uploader {
    pub(super) outside: EffectPermit,
    pub(super) destination: Destination,
    /// As `to` says it.
    pub(super) to: String,
    pub(super) patience: Patience,
    pub(super) variables: Variables,
    /// How many were removed or replaced on the disk before they were uploaded.
    pub(super) gone: Arc<AtomicU64>,
    /// What is opened when the first comes.
    pub(super) open: Option<Open>,
}

/// The other side, and what speaks to it.
#[derive(Debug)]
pub(super) struct Open {
    runtime: Runtime,
    store: Arc<dyn ObjectStore>,
    /// Everything is below it.
    prefix: Key,
}

impl Work for Uploader {
    type Item = Item;

    fn take(&mut self, item: Item, desk: &Desk) -> HookResult {
        let Some(checkpoint) = &item.checkpoint else { return self.catch_up(&item, desk) };
        if self.upload(&item, checkpoint, desk)? == Copied::Gone {
            self.gone.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Uploader {
    /// Uploads whatever is on the disk and not yet there. One that cannot be does not keep the others from it.
    fn catch_up(&mut self, item: &Item, desk: &Desk) -> HookResult {
        let mut failed = Ok(());
        let all = source::below(&item.root);
        let all =
            all.map_err(|error| format!("cannot read the checkpoints in {}: {error}", item.root.display()))?;
        for checkpoint in all {
            let uploaded = self.upload(item, &checkpoint, desk);
            if failed.is_ok() {
                failed = uploaded.map(drop);
            }
            if desk.is_over() {
                break;
            }
        }
        failed
    }

    fn upload(&mut self, item: &Item, checkpoint: &Path, desk: &Desk) -> HookResult<Copied> {
        // One of another directory goes by its own name.
        let last = || checkpoint.file_name().map_or(checkpoint, Path::new);
        let name = checkpoint.strip_prefix(&item.root).unwrap_or_else(|_| last());
        let cannot = |why: &str| -> BoxError {
            format!("cannot upload checkpoint {} to {}: {why}", name.display(), self.to).into()
        };
        if self.open.is_none() {
            self.open = Some(self.connect().map_err(|why| cannot(&why))?);
        }
        let Some(Open { runtime, store, prefix }) = &self.open else { return Err(cannot("it is not open")) };
        let to = key(prefix, &item.run, name).ok_or_else(|| cannot("its name is no name there"))?;
        let copied = runtime.block_on(until_over(copy(store.as_ref(), checkpoint, &to), desk));
        match copied {
            None => Err(cannot("the time to end in is over (`flush_timeout`)")),
            Some(copied) => copied.map_err(|failure| cannot(&self.in_words(&failure))),
        }
    }

    fn connect(&self) -> Result<Open, String> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("no runtime can be made: {error}"))?;
        let (store, prefix) = self.destination.open(self.outside, self.patience, &self.variables)?;
        Ok(Open { runtime, store, prefix })
    }

    fn in_words(&self, failure: &Failure) -> String {
        in_words(failure, self.patience, &self.variables)
    }
}

/// The key of a checkpoint.
fn key(prefix: &Key, run: &str, name: &Path) -> Option<Key> {
    let parts = [prefix.as_ref(), run, name.to_str()?];
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    Key::parse(parts.join("/")).ok()
}

/// What it comes to, or nothing when the time to end in is over before.
async fn until_over<T>(work: impl Future<Output = T>, desk: &Desk) -> Option<T> {
    let mut work = std::pin::pin!(work);
    loop {
        match tokio::time::timeout(LOOK, work.as_mut()).await {
            Ok(done) => return Some(done),
            Err(_) if desk.is_over() => return None,
            Err(_) => {}
        }
    }
}
