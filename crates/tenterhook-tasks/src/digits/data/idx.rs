//! Images and labels in IDX files, the format of MNIST.
//!
//! Big-endian: a magic number (two zero bytes, 8 for unsigned bytes, the number of dimensions), the size of
//! each dimension as 32 bits, then the bytes.

use std::io::Read;
use std::path::{Path, PathBuf};

use tenterhook::memory;
use tenterhook_files::open_regular;

use super::DataError;
use super::csv::unpacked;

/// What the bytes of an image file begin with.
const IMAGES: [u8; 4] = [0, 0, 8, 3];
/// What the bytes of a label file begin with.
const LABELS: [u8; 4] = [0, 0, 8, 1];

/// Bytes with their dimensions.
struct Contents<const D: usize> {
    sizes: [usize; D],
    bytes: Vec<u8>,
}

/// Images as they are in their files.
pub(super) struct Images {
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) pixels: Vec<u8>,
    pub(super) labels: Vec<u32>,
}

/// A file of images, and one with a label for each.
pub(super) struct Pair {
    /// The option that names them.
    pub(super) key: &'static str,
    pub(super) images: PathBuf,
    pub(super) labels: PathBuf,
}

impl Pair {
    /// The files of a directory that are called `train` or `t10k`, as those of MNIST are.
    pub(super) fn within(directory: &Path, part: &str) -> Result<Pair, DataError> {
        let found = |what: &str, dimensions: u8| {
            let names = ['-', '.'].map(|dot| format!("{part}-{what}{dot}idx{dimensions}-ubyte"));
            let wanted = names.iter().flat_map(|name| [name.clone(), format!("{name}.gz")]);
            let found = first_existing("path", wanted.map(|name| directory.join(name)))?;
            found.ok_or_else(|| {
                let problem = format!(
                    "holds no `{}` (or `.gz`); give a directory with the four files of MNIST, or the path of one \
                     CSV or IDX file",
                    names[0]
                );
                DataError::file("path", directory, problem)
            })
        };
        Ok(Pair { key: "path", images: found("images", 3)?, labels: found("labels", 1)? })
    }

    /// A file of images, and the labels given or those that its name leads to.
    pub(super) fn of(
        keys: [&'static str; 2],
        images: &Path,
        labels: Option<&PathBuf>,
    ) -> Result<Pair, DataError> {
        let [key, labels_key] = keys;
        let guessed = images.file_name().and_then(|name| name.to_str()).map(|name| {
            let other = name.replace("images", "labels").replace("idx3", "idx1");
            images.with_file_name(&other)
        });
        let labels = match labels {
            Some(labels) => Some(labels.clone()),
            None => first_existing(labels_key, guessed.into_iter().filter(|other| other != images))?,
        };
        let labels = labels.ok_or_else(|| {
            let problem = format!("needs the file of its labels beside it, or named by `{labels_key}`");
            DataError::file(labels_key, images, problem)
        })?;
        Ok(Pair { key, images: images.to_owned(), labels })
    }

    pub(super) fn read(&self) -> Result<Images, DataError> {
        let Contents { sizes: [count, height, width], bytes: pixels } = read(self.key, &self.images, IMAGES)?;
        let Contents { sizes: [of_labels], bytes: labels } = read(self.key, &self.labels, LABELS)?;
        if count != of_labels {
            let problem = format!(
                "holds {count} images, but {} holds {of_labels} labels; give the files that belong together",
                self.labels.display()
            );
            return Err(DataError::file(self.key, &self.images, problem));
        }
        if pixels.is_empty() {
            let problem =
                format!("holds {count} images of {height}×{width}: nothing; give a file with images");
            return Err(DataError::file(self.key, &self.images, problem));
        }
        Ok(Images { height, width, pixels, labels: labels.into_iter().map(u32::from).collect() })
    }
}

/// The first of these paths that exists.
fn first_existing(
    key: &'static str,
    paths: impl IntoIterator<Item = PathBuf>,
) -> Result<Option<PathBuf>, DataError> {
    for path in paths {
        if path.try_exists().map_err(|error| DataError::read(key, &path, error))? {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

fn read<const D: usize>(key: &'static str, path: &Path, magic: [u8; 4]) -> Result<Contents<D>, DataError> {
    let failed = |error| DataError::read(key, path, error);
    let file = open_regular(path).map_err(failed)?;
    let mut file = unpacked(file);
    let wrong = |problem| Err(DataError::file(key, path, problem));
    let header = 4 + 4 * D;
    let mut bytes = Vec::new();
    file.by_ref().take(header as u64).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() < header {
        return wrong(format!(
            "is {} bytes long, an IDX header alone is {header}; get the whole file",
            bytes.len()
        ));
    }
    if bytes[..4] != magic {
        let [found, expected] = [&bytes[..4], &magic[..]].map(hex);
        let what = if magic == IMAGES { "images" } else { "labels" };
        return wrong(format!(
            "begins with {found}, IDX {what} as bytes with {expected}; give the file of {what}"
        ));
    }
    let mut sizes = [0; D];
    for (size, word) in sizes.iter_mut().zip(bytes[4..header].chunks_exact(4)) {
        *size = word.iter().fold(0, |size, byte| size << 8 | usize::from(*byte));
    }
    let told = sizes.iter().try_fold(1usize, |told, size| told.checked_mul(*size));
    let told = told.and_then(|told| told.checked_add(header));
    // A compressed file may hold far more than its header promises, or promise more than there is memory.
    let most = told.map_or(0, |told| told - header).min(memory::limit_in_bytes());
    file.take(most as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    match told {
        Some(told) if told == bytes.len() => {}
        Some(told) if told - header > most => {
            return wrong(format!("holds {told} bytes, which do not fit into memory; give fewer images"));
        }
        Some(told) if told < bytes.len() => {
            return wrong(format!(
                "is longer than the {told} bytes that its header says; get the right file"
            ));
        }
        _ => {
            let told = told.map_or("more than there can be".to_owned(), |told| told.to_string());
            let length = bytes.len();
            return wrong(format!("is {length} bytes long, its header says {told}; get the whole file"));
        }
    }
    bytes.drain(..header);
    Ok(Contents { sizes, bytes })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold("0x".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}
