//! What a hit leaves behind to be looked into: the batch, and a report with the statistics of everything.

use std::fs;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde::Serialize;
use tenterhook_core::{BoxError, DType, RunInfo, Tensor, Tensors};

use super::seen::{Described, Finding};

const BATCH: &str = "batch.safetensors";
const REPORT: &str = "report.json";

/// What was found where. Numbers that JSON cannot hold are `"nan"`, `"inf"` and `"-inf"`, which Python's
/// `float` reads.
#[derive(Serialize)]
pub(super) struct Report<'a> {
    pub(super) step: u64,
    pub(super) epoch: u64,
    pub(super) batch: u64,
    pub(super) batch_size: usize,
    pub(super) loader: &'a str,
    pub(super) loader_index: usize,
    pub(super) action: &'static str,
    pub(super) in_a_row: u64,
    pub(super) last_good_step: Option<u64>,
    #[serde(with = "tenterhook_core::number::option")]
    pub(super) loss: Option<f64>,
    pub(super) found: &'a [Finding],
    /// What is to be known to read the rest.
    pub(super) note: &'static str,
    pub(super) batch_tensors: Vec<Described>,
    pub(super) parameters: &'a [Described],
    pub(super) gradients: &'a [Described],
    pub(super) activations: &'a [Described],
}

/// Where dumps of a run go: into its directory, or beside its checkpoints.
pub(super) fn root(run: &RunInfo) -> Option<PathBuf> {
    run.files().map(|files| files.join("nan_guard"))
}

/// Writes a dump whole or not at all, and says where.
pub(super) fn write(root: &Path, report: &Report<'_>, batch: &Tensors<'_>) -> Result<PathBuf, BoxError> {
    let place = free(root, report.step);
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    let unfinished = root.join(format!(".{name}.unfinished"));
    fs::create_dir_all(&unfinished)?;
    let tensors: Vec<_> = batch.iter().map(|tensor| (tensor.name(), OwnBytes::of(&tensor))).collect();
    let mut views = Vec::new();
    for (name, OwnBytes { dtype, shape, bytes }) in &tensors {
        views.push((*name, TensorView::new(*dtype, shape.clone(), bytes)?));
    }
    safetensors::serialize_to_file(views, None, &unfinished.join(BATCH))?;
    fs::write(unfinished.join(REPORT), serde_json::to_vec_pretty(report)?)?;
    fs::rename(&unfinished, &place)?;
    Ok(place)
}

/// The place of a step's dump. A skipped step is tried again under the same number.
fn free(root: &Path, step: u64) -> PathBuf {
    let first = root.join(format!("step_{step}"));
    let again = (1_u64..).map(|version| root.join(format!("step_{step}-v{version}")));
    std::iter::once(first.clone()).chain(again).find(|place| !place.exists()).unwrap_or(first)
}

/// The lines that load a dump in Python.
pub(super) fn python(place: &Path) -> String {
    // A text of JSON is a text of Python, too.
    let quoted = |file: &str| serde_json::Value::from(place.join(file).to_string_lossy()).to_string();
    format!(
        "import safetensors.numpy; batch = safetensors.numpy.load_file({})\n\
         import json; report = json.load(open({}))",
        quoted(BATCH),
        quoted(REPORT)
    )
}

/// A tensor as a file holds it.
struct OwnBytes {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl OwnBytes {
    /// In its own type. Engines show their values as 32-bit floats, so larger ones are as exact as those.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // back to what they were
    fn of(tensor: &Tensor<'_>) -> OwnBytes {
        let values = tensor.to_vec();
        let values = values.iter().copied();
        let (dtype, bytes): (Dtype, Vec<u8>) = match tensor.dtype() {
            DType::F64 => (Dtype::F64, values.flat_map(|value| f64::from(value).to_le_bytes()).collect()),
            DType::F16 => (Dtype::F16, values.flat_map(|value| f16::from_f32(value).to_le_bytes()).collect()),
            DType::BF16 => {
                (Dtype::BF16, values.flat_map(|value| bf16::from_f32(value).to_le_bytes()).collect())
            }
            DType::I64 => (Dtype::I64, values.flat_map(|value| (value as i64).to_le_bytes()).collect()),
            DType::I32 => (Dtype::I32, values.flat_map(|value| (value as i32).to_le_bytes()).collect()),
            DType::I16 => (Dtype::I16, values.flat_map(|value| (value as i16).to_le_bytes()).collect()),
            DType::I8 => (Dtype::I8, values.flat_map(|value| (value as i8).to_le_bytes()).collect()),
            DType::U64 => (Dtype::U64, values.flat_map(|value| (value as u64).to_le_bytes()).collect()),
            DType::U32 => (Dtype::U32, values.flat_map(|value| (value as u32).to_le_bytes()).collect()),
            DType::U16 => (Dtype::U16, values.flat_map(|value| (value as u16).to_le_bytes()).collect()),
            DType::U8 => (Dtype::U8, values.map(|value| value as u8).collect()),
            DType::Bool => (Dtype::BOOL, values.map(|value| u8::from(value != 0.0)).collect()),
            // What a later version may add is still readable.
            _ => (Dtype::F32, values.flat_map(f32::to_le_bytes).collect()),
        };
        OwnBytes { dtype, shape: tensor.shape().to_vec(), bytes }
    }
}

#[cfg(test)]
mod tests {
    use tenterhook_core::TensorSource;

    use super::*;

    /// The numbers 0, 1 and 2 in every type.
    struct EveryType;

    impl TensorSource for EveryType {
        fn count(&self) -> usize {
            DType::ALL.len()
        }
        fn name(&self, index: usize) -> &str {
            DType::ALL[index].name()
        }
        fn shape(&self, _: usize) -> &[usize] {
            &[3]
        }
        fn dtype(&self, index: usize) -> DType {
            DType::ALL[index]
        }
        fn read(&self, _: usize) -> Vec<f32> {
            vec![0.0, 1.0, 2.0]
        }
    }

    #[test]
    fn every_tensor_is_written_in_its_own_type() {
        for tensor in Tensors::new(&EveryType).iter() {
            let OwnBytes { dtype, shape, bytes } = OwnBytes::of(&tensor);
            assert_eq!((dtype.to_string().as_str(), shape), (tensor.name(), vec![3]));
            assert_eq!(bytes.len(), 3 * tensor.dtype().size(), "{dtype}");
            let size = tensor.dtype().size();
            let (zero, two) = (&bytes[..size], &bytes[2 * size..]);
            assert!(zero.iter().all(|byte| *byte == 0), "{dtype}");
            let expected: Vec<u8> = match dtype {
                Dtype::F64 => 2f64.to_le_bytes().into(),
                Dtype::F32 => 2f32.to_le_bytes().into(),
                // Two is the first number of its exponent, so only that differs from zero.
                Dtype::F16 | Dtype::BF16 => vec![0, 0x40],
                Dtype::BOOL => vec![1],
                _ => 2u64.to_le_bytes()[..size].into(),
            };
            assert_eq!(two, expected, "{dtype}");
        }
    }
}
