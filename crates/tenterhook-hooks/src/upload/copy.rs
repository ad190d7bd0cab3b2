//! Copies one checkpoint, so that what is there is whole or has no manifest.

use std::io;
use std::path::Path;

use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt, WriteMultipart};

use super::source::{Checked, MANIFEST, Manifest, Sum, Unread};

/// What is larger goes in parts of at least this size.
pub(super) const PART: u64 = 8 << 20;
/// S3 takes 10,000 parts; a few less leave room for rounding.
const PARTS: u64 = 9_000;
/// So many parts are on their way at a time.
const IN_FLIGHT: usize = 3;
/// A checkpoint that is replaced during each of so many attempts will come by itself, as the one that replaced it.
const ATTEMPTS: usize = 5;

/// What became of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copied {
    /// It is there now, or was already.
    Whole,
    /// It was removed or replaced on the disk before all of it was read.
    Gone,
}

/// Why a checkpoint could not be copied.
#[derive(Debug)]
pub(super) enum Failure {
    /// It cannot be read.
    Source(io::Error),
    /// It is not what its own manifest says.
    Damaged(String),
    /// The other side.
    Store(object_store::Error),
}

impl From<object_store::Error> for Failure {
    fn from(error: object_store::Error) -> Failure {
        Failure::Store(error)
    }
}

/// Why the files of one manifest did not all arrive.
enum Broken {
    Changed(String),
    Failed(Failure),
}

impl From<object_store::Error> for Broken {
    fn from(error: object_store::Error) -> Broken {
        Broken::Failed(Failure::Store(error))
    }
}

/// Copies the checkpoint in a directory to the keys below `to`. Its manifest goes last; an older one that is there
/// goes first.
pub(super) async fn copy(store: &dyn ObjectStore, from: &Path, to: &Key) -> Result<Copied, Failure> {
    let there = key(to, MANIFEST)?;
    let mut tried: Option<(Manifest, String)> = None;
    for _ in 0..ATTEMPTS {
        let Some(manifest) = Manifest::of(from).map_err(Failure::Source)? else { break };
        if let Some((_, file)) = tried.as_ref().filter(|(before, _)| before.text == manifest.text) {
            return Err(Failure::Damaged(file.clone()));
        }
        match look(store, &there, &manifest.text).await? {
            There::Same => return Ok(Copied::Whole),
            There::Other => delete(store, &there).await?,
            There::Nothing => {}
        }
        match copy_files(store, from, to, &manifest).await {
            Ok(()) => {
                store.put(&there, manifest.text.into()).await?;
                return Ok(Copied::Whole);
            }
            Err(Broken::Failed(failure)) => return Err(failure),
            Err(Broken::Changed(file)) => tried = Some((manifest, file)),
        }
    }
    // What has arrived of it is of no use to anybody.
    if let Some((manifest, _)) = tried {
        for name in manifest.files.keys() {
            delete(store, &key(to, name)?).await?;
        }
    }
    Ok(Copied::Gone)
}

async fn copy_files(
    store: &dyn ObjectStore,
    from: &Path,
    to: &Key,
    manifest: &Manifest,
) -> Result<(), Broken> {
    for (name, sum) in &manifest.files {
        let unread = |error| match error {
            Unread::Changed => Broken::Changed(name.clone()),
            Unread::Io(error) => Broken::Failed(Failure::Source(error)),
        };
        let (file, to) = (Checked::open(&from.join(name), sum).map_err(unread)?, key(to, name)?);
        if sum.bytes <= PART {
            store.put(&to, file.whole().map_err(unread)?.into()).await?;
            continue;
        }
        let upload = store.put_multipart(&to).await?;
        let mut parts = WriteMultipart::new_with_chunk_size(upload, part_size(sum));
        match pour(file, &mut parts).await {
            Ok(()) => parts.finish().await.map(drop)?,
            Err(stopped) => {
                // Parts that nobody puts together are paid for all the same.
                let _ = parts.abort().await;
                return Err(match stopped {
                    Stopped::Unread(error) => unread(error),
                    Stopped::Store(error) => error.into(),
                });
            }
        }
    }
    Ok(())
}

enum Stopped {
    Unread(Unread),
    Store(object_store::Error),
}

/// Hands over all of a file, never more of it than a few parts in memory. It is not put together here, so one that
/// turns out to be wrong is never seen.
async fn pour(mut file: Checked<'_>, parts: &mut WriteMultipart) -> Result<(), Stopped> {
    while let Some(block) = file.next().map_err(Stopped::Unread)? {
        parts.wait_for_capacity(IN_FLIGHT).await.map_err(Stopped::Store)?;
        parts.write(&block);
    }
    Ok(())
}

fn part_size(sum: &Sum) -> usize {
    usize::try_from(PART.max(sum.bytes / PARTS)).unwrap_or(usize::MAX)
}

/// What is there instead of a manifest that is to come.
enum There {
    Same,
    Other,
    Nothing,
}

/// Looks what is there. Who may not look must take it for another one: S3 says so also where there is nothing.
async fn look(store: &dyn ObjectStore, key: &Key, text: &[u8]) -> Result<There, object_store::Error> {
    match store.get(key).await {
        Ok(found) => Ok(if found.bytes().await? == text { There::Same } else { There::Other }),
        Err(object_store::Error::NotFound { .. }) => Ok(There::Nothing),
        Err(object_store::Error::PermissionDenied { .. }) => Ok(There::Other),
        Err(error) => Err(error),
    }
}

/// Deletes what may be there. It does no harm to do so twice, so it is tried again, which the store does not.
async fn delete(store: &dyn ObjectStore, key: &Key) -> Result<(), object_store::Error> {
    let mut tried = 0;
    loop {
        tried += 1;
        match store.delete(key).await {
            Err(object_store::Error::NotFound { .. }) => return Ok(()),
            Err(object_store::Error::Generic { .. }) if tried < ATTEMPTS => {}
            deleted => return deleted,
        }
    }
}

/// The key of a file, with its name as it is.
fn key(to: &Key, name: &str) -> Result<Key, object_store::Error> {
    Ok(Key::parse(format!("{to}/{name}"))?)
}
