//! The dump after a finding: the batch, and a report with statistics.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tenterhook_core::{BoxError, RunInfo, Tensors};
use tenterhook_files::{SMALL_FILE, read_bounded, write_atomically};

use super::findings::{Described, Finding};
use crate::support::output_path;
use crate::support::tensor_file::{TensorBytes, TensorFile};

const BATCH: &str = "batch.safetensors";
const REPORT: &str = "report.json";
/// The prefix of a dump's name.
const STEP: &str = "step_";

/// The content of `report.json`. Non-finite numbers are `"nan"`, `"inf"` and `"-inf"`, which Python's `float` reads.
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
    /// A note for the reader.
    pub(super) note: &'static str,
    pub(super) batch_tensors: Vec<Described>,
    pub(super) parameters: &'a [Described],
    pub(super) gradients: &'a [Described],
    pub(super) activations: &'a [Described],
}

/// The directory for dumps: in the run directory, or beside the checkpoints.
pub(super) fn root(run: &RunInfo) -> io::Result<Option<PathBuf>> {
    run.file(Path::new("nan_guard")).map(|root| output_path::refuse_links(run, root)).transpose()
}

/// Writes a dump atomically and returns its directory.
pub(super) fn write(root: &Path, report: &Report<'_>, batch: &Tensors<'_>) -> Result<PathBuf, BoxError> {
    let place = free(root, report.step);
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    let unfinished = root.join(format!(".{name}.unfinished"));
    // A symbolic link of that name must not be followed.
    let _ = fs::remove_file(&unfinished);
    fs::create_dir_all(&unfinished)?;
    let tensors = batch.iter().map(|tensor| {
        let bytes = TensorBytes::new(tensor.dtype(), tensor.shape(), &tensor.to_vec());
        (tensor.name().to_owned(), bytes)
    });
    TensorFile::new(&[], tensors.collect())?.write(&unfinished.join(BATCH))?;
    write_atomically(&unfinished.join(REPORT), |file| Ok(serde_json::to_writer_pretty(file, report)?))?;
    fs::rename(&unfinished, &place)?;
    Ok(place)
}

/// Removes the dumps of this batch and later ones: a resumed run repeats them.
pub(super) fn remove_from(root: &Path, epoch: u64, batch: u64) -> io::Result<()> {
    let entries = match fs::read_dir(root) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?.collect::<io::Result<Vec<_>>>()?,
    };
    for entry in entries {
        let is_ours = entry.file_type()?.is_dir() && entry.file_name().to_string_lossy().starts_with(STEP);
        if !is_ours {
            continue;
        }
        let path = entry.path().join(REPORT);
        let report = match read_bounded(&path, SMALL_FILE) {
            // A killed run may leave an empty directory.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                remove_empty(&entry.path())?;
                continue;
            }
            report => report.map_err(|error| {
                io::Error::new(error.kind(), format!("cannot read {}: {error}", path.display()))
            })?,
        };
        let Ok(At { epoch: of_epoch, batch: of_batch }) = serde_json::from_slice(&report) else { continue };
        if (of_epoch, of_batch) >= (epoch, batch) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Removes the files of a dump, and its directory unless it contains others. The report is removed last: without it, the
/// dump would not be recognised after a kill.
fn remove(dump: &Path) -> io::Result<()> {
    match fs::remove_file(dump.join(BATCH)) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => fs::remove_file(dump.join(REPORT))?,
    }
    remove_empty(dump)
}

fn remove_empty(directory: &Path) -> io::Result<()> {
    match fs::remove_dir(directory) {
        Err(error) if error.kind() != ErrorKind::DirectoryNotEmpty => Err(error),
        _ => Ok(()),
    }
}

/// The batch of a report.
#[derive(Deserialize)]
struct At {
    epoch: u64,
    batch: u64,
}

/// A free directory for a step's dump: a step whose update was skipped is repeated under the same number.
fn free(root: &Path, step: u64) -> PathBuf {
    let first = root.join(format!("{STEP}{step}"));
    let again = (1_u64..).map(|version| root.join(format!("{STEP}{step}-v{version}")));
    std::iter::once(first.clone()).chain(again).find(|place| !place.exists()).unwrap_or(first)
}

/// Python code that loads a dump.
pub(super) fn python(place: &Path) -> String {
    // A JSON string is a Python string, too.
    let quoted = |file: &str| serde_json::Value::from(place.join(file).to_string_lossy()).to_string();
    format!(
        "import safetensors.numpy; batch = safetensors.numpy.load_file({})\n\
         import json; report = json.load(open({}))",
        quoted(BATCH),
        quoted(REPORT)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_files_of_a_dump_are_removed() {
        let root = tempfile::tempdir().expect("a directory");
        let at = |name: &str| root.path().join(name);
        for name in ["step_1", "step_2", "step_3", "step_4"] {
            fs::create_dir(at(name)).expect("it is made");
        }
        for (name, batch) in [("step_1", 1), ("step_2", 2), ("step_3", 3)] {
            fs::write(at(name).join(REPORT), format!("{{\"epoch\":0,\"batch\":{batch}}}"))
                .expect("it is written");
            fs::write(at(name).join(BATCH), "").expect("it is written");
        }
        fs::create_dir(at("step_3").join("notes")).expect("it is made");
        fs::write(at("step_3").join("notes/mine.txt"), "mine").expect("it is written");
        remove_from(root.path(), 0, 2).expect("they are removed");
        assert!(at("step_1").join(REPORT).is_file(), "it is of an earlier batch");
        assert!(!at("step_2").exists());
        assert!(!at("step_3").join(REPORT).exists() && at("step_3").join("notes/mine.txt").is_file());
        assert!(!at("step_4").exists(), "a kill left its empty directory");
    }
}
