//! Which checkpoints there are, and the newest that training can go on from.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::glance::{Glance, glance};
use super::open::{Unreadable, open};
use super::{DEPTH, looks_like_one};

/// The name of the link to the newest that a run can be resumed from.
pub(crate) const LATEST: &str = "latest";
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
    /// It is to the byte what was written.
    Whole,
    /// It is not; this is why.
    Damaged(String),
    /// A newer program wrote it; this is what to say.
    Newer(String),
}

/// The newest checkpoint that training can go on from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Newest {
    /// Where it is, if there is any.
    pub path: Option<PathBuf>,
    /// Newer ones that cannot be used, and why.
    pub skipped: Vec<(PathBuf, String)>,
}

/// The checkpoints in a directory, the newest first. Each is read whole to see whether it is.
#[must_use]
pub fn list(root: &Path) -> Vec<Listed> {
    let mut all: Vec<_> = found(root).into_iter().filter_map(|found| listed(root, found)).collect();
    all.sort_by_key(|listed| {
        let age = listed.about.as_ref().map(|about| (about.number, about.step));
        (Reverse(age), listed.name.clone())
    });
    all
}

fn listed(root: &Path, found: Found) -> Option<Listed> {
    let condition = match open(&found.path) {
        Ok(_) => Condition::Whole,
        // It was there a moment ago.
        Err(Unreadable::Missing { .. }) => return None,
        Err(error @ Unreadable::Newer { .. }) => Condition::Newer(error.to_string()),
        Err(error) => Condition::Damaged(error.to_string()),
    };
    let files = fs::read_dir(&found.path).into_iter().flatten().flatten();
    let bytes = files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum();
    let name = found.path.strip_prefix(root).unwrap_or(&found.path).display().to_string();
    let file_name = found.path.file_name().unwrap_or_default().to_string_lossy();
    Some(Listed {
        name,
        about: glance(&found.path).about,
        bytes,
        emergency: file_name.starts_with(EMERGENCY),
        links: found.links.into_iter().collect(),
        condition,
        path: found.path,
    })
}

/// The newest checkpoint in a directory that training can go on from. Those that would be newer and cannot be used
/// are named; those that hold weights alone are not.
#[must_use]
pub fn newest_whole(root: &Path) -> Newest {
    let mut candidates: Vec<(Glance, Found)> = found(root)
        .into_iter()
        .map(|found| (glance(&found.path), found))
        .filter(|(glance, _)| !glance.about.as_ref().is_some_and(|about| about.weights_only))
        .collect();
    candidates.sort_by_key(|(glance, found)| {
        // How old a damaged one is, nobody knows.
        let damaged = glance.problem.is_some();
        let age = glance.about.as_ref().map(|about| (about.number, about.step));
        let latest = found.links.contains(LATEST);
        let number = age.map(|(number, _)| number);
        (Reverse(damaged), Reverse(number), Reverse(latest), Reverse(age), found.path.clone())
    });
    let mut newest = Newest::default();
    for (glance, found) in candidates {
        let problem = match glance.problem {
            None => open(&found.path).err(),
            Some(problem) => Some(problem),
        };
        match problem {
            None => {
                newest.path = Some(found.path);
                break;
            }
            Some(Unreadable::Missing { .. }) => {}
            Some(problem) => newest.skipped.push((found.path, problem.to_string())),
        }
    }
    newest
}

/// Where the checkpoints are in a directory, whole or not; links to them are not named.
pub(crate) fn paths(root: &Path) -> Vec<PathBuf> {
    found(root).into_iter().map(|found| found.path).collect()
}

/// The largest number of a checkpoint in a directory; whoever saves there next counts on from it.
pub(crate) fn largest_number(root: &Path) -> u64 {
    let numbers = found(root).into_iter().filter_map(|found| glance(&found.path).about);
    numbers.map(|about| about.number).max().unwrap_or(0)
}

/// A directory that looks like a checkpoint.
struct Found {
    path: PathBuf,
    links: BTreeSet<String>,
}

/// The checkpoints in a directory and in those below it that are none themselves, and where links lead to.
fn found(root: &Path) -> Vec<Found> {
    let mut found: BTreeMap<PathBuf, Found> = BTreeMap::new();
    let mut links = Vec::new();
    let mut open = vec![(root.to_owned(), 0)];
    while let Some((directory, depth)) = open.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_name().as_encoded_bytes().starts_with(b".") || !path.is_dir() {
                continue;
            }
            if !looks_like_one(&path) {
                if depth < DEPTH && !path.is_symlink() {
                    open.push((path, depth + 1));
                }
            } else if path.is_symlink() {
                links.push(path);
            } else if let Ok(real) = path.canonicalize() {
                found.insert(real, Found { path, links: BTreeSet::new() });
            }
        }
    }
    for link in links {
        if let Ok(real) = link.canonicalize() {
            let name = link.strip_prefix(root).unwrap_or(&link).display().to_string();
            // A checkpoint may lie elsewhere, with only a link to it here.
            let target = found.entry(real.clone()).or_insert(Found { path: real, links: BTreeSet::new() });
            target.links.insert(name);
        }
    }
    found.into_values().collect()
}
