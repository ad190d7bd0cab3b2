//! Copies one checkpoint. The copy at the destination is complete or has no manifest.

use std::io;
use std::path::Path;

use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt, WriteMultipart};

use super::checkpoint_files::{FileSum, MANIFEST, Manifest, ReadError, VerifiedFile};

/// Larger files are sent in parts of at least this size.
pub(super) const PART: u64 = 8 << 20;
/// The maximum number of parts; S3 accepts 10,000.
const MAX_PARTS: u64 = 9_000;
/// Number of parts that are sent concurrently.
const IN_FLIGHT: usize = 3;
/// Attempts to copy a checkpoint that is being replaced. Its replacement has its own upload.
const ATTEMPTS: usize = 5;

/// The outcome of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopyOutcome {
    /// The checkpoint is at the destination.
    Complete,
    /// The checkpoint was removed or replaced on the disk before it was read.
    Gone,
}

/// The reason why a checkpoint could not be copied.
#[derive(Debug)]
pub(super) enum CopyError {
    /// The checkpoint cannot be read.
    Source(io::Error),
    /// This file does not match the manifest.
    Damaged(String),
    /// The store failed.
    Store(object_store::Error),
}

impl From<object_store::Error> for CopyError {
    fn from(error: object_store::Error) -> CopyError {
        CopyError::Store(error)
    }
}

/// The reason why the files of a manifest could not be copied.
enum FilesError {
    /// This file changed while it was read.
    Changed(String),
    Failed(CopyError),
}

impl From<object_store::Error> for FilesError {
    fn from(error: object_store::Error) -> FilesError {
        FilesError::Failed(CopyError::Store(error))
    }
}

/// Copies the checkpoint in a directory to the keys below `to`. An older manifest is removed first; the new one is written
/// last.
pub(super) async fn copy(store: &dyn ObjectStore, from: &Path, to: &Key) -> Result<CopyOutcome, CopyError> {
    let manifest_key = key(to, MANIFEST)?;
    let mut tried: Option<(Manifest, String)> = None;
    for _ in 0..ATTEMPTS {
        let Some(manifest) = Manifest::of(from).map_err(CopyError::Source)? else { break };
        if let Some((_, file)) = tried.as_ref().filter(|(before, _)| before.text == manifest.text) {
            return Err(CopyError::Damaged(file.clone()));
        }
        match compare_manifest(store, &manifest_key, &manifest.text).await? {
            Existing::Same => return Ok(CopyOutcome::Complete),
            Existing::Other => delete(store, &manifest_key).await?,
            Existing::Missing => {}
        }
        match copy_files(store, from, to, &manifest).await {
            Ok(()) => {
                store.put(&manifest_key, manifest.text.into()).await?;
                return Ok(CopyOutcome::Complete);
            }
            Err(FilesError::Failed(failure)) => return Err(failure),
            Err(FilesError::Changed(file)) => tried = Some((manifest, file)),
        }
    }
    // Remove the files that were uploaded without a manifest.
    if let Some((manifest, _)) = tried {
        for name in manifest.files.keys() {
            delete(store, &key(to, name)?).await?;
        }
    }
    Ok(CopyOutcome::Gone)
}

async fn copy_files(
    store: &dyn ObjectStore,
    from: &Path,
    to: &Key,
    manifest: &Manifest,
) -> Result<(), FilesError> {
    for (name, sum) in &manifest.files {
        let read_error = |error| match error {
            ReadError::Changed => FilesError::Changed(name.clone()),
            ReadError::Io(error) => FilesError::Failed(CopyError::Source(error)),
        };
        let (file, to) = (VerifiedFile::open(&from.join(name), sum).map_err(read_error)?, key(to, name)?);
        if sum.bytes <= PART {
            store.put(&to, file.whole().map_err(read_error)?.into()).await?;
            continue;
        }
        let upload = store.put_multipart(&to).await?;
        let mut parts = WriteMultipart::new_with_chunk_size(upload, part_size(sum));
        match send_parts(file, &mut parts).await {
            Ok(()) => parts.finish().await.map(drop)?,
            Err(error) => {
                // Uncompleted parts would be stored and billed.
                let _ = parts.abort().await;
                return Err(match error {
                    PartsError::Read(error) => read_error(error),
                    PartsError::Store(error) => error.into(),
                });
            }
        }
    }
    Ok(())
}

/// The reason why a file could not be sent in parts.
enum PartsError {
    Read(ReadError),
    Store(object_store::Error),
}

/// Sends a file in parts, a few of them in memory at a time. The caller completes the upload, so a file that does not match
/// never becomes visible.
async fn send_parts(mut file: VerifiedFile<'_>, parts: &mut WriteMultipart) -> Result<(), PartsError> {
    while let Some(block) = file.next().map_err(PartsError::Read)? {
        parts.wait_for_capacity(IN_FLIGHT).await.map_err(PartsError::Store)?;
        parts.write(&block);
    }
    Ok(())
}

fn part_size(sum: &FileSum) -> usize {
    usize::try_from(PART.max(sum.bytes / MAX_PARTS)).unwrap_or(usize::MAX)
}

/// The manifest at the destination, compared with the new one.
enum Existing {
    Same,
    Other,
    Missing,
}

/// Compares the manifest at the destination. Without permission to read, it counts as different: S3 also denies access to
/// missing keys.
async fn compare_manifest(
    store: &dyn ObjectStore,
    key: &Key,
    text: &[u8],
) -> Result<Existing, object_store::Error> {
    match store.get(key).await {
        Ok(found) => Ok(if found.bytes().await? == text { Existing::Same } else { Existing::Other }),
        Err(object_store::Error::NotFound { .. }) => Ok(Existing::Missing),
        Err(object_store::Error::PermissionDenied { .. }) => Ok(Existing::Other),
        Err(error) => Err(error),
    }
}

/// Deletes a key that may be missing. The store does not retry deletes; repeating them is harmless.
async fn delete(store: &dyn ObjectStore, key: &Key) -> Result<(), object_store::Error> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        match store.delete(key).await {
            Err(object_store::Error::NotFound { .. }) => return Ok(()),
            Err(object_store::Error::Generic { .. }) if attempts < ATTEMPTS => {}
            deleted => return deleted,
        }
    }
}

/// The key of a file, with its unescaped name.
fn key(to: &Key, name: &str) -> Result<Key, object_store::Error> {
    Ok(Key::parse(format!("{to}/{name}"))?)
}
