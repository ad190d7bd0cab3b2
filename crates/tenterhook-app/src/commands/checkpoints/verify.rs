//! `tenter checkpoints verify`: verifies the checksums of checkpoints.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};
use tenterhook::checkpoint::{CheckpointError, WEIGHTS, hook_problems, list, problems};

use super::super::runs::find_run;
use super::super::{CommandResult, print_data, print_stdout};
use super::is_checkpoint;
use crate::app::App;
use crate::arguments::Verify;
use crate::error::{CommandError, FAILED};
use crate::format::one_line;

/// A checkpoint with its problems.
struct Verified {
    path: PathBuf,
    problems: Vec<CheckpointError>,
}

pub(super) fn run(app: &App, arguments: &Verify) -> CommandResult {
    let paths = checkpoints_of(&arguments.dir.path, &arguments.path)?;
    let verified = paths.into_iter().map(|path| {
        let of_files = problems(&path);
        let problems = if of_files.is_empty() { hook_problems(&path, &app.registry) } else { of_files };
        Verified { path, problems }
    });
    let verified: Vec<_> = verified.collect();
    let whole = verified.iter().all(|one| one.problems.is_empty());
    if arguments.json {
        let all: Vec<_> = verified.iter().map(to_json).collect();
        print_data(&format!("{:#}", json!({ "whole": whole, "checkpoints": all })));
    } else {
        verified.iter().for_each(print_text);
    }
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

/// The checkpoint at a path, or all checkpoints of a directory or run.
fn checkpoints_of(dir: &Path, what: &str) -> Result<Vec<PathBuf>, CommandError> {
    let path = Path::new(what);
    if is_checkpoint(path) {
        return Ok(vec![path.to_owned()]);
    }
    let is_run = path.join("run.json").is_file();
    let root = if path.is_dir() && !is_run {
        path.to_owned()
    } else {
        find_run(dir, what)?.directory.join("checkpoints")
    };
    let listed = list(&root)?;
    let paths: Vec<_> = listed.into_iter().map(|listed| listed.path).collect();
    match paths.is_empty() {
        // A checkpoint without manifest and state: report it as damaged.
        true if path.join(WEIGHTS).is_file() && !is_run => Ok(vec![path.to_owned()]),
        true => Err(CommandError::new(format_args!("there are no checkpoints in {}", root.display()))),
        false => Ok(paths),
    }
}

/// The file of a problem, and the problem.
fn parts(problem: &CheckpointError) -> (Option<String>, String) {
    match problem {
        CheckpointError::Damaged { file, problem } => {
            (file.file_name().map(|name| name.to_string_lossy().into_owned()), problem.clone())
        }
        other => (None, other.to_string()),
    }
}

fn print_text(Verified { path, problems }: &Verified) {
    let word = match problems[..] {
        [] => "whole",
        [CheckpointError::OtherFormat { .. }] => "of another format",
        [CheckpointError::Io { .. }, ..] => "unreadable",
        _ => "damaged",
    };
    print_stdout(&format!("{}: {word}", path.display()));
    for (file, problem) in problems.iter().map(parts) {
        let file = file.map(|file| format!("{}: ", one_line(&file))).unwrap_or_default();
        print_stdout(&format!("  {file}{}", one_line(&problem)));
    }
}

fn to_json(Verified { path, problems }: &Verified) -> Value {
    let each = |(file, problem)| json!({ "file": file, "problem": problem });
    let all: Vec<_> = problems.iter().map(parts).map(each).collect();
    json!({ "path": path, "whole": problems.is_empty(), "problems": all })
}
