//! The runs below one directory, and how one is named.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{ReadError, Run};

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
        let (mut runs, mut damaged) = (Vec::new(), Vec::new());
        for entry in entries {
            let path = entry.map_err(ReadError::unreadable(&directory))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // A run that is being made has a name with a dot, and is renamed once it is whole.
            if path.is_symlink() || !path.is_dir() || name.starts_with('.') {
                continue;
            }
            match Run::read(&path) {
                Ok(run) => runs.push(run),
                Err(ReadError::NotARun { .. }) => {}
                Err(error) => damaged.push((name, error)),
            }
        }
        runs.sort_by(|a, b| (&a.record.created, &a.name).cmp(&(&b.record.created, &b.name)));
        damaged.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(Runs { directory, list: runs, damaged })
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
            [run] => Ok(run),
            [] => Err(self.not_found(wanted)),
            _ => Err(ReadError::Ambiguous { wanted: wanted.to_owned(), candidates: listed(&fitting) }),
        }
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
        let fits = |name: &str| !part.is_empty() && (name.starts_with(part) || name.ends_with(part));
        self.list.iter().filter(|run| fits(&run.name) || fits(&run.record.id)).collect()
    }

    fn latest(&self, wanted: &str, back: usize) -> Result<&Run, ReadError> {
        // The link knows best, unless what it points at is gone.
        let link = fs::read_link(self.directory.join("latest")).ok();
        let linked = link.and_then(|to| {
            self.list.iter().position(|run| to.file_name().is_some_and(|name| *name == *run.name))
        });
        let newest = linked.or_else(|| self.list.len().checked_sub(1));
        let position = newest.and_then(|newest| newest.checked_sub(back));
        position.and_then(|position| self.list.get(position)).ok_or_else(|| self.not_found(wanted))
    }

    fn not_found(&self, wanted: &str) -> ReadError {
        let damaged = self.damaged.iter().find(|(name, _)| !wanted.is_empty() && name.ends_with(wanted));
        match damaged {
            // It is there, which is more than that it is not found.
            Some((_, ReadError::Newer { path, format })) => {
                ReadError::Newer { path: path.clone(), format: *format }
            }
            Some((_, ReadError::Damaged { path, why })) => ReadError::damaged(path, why),
            _ if self.list.is_empty() => ReadError::NoRuns { path: self.directory.clone() },
            _ => {
                let all: Vec<_> = self.list.iter().collect();
                ReadError::Unknown { wanted: wanted.to_owned(), there_are: listed(&all) }
            }
        }
    }
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
