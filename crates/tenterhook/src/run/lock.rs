//! The lock of a run directory: a file that is locked while a process writes to the directory.
//!
//! The system releases the lock when its holder ends or is killed, so a leftover file blocks no other process.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenterhook_files::{open_no_follow, open_regular};

use super::command_line;
use super::machine::Machine;
use super::reading::{ReadError, read_record};
use super::record::now;

/// The name of the lock file in the run directory.
pub(super) const LOCK: &str = "lock";

/// The number of attempts to lock. A process that only checks the lock holds it briefly.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// The process that writes to a run directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Holder {
    /// The process id.
    pub pid: u32,
    /// The host name of its machine.
    pub host: String,
    /// When it took the lock.
    pub since: String,
    /// Its command line.
    pub command: Vec<String>,
}

impl Holder {
    /// This process, with the current time.
    fn current(command: &[String]) -> Holder {
        Holder {
            pid: std::process::id(),
            host: Machine::current().hostname,
            since: now(),
            command: command.to_vec(),
        }
    }

    /// The message that the run is in use, and what to do about it.
    #[must_use]
    pub fn in_use_message(&self, run: &str) -> String {
        let is_this = self.pid == std::process::id() && self.host == Machine::current().hostname;
        if is_this {
            return format!(
                "run {run} is in use by another trainer of this process since {}; drop that one first",
                self.since
            );
        }
        format!("run {run} is in use by {self}; wait until it ends, or stop it")
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

/// The process that writes to this run directory, if there is one that has not ended.
#[must_use]
pub fn holder(run_dir: &Path) -> Option<Holder> {
    // An unreadable lock file may be locked.
    read_holder(run_dir).unwrap_or_else(|_| Some(Holder::default()))
}

/// [`holder`], with an error if the lock file cannot be read.
pub(super) fn read_holder(run_dir: &Path) -> io::Result<Option<Holder>> {
    let mut file = match open_regular(&run_dir.join(LOCK)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    // An error other than a held lock also counts as held.
    Ok(file.try_lock_shared().is_err().then(|| read(&mut file)))
}

/// Refuses a run directory that is in use. Removes the lock file of a killed process: a completed run is never resumed,
/// so nothing else would remove the file.
pub(super) fn check_free(run_dir: &Path) -> Result<(), Holder> {
    if let Some(holder) = holder(run_dir) {
        return Err(holder);
    }
    // A leftover lock file is harmless.
    if let Ok(file) = open_no_follow(&run_dir.join(LOCK), OpenOptions::new().write(true))
        && file.try_lock().is_ok()
    {
        drop(RunLock::new(run_dir.to_owned(), Some(file)));
    }
    Ok(())
}

/// The largest part of a lock file that is read, in bytes.
const LIMIT: u64 = 1 << 20;

fn read(file: &mut File) -> Holder {
    let mut text = String::new();
    // The lock is held, even if its holder is not known.
    let _ = file.rewind().and_then(|()| file.take(LIMIT).read_to_string(&mut text));
    serde_json::from_str(&text).unwrap_or_default()
}

/// The lock of a run directory. While it exists, no other process writes there.
///
/// All functions that open, truncate or replace a file of a run take the lock or a reference to it, so nothing of a
/// run is changed before its lock is held. [`RunDirectoryOptions::resume`](super::RunDirectoryOptions::resume) takes it,
/// and [`resume::find`](super::resume::find) returns it.
#[derive(Debug)]
pub struct RunLock {
    directory: PathBuf,
    /// `None` if the file system has no locks.
    file: Option<File>,
    /// Why there is no lock, until it is reported.
    lock_error: Option<String>,
    /// The unreadable checkpoints, if the resume skips them.
    unreadable: Option<Vec<PathBuf>>,
}

/// Why a run directory cannot be locked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another process, or another trainer of this process, writes to it.
    #[error("{}", holder.in_use_message(run))]
    Held {
        /// The name of the run.
        run: String,
        /// The process that writes to it.
        holder: Box<Holder>,
    },
    /// The directory is no run, or cannot be read.
    #[error(transparent)]
    NotARun(#[from] ReadError),
    /// The lock file cannot be written.
    #[error("cannot lock {}: {source}", path.display())]
    Unwritable {
        /// The lock file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}

impl RunLock {
    fn new(directory: PathBuf, file: Option<File>) -> RunLock {
        RunLock { directory, file, lock_error: None, unreadable: None }
    }

    /// Locks the directory of an existing run, to resume it.
    pub fn acquire(directory: impl Into<PathBuf>) -> Result<RunLock, LockError> {
        let mut directory = directory.into();
        if directory.file_name().is_none() {
            directory = directory.canonicalize().map_err(ReadError::unreadable(&directory))?;
        }
        match read_record(&directory.join("run.json")) {
            // A damaged record is written again.
            Ok(_) | Err(ReadError::Damaged { .. }) => RunLock::lock(directory),
            Err(error) => Err(error.into()),
        }
    }

    /// Locks a directory. The error names the holder.
    pub(super) fn lock(directory: PathBuf) -> Result<RunLock, LockError> {
        let path = directory.join(LOCK);
        let unwritable = |source| LockError::Unwritable { path: path.clone(), source };
        let mut tries = 0;
        loop {
            let mut options = OpenOptions::new();
            let options = options.read(true).write(true).create(true).truncate(false);
            let mut file = open_no_follow(&path, options).map_err(unwritable)?;
            match file.try_lock() {
                // The last holder may have removed the file after it was opened here.
                Ok(()) if !is_at(&file, &path) => {}
                Ok(()) => {
                    let mut lock = RunLock::new(directory, Some(file));
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
                    let why = format!("{}; make sure that no other process uses this run", unwritable(error));
                    let mut lock = RunLock::new(directory, None);
                    lock.lock_error = Some(why);
                    return Ok(lock);
                }
            }
        }
    }

    /// The directory that is locked.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Why there is no lock, if the file system has none. Returned once.
    pub(super) fn take_lock_error(&mut self) -> Option<String> {
        self.lock_error.take()
    }

    /// Makes the resume skip unreadable checkpoints: the ones in `found`, and unreadable ones that the run saved in other
    /// directories.
    pub(super) fn skip_unreadable(&mut self, found: Vec<PathBuf>) {
        self.unreadable = Some(found);
    }

    /// The unreadable checkpoints, if the resume skips them. Returned once.
    pub(super) fn take_unreadable(&mut self) -> Option<Vec<PathBuf>> {
        self.unreadable.take()
    }

    /// Writes the holder with this command line to the lock file.
    pub(super) fn write_holder(&mut self, command: &[String]) -> std::io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut text = serde_json::to_vec(&Holder::current(command))?;
        text.push(b'\n');
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(&text)
    }

    /// Follows a rename of the directory.
    pub(super) fn set_directory(&mut self, directory: PathBuf) {
        self.directory = directory;
    }
}

/// Whether the path leads to this open file.
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
        // It is still locked, so no other process has created one under its name.
        if self.file.as_ref().is_some_and(|file| is_at(file, &path)) {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(directory: &Path) -> RunLock {
        let mut lock = RunLock::lock(directory.to_owned()).expect("it is free");
        lock.write_holder(&["tenter", "train", "my run.toml"].map(str::to_owned)).expect("it is written");
        lock
    }

    #[test]
    fn a_directory_is_locked_by_one_holder_until_it_ends() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(holder(dir.path()), None);
        let lock = taken(dir.path());
        let who = holder(dir.path()).expect("it is held");
        assert_eq!((who.pid, who.command[2].as_str()), (std::process::id(), "my run.toml"));
        let second = RunLock::lock(dir.path().to_owned()).expect_err("it is refused").to_string();
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
    fn a_file_of_a_dead_process_is_removed_and_that_of_a_living_one_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join(LOCK);
        assert_eq!(check_free(dir.path()), Ok(()), "there is none");
        fs::write(&path, "{}").expect("it is written");
        assert_eq!((check_free(dir.path()), path.exists()), (Ok(()), false));
        let _lock = taken(dir.path());
        let holder = check_free(dir.path()).expect_err("it is held");
        assert_eq!((holder.pid, path.exists()), (std::process::id(), true));
    }

    #[test]
    fn a_refusal_names_the_holder_and_a_fix() {
        let text = |text: &str| text.to_owned();
        let holder = Holder {
            pid: 1234,
            host: text("box"),
            since: text("2026-01-01T00:00:00.000Z"),
            command: vec![text("tenter"), text("train")],
        };
        assert_eq!(
            holder.in_use_message("x"),
            "run x is in use by process 1234 on host `box` since 2026-01-01T00:00:00.000Z (tenter train); wait \
             until it ends, or stop it"
        );
        assert_eq!(
            Holder::default().in_use_message("x"),
            "run x is in use by another process; wait until it ends, or stop it"
        );
    }

    #[test]
    fn a_lock_follows_a_rename_of_its_directory() {
        let dir = tempfile::tempdir().expect("a directory");
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        fs::create_dir(&old).expect("it is made");
        let mut lock = taken(&old);
        fs::rename(&old, &new).expect("it is renamed");
        lock.set_directory(new.clone());
        assert!(holder(&new).is_some());
        drop(lock);
        assert!(!new.join(LOCK).exists());
    }
}
