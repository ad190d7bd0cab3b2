//! `tenter export`: writes weights to one safetensors file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use tenterhook::TensorMap;
use tenterhook::checkpoint::{OnUnreadable, WEIGHTS, newest_whole, verify, weights_to_evaluate};

use super::weights::Weights;
use super::{CommandResult, print_data, print_stdout};
use crate::arguments::Export;
use crate::error::CommandError;
use crate::format::{bytes, plural};

pub(crate) fn run(arguments: &Export) -> CommandResult {
    let from = source(arguments)?;
    let weights = if arguments.raw { trained_weights(&from) } else { evaluated_weights(&from) }?;
    let file = match &arguments.output {
        Some(file) => file.clone(),
        None => default_name(&from)?,
    };
    if file.exists() && !arguments.force {
        return Err(CommandError::new(format_args!("{} already exists", file.display()))
            .fix("choose another file with -o, or overwrite it with --force"));
    }
    weights.write(&file)?;
    let size = file.metadata().map_err(CommandError::cannot("read", &file))?.len();
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
    let (tensors, parameters) = (plural(weights.len() as u64, "tensor"), plural(parameters, "parameter"));
    print_stdout(&format!("wrote {}: {tensors}, {parameters}, {}", file.display(), bytes(size)));
    let what = if arguments.raw { "trained" } else { "evaluated" };
    print_stdout(&format!("the {what} weights of {}; in Python:", from.display()));
    print_stdout("  from safetensors.numpy import load_file");
    print_stdout(&format!("  weights = load_file({})", json!(file)));
    Ok(ExitCode::SUCCESS)
}

/// The path of the weights. The trained weights are in checkpoints only: a run's final weights are the
/// evaluated ones.
fn source(arguments: &Export) -> Result<PathBuf, CommandError> {
    let path = Weights::find(&arguments.path, &arguments.dir.path)?.path;
    if !arguments.raw || !path.join("run.json").is_file() {
        return Ok(path);
    }
    let checkpoints = path.join("checkpoints");
    let newest = newest_whole(&checkpoints, OnUnreadable::Stop)?;
    newest.path.ok_or_else(|| {
        let what = format!(
            "there is no whole checkpoint in {}, and the final weights of the run are the evaluated ones",
            checkpoints.display()
        );
        CommandError::new(what).fix("leave out --raw")
    })
}

fn evaluated_weights(from: &Path) -> Result<TensorMap, CommandError> {
    let weights =
        if from.is_dir() { weights_to_evaluate(from) } else { TensorMap::read(from).map_err(Into::into) };
    weights.map_err(CommandError::new)
}

fn trained_weights(from: &Path) -> Result<TensorMap, CommandError> {
    if from.is_dir() {
        verify(from)?;
        return Ok(TensorMap::read(&from.join(WEIGHTS))?);
    }
    Ok(TensorMap::read(from)?)
}

/// The name of the run or checkpoint, in the working directory.
fn default_name(from: &Path) -> Result<PathBuf, CommandError> {
    let real = from.canonicalize().map_err(CommandError::cannot("read", from))?;
    let name = if real.is_dir() { real.file_name() } else { real.file_stem() };
    let mut name = name.unwrap_or_default().to_owned();
    name.push(".safetensors");
    Ok(name.into())
}
