//! The runs below one directory, and how one is named.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::{ReadError, Run};
use crate::run::starting;

/// So many runs are listed in an error.
const LISTED: usize = 6;

/// The shortest name of a run that is shown, in characters.
const SHORTEST: usize = 8;

/// The runs below a directory.
#[derive(Debug)]
pub struct Runs {
    directory: PathBuf,
    list: Vec<Run>,
    damaged: Vec<(String, ReadError)>,
    /// Runs whose start was killed before `latest` pointed at them.
    pending: Vec<String>,
}

impl Runs {
    /// The runs in subdirectories of this one. Links, such as `latest`, are not runs; neither are directories
    /// without a `run.json`. What is damaged is kept apart.
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
            pending.extend(starting::pending(&path));
            // A run that is being made has a name with a dot, and is renamed once it is whole.
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
                // The second: it was removed meanwhile.
                Err(ReadError::NotARun { .. }) => {}
                Err(ReadError::Unreadable { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                Err(error) => damaged.push((name, error)),
            }
        }
        runs.sort_by(|a, b| (&a.record.created, &a.name).cmp(&(&b.record.created, &b.name)));
        damaged.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(Runs { directory, list: runs, damaged, pending })
    }

    /// The run that is meant: a path to a run, or what [`find`](Runs::find) finds below the directory.
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

    /// What looks like a run and cannot be read, in order of name.
    pub fn damaged(&self) -> impl Iterator<Item = &ReadError> {
        self.damaged.iter().map(|(_, error)| error)
    }

    /// A run by its id or the name of its directory, by the beginning or the end of one if only one run fits,
    /// by `latest`, or by `latest~2` for the second before it.
    pub fn find(&self, wanted: &str) -> Result<&Run, ReadError> {
        if let Some(back) = back(wanted) {
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
            // What is damaged may be what is meant.
            [run] => match self.damaged_called(wanted) {
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

    /// What `latest` points at, if a run is named by its age and that is gone: the newest run is taken then.
    #[must_use]
    pub fn lost_latest(directory: &Path, wanted: &str) -> Option<PathBuf> {
        back(wanted)?;
        let to = directory.join(fs::read_link(directory.join("latest")).ok()?);
        (!to.exists()).then_some(to)
    }

    /// The shortest end of a run's name, of eight characters or more, that finds it. Ids begin alike, as they
    /// begin with the time; a name that somebody gave is shown whole.
    #[must_use]
    pub fn short<'a>(&self, run: &'a Run) -> &'a str {
        let name = run.name.as_str();
        if name != run.record.id || !name.is_ascii() {
            return name;
        }
        let ends = (SHORTEST..name.len()).map(|length| &name[name.len() - length..]);
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

    /// Where the run stands that `latest` points at. The link knows best, unless what it points at is gone;
    /// what is there and cannot be read is not passed over for another run.
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

    fn damaged_called(&self, wanted: &str) -> Option<&(String, ReadError)> {
        let exact = self.damaged.iter().find(|(name, _)| name == wanted);
        exact.or_else(|| self.damaged.iter().find(|(name, _)| is_part(wanted, name)))
    }

    fn not_found(&self, wanted: &str) -> ReadError {
        match self.damaged_called(wanted) {
            // It is there, which is more than that it is not found.
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

/// Whether this can be the name of a directory of runs' own.
fn is_name(wanted: &str) -> bool {
    let mut parts = Path::new(wanted).components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None))
}

/// Whether a name begins or ends with this.
fn is_part(part: &str, name: &str) -> bool {
    !part.is_empty() && (name.starts_with(part) || name.ends_with(part))
}

/// How far before the latest, if it is named by that.
fn back(wanted: &str) -> Option<usize> {
    match wanted.strip_prefix("latest")? {
        "" => Some(0),
        rest => rest.strip_prefix('~')?.parse().ok(),
    }
}

fn listed(runs: &[&Run]) -> String {
    let newest_first = runs.iter().rev().take(LISTED);
    let mut names: Vec<_> = newest_first.map(|run| run.name.clone()).collect();
    if runs.len() > LISTED {
        names.push(format!("and {} more", runs.len() - LISTED));
    }
    names.join(", ")
}
