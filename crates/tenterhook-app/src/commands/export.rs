//! `tenter export`: weights as one file that Python reads.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use tenterhook::TensorMap;
use tenterhook::checkpoint::{OnUnreadable, WEIGHTS, newest_whole, verify, weights_to_evaluate};

use super::weights::Weights;
use super::{cannot, print, print_data};
use crate::arguments::Export;
use crate::table::{bytes, counted};

pub(crate) fn run(arguments: &Export) -> Result<ExitCode, String> {
    let from = source(arguments)?;
    let weights = if arguments.raw { in_training(&from) } else { evaluated(&from) }?;
    let file = match &arguments.output {
        Some(file) => file.clone(),
        None => usual_name(&from)?,
    };
    if file.exists() && !arguments.force {
        return Err(format!(
            "{} is there already; name another file with -o, or add --force",
            file.display()
        ));
    }
    weights.write(&file).map_err(|error| error.to_string())?;
    let size = file.metadata().map_err(cannot("read", &file))?.len();
    let parameters: u64 =
        weights.iter().map(|(_, tensor)| tensor.shape.iter().product::<usize>() as u64).sum();
    let kind = if arguments.raw { "in training" } else { "evaluated" };
    if arguments.json {
        let written = json!({
            "file": file, "from": from, "weights": kind, "tensors": weights.len(), "parameters": parameters,
            "bytes": size, "names": weights.names().collect::<Vec<_>>(),
        });
        print_data(&written.to_string());
        return Ok(ExitCode::SUCCESS);
    }
    let (tensors, parameters) = (counted(weights.len() as u64, "tensor"), counted(parameters, "parameter"));
    print(&format!("wrote {}: {tensors}, {parameters}, {}", file.display(), bytes(size)));
    print(&format!("the weights of {} as they were {kind}; in Python:", from.display()));
    print("  from safetensors.numpy import load_file");
    print(&format!("  weights = load_file({})", json!(file)));
    Ok(ExitCode::SUCCESS)
}

/// Where the weights are. In training are only those of checkpoints: what a run leaves at its end is what was
/// evaluated.
fn source(arguments: &Export) -> Result<PathBuf, String> {
    let path = Weights::found(&arguments.path, &arguments.dir)?.path;
    if !arguments.raw || !path.join("run.json").is_file() {
        return Ok(path);
    }
    let checkpoints = path.join("checkpoints");
    let newest = newest_whole(&checkpoints, OnUnreadable::Stop).map_err(|error| error.to_string())?;
    newest.path.ok_or_else(|| {
        format!(
            "there is no whole checkpoint in {}, and what else the run left are the weights that were evaluated; \
             leave out --raw",
            checkpoints.display()
        )
    })
}

fn evaluated(from: &Path) -> Result<TensorMap, String> {
    if from.is_dir() {
        return weights_to_evaluate(from).map_err(|error| error.to_string());
    }
    TensorMap::read(from).map_err(|error| error.to_string())
}

fn in_training(from: &Path) -> Result<TensorMap, String> {
    if from.is_dir() {
        verify(from).map_err(|error| error.to_string())?;
    }
    let file = if from.is_dir() { from.join(WEIGHTS) } else { from.to_owned() };
    TensorMap::read(&file).map_err(|error| error.to_string())
}

/// A file in the working directory that is called as the run or the checkpoint is.
fn usual_name(from: &Path) -> Result<PathBuf, String> {
    let real = from.canonicalize().map_err(cannot("read", from))?;
    let name = if real.is_dir() { real.file_name() } else { real.file_stem() };
    let mut name = name.unwrap_or_default().to_owned();
    name.push(".safetensors");
    Ok(name.into())
}
