//! One process per run directory: a file that is locked as long as somebody writes to the directory.
//!
//! The system releases the lock when its holder ends, however that happens, so a file that is left behind by a
//! process that was killed is in nobody's way.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenterhook_files::{open_own, open_regular};

use super::command_line;
use super::machine::Machine;
use super::reading::{ReadError, read_record};
use super::record::now;

/// The name of the file, within the run directory.
pub(super) const LOCK: &str = "lock";

/// So often a lock is asked for: somebody who only looks whether there is one holds it for an instant.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// Who writes to a run directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Holder {
    /// The process.
    pub pid: u32,
    /// The machine it runs on.
    pub host: String,
    /// Since when.
    pub since: String,
    /// Its command line.
    pub command: Vec<String>,
}

impl Holder {
    /// This process, from now on.
    fn this(command: &[String]) -> Holder {
        Holder {
            pid: std::process::id(),
            host: Machine::this().hostname,
            since: now(),
            command: command.to_vec(),
        }
    }

    /// That a run is not free, and what to do about it.
    #[must_use]
    pub fn refusal(&self, run: &str) -> String {
        let is_this = self.pid == std::process::id() && self.host == Machine::this().hostname;
        if is_this {
            return format!(
                "run {run} is in use by another trainer of this process since {}; drop that one first",
                self.since
            );
        }
        format!("run {run} is in use by {self}; wait for it, or end it")
    }
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Holder { pid, host, since, command } = self;
        if *pid == 0 {
            return write!(f, "another process");
        }
        write!(f, "process {pid} on host `{host}` since {since}")?;
        if command.is_empty() { Ok(()) } else { write!(f, " ({})", command_line(command)) }
    }
}

/// Who writes to this run directory at this moment; nobody does to one whose process has ended or was killed.
#[must_use]
pub fn holder(run_dir: &Path) -> Option<Holder> {
    // A lock file that cannot be read may be held.
    read_holder(run_dir).unwrap_or_else(|_| Some(Holder::default()))
}

/// [`holder`], with an error if the lock file cannot be read.
pub(super) fn read_holder(run_dir: &Path) -> io::Result<Option<Holder>> {
    let mut file = match open_regular(&run_dir.join(LOCK)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    // Where it cannot be known, what the file says is the best there is.
    Ok(file.try_lock_shared().is_err().then(|| read(&mut file)))
}

/// Refuses a run directory that somebody writes to. The lock file of a killed process is removed: a run that was killed
/// when all else was done is not resumed, so no later start removes it.
pub(super) fn free(run_dir: &Path) -> Result<(), Holder> {
    if let Some(holder) = holder(run_dir) {
        return Err(holder);
    }
    // Where it cannot be removed, it does no harm.
    if let Ok(file) = open_own(&run_dir.join(LOCK), OpenOptions::new().write(true))
        && file.try_lock().is_ok()
    {
        drop(RunLock { directory: run_dir.to_owned(), file: Some(file), unlocked: None, unreadable: None });
    }
    Ok(())
}

/// The most that is read of a lock file, in bytes.
const LONGEST: u64 = 1 << 20;

fn read(file: &mut File) -> Holder {
    let mut text = String::new();
    // Somebody holds it, whatever can be read about it.
    let _ = file.rewind().and_then(|()| file.take(LONGEST).read_to_string(&mut text));
    serde_json::from_str(&text).unwrap_or_default()
}

/// The lock of a run directory: no other process writes there as long as this exists.
///
/// Whatever opens, cuts or replaces a file of a run takes the lock or a reference to it, so nothing of a run is touched
/// before its lock is held. [`RunDirectoryPlan::resume`](super::RunDirectoryPlan::resume) takes it, and
/// [`resume::find`](super::resume::find) returns it.
#[derive(Debug)]
pub struct RunLock {
    directory: PathBuf,
    /// `None` where the file system has no locks.
    file: Option<File>,
    /// Why there is no lock, until it has been told.
    unlocked: Option<String>,
    /// Checkpoints that cannot be read, if the resume skips those.
    unreadable: Option<Vec<PathBuf>>,
}

/// Why a run directory cannot be locked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another process, or another trainer of this one, writes to it.
    #[error("{}", holder.refusal(run))]
    Held {
        /// The name of the run.
        run: String,
        /// Who writes to it.
        holder: Box<Holder>,
    },
    /// There is no run of ours in the directory.
    #[error(transparent)]
    NotARun(#[from] ReadError),
    /// The lock file cannot be written.
    #[error("cannot lock {}: {source}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl RunLock {
    /// Locks the directory of a run that exists, to resume it.
    pub fn take(directory: impl Into<PathBuf>) -> Result<RunLock, LockError> {
        let mut directory = directory.into();
        if directory.file_name().is_none() {
            directory = directory.canonicalize().map_err(ReadError::unreadable(&directory))?;
        }
        match read_record(&directory.join("run.json")) {
            // A run goes on without it: the record is written anew.
            Ok(_) | Err(ReadError::Damaged { .. }) => RunLock::of(directory),
            Err(error) => Err(error.into()),
        }
    }

    /// Locks a directory, or says who holds it.
    pub(super) fn of(directory: PathBuf) -> Result<RunLock, LockError> {
        let path = directory.join(LOCK);
        let unwritable = |source| LockError::Unwritable { path: path.clone(), source };
        let mut tries = 0;
        loop {
            let mut options = OpenOptions::new();
            let options = options.read(true).write(true).create(true).truncate(false);
            let mut file = open_own(&path, options).map_err(unwritable)?;
            match file.try_lock() {
                // Whoever held it may have removed the file since it was opened; then it locks nothing.
                Ok(()) if !is_at(&file, &path) => {}
                Ok(()) => {
                    let mut lock = RunLock { directory, file: Some(file), unlocked: None, unreadable: None };
                    lock.write_holder(&[]).map_err(unwritable)?;
                    return Ok(lock);
                }
                Err(TryLockError::WouldBlock) if tries < TRIES => {
                    tries += 1;
                    std::thread::sleep(PAUSE);
                }
                Err(TryLockError::WouldBlock) => {
                    let run = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
                    return Err(LockError::Held { run, holder: Box::new(read(&mut file)) });
                }
                Err(TryLockError::Error(error)) => {
                    let why = format!("{}; let no other process use this run", unwritable(error));
                    return Ok(RunLock { directory, file: None, unlocked: Some(why), unreadable: None });
                }
            }
        }
    }

    /// The directory that is locked.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Why there is no lock, where the file system has none. Told once.
    pub(super) fn take_unlocked(&mut self) -> Option<String> {
        self.unlocked.take()
    }

    /// Has the resume skip checkpoints that cannot be read: these, and those that the run has saved elsewhere.
    pub(super) fn skip_unreadable(&mut self, found: Vec<PathBuf>) {
        self.unreadable = Some(found);
    }

    /// The checkpoints to skip, if the resume does; once.
    pub(super) fn take_unreadable(&mut self) -> Option<Vec<PathBuf>> {
        self.unreadable.take()
    }

    /// Writes down who holds it, with this command line.
    pub(super) fn write_holder(&mut self, command: &[String]) -> std::io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut text = serde_json::to_vec(&Holder::this(command))?;
        text.push(b'\n');
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(&text)
    }

    /// The directory has another name now.
    pub(super) fn moved_to(&mut self, directory: PathBuf) {
        self.directory = directory;
    }
}

/// Whether this is the file that stands there.
fn is_at(file: &File, path: &Path) -> bool {
    let same = || -> std::io::Result<bool> {
        let (open, there) = (file.metadata()?, fs::metadata(path)?);
        Ok((open.dev(), open.ino()) == (there.dev(), there.ino()))
    };
    same().unwrap_or(false)
}

impl Drop for RunLock {
    fn drop(&mut self) {
        let path = self.directory.join(LOCK);
        // Removed while it is locked, so it is this one; a file that stays does no harm.
        if self.file.as_ref().is_some_and(|file| is_at(file, &path)) {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(directory: &Path) -> RunLock {
        let mut lock = RunLock::of(directory.to_owned()).expect("it is free");
        lock.write_holder(&["tenter", "train", "my run.toml"].map(str::to_owned)).expect("it is written");
        lock
    }

    #[test]
    fn a_directory_is_held_once_until_its_holder_goes() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(holder(dir.path()), None);
        let lock = taken(dir.path());
        let who = holder(dir.path()).expect("it is held");
        assert_eq!((who.pid, who.command[2].as_str()), (std::process::id(), "my run.toml"));
        let second = RunLock::of(dir.path().to_owned()).expect_err("it is refused").to_string();
        assert!(second.contains(" is in use by another trainer of this process since 20"), "{second}");
        drop(lock);
        assert_eq!(holder(dir.path()), None);
        assert!(!dir.path().join(LOCK).exists());
        drop(taken(dir.path()));
    }

    #[test]
    fn a_file_of_a_dead_process_is_taken_over() {
        let dir = tempfile::tempdir().expect("a directory");
        let dead = r#"{"pid":4194304,"host":"h","since":"2026-01-01T00:00:00.000Z","command":["a much longer command"]}"#;
        fs::write(dir.path().join(LOCK), dead.repeat(3)).expect("it is written");
        assert_eq!(holder(dir.path()), None);
        let _lock = taken(dir.path());
        assert_eq!(holder(dir.path()).map(|holder| holder.pid), Some(std::process::id()));
    }

    #[test]
    fn a_file_of_a_dead_process_goes_and_that_of_a_living_one_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join(LOCK);
        assert_eq!(free(dir.path()), Ok(()), "there is none");
        fs::write(&path, "{}").expect("it is written");
        assert_eq!((free(dir.path()), path.exists()), (Ok(()), false));
        let _lock = taken(dir.path());
        let holder = free(dir.path()).expect_err("it is held");
        assert_eq!((holder.pid, path.exists()), (std::process::id(), true));
    }

    #[test]
    fn a_refusal_says_who_it_is_and_what_to_do() {
        let text = |text: &str| text.to_owned();
        let holder = Holder {
            pid: 1234,
            host: text("box"),
            since: text("2026-01-01T00:00:00.000Z"),
            command: vec![text("tenter"), text("train")],
        };
        assert_eq!(
            holder.refusal("x"),
            "run x is in use by process 1234 on host `box` since 2026-01-01T00:00:00.000Z (tenter train); wait \
             for it, or end it"
        );
        assert_eq!(
            Holder::default().refusal("x"),
            "run x is in use by another process; wait for it, or end it"
        );
    }

    #[test]
    fn a_lock_goes_along_with_its_directory() {
        let dir = tempfile::tempdir().expect("a directory");
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        fs::create_dir(&old).expect("it is made");
        let mut lock = taken(&old);
        fs::rename(&old, &new).expect("it is renamed");
        lock.moved_to(new.clone());
        assert!(holder(&new).is_some());
        drop(lock);
        assert!(!new.join(LOCK).exists());
    }
}
