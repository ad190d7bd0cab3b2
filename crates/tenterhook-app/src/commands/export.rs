//! `tenter export`: weights as one file that Python reads.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use tenterhook::TensorMap;
use tenterhook::checkpoint::{OnUnreadable, WEIGHTS, newest_whole, verify, weights_to_evaluate};

use super::weights::Weights;
use super::{Done, print, print_data};
use crate::arguments::Export;
use crate::error::CommandError;
use crate::table::{bytes, counted};

pub(crate) fn run(arguments: &Export) -> Done {
    let from = source(arguments)?;
    let weights = if arguments.raw { in_training(&from) } else { evaluated(&from) }?;
    let file = match &arguments.output {
        Some(file) => file.clone(),
        None => usual_name(&from)?,
    };
    if file.exists() && !arguments.force {
        return Err(CommandError::new(format_args!("{} is there already", file.display()))
            .fix("name another file with -o, or add --force"));
    }
    weights.write(&file)?;
    let size = file.metadata().map_err(CommandError::cannot("read", &file))?.len();
    let parameters: u64 =
        weights.iter().map(|(_, tensor)| tensor.shape.iter().product::<usize>() as u64).sum();
    let kind = if arguments.raw { "in training" } else { "evaluated" };
    if arguments.found.json {
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
fn source(arguments: &Export) -> Result<PathBuf, CommandError> {
    let path = Weights::found(&arguments.path, &arguments.found.dir)?.path;
    if !arguments.raw || !path.join("run.json").is_file() {
        return Ok(path);
    }
    let checkpoints = path.join("checkpoints");
    let newest = newest_whole(&checkpoints, OnUnreadable::Stop)?;
    newest.path.ok_or_else(|| {
        let what = format!(
            "there is no whole checkpoint in {}, and what else the run left are the weights that were evaluated",
            checkpoints.display()
        );
        CommandError::new(what).fix("leave out --raw")
    })
}

fn evaluated(from: &Path) -> Result<TensorMap, CommandError> {
    let weights =
        if from.is_dir() { weights_to_evaluate(from) } else { TensorMap::read(from).map_err(Into::into) };
    weights.map_err(CommandError::new)
}

fn in_training(from: &Path) -> Result<TensorMap, CommandError> {
    if from.is_dir() {
        verify(from)?;
        return Ok(TensorMap::read(&from.join(WEIGHTS))?);
    }
    Ok(TensorMap::read(from)?)
}

/// A file in the working directory that is called as the run or the checkpoint is.
fn usual_name(from: &Path) -> Result<PathBuf, CommandError> {
    let real = from.canonicalize().map_err(CommandError::cannot("read", from))?;
    let name = if real.is_dir() { real.file_name() } else { real.file_stem() };
    let mut name = name.unwrap_or_default().to_owned();
    name.push(".safetensors");
    Ok(name.into())
}
