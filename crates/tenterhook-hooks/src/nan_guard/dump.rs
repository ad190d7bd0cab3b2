//! What a hit leaves behind to be looked into: the batch, and a report with the statistics of everything.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tenterhook_core::{BoxError, RunInfo, Tensors};
use tenterhook_files::{SMALL_FILE, read_bounded};

use super::seen::{Described, Finding};
use crate::tensor_file::{OwnBytes, TensorFile};

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
    run.file(Path::new("nan_guard"))
}

/// Writes a dump whole or not at all, and says where.
pub(super) fn write(root: &Path, report: &Report<'_>, batch: &Tensors<'_>) -> Result<PathBuf, BoxError> {
    let place = free(root, report.step);
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    let unfinished = root.join(format!(".{name}.unfinished"));
    fs::create_dir_all(&unfinished)?;
    let tensors = batch.iter().map(|tensor| {
        let bytes = OwnBytes::new(tensor.dtype(), tensor.shape(), &tensor.to_vec());
        (tensor.name().to_owned(), bytes)
    });
    TensorFile::new(&[], tensors.collect())?.write(&unfinished.join(BATCH))?;
    fs::write(unfinished.join(REPORT), serde_json::to_vec_pretty(report)?)?;
    fs::rename(&unfinished, &place)?;
    Ok(place)
}

/// Removes what was dumped from this batch on: a resumed run comes to it again.
pub(super) fn remove_from(root: &Path, epoch: u64, batch: u64) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let report = read_bounded(&entry.path().join(REPORT), SMALL_FILE).unwrap_or_default();
        let Ok(At { epoch: of_epoch, batch: of_batch }) = serde_json::from_slice(&report) else { continue };
        if (of_epoch, of_batch) >= (epoch, batch) {
            // What cannot be removed stays, and the new one gets another name.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Where a report is of.
#[derive(Deserialize)]
struct At {
    epoch: u64,
    batch: u64,
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
