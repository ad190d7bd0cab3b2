//! `tenter checkpoints verify`: whether checkpoints are to the byte what was written.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};
use tenterhook::checkpoint::{CheckpointError, WEIGHTS, hook_problems, list, problems};

use super::super::runs::meant;
use super::super::{Done, print, print_data};
use super::is_checkpoint;
use crate::app::App;
use crate::arguments::Verify;
use crate::error::{CommandError, FAILED};
use crate::table::plain;

/// A checkpoint, with what is wrong with it.
struct Verified {
    path: PathBuf,
    problems: Vec<CheckpointError>,
}

pub(super) fn run(app: &App, arguments: &Verify) -> Done {
    let paths = meant_by(&arguments.found.dir, &arguments.path)?;
    let verified = paths.into_iter().map(|path| {
        let of_files = problems(&path);
        let problems = if of_files.is_empty() { hook_problems(&path, &app.registry) } else { of_files };
        Verified { path, problems }
    });
    let verified: Vec<_> = verified.collect();
    let whole = verified.iter().all(|one| one.problems.is_empty());
    if arguments.found.json {
        let all: Vec<_> = verified.iter().map(for_programs).collect();
        print_data(&format!("{:#}", json!({ "whole": whole, "checkpoints": all })));
    } else {
        verified.iter().for_each(for_people);
    }
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

/// The checkpoint that is meant, or all of a directory or a run.
fn meant_by(dir: &Path, what: &str) -> Result<Vec<PathBuf>, CommandError> {
    let path = Path::new(what);
    if is_checkpoint(path) {
        return Ok(vec![path.to_owned()]);
    }
    let is_run = path.join("run.json").is_file();
    let root = if path.is_dir() && !is_run {
        path.to_owned()
    } else {
        meant(dir, what)?.directory.join("checkpoints")
    };
    let listed = list(&root)?;
    let paths: Vec<_> = listed.into_iter().map(|listed| listed.path).collect();
    match paths.is_empty() {
        // It may have lost what tells a checkpoint; then it is one all the same.
        true if path.join(WEIGHTS).is_file() && !is_run => Ok(vec![path.to_owned()]),
        true => Err(CommandError::new(format_args!("there are no checkpoints in {}", root.display()))),
        false => Ok(paths),
    }
}

/// The file that a problem is about, and the problem.
fn parts(problem: &CheckpointError) -> (Option<String>, String) {
    match problem {
        CheckpointError::Damaged { file, problem } => {
            (file.file_name().map(|name| name.to_string_lossy().into_owned()), problem.clone())
        }
        other => (None, other.to_string()),
    }
}

fn for_people(Verified { path, problems }: &Verified) {
    let word = match problems[..] {
        [] => "whole",
        [CheckpointError::OtherFormat { .. }] => "of another format",
        [CheckpointError::Io { .. }, ..] => "unreadable",
        _ => "damaged",
    };
    print(&format!("{}: {word}", path.display()));
    for (file, problem) in problems.iter().map(parts) {
        let file = file.map(|file| format!("{}: ", plain(&file))).unwrap_or_default();
        print(&format!("  {file}{}", plain(&problem)));
    }
}

fn for_programs(Verified { path, problems }: &Verified) -> Value {
    let each = |(file, problem)| json!({ "file": file, "problem": problem });
    let all: Vec<_> = problems.iter().map(parts).map(each).collect();
    json!({ "path": path, "whole": problems.is_empty(), "problems": all })
}
