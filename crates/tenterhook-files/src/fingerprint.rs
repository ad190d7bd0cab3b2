//! Fingerprints of data, which change when the data change.

use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::durable::write_shared;
use crate::read::{open_regular, read_bounded_text};

/// Files up to this length are hashed completely. Larger files are [sampled].
const WHOLE: u64 = 4 << 30;
/// The length of each end of a larger file that is hashed.
const END: u64 = 64 << 20;
/// The number of evenly spaced blocks between the ends that are hashed.
const BLOCKS: u64 = 1024;
const BLOCK: u64 = 1 << 20;
/// Fingerprints of files of this length or more are cached.
const CACHED: u64 = 32 << 20;
/// The maximum size of a cache entry.
const ENTRY: u64 = 64 << 10;

/// Identifies the contents of data: a BLAKE3 hash and a length, or any text that changes with the data.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(String);

impl Fingerprint {
    /// A fingerprint from a text that changes whenever the data change, such as `squad 2.0, revision 7`.
    #[must_use]
    pub fn named(text: impl Into<String>) -> Fingerprint {
        Fingerprint(text.into())
    }

    /// The fingerprint of bytes in memory, in pieces of any length.
    #[must_use]
    pub fn of_bytes<B: AsRef<[u8]>>(pieces: impl IntoIterator<Item = B>) -> Fingerprint {
        let mut hasher = blake3::Hasher::new();
        for piece in pieces {
            hasher.update(piece.as_ref());
        }
        Fingerprint(format!("blake3:{}, {} bytes", digits(&hasher), hasher.count()))
    }

    /// Combines several fingerprints, in this order.
    #[must_use]
    pub fn of_parts(parts: impl IntoIterator<Item = Fingerprint>) -> Fingerprint {
        let parts: Vec<_> = parts.into_iter().collect();
        match <[Fingerprint; 1]>::try_from(parts) {
            Ok([one]) => one,
            Err(parts) => {
                let mut hasher = blake3::Hasher::new();
                for part in &parts {
                    hasher.update(format!("{}\n", part.0).as_bytes());
                }
                Fingerprint(format!("blake3:{}, {} parts", digits(&hasher), parts.len()))
            }
        }
    }

    /// The fingerprint of a regular file. Of a file longer than 4 GiB, only the ends and evenly spaced blocks are
    /// read. The fingerprint of a large file is cached in the user's cache directory, and valid while path, length
    /// and times of the file are unchanged.
    ///
    /// # Errors
    /// The error of the system, or [`ErrorKind::InvalidInput`] if the path is not a regular file.
    pub fn of_file(path: &Path) -> io::Result<Fingerprint> {
        let file = open_regular(path)?;
        let cache = cache_directory().filter(|_| file.metadata().is_ok_and(|found| found.len() >= CACHED));
        of_file_with_cache(&file, path, cache.as_deref())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The shortened hash in hexadecimal digits.
fn digits(hasher: &blake3::Hasher) -> String {
    hasher.finalize().to_hex()[..32].to_owned()
}

/// A cached fingerprint with the status of the file at that time.
#[derive(Deserialize, Serialize)]
struct Entry {
    file: String,
    fingerprint: Fingerprint,
}

fn of_file_with_cache(file: &File, path: &Path, cache: Option<&Path>) -> io::Result<Fingerprint> {
    let before = file_status(path, &file.metadata()?);
    let name = blake3::hash(before.0.as_bytes()).to_hex();
    let entry = cache.map(|cache| cache.join(&name[..32]).with_extension("json"));
    if let Some(entry) = &entry
        && let Ok(text) = read_bounded_text(entry, ENTRY)
        && let Ok(Entry { file, fingerprint }) = serde_json::from_str(&text)
        && file == before.1
    {
        return Ok(fingerprint);
    }
    let fingerprint = hashed(file, WHOLE)?;
    // If the file changed during hashing, the hash may mix old and new content.
    if let Some(entry) = entry
        && file_status(path, &file.metadata()?).1 == before.1
    {
        // Without an entry, the file is hashed again next time.
        let _ = write_entry(&entry, &Entry { file: before.1, fingerprint: fingerprint.clone() });
    }
    Ok(fingerprint)
}

/// The real path of a file, and a text that changes when the file does.
fn file_status(path: &Path, found: &Metadata) -> (String, String) {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let modified = found.modified().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    // Unlike `mtime`, `ctime` cannot be set by the user.
    #[cfg(unix)]
    let changed = {
        use std::os::unix::fs::MetadataExt;
        (found.dev(), found.ino(), found.ctime(), found.ctime_nsec())
    };
    #[cfg(not(unix))]
    let changed = ();
    let path = real.to_string_lossy().into_owned();
    let status = format!("{path} {} {modified:?} {changed:?}", found.len());
    (path, status)
}

fn write_entry(path: &Path, entry: &Entry) -> io::Result<()> {
    let directory = path.parent().ok_or(ErrorKind::InvalidInput)?;
    fs::create_dir_all(directory)?;
    write_shared(path, |file| Ok(serde_json::to_writer(file, entry)?))
}

/// The cache directory of this user.
fn cache_directory() -> Option<PathBuf> {
    let of = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = of("XDG_CACHE_HOME").or_else(|| Some(of("HOME")?.join(".cache")))?;
    Some(cache.join("tenterhook").join("fingerprints"))
}

fn hashed(mut file: &File, whole: u64) -> io::Result<Fingerprint> {
    let length = file.metadata()?.len();
    let mut hasher = blake3::Hasher::new();
    if length <= whole {
        // Reads to the end of the file, whose length may have changed.
        hasher.update_reader(file)?;
        return Ok(Fingerprint(format!("blake3:{}, {} bytes", digits(&hasher), hasher.count())));
    }
    for range in sampled(length) {
        file.seek(SeekFrom::Start(range.start))?;
        hasher.update_reader(file.take(range.end - range.start))?;
    }
    Ok(Fingerprint(format!("blake3 of samples:{}, {length} bytes", digits(&hasher))))
}

/// The ranges of a large file that are hashed: its ends, and evenly spaced blocks between them.
fn sampled(length: u64) -> impl Iterator<Item = Range<u64>> {
    let end = END.min(length / 2);
    let between = length - 2 * end;
    let blocks = (0..BLOCKS).map(move |index| {
        // The product may exceed 64 bits; the quotient does not.
        let at = u128::from(between) * u128::from(index) / u128::from(BLOCKS);
        let start = end + u64::try_from(at).unwrap_or(between);
        start..(start + BLOCK).min(length - end)
    });
    std::iter::once(0..end).chain(blocks).chain(std::iter::once(length - end..length))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn of(path: &Path) -> Fingerprint {
        Fingerprint::of_file(path).unwrap()
    }

    #[test]
    fn other_bytes_of_the_same_length_have_another_fingerprint() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        fs::write(&path, "one").unwrap();
        let first = of(&path);
        assert_eq!(first, Fingerprint::of_bytes(["o", "ne"]));
        assert!(first.as_str().starts_with("blake3:") && first.as_str().ends_with(", 3 bytes"), "{first}");
        fs::write(&path, "two").unwrap();
        assert_ne!(of(&path), first);
        assert_eq!(Fingerprint::of_file(directory.path()).unwrap_err().kind(), ErrorKind::IsADirectory);
    }

    #[test]
    fn several_parts_have_one_fingerprint_that_depends_on_their_order() {
        let [a, b] = ["a", "b"].map(|bytes| Fingerprint::of_bytes([bytes]));
        assert_eq!(Fingerprint::of_parts([a.clone()]), a);
        let both = Fingerprint::of_parts([a.clone(), b.clone()]);
        assert_ne!(both, Fingerprint::of_parts([b, a]));
    }

    #[test]
    fn the_cache_serves_a_file_until_it_changes() {
        let directory = tempfile::tempdir().unwrap();
        let (path, cache) = (directory.path().join("data"), directory.path().join("cache"));
        let cached = || of_file_with_cache(&open_regular(&path).unwrap(), &path, Some(&cache)).unwrap();
        fs::write(&path, "one").unwrap();
        let one = cached();
        let entry = fs::read_dir(&cache).unwrap().next().unwrap().unwrap().path();
        let text = fs::read_to_string(&entry).unwrap();
        fs::write(&entry, text.replace("blake3:", "cached:")).unwrap();
        assert!(cached().as_str().starts_with("cached:"), "it comes from the cache");
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "two").unwrap();
        File::open(&path).unwrap().set_modified(modified).unwrap();
        let two = cached();
        assert!(
            two.as_str().starts_with("blake3:") && two != one,
            "{two}: same length, same modification time"
        );
        fs::write(&entry, "not JSON").unwrap();
        assert_eq!(cached(), two);
    }

    #[test]
    fn a_large_file_is_sampled_from_its_beginning_to_its_end() {
        let length = WHOLE + 12_345;
        let ranges: Vec<_> = sampled(length).collect();
        assert_eq!(ranges.first().unwrap().start, 0);
        assert_eq!(ranges.last().unwrap().end, length);
        let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        assert_eq!(bytes, 2 * END + BLOCKS * BLOCK);
        assert!(ranges.windows(2).all(|pair| pair[0].start < pair[1].start && pair[1].end <= length));
        assert!(sampled(u64::MAX).all(|range| range.start < range.end));
    }

    #[test]
    fn the_fingerprint_of_a_sampled_file_depends_on_its_length_and_samples() {
        let mut file = tempfile::tempfile().unwrap();
        let mut of = |bytes: &[u8]| {
            file.set_len(0).unwrap();
            file.rewind().unwrap();
            file.write_all(bytes).unwrap();
            hashed(&file, 4).unwrap()
        };
        let first = of(b"123456");
        assert!(first.as_str().starts_with("blake3 of samples:") && first.as_str().ends_with(", 6 bytes"));
        assert_ne!(of(b"123457"), first);
        assert_ne!(of(b"1234567"), first);
        assert_eq!(of(b"123456"), first);
    }
}
