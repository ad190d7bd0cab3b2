//! One process per run directory: a file that is locked as long as somebody writes to the directory.
//!
//! The system releases the lock when its holder ends, however that happens, so a file that is left behind by a
//! process that was killed is in nobody's way.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenterhook_core::BoxError;

use super::command_line;
use super::machine::Machine;
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
        write!(f, "process {pid} on host `{host}` since {since} ({})", command_line(command))
    }
}

/// Who writes to this run directory at this moment; nobody does to one whose process has ended or was killed.
#[must_use]
pub fn holder(run_dir: &Path) -> Option<Holder> {
    let mut file = File::open(run_dir.join(LOCK)).ok()?;
    // Where it cannot be known, what the file says is the best there is.
    file.try_lock_shared().is_err().then(|| read(&mut file))
}

/// Makes sure that nobody writes to a run directory, or says who does. The file of a process that was killed is removed: one
/// that was killed when all else was done is not gone on with, and nobody else would.
pub(super) fn free(run_dir: &Path) -> Result<(), Holder> {
    if let Some(holder) = holder(run_dir) {
        return Err(holder);
    }
    let path = run_dir.join(LOCK);
    // Where it cannot be removed, it is in nobody's way.
    if let Ok(file) = OpenOptions::new().write(true).open(&path)
        && file.try_lock().is_ok()
    {
        drop(Lock { file, path });
    }
    Ok(())
}

fn read(file: &mut File) -> Holder {
    let mut text = String::new();
    // Somebody holds it, whatever can be read about it.
    let _ = file.rewind().and_then(|()| file.read_to_string(&mut text));
    serde_json::from_str(&text).unwrap_or_default()
}

/// A run directory that nobody else writes to, as long as this exists.
pub(super) struct Lock {
    file: File,
    path: PathBuf,
}

/// What came of asking for a lock.
pub(super) enum Taken {
    Locked(Lock),
    /// The file system knows no locks.
    Impossible(String),
}

impl Taken {
    /// The lock, and why there is none.
    pub(super) fn parts(self) -> (Option<Lock>, Option<String>) {
        match self {
            Taken::Locked(lock) => (Some(lock), None),
            Taken::Impossible(why) => (None, Some(why)),
        }
    }
}

impl Lock {
    /// Locks a directory, or says who holds it. `run` is how people call it.
    pub(super) fn take(directory: &Path, run: &str, command: &[String]) -> Result<Taken, BoxError> {
        let path = directory.join(LOCK);
        let cannot = |error: std::io::Error| format!("cannot lock {}: {error}", path.display());
        let mut tries = 0;
        loop {
            let mut options = OpenOptions::new();
            let mut file =
                options.read(true).write(true).create(true).truncate(false).open(&path).map_err(cannot)?;
            match file.try_lock() {
                // Whoever held it may have removed the file since it was opened; then it locks nothing.
                Ok(()) if !is_at(&file, &path) => {}
                Ok(()) => {
                    let mut text = serde_json::to_vec(&Holder::this(command))?;
                    text.push(b'\n');
                    file.set_len(0).and_then(|()| file.write_all(&text)).map_err(cannot)?;
                    return Ok(Taken::Locked(Lock { file, path }));
                }
                Err(TryLockError::WouldBlock) if tries < TRIES => {
                    tries += 1;
                    std::thread::sleep(PAUSE);
                }
                Err(TryLockError::WouldBlock) => return Err(read(&mut file).refusal(run).into()),
                Err(TryLockError::Error(error)) => {
                    let why = cannot(error);
                    return Ok(Taken::Impossible(format!("{why}; let no other process use this run")));
                }
            }
        }
    }

    /// The directory has another name now.
    pub(super) fn moved_to(&mut self, directory: &Path) {
        self.path = directory.join(LOCK);
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

impl Drop for Lock {
    fn drop(&mut self) {
        // Removed while it is locked, so nobody else's goes; that it stays would do no harm.
        if is_at(&self.file, &self.path) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(directory: &Path) -> Lock {
        let command = ["tenter", "train", "my run.toml"].map(str::to_owned);
        match Lock::take(directory, "r", &command) {
            Ok(Taken::Locked(lock)) => lock,
            Ok(Taken::Impossible(why)) => panic!("{why}"),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_directory_is_held_once_until_its_holder_goes() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(holder(dir.path()), None);
        let lock = taken(dir.path());
        let who = holder(dir.path()).expect("it is held");
        assert_eq!((who.pid, who.command[2].as_str()), (std::process::id(), "my run.toml"));
        let second = Lock::take(dir.path(), "r", &[]).err().expect("it is refused").to_string();
        assert!(
            second.starts_with("run r is in use by another trainer of this process since 20"),
            "{second}"
        );
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
        lock.moved_to(&new);
        assert!(holder(&new).is_some());
        drop(lock);
        assert!(!new.join(LOCK).exists());
    }
}
