//! Named tensors as bytes, for weights and optimizer state in checkpoints.
//!
//! The file format is safetensors. Equal tensors give byte-identical files.

mod buffers;
mod bytes;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensors};
use serde::Serialize;
use tenterhook_core::DType;
use tenterhook_files::{FileError, cannot, is_stream, open_regular, read_bounded, read_input, write_durably};

use crate::memory;

pub use buffers::Buffers;
pub use bytes::Bytes;

/// The metadata of all files that this program writes.
const METADATA: [(&str, &str); 2] = [("format", "tenterhook"), ("version", "1")];

/// An entry of a file's header.
#[derive(Serialize)]
#[serde(untagged)]
enum Entry<'a> {
    Metadata(BTreeMap<&'a str, &'a str>),
    Tensor { dtype: &'a str, shape: &'a [usize], data_offsets: [usize; 2] },
}

/// The element type of a tensor in a file, if it is supported.
fn dtype_of(dtype: Dtype) -> Option<DType> {
    let name = dtype.to_string();
    DType::ALL.iter().copied().find(|ours| ours.name() == name)
}

/// A tensor as little-endian bytes in row-major order.
#[derive(Clone, PartialEq, Eq)]
pub struct TensorBytes {
    /// The type of its elements.
    pub dtype: DType,
    /// Its shape; empty for a scalar.
    pub shape: Vec<usize>,
    /// Its elements.
    pub bytes: Bytes,
}

impl std::fmt::Debug for TensorBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}{:?}", self.dtype, self.shape)
    }
}

impl TensorBytes {
    /// A tensor of `f32` elements.
    #[must_use]
    pub fn from_f32(shape: impl Into<Vec<usize>>, values: &[f32]) -> TensorBytes {
        let mut bytes = vec![0; 4 * values.len()];
        for (bytes, value) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(values) {
            *bytes = value.to_le_bytes();
        }
        TensorBytes { dtype: DType::F32, shape: shape.into(), bytes: bytes.into() }
    }

    /// Its elements, if they are `f32`.
    pub fn to_f32(&self) -> Result<Vec<f32>, String> {
        if self.dtype != DType::F32 {
            return Err(format!("its numbers are {:?}, not F32", self.dtype));
        }
        let (numbers, rest) = self.bytes.as_chunks::<4>();
        if !rest.is_empty() {
            return Err(format!("it has {} bytes, which is no whole number of F32", self.bytes.len()));
        }
        Ok(numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }

    /// The problem with its number of bytes, if any.
    fn problem(&self) -> Option<String> {
        let numbers = self.shape.iter().try_fold(1_usize, |all, size| all.checked_mul(*size));
        let expected = numbers.and_then(|numbers| numbers.checked_mul(self.dtype.size()));
        (expected != Some(self.bytes.len()))
            .then(|| format!("{self:?} cannot have {} bytes", self.bytes.len()))
    }
}

/// Tensors by name, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TensorMap(BTreeMap<String, TensorBytes>);

/// An error of tensors or of a tensor file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// The file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file is not a complete safetensors file.
    #[error("{} is not a whole safetensors file: {source}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: safetensors::SafeTensorError,
    },
    /// A tensor of a file cannot be used.
    #[error("{}: tensor `{tensor}`: {problem}", path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// The tensor's name.
        tensor: String,
        /// The problem.
        problem: String,
    },
    /// The tensor does not exist.
    #[error("there is no tensor `{tensor}`; there are: {}", known.join(", "))]
    Missing {
        /// The requested name.
        tensor: String,
        /// The names of all tensors.
        known: Vec<String>,
    },
    /// A tensor has an unexpected type, shape or size.
    #[error("tensor `{tensor}`: {problem}")]
    Mismatch {
        /// The tensor's name.
        tensor: String,
        /// The problem.
        problem: String,
    },
}

impl TensorMap {
    /// Adds a tensor, and returns the one it replaces, if any.
    pub fn insert(&mut self, name: impl Into<String>, tensor: TensorBytes) -> Option<TensorBytes> {
        self.0.insert(name.into(), tensor)
    }

    /// Adds a tensor of `f32` elements.
    pub fn insert_f32(&mut self, name: impl Into<String>, shape: impl Into<Vec<usize>>, values: &[f32]) {
        self.insert(name, TensorBytes::from_f32(shape, values));
    }

    /// The tensor of this name.
    pub fn get(&self, name: &str) -> Result<&TensorBytes, TensorError> {
        self.0.get(name).ok_or_else(|| TensorError::Missing {
            tensor: name.to_owned(),
            known: self.names().map(str::to_owned).collect(),
        })
    }

    /// The elements of an `f32` tensor of this shape.
    pub fn f32(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, TensorError> {
        let tensor = self.get(name)?;
        let mismatched = |problem| TensorError::Mismatch { tensor: name.to_owned(), problem };
        if tensor.shape != shape {
            return Err(mismatched(format!("its shape is {:?}, expected {shape:?}", tensor.shape)));
        }
        tensor.to_f32().map_err(mismatched)
    }

    /// Removes a tensor.
    pub fn remove(&mut self, name: &str) -> Option<TensorBytes> {
        self.0.remove(name)
    }

    /// The names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The names and tensors, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &TensorBytes)> {
        self.0.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// The number of tensors.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no tensors.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes a file atomically and waits until it is on the disk.
    pub fn write(&self, path: &Path) -> Result<(), TensorError> {
        let content = self.as_file().map_err(|error| match error {
            TensorError::Mismatch { tensor, problem } => {
                TensorError::InFile { path: path.to_owned(), tensor, problem }
            }
            other => other,
        })?;
        Ok(write_durably(path, |file| content.write_to(file)).map_err(cannot("write", path))?)
    }

    /// The content of a file of these tensors, after a check of all of them.
    pub(crate) fn as_file(&self) -> Result<AsFile<'_>, TensorError> {
        let tensors = self.by_element_size();
        let header = header(&tensors)?;
        Ok(AsFile { header, tensors: tensors.into_iter().map(|(_, tensor)| tensor).collect() })
    }

    /// Reads a safetensors file.
    pub fn read(path: &Path) -> Result<TensorMap, TensorError> {
        let bytes = content(path).map_err(cannot("read", path))?;
        TensorMap::from_file(path, &bytes)
    }

    /// Parses the content of a file.
    pub(crate) fn from_file(path: &Path, bytes: &[u8]) -> Result<TensorMap, TensorError> {
        let path_of = || path.to_owned();
        let file = SafeTensors::deserialize(bytes)
            .map_err(|source| TensorError::Damaged { path: path_of(), source })?;
        let tensors = file.iter().map(|(name, view)| {
            let dtype = dtype_of(view.dtype()).ok_or_else(|| TensorError::InFile {
                path: path_of(),
                tensor: name.to_owned(),
                problem: format!("numbers of type {} are not supported", view.dtype()),
            })?;
            let tensor =
                TensorBytes { dtype, shape: view.shape().to_vec(), bytes: view.data().to_vec().into() };
            Ok((name.to_owned(), tensor))
        });
        tensors.collect::<Result<_, _>>().map(TensorMap)
    }

    /// The tensors in file order, which aligns each tensor to its element size.
    fn by_element_size(&self) -> Vec<(&str, &TensorBytes)> {
        let mut all: Vec<_> = self.iter().collect();
        all.sort_by_key(|(_, tensor)| std::cmp::Reverse(tensor.dtype.size()));
        all
    }
}

/// The content of a file, limited to the size of memory. If the header does not fit the file, only its first
/// bytes are returned, so that an endless file is not read.
fn content(path: &Path) -> std::io::Result<Vec<u8>> {
    let limit = memory::limit_in_bytes() as u64;
    if is_stream(path) {
        return read_input(path, limit);
    }
    let mut length = [0; 8];
    let file = open_regular(path)?;
    let size = file.metadata()?.len();
    let read = (&file).take(8).read(&mut length)?;
    if read == length.len() && u64::from_le_bytes(length) <= size.saturating_sub(8) {
        return read_bounded(path, limit);
    }
    Ok(length[..read].to_vec())
}

/// The header for tensors in this order. The crate's own would order the metadata by hash.
fn header(tensors: &[(&str, &TensorBytes)]) -> Result<Vec<u8>, TensorError> {
    let mut header = BTreeMap::from([("__metadata__", Entry::Metadata(BTreeMap::from(METADATA)))]);
    let mismatched = |tensor: &str, problem| TensorError::Mismatch { tensor: tensor.to_owned(), problem };
    let mut offset = 0;
    for (name, tensor) in tensors {
        let end = offset + tensor.bytes.len();
        let dtype = tensor.dtype.name();
        let described = Entry::Tensor { dtype, shape: &tensor.shape, data_offsets: [offset, end] };
        let taken = header.insert(name, described).map(|_| "this name is taken by the format".to_owned());
        if let Some(problem) = taken.or_else(|| tensor.problem()) {
            return Err(mismatched(name, problem));
        }
        offset = end;
    }
    let mut bytes =
        serde_json::to_vec(&header).map_err(|error| mismatched("__metadata__", error.to_string()))?;
    bytes.resize(bytes.len().next_multiple_of(8), b' ');
    Ok(bytes)
}

/// The content of a file of tensors, to be written.
pub(crate) struct AsFile<'a> {
    header: Vec<u8>,
    tensors: Vec<&'a TensorBytes>,
}

impl AsFile<'_> {
    /// Writes the content.
    pub(crate) fn write_to(&self, out: &mut dyn Write) -> std::io::Result<()> {
        out.write_all(&(self.header.len() as u64).to_le_bytes())?;
        out.write_all(&self.header)?;
        self.tensors.iter().try_for_each(|tensor| out.write_all(&tensor.bytes))
    }
}

impl FromIterator<(String, TensorBytes)> for TensorMap {
    fn from_iter<I: IntoIterator<Item = (String, TensorBytes)>>(tensors: I) -> TensorMap {
        TensorMap(tensors.into_iter().collect())
    }
}

impl IntoIterator for TensorMap {
    type Item = (String, TensorBytes);
    type IntoIter = std::collections::btree_map::IntoIter<String, TensorBytes>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn some() -> TensorMap {
        let mut tensors = TensorMap::default();
        tensors.insert_f32("weight", [2, 2], &[1.0, -0.0, f32::NAN, 1e-45]);
        tensors
            .insert("mask", TensorBytes { dtype: DType::Bool, shape: vec![3], bytes: vec![1, 0, 1].into() });
        tensors.insert("steps", TensorBytes { dtype: DType::U64, shape: vec![], bytes: vec![7; 8].into() });
        tensors.insert("none", TensorBytes { dtype: DType::F32, shape: vec![0, 5], bytes: vec![].into() });
        tensors
    }

    #[test]
    fn written_tensors_are_read_back_to_the_bit() {
        let dir = tempfile::tempdir().expect("a directory");
        for tensors in [some(), TensorMap::default()] {
            let (path, again) = (dir.path().join("a"), dir.path().join("b"));
            tensors.write(&path).expect("it is written");
            let read = TensorMap::read(&path).expect("it is read");
            assert_eq!(read, tensors);
            read.write(&again).expect("it is written again");
            assert_eq!(fs::read(path).expect("a"), fs::read(again).expect("b"), "the same bytes");
        }
    }

    #[test]
    fn the_file_says_whose_it_is_and_every_tensor_is_aligned() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a.safetensors");
        some().write(&path).expect("it is written");
        let bytes = fs::read(path).expect("it is there");
        let (header, metadata) = SafeTensors::read_metadata(&bytes).expect("it is whole");
        let said = metadata.metadata().clone().expect("it has metadata");
        assert_eq!((said["format"].as_str(), said["version"].as_str()), ("tenterhook", "1"));
        for (name, size) in [("steps", 8), ("weight", 4)] {
            let offset = metadata.info(name).expect(name).data_offsets.0;
            assert!((8 + header + offset).is_multiple_of(size), "{name}");
        }
    }

    #[test]
    fn a_file_that_is_larger_than_memory_is_refused_before_it_is_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("w.safetensors");
        let Some(memory) = memory::available_bytes() else { return };
        fs::File::create(&path).and_then(|file| file.set_len(memory + 1)).expect("it is sparse");
        let error = TensorMap::read(&path).expect_err("it is too large").to_string();
        assert!(error.contains("longer than the"), "{error}");
    }

    #[test]
    fn errors_name_the_file_and_the_tensor() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("w.safetensors");
        let error = TensorMap::read(&path).expect_err("it is missing").to_string();
        assert!(error.starts_with("cannot read") && error.contains("w.safetensors"), "{error}");
        some().write(&path).expect("it is written");
        let whole = fs::read(&path).expect("it is there");
        fs::write(&path, &whole[..whole.len() - 1]).expect("it is cut");
        let error = TensorMap::read(&path).expect_err("it is cut").to_string();
        assert!(error.contains("w.safetensors is not a whole safetensors file"), "{error}");
        let mut wrong = TensorMap::default();
        wrong.insert("w", TensorBytes { dtype: DType::F16, shape: vec![2], bytes: vec![0; 3].into() });
        let error = wrong.write(&path).expect_err("it does not fit").to_string();
        assert!(error.ends_with("w.safetensors: tensor `w`: F16[2] cannot have 3 bytes"), "{error}");
        let error = some().f32("weight", &[4]).expect_err("another shape").to_string();
        assert_eq!(error, "tensor `weight`: its shape is [2, 2], expected [4]");
        let error = some().f32("mask", &[3]).expect_err("another type").to_string();
        assert_eq!(error, "tensor `mask`: its numbers are Bool, not F32");
        let error = some().get("wait").expect_err("no such tensor").to_string();
        assert_eq!(error, "there is no tensor `wait`; there are: mask, none, steps, weight");
    }
}
