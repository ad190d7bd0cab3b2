//! `tenter checkpoints`: lists checkpoints with their metrics and integrity.

mod verify;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Map, Value, json};
use tenterhook::checkpoint::{CheckpointSummary, Integrity, ListedCheckpoint, list};

use super::runs::find_run;
use super::{CommandResult, print_data, print_stdout};
use crate::app::App;
use crate::arguments::{Checkpoints, CheckpointsCommand};
use crate::error::CommandError;
use crate::format::{Side, bytes, in_summaries, json_number, metric, one_line, table};

/// Maximum number of metric columns.
const MAX_METRICS: usize = 4;

pub(crate) fn run(app: &App, arguments: &Checkpoints) -> CommandResult {
    if let Some(CheckpointsCommand::Verify(verify)) = &arguments.command {
        return verify::run(app, verify);
    }
    let root = root(&arguments.dir.path, &arguments.run)?;
    let listed = list(&root)?;
    if arguments.json {
        let all: Vec<_> = listed.iter().map(to_json).collect();
        print_data(&format!("{:#}", json!({ "directory": root, "checkpoints": all })));
    } else if listed.is_empty() {
        print_stdout(&format!("there are no checkpoints in {}", root.display()));
    } else {
        print_stdout(&to_text(&listed));
    }
    Ok(ExitCode::SUCCESS)
}

/// The directory of checkpoints: of a run, or at a path.
fn root(dir: &Path, what: &str) -> Result<PathBuf, CommandError> {
    let path = Path::new(what);
    if path.join("run.json").is_file() || !path.is_dir() || !what.contains('/') {
        return Ok(find_run(dir, what)?.directory.join("checkpoints"));
    }
    if is_checkpoint(path) {
        return Err(CommandError::new(format_args!("{what} is a single checkpoint"))
            .fix(format_args!("name its directory, or verify it with `checkpoints verify {what}`")));
    }
    Ok(path.to_owned())
}

/// Whether a path is the directory of a checkpoint.
pub(super) fn is_checkpoint(path: &Path) -> bool {
    ["manifest.json", "state.json"].iter().any(|file| path.join(file).is_file())
}

fn to_text(listed: &[ListedCheckpoint]) -> String {
    let columns = columns(listed);
    let mut head: Vec<_> = ["checkpoint", "step", "epoch"].map(str::to_owned).into();
    head.extend(columns.iter().map(|name| (*name).to_owned()));
    head.extend(["size", "state", "remarks"].map(str::to_owned));
    let mut sides = vec![Side::Right; head.len()];
    sides[0] = Side::Left;
    let end = head.len() - 2;
    sides[end..].fill(Side::Left);
    let line = |listed: &ListedCheckpoint| {
        let summary = listed.summary.as_ref();
        let cell = |text: &dyn Fn(&CheckpointSummary) -> Option<String>| {
            summary.and_then(text).unwrap_or_else(|| "-".into())
        };
        let mut cells = vec![
            one_line(&listed.name),
            cell(&|summary| Some(summary.step.to_string())),
            // Text counts epochs from 1, JSON from 0.
            cell(&|summary| Some((summary.epoch + 1).to_string())),
        ];
        cells.extend(
            columns.iter().map(|name| cell(&|summary| Some(metric(name, *summary.metrics.get(*name)?)))),
        );
        cells.extend([bytes(listed.bytes), word(&listed.integrity).to_owned(), remarks(listed)]);
        cells
    };
    let mut lines = table(&[vec![head], listed.iter().map(line).collect()].concat(), &sides);
    for (listed, problem) in listed.iter().filter_map(|listed| Some((listed, problem(&listed.integrity)?))) {
        lines.push(format!("\n{}: {}", one_line(&listed.name), one_line(problem)));
    }
    lines.join("\n")
}

fn word(integrity: &Integrity) -> &'static str {
    match integrity {
        Integrity::Whole => "whole",
        Integrity::Damaged(_) => "damaged",
        Integrity::Unreadable(_) => "unreadable",
        Integrity::OtherFormat(_) => "other format",
    }
}

fn problem(integrity: &Integrity) -> Option<&str> {
    match integrity {
        Integrity::Whole => None,
        Integrity::Damaged(why) | Integrity::Unreadable(why) | Integrity::OtherFormat(why) => Some(why),
    }
}

fn remarks(listed: &ListedCheckpoint) -> String {
    let weights_only = listed.summary.as_ref().is_some_and(|summary| summary.weights_only);
    let kinds = [(weights_only, "weights only"), (listed.emergency, "emergency")];
    let kinds = kinds.into_iter().filter(|(is_so, _)| *is_so).map(|(_, kind)| kind.to_owned());
    let links = listed.links.iter().map(|link| format!("<- {}", one_line(link)));
    kinds.chain(links).collect::<Vec<_>>().join(", ")
}

/// The metrics of validation, or of training if there are none.
fn columns(listed: &[ListedCheckpoint]) -> Vec<&str> {
    let abouts = listed.iter().filter_map(|listed| listed.summary.as_ref());
    let names: BTreeSet<_> = abouts.flat_map(|summary| summary.metrics.keys()).map(String::as_str).collect();
    let of = |prefix: &str| -> Vec<&str> {
        let mut names: Vec<_> =
            names.iter().copied().filter(|name| name.starts_with(prefix) && in_summaries(name)).collect();
        // If there are too many, those of single loaders are left out first.
        names.sort_by_key(|name| (name.matches('/').count(), *name));
        names.truncate(MAX_METRICS);
        names
    };
    let validated = of("val/");
    if validated.is_empty() { of("train/") } else { validated }
}

fn to_json(listed: &ListedCheckpoint) -> Value {
    let ListedCheckpoint { name, path, summary, bytes, emergency, links, integrity } = listed;
    let metrics = |summary: &CheckpointSummary| -> Map<String, Value> {
        summary.metrics.iter().map(|(name, value)| (name.clone(), json_number(*value))).collect()
    };
    json!({
        "name": name,
        "path": path,
        "number": summary.as_ref().map(|summary| summary.number),
        "step": summary.as_ref().map(|summary| summary.step),
        "epoch": summary.as_ref().map(|summary| summary.epoch),
        "weights_only": summary.as_ref().map(|summary| summary.weights_only),
        "metrics": summary.as_ref().map(metrics),
        "bytes": bytes,
        "emergency": emergency,
        "links": links,
        "state": word(integrity),
        "problem": problem(integrity),
    })
}
