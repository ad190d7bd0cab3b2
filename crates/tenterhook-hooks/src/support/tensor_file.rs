//! Writes safetensors files. The same tensors give the same file, to the byte.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use half::{bf16, f16};
use serde::Serialize;
use tenterhook_core::{BoxError, DType};
use tenterhook_files::write_atomically;

/// The reserved name of the metadata.
pub(crate) const METADATA: &str = "__metadata__";

/// A tensor's type, shape and bytes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TensorBytes {
    dtype: DType,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl TensorBytes {
    /// Converts values to the tensor's type. Engines show values as 32-bit floats, which limits the precision.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // the values fit the type
    pub(crate) fn new(dtype: DType, shape: &[usize], values: &[f32]) -> TensorBytes {
        let values = values.iter().copied();
        let bytes: Vec<u8> = match dtype {
            DType::F64 => values.flat_map(|value| f64::from(value).to_le_bytes()).collect(),
            DType::F16 => values.flat_map(|value| f16::from_f32(value).to_le_bytes()).collect(),
            DType::BF16 => values.flat_map(|value| bf16::from_f32(value).to_le_bytes()).collect(),
            DType::I64 => values.flat_map(|value| (value as i64).to_le_bytes()).collect(),
            DType::I32 => values.flat_map(|value| (value as i32).to_le_bytes()).collect(),
            DType::I16 => values.flat_map(|value| (value as i16).to_le_bytes()).collect(),
            DType::I8 => values.flat_map(|value| (value as i8).to_le_bytes()).collect(),
            DType::U64 => values.flat_map(|value| (value as u64).to_le_bytes()).collect(),
            DType::U32 => values.flat_map(|value| (value as u32).to_le_bytes()).collect(),
            DType::U16 => values.flat_map(|value| (value as u16).to_le_bytes()).collect(),
            DType::U8 => values.map(|value| value as u8).collect(),
            DType::Bool => values.map(|value| u8::from(value != 0.0)).collect(),
            DType::F32 => values.flat_map(f32::to_le_bytes).collect(),
            // Types of later versions are written as 32-bit floats.
            _ => return TensorBytes::new(DType::F32, shape, &values.collect::<Vec<_>>()),
        };
        TensorBytes { dtype, shape: shape.to_vec(), bytes }
    }
}

/// An entry of the header.
#[derive(Serialize)]
#[serde(untagged)]
enum Entry<'a> {
    Metadata(BTreeMap<&'a str, &'a str>),
    Tensor { dtype: &'a str, shape: &'a [usize], data_offsets: [usize; 2] },
}

/// The content of a safetensors file, before it is written.
pub(crate) struct TensorFile {
    header: Vec<u8>,
    tensors: Vec<(String, TensorBytes)>,
}

impl TensorFile {
    /// A file with these tensors and metadata.
    pub(crate) fn new(
        metadata: &[(&str, String)],
        mut tensors: Vec<(String, TensorBytes)>,
    ) -> Result<TensorFile, BoxError> {
        // Largest types first, so that every tensor is aligned.
        tensors.sort_by_key(|(_, tensor)| std::cmp::Reverse(tensor.dtype.size()));
        let mut header = BTreeMap::new();
        let mut start = 0;
        for (name, TensorBytes { dtype, shape, bytes }) in &tensors {
            let data_offsets = [start, start + bytes.len()];
            let entry = Entry::Tensor { dtype: dtype.name(), shape, data_offsets };
            if header.insert(name.as_str(), entry).is_some() || name == METADATA {
                return Err(format!("a file cannot hold this tensor `{name}`: the name is taken").into());
            }
            start += bytes.len();
        }
        if !metadata.is_empty() {
            let metadata = metadata.iter().map(|(key, value)| (*key, value.as_str()));
            header.insert(METADATA, Entry::Metadata(metadata.collect()));
        }
        let mut header = serde_json::to_vec(&header)?;
        header.resize(header.len().next_multiple_of(8), b' ');
        Ok(TensorFile { header, tensors })
    }

    /// The size of the file in bytes.
    pub(crate) fn size(&self) -> u64 {
        let bytes = self.tensors.iter().map(|(_, tensor)| tensor.bytes.len());
        (8 + self.header.len() + bytes.sum::<usize>()) as u64
    }

    /// Writes the file atomically.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        write_atomically(path, |file| self.write_to(file))
    }

    fn write_to(&self, file: &mut dyn Write) -> io::Result<()> {
        file.write_all(&(self.header.len() as u64).to_le_bytes())?;
        file.write_all(&self.header)?;
        for (_, tensor) in &self.tensors {
            file.write_all(&tensor.bytes)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use safetensors::{Dtype, SafeTensors};

    use super::*;

    fn written(metadata: &[(&str, String)], tensors: Vec<(String, TensorBytes)>) -> Vec<u8> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.safetensors");
        let file = TensorFile::new(metadata, tensors).expect("it fits together");
        file.write(&path).expect("it is written");
        let bytes = fs::read(&path).expect("it is there");
        assert_eq!(bytes.len() as u64, file.size(), "as large as it said");
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 1, "nothing else is left");
        bytes
    }

    #[test]
    fn every_tensor_is_written_in_its_own_type_and_read_back() {
        let one = |dtype: &DType| (dtype.name().to_owned(), TensorBytes::new(*dtype, &[3], &[0.0, 1.0, 2.0]));
        let bytes = written(&[], DType::ALL.iter().map(one).collect());
        let file = SafeTensors::deserialize(&bytes).expect("it is whole");
        for dtype in DType::ALL {
            let (size, view) = (dtype.size(), file.tensor(dtype.name()).expect("it is there"));
            assert_eq!((view.dtype().to_string().as_str(), view.shape()), (dtype.name(), &[3][..]));
            let (zero, two) = (&view.data()[..size], &view.data()[2 * size..]);
            assert!(zero.iter().all(|byte| *byte == 0), "{dtype:?}");
            let expected: Vec<u8> = match view.dtype() {
                Dtype::F64 => 2f64.to_le_bytes().into(),
                Dtype::F32 => 2f32.to_le_bytes().into(),
                // Two is the first number of its exponent, so only that differs from zero.
                Dtype::F16 | Dtype::BF16 => vec![0, 0x40],
                Dtype::BOOL => vec![1],
                _ => 2u64.to_le_bytes()[..size].into(),
            };
            assert_eq!(two, expected, "{dtype:?}");
        }
    }

    #[test]
    fn the_metadata_is_read_back_and_the_same_tensors_give_the_same_bytes() {
        let metadata = ["step", "epoch", "batch", "phase", "loader"].map(|key| (key, key.to_uppercase()));
        let tensors = || vec![("a.b".to_owned(), TensorBytes::new(DType::F32, &[1, 2], &[1.0, -2.0]))];
        let bytes = written(&metadata, tensors());
        assert_eq!(bytes, written(&metadata, tensors()));
        let (_, header) = SafeTensors::read_metadata(&bytes).expect("it is whole");
        let said = header.metadata().clone().expect("it has metadata");
        assert_eq!((said.len(), said["phase"].as_str()), (5, "PHASE"));
    }

    #[test]
    fn a_duplicate_name_is_refused_and_a_failed_write_leaves_no_file() {
        let tensor = || TensorBytes::new(DType::F32, &[1], &[1.0]);
        for names in [vec!["x", "x"], vec![METADATA]] {
            let tensors = names.iter().map(|name| ((*name).to_owned(), tensor())).collect();
            let error = TensorFile::new(&[], tensors).err().expect("taken").to_string();
            assert!(error.contains(&format!("`{}`", names[0])), "{error}");
        }
        let directory = tempfile::tempdir().expect("a directory");
        let taken = directory.path().join("a.safetensors");
        fs::create_dir_all(taken.join("below")).expect("a directory of that name");
        let file = TensorFile::new(&[], vec![("x".to_owned(), tensor())]).expect("it fits together");
        file.write(&taken).expect_err("it cannot take the place of a directory");
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 1);
    }
}
