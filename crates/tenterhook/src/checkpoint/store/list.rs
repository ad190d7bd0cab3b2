//! Which checkpoints there are, and the newest that training can go on from.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::glance::{Glance, glance};
use super::open::{Unreadable, open};
use super::{DEPTH, looks_like_one};

/// The name of the link to the newest that a run can be resumed from.
pub(crate) const LATEST: &str = "latest";
/// The name of the link to the last save of a checkpoint hook with `save_last`.
pub(crate) const LAST: &str = "last";
/// What the names of those begin with that were written on a signal.
pub(crate) const EMERGENCY: &str = "emergency-";

/// A checkpoint, whole or not.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// Its name: the path from the directory that was listed.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// What it says of itself; nothing where that cannot be read.
    pub about: Option<About>,
    /// How much room it takes, in bytes.
    pub bytes: u64,
    /// Whether it was written because the run was interrupted.
    pub emergency: bool,
    /// The links that lead to it, by name.
    pub links: Vec<String>,
    /// Whether it can be used.
    pub condition: Condition,
}

/// What a checkpoint says of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct About {
    /// Which save of its run it is; the newest has the largest. Format 1 did not count: 0.
    pub number: u64,
    /// The optimizer steps completed.
    pub step: u64,
    /// The epoch, from 0.
    pub epoch: u64,
    /// Whether it holds weights alone, with nothing to go on from.
    pub weights_only: bool,
    /// The metrics as they were, by name.
    pub metrics: BTreeMap<String, f64>,
}

/// Whether a checkpoint can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Every byte is what was written.
    Whole,
    /// Some byte is not; this is why.
    Damaged(String),
    /// It cannot be read; this is why.
    Unreadable(String),
    /// A newer program wrote it; this is what to say.
    OtherFormat(String),
}

impl Condition {
    fn of(problem: &Unreadable) -> Condition {
        match problem {
            Unreadable::OtherFormat { .. } => Condition::OtherFormat(problem.to_string()),
            Unreadable::Io { .. } => Condition::Unreadable(problem.to_string()),
            _ => Condition::Damaged(problem.to_string()),
        }
    }
}

/// What to do about checkpoints that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnUnreadable {
    /// Fail: the checkpoint may be the newest one, and readable again later.
    #[default]
    Stop,
    /// Use the newest one that can be read.
    Skip,
}

/// The newest checkpoint that training can resume from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Newest {
    /// Where it is, if there is any.
    pub path: Option<PathBuf>,
    /// Newer ones that cannot be used, and why.
    pub skipped: Vec<(PathBuf, String)>,
    /// Those of them that cannot be read, and the links to them.
    pub unreadable: Vec<PathBuf>,
}

/// The checkpoints in a directory, the newest first. Each is read whole to see whether it is.
pub fn list(root: &Path) -> Result<Vec<Listed>, Unreadable> {
    let mut all: Vec<_> = found(root)?.into_iter().filter_map(|found| listed(root, found)).collect();
    all.sort_by_key(|listed| {
        let age = listed.about.as_ref().map(|about| (about.number, about.step));
        (Reverse(age), listed.name.clone())
    });
    Ok(all)
}

fn listed(root: &Path, found: Found) -> Option<Listed> {
    let Glance { about, problem } = found.glance();
    // All files are checked in order, so that the first problem is named.
    let problem = if found.unreadable.is_some() { problem } else { open(&found.path).err() };
    // It was there a moment ago.
    if matches!(problem, Some(Unreadable::Missing { .. })) {
        return None;
    }
    let files = fs::read_dir(&found.path).into_iter().flatten().flatten();
    let bytes = files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum();
    let name = found.path.strip_prefix(root).unwrap_or(&found.path).display().to_string();
    let file_name = found.path.file_name().unwrap_or_default().to_string_lossy();
    Some(Listed {
        name,
        about,
        bytes,
        emergency: file_name.starts_with(EMERGENCY),
        links: found.links.into_iter().collect(),
        condition: problem.as_ref().map_or(Condition::Whole, Condition::of),
        path: found.path,
    })
}

/// The newest checkpoint in a directory that training can resume from. Damaged ones that would be newer are named;
/// those that hold weights alone are not.
///
/// # Errors
/// Where the directory cannot be read, where a checkpoint cannot be read that may be newer, unless it is skipped, and
/// where none is left after skipping.
pub fn newest_whole(root: &Path, on_unreadable: OnUnreadable) -> Result<Newest, Unreadable> {
    let mut candidates: Vec<(Glance, Found)> = found(root)?
        .into_iter()
        .map(|found| (found.glance(), found))
        .filter(|(glance, _)| !glance.about.as_ref().is_some_and(|about| about.weights_only))
        .collect();
    candidates.sort_by_key(|(glance, found)| {
        // The age of one with a problem is not known.
        let damaged = glance.problem.is_some();
        let age = glance.about.as_ref().map(|about| (about.number, about.step));
        let latest = found.links.contains(LATEST);
        let number = age.map(|(number, _)| number);
        (Reverse(damaged), Reverse(number), Reverse(latest), Reverse(age), found.path.clone())
    });
    let (mut newest, mut first) = (Newest::default(), None);
    for (glance, found) in candidates {
        let problem = glance.problem.or_else(|| open(&found.path).err());
        match problem {
            None => {
                newest.path = Some(found.path);
                break;
            }
            Some(Unreadable::Missing { .. }) => {}
            Some(problem @ Unreadable::Io { .. }) if on_unreadable == OnUnreadable::Stop => {
                return Err(problem);
            }
            Some(problem) => {
                newest.skipped.push((found.path.clone(), problem.to_string()));
                if matches!(problem, Unreadable::Io { .. }) {
                    newest.unreadable.extend(found.links.iter().map(|link| root.join(link)));
                    newest.unreadable.push(found.path);
                    first = first.or(Some(problem));
                }
            }
        }
    }
    // That there is none is known only if all could be read.
    match (&newest.path, first) {
        (None, Some(problem)) => Err(problem),
        _ => Ok(newest),
    }
}

/// Where the checkpoints are in a directory, whole or not; links to them are not named.
pub(crate) fn paths(root: &Path) -> Result<Vec<PathBuf>, Unreadable> {
    Ok(found(root)?.into_iter().map(|found| found.path).filter(|path| !path.is_symlink()).collect())
}

/// The largest number of a checkpoint in a directory; the next save there has a larger one.
pub(crate) fn largest_number(root: &Path) -> Result<u64, Unreadable> {
    let numbers = found(root)?.into_iter().filter_map(|found| found.glance().about);
    Ok(numbers.map(|about| about.number).max().unwrap_or(0))
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

    fn glance(&self) -> Glance {
        let Some(error) = &self.unreadable else { return glance(&self.path) };
        let source = io::Error::new(error.kind(), error.to_string());
        Glance { about: None, problem: Some(Unreadable::Io { file: self.path.clone(), source }) }
    }
}

/// What an entry of a directory is.
enum Kind {
    Nothing,
    Directory,
    Checkpoint,
    Link(PathBuf),
}

/// The checkpoints in a directory and in those below it that are none themselves, and where links lead to. An error is
/// one of `root` itself.
fn found(root: &Path) -> Result<Vec<Found>, Unreadable> {
    let mut found: BTreeMap<PathBuf, Found> = BTreeMap::new();
    let mut links = Vec::new();
    let mut open = vec![(root.to_owned(), 0)];
    while let Some((directory, depth)) = open.pop() {
        let entries = match entries(&directory) {
            Ok(entries) => entries,
            Err(source) if depth == 0 => return Err(Unreadable::Io { file: directory, source }),
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
        // A checkpoint may lie elsewhere, with only a link to it here.
        let target = found.entry(real.clone()).or_insert_with(|| Found::at(real));
        target.links.insert(name);
    }
    Ok(found.into_values().collect())
}

/// What is in a directory, except hidden names; nothing where there is no such directory.
fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?.collect::<io::Result<Vec<_>>>()?,
    };
    let visible = entries.iter().filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
    Ok(visible.map(fs::DirEntry::path).collect())
}

fn kind(root: &Path, path: &Path) -> io::Result<Kind> {
    // A run may point the link elsewhere and remove its old target between the two lookups of the first call.
    let there = match path.metadata().or_else(|_| path.metadata()) {
        Err(error) if error.kind() == ErrorKind::NotFound => return dangling(root, path),
        there => there?,
    };
    if !there.is_dir() {
        return Ok(Kind::Nothing);
    }
    Ok(match (looks_like_one(path)?, path.is_symlink()) {
        (true, true) => Kind::Link(path.canonicalize()?),
        (true, false) => Kind::Checkpoint,
        (false, true) => Kind::Nothing,
        (false, false) => Kind::Directory,
    })
}

/// A link of ours that leads nowhere stands for a checkpoint that cannot be read if it leads out of `root`: its disk may
/// not be mounted. Below `root`, which can be read, the checkpoint was removed.
fn dangling(root: &Path, path: &Path) -> io::Result<Kind> {
    let is_ours = [LATEST, LAST].iter().any(|name| path.file_name().is_some_and(|found| found == *name));
    match fs::read_link(path) {
        Ok(target) if is_ours && target.is_absolute() && !target.starts_with(root.canonicalize()?) => {
            let text = format!("it leads to {}, which is not there (is its disk mounted?)", target.display());
            Err(io::Error::new(ErrorKind::NotFound, text))
        }
        _ => Ok(Kind::Nothing),
    }
}
