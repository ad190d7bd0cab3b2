//! Listing checkpoints, and finding the newest one that training can resume from.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::open::{CheckpointError, open};
use super::summary::{Inspection, inspect};
use super::{DEPTH, looks_like_checkpoint};

/// The link to the newest checkpoint that a run can be resumed from.
pub(crate) const LATEST: &str = "latest";
/// The last save of a checkpoint hook with `save_last`.
pub(crate) const LAST: &str = "last";
/// The prefix of checkpoints that were taken on a signal.
pub(crate) const EMERGENCY: &str = "emergency-";

/// A checkpoint in a list, whole or not.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedCheckpoint {
    /// Its path relative to the listed directory.
    pub name: String,
    /// Its path.
    pub path: PathBuf,
    /// Its summary, if that can be read.
    pub summary: Option<CheckpointSummary>,
    /// Its size in bytes.
    pub bytes: u64,
    /// Whether it was taken on a signal.
    pub emergency: bool,
    /// The names of the links to it.
    pub links: Vec<String>,
    /// Whether it is whole.
    pub integrity: Integrity,
}

/// The summary of a checkpoint: progress and metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckpointSummary {
    /// The number of the save in its run; the newest has the largest. 0 in format 1.
    pub number: u64,
    /// Completed optimizer steps.
    pub step: u64,
    /// The epoch, from 0.
    pub epoch: u64,
    /// Whether it holds only weights, so that no run can resume from it.
    pub weights_only: bool,
    /// The latest value of each metric.
    pub metrics: BTreeMap<String, f64>,
}

/// Whether a checkpoint is whole, and the problem if it is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Integrity {
    /// Every byte is as it was written.
    Whole,
    /// A file is missing or differs.
    Damaged(String),
    /// The system cannot read it.
    Unreadable(String),
    /// Another version of this program wrote it.
    OtherFormat(String),
}

impl Integrity {
    fn of(problem: &CheckpointError) -> Integrity {
        match problem {
            CheckpointError::OtherFormat { .. } => Integrity::OtherFormat(problem.to_string()),
            CheckpointError::Io { .. } => Integrity::Unreadable(problem.to_string()),
            _ => Integrity::Damaged(problem.to_string()),
        }
    }
}

/// How to handle checkpoints that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnUnreadable {
    /// Fail, as the checkpoint may be the newest one and readable later.
    #[default]
    Stop,
    /// Use the newest checkpoint that can be read.
    Skip,
}

/// The newest checkpoint that training can resume from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewestCheckpoint {
    /// Its path, if there is one.
    pub path: Option<PathBuf>,
    /// Newer checkpoints that cannot be used, and why.
    pub skipped: Vec<(PathBuf, String)>,
    /// The skipped ones that cannot be read, and the links to them.
    pub unreadable: Vec<PathBuf>,
}

/// Lists the checkpoints in a directory, newest first. All their files are verified.
pub fn list(root: &Path) -> Result<Vec<ListedCheckpoint>, CheckpointError> {
    let mut all: Vec<_> = search(root)?.into_iter().filter_map(|found| listed(root, found)).collect();
    all.sort_by_key(|listed| {
        let age = listed.summary.as_ref().map(|summary| (summary.number, summary.step));
        (Reverse(age), listed.name.clone())
    });
    Ok(all)
}

fn listed(root: &Path, found: Found) -> Option<ListedCheckpoint> {
    let Inspection { summary, problem } = found.inspect();
    // `open` verifies all files in order, so the first problem is reported.
    let problem = if found.unreadable.is_some() { problem } else { open(&found.path).err() };
    // It was removed during the listing.
    if matches!(problem, Some(CheckpointError::Missing { .. })) {
        return None;
    }
    let files = fs::read_dir(&found.path).into_iter().flatten().flatten();
    let bytes = files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum();
    let name = found.path.strip_prefix(root).unwrap_or(&found.path).display().to_string();
    let file_name = found.path.file_name().unwrap_or_default().to_string_lossy();
    Some(ListedCheckpoint {
        name,
        summary,
        bytes,
        emergency: file_name.starts_with(EMERGENCY),
        links: found.links.into_iter().collect(),
        integrity: problem.as_ref().map_or(Integrity::Whole, Integrity::of),
        path: found.path,
    })
}

/// Finds the newest checkpoint in a directory that training can resume from, and the newer ones that are damaged.
/// Checkpoints of weights alone are ignored.
///
/// # Errors
/// The directory or a checkpoint that may be newer cannot be read. With [`OnUnreadable::Skip`], only if no checkpoint
/// is left.
pub fn newest_whole(root: &Path, on_unreadable: OnUnreadable) -> Result<NewestCheckpoint, CheckpointError> {
    let mut candidates: Vec<(Inspection, Found)> = search(root)?
        .into_iter()
        .map(|found| (found.inspect(), found))
        .filter(|(inspection, _)| !inspection.summary.as_ref().is_some_and(|summary| summary.weights_only))
        .collect();
    candidates.sort_by_key(|(inspection, found)| {
        // The age of a damaged checkpoint is unknown, so it is tried first.
        let damaged = inspection.problem.is_some();
        let age = inspection.summary.as_ref().map(|summary| (summary.number, summary.step));
        let latest = found.links.contains(LATEST);
        let number = age.map(|(number, _)| number);
        (Reverse(damaged), Reverse(number), Reverse(latest), Reverse(age), found.path.clone())
    });
    let (mut newest, mut first) = (NewestCheckpoint::default(), None);
    for (inspection, found) in candidates {
        let problem = inspection.problem.or_else(|| open(&found.path).err());
        match problem {
            None => {
                newest.path = Some(found.path);
                break;
            }
            Some(CheckpointError::Missing { .. }) => {}
            Some(problem @ CheckpointError::Io { .. }) if on_unreadable == OnUnreadable::Stop => {
                return Err(problem);
            }
            Some(problem) => {
                newest.skipped.push((found.path.clone(), problem.to_string()));
                if matches!(problem, CheckpointError::Io { .. }) {
                    newest.unreadable.extend(found.links.iter().map(|link| root.join(link)));
                    newest.unreadable.push(found.path);
                    first = first.or(Some(problem));
                }
            }
        }
    }
    // An unreadable checkpoint may be whole.
    match (&newest.path, first) {
        (None, Some(problem)) => Err(problem),
        _ => Ok(newest),
    }
}

/// The paths of the checkpoints in a directory, whole or not, without links to them.
pub(crate) fn paths(root: &Path) -> Result<Vec<PathBuf>, CheckpointError> {
    Ok(search(root)?.into_iter().map(|found| found.path).filter(|path| !path.is_symlink()).collect())
}

/// The largest number of a checkpoint in a directory.
pub(crate) fn largest_number(root: &Path) -> Result<u64, CheckpointError> {
    let numbers = search(root)?.into_iter().filter_map(|found| found.inspect().summary);
    Ok(numbers.map(|summary| summary.number).max().unwrap_or(0))
}

/// A directory that looks like a checkpoint, or that cannot be read.
struct Found {
    path: PathBuf,
    links: BTreeSet<String>,
    unreadable: Option<io::Error>,
}

impl Found {
    fn at(path: PathBuf) -> Found {
        Found { path, links: BTreeSet::new(), unreadable: None }
    }

    fn inspect(&self) -> Inspection {
        let Some(error) = &self.unreadable else { return inspect(&self.path) };
        let source = io::Error::new(error.kind(), error.to_string());
        Inspection { summary: None, problem: Some(CheckpointError::Io { file: self.path.clone(), source }) }
    }
}

/// The kind of a directory entry.
enum Kind {
    Nothing,
    Directory,
    Checkpoint,
    Link(PathBuf),
}

/// Searches a directory for checkpoints and links to them, except inside of checkpoints. Fails only if `root` itself
/// cannot be read.
fn search(root: &Path) -> Result<Vec<Found>, CheckpointError> {
    let mut found: BTreeMap<PathBuf, Found> = BTreeMap::new();
    let mut links = Vec::new();
    let mut open = vec![(root.to_owned(), 0)];
    while let Some((directory, depth)) = open.pop() {
        let entries = match entries(&directory) {
            Ok(entries) => entries,
            Err(source) if depth == 0 => return Err(CheckpointError::Io { file: directory, source }),
            Err(error) => {
                let unreadable = Found { unreadable: Some(error), ..Found::at(directory.clone()) };
                found.insert(directory, unreadable);
                continue;
            }
        };
        for path in entries {
            match kind(root, &path) {
                Ok(Kind::Directory) if depth < DEPTH => open.push((path, depth + 1)),
                Ok(Kind::Nothing | Kind::Directory) => {}
                Ok(Kind::Checkpoint) => {
                    let real = path.canonicalize().unwrap_or_else(|_| path.clone());
                    found.insert(real, Found::at(path));
                }
                Ok(Kind::Link(real)) => links.push((path, real)),
                Err(error) => {
                    found.insert(path.clone(), Found { unreadable: Some(error), ..Found::at(path) });
                }
            }
        }
    }
    for (link, real) in links {
        let name = link.strip_prefix(root).unwrap_or(&link).display().to_string();
        // The link may lead to a checkpoint in another directory.
        let target = found.entry(real.clone()).or_insert_with(|| Found::at(real));
        target.links.insert(name);
    }
    Ok(found.into_values().collect())
}

/// The entries of a directory without hidden names; empty if the directory does not exist.
fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?.collect::<io::Result<Vec<_>>>()?,
    };
    let visible = entries.iter().filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
    Ok(visible.map(fs::DirEntry::path).collect())
}

fn kind(root: &Path, path: &Path) -> io::Result<Kind> {
    // `metadata` looks up the link and then its target. A run may move the link and remove the target in between.
    let found = match path.metadata().or_else(|_| path.metadata()) {
        Err(error) if error.kind() == ErrorKind::NotFound => return dangling(root, path),
        found => found?,
    };
    if !found.is_dir() {
        return Ok(Kind::Nothing);
    }
    Ok(match (looks_like_checkpoint(path)?, path.is_symlink()) {
        (true, true) => Kind::Link(path.canonicalize()?),
        (true, false) => Kind::Checkpoint,
        (false, true) => Kind::Nothing,
        (false, false) => Kind::Directory,
    })
}

/// A dangling checkpoint link to a path outside of `root` counts as an unreadable checkpoint, because its
/// disk may not be mounted. Below `root`, the checkpoint was removed.
fn dangling(root: &Path, path: &Path) -> io::Result<Kind> {
    let is_ours = [LATEST, LAST].iter().any(|name| path.file_name().is_some_and(|found| found == *name));
    match fs::read_link(path) {
        Ok(target) if is_ours && target.is_absolute() && !target.starts_with(root.canonicalize()?) => {
            let text = format!("its target {} does not exist (is the disk mounted?)", target.display());
            Err(io::Error::new(ErrorKind::NotFound, text))
        }
        _ => Ok(Kind::Nothing),
    }
}
