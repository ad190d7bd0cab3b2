//! Images and labels in IDX files, the format of MNIST.
//!
//! Big-endian: a magic number (two zero bytes, 8 for unsigned bytes, the number of dimensions), the size of
//! each dimension as 32 bits, then the bytes.

use std::io::Read;
use std::path::{Path, PathBuf};

use tenterhook::memory;
use tenterhook::task::Problem;
use tenterhook_files::open_regular;

use super::csv::decompressed;
use super::{ImageDataset, in_file, unreadable};

/// The magic number of an image file.
const IMAGES: [u8; 4] = [0, 0, 8, 3];
/// The magic number of a label file.
const LABELS: [u8; 4] = [0, 0, 8, 1];

/// The dimensions and the data of a file.
struct Contents<const D: usize> {
    sizes: [usize; D],
    bytes: Vec<u8>,
}

/// A file of images and the file of their labels.
pub(super) struct Pair {
    /// The option that names the images.
    pub(super) key: &'static str,
    pub(super) images: PathBuf,
    pub(super) labels: PathBuf,
}

impl Pair {
    /// The `train` or `t10k` files of a directory, named as those of MNIST.
    pub(super) fn within(directory: &Path, part: &str) -> Result<Pair, Problem> {
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
                in_file("path", directory, problem)
            })
        };
        Ok(Pair { key: "path", images: found("images", 3)?, labels: found("labels", 1)? })
    }

    /// A file of images with the given file of labels, or with the file of the matching name.
    pub(super) fn of(
        keys: [&'static str; 2],
        images: &Path,
        labels: Option<&PathBuf>,
    ) -> Result<Pair, Problem> {
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
            in_file(labels_key, images, problem)
        })?;
        Ok(Pair { key, images: images.to_owned(), labels })
    }

    /// Reads both files. Pixels are divided by `divisor`.
    pub(super) fn read(&self, divisor: f32) -> Result<ImageDataset, Problem> {
        let Contents { sizes: [count, height, width], bytes: pixels } = read(self.key, &self.images, IMAGES)?;
        let Contents { sizes: [of_labels], bytes: labels } = read(self.key, &self.labels, LABELS)?;
        if count != of_labels {
            let problem = format!(
                "holds {count} images, but {} holds {of_labels} labels; give the files that belong together",
                self.labels.display()
            );
            return Err(in_file(self.key, &self.images, problem));
        }
        if pixels.is_empty() {
            let problem =
                format!("holds {count} images of {height}×{width}: nothing; give a file with images");
            return Err(in_file(self.key, &self.images, problem));
        }
        let labels = labels.into_iter().map(u32::from).collect();
        Ok(ImageDataset::from_bytes((height, width), pixels, labels, divisor))
    }
}

/// The first of these paths that exists.
fn first_existing(
    key: &'static str,
    paths: impl IntoIterator<Item = PathBuf>,
) -> Result<Option<PathBuf>, Problem> {
    for path in paths {
        if path.try_exists().map_err(|error| unreadable(key, &path, &error))? {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

fn read<const D: usize>(key: &'static str, path: &Path, magic: [u8; 4]) -> Result<Contents<D>, Problem> {
    let failed = |error| unreadable(key, path, &error);
    let file = open_regular(path).map_err(failed)?;
    let mut file = decompressed(file);
    let wrong = |problem| Err(in_file(key, path, problem));
    let header = 4 + 4 * D;
    let mut bytes = Vec::new();
    file.by_ref().take(header as u64).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() < header {
        return wrong(format!(
            "is {} bytes long, but an IDX header has {header}; get the whole file",
            bytes.len()
        ));
    }
    if bytes[..4] != magic {
        let [found, expected] = [&bytes[..4], &magic[..]].map(hex);
        let what = if magic == IMAGES { "images" } else { "labels" };
        return wrong(format!(
            "begins with {found}, but IDX {what} as bytes begin with {expected}; give the file of {what}"
        ));
    }
    let mut sizes = [0; D];
    for (size, word) in sizes.iter_mut().zip(bytes[4..header].chunks_exact(4)) {
        *size = word.iter().fold(0, |size, byte| size << 8 | usize::from(*byte));
    }
    let promised = sizes.iter().try_fold(1usize, |promised, size| promised.checked_mul(*size));
    let promised = promised.and_then(|promised| promised.checked_add(header));
    // A compressed file may hold far more than its header promises, or promise more than there is memory.
    let most = promised.map_or(0, |promised| promised - header).min(memory::limit_in_bytes());
    file.take(most as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    match promised {
        Some(promised) if promised == bytes.len() => {}
        Some(promised) if promised - header > most => {
            return wrong(format!("holds {promised} bytes, which do not fit into memory; give fewer images"));
        }
        Some(promised) if promised < bytes.len() => {
            return wrong(format!(
                "is longer than the {promised} bytes that its header says; get the right file"
            ));
        }
        _ => {
            let promised =
                promised.map_or("more than there can be".to_owned(), |promised| promised.to_string());
            let length = bytes.len();
            return wrong(format!(
                "is {length} bytes long, but its header says {promised}; get the whole file"
            ));
        }
    }
    bytes.drain(..header);
    Ok(Contents { sizes, bytes })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold("0x".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}
