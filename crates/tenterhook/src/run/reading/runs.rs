//! The runs in a directory, and finding one by name.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::{ReadError, Run};
use crate::run::startup;

/// The most runs that an error lists.
const MAX_LISTED: usize = 6;

/// The shortest abbreviation of a run's name, in characters.
const MIN_LENGTH: usize = 8;

/// The runs below a directory.
#[derive(Debug)]
pub struct Runs {
    directory: PathBuf,
    list: Vec<Run>,
    damaged: Vec<(String, ReadError)>,
    /// Runs whose start was killed before `latest` was set to them.
    pending: Vec<String>,
}

impl Runs {
    /// Reads the runs in the subdirectories of this directory, and collects errors of damaged ones. Links such as
    /// `latest` and directories without a `run.json` are not runs.
    pub fn below(directory: impl Into<PathBuf>) -> Result<Runs, ReadError> {
        let directory = directory.into();
        let entries = fs::read_dir(&directory).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => ReadError::NoDirectory { path: directory.clone() },
            _ => ReadError::unreadable(&directory)(error),
        })?;
        let (mut runs, mut damaged, mut pending) = (Vec::new(), Vec::new(), Vec::new());
        for entry in entries {
            let entry = entry.map_err(ReadError::unreadable(&directory))?;
            let path = entry.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            pending.extend(startup::pending(&path));
            // A run that is being created has a hidden name.
            if name.starts_with('.') {
                continue;
            }
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => {}
                Ok(_) => continue,
                Err(error) => {
                    damaged.push((name, ReadError::unreadable(&path)(error)));
                    continue;
                }
            }
            match Run::read(&path) {
                Ok(run) => runs.push(run),
                // `NotFound`: the run was removed during the listing.
                Err(ReadError::NotARun { .. }) => {}
                Err(ReadError::Unreadable { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                Err(error) => damaged.push((name, error)),
            }
        }
        runs.sort_by(|a, b| (&a.record.created, &a.name).cmp(&(&b.record.created, &b.name)));
        damaged.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(Runs { directory, list: runs, damaged, pending })
    }

    /// Reads the run at a path, or the one that [`find`](Runs::find) finds in the directory.
    pub fn resolve(directory: &Path, wanted: &str) -> Result<Run, ReadError> {
        let path = Path::new(wanted);
        if path.join("run.json").is_file() || (wanted.contains('/') && path.exists()) {
            return Run::read(path);
        }
        Runs::below(directory)?.find(wanted).cloned()
    }

    /// The directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The runs, oldest first.
    #[must_use]
    pub fn list(&self) -> &[Run] {
        &self.list
    }

    /// The errors of damaged runs, sorted by name.
    pub fn damaged(&self) -> impl Iterator<Item = &ReadError> {
        self.damaged.iter().map(|(_, error)| error)
    }

    /// Finds a run by its id or the name of its directory, by the beginning or the end of one if only one run matches,
    /// by `latest`, or by `latest~2` for the second run before it.
    pub fn find(&self, wanted: &str) -> Result<&Run, ReadError> {
        if let Some(back) = steps_back(wanted) {
            return self.latest(wanted, back);
        }
        let exact = |run: &&Run| run.name == wanted || run.record.id == wanted;
        let mut fitting: Vec<_> = self.list.iter().filter(exact).collect();
        if fitting.is_empty() {
            fitting = self.fitting(wanted);
        }
        match fitting[..] {
            [run] if run.name == wanted || run.record.id == wanted => Ok(run),
            [] => Err(self.not_found(wanted)),
            // The user may mean a damaged run.
            [run] => match self.find_damaged(wanted) {
                Some((name, error)) if name == wanted => Err(error.clone()),
                Some((name, _)) => Err(ReadError::Ambiguous {
                    wanted: wanted.to_owned(),
                    candidates: format!("{}, {name} (damaged)", run.name),
                }),
                None => Ok(run),
            },
            _ => Err(ReadError::Ambiguous { wanted: wanted.to_owned(), candidates: listed(&fitting) }),
        }
    }

    /// The target of `latest` if `wanted` uses `latest` and the target is gone; then the newest run is used.
    #[must_use]
    pub fn lost_latest(directory: &Path, wanted: &str) -> Option<PathBuf> {
        steps_back(wanted)?;
        let to = directory.join(fs::read_link(directory.join("latest")).ok()?);
        (!to.exists()).then_some(to)
    }

    /// The shortest suffix of a run's name, of at least eight characters, that identifies the run. (Ids begin
    /// with the time, so their prefixes are alike.) A name that is not an id is not shortened.
    #[must_use]
    pub fn short<'a>(&self, run: &'a Run) -> &'a str {
        let name = run.name.as_str();
        if name != run.record.id || !name.is_ascii() {
            return name;
        }
        let ends = (MIN_LENGTH..name.len()).map(|length| &name[name.len() - length..]);
        let mut ends = ends.filter(|end| !end.starts_with('-'));
        ends.find(|end| self.find(end).is_ok_and(|found| found.name == name)).unwrap_or(name)
    }

    fn fitting(&self, part: &str) -> Vec<&Run> {
        self.list.iter().filter(|run| is_part(part, &run.name) || is_part(part, &run.record.id)).collect()
    }

    fn latest(&self, wanted: &str, back: usize) -> Result<&Run, ReadError> {
        let newest = self.linked()?.or_else(|| self.list.len().checked_sub(1));
        let position = newest.and_then(|newest| newest.checked_sub(back));
        position.and_then(|position| self.list.get(position)).ok_or_else(|| self.not_found(wanted))
    }

    /// The index of the run that `latest` leads to; `None` if the target is gone. An unreadable target is an error,
    /// so that no other run is used instead.
    fn linked(&self) -> Result<Option<usize>, ReadError> {
        let is_pending = |run: &Run| self.pending.contains(&run.name);
        if let Some(started) = self.list.iter().rposition(is_pending) {
            return Ok(Some(started));
        }
        let Ok(link) = fs::read_link(self.directory.join("latest")) else { return Ok(None) };
        let to = self.directory.join(&link);
        let name = link.file_name().unwrap_or_default().to_string_lossy();
        let position = self.list.iter().position(|run| run.name == name);
        if position.is_none() && to.exists() {
            Run::read(to)?;
        }
        Ok(position)
    }

    fn find_damaged(&self, wanted: &str) -> Option<&(String, ReadError)> {
        let exact = self.damaged.iter().find(|(name, _)| name == wanted);
        exact.or_else(|| self.damaged.iter().find(|(name, _)| is_part(wanted, name)))
    }

    fn not_found(&self, wanted: &str) -> ReadError {
        match self.find_damaged(wanted) {
            // The run exists, so its own error says more than "not found".
            Some((_, error)) => error.clone(),
            _ if is_name(wanted) && self.directory.join(wanted).is_dir() => {
                ReadError::NotARun { path: self.directory.join(wanted) }
            }
            _ if self.list.is_empty() => ReadError::NoRuns { path: self.directory.clone() },
            _ => {
                let all: Vec<_> = self.list.iter().collect();
                ReadError::Unknown { wanted: wanted.to_owned(), there_are: listed(&all) }
            }
        }
    }
}

/// Whether this is a single file name.
fn is_name(wanted: &str) -> bool {
    let mut parts = Path::new(wanted).components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None))
}

/// Whether a name begins or ends with `part`.
fn is_part(part: &str, name: &str) -> bool {
    !part.is_empty() && (name.starts_with(part) || name.ends_with(part))
}

/// The number of runs before the latest, for `latest` and `latest~N`.
fn steps_back(wanted: &str) -> Option<usize> {
    match wanted.strip_prefix("latest")? {
        "" => Some(0),
        rest => rest.strip_prefix('~')?.parse().ok(),
    }
}

fn listed(runs: &[&Run]) -> String {
    let newest_first = runs.iter().rev().take(MAX_LISTED);
    let mut names: Vec<_> = newest_first.map(|run| run.name.clone()).collect();
    if runs.len() > MAX_LISTED {
        names.push(format!("and {} more", runs.len() - MAX_LISTED));
    }
    names.join(", ")
}
