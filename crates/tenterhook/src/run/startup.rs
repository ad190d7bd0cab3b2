//! The start of a run in the directory of runs: the link `latest`, and leftovers of killed starts.
//!
//! **Invariant.** The link `.latest-ID` is created before the run directory, and renamed to `latest` after it. So a
//! `.latest-ID` whose run exists is the `latest` of a start that was killed in between, and one whose run does not
//! exist is a leftover.

use std::fs::{self, File};
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tenterhook_files::{create_directories, sync_parent};

use super::files::{EVENTS, METRICS};
use super::lock::holder;

/// The number of attempts to lock. Another start holds the lock exclusively while it removes leftovers.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);

const LATEST: &str = "latest";
const PENDING: &str = ".latest-";
const UNFINISHED: &str = ".unfinished";

/// Removes the leftovers of killed starts, unless another start is in progress, and locks the directory of runs so that no
/// other start does. The lock is released with the file. `None` if the file system has no locks; then nothing is removed.
pub(super) fn lock_runs(runs: &Path) -> Option<File> {
    // `create` reports an error.
    let file = create_directories(runs).and_then(|()| File::open(runs)).ok()?;
    if file.try_lock().is_ok() {
        // Leftovers are harmless.
        let _ = remove_leftovers(runs);
        let _ = file.unlock();
    }
    let locked = (0..TRIES).any(|attempt| {
        std::thread::sleep(if attempt == 0 { Duration::ZERO } else { PAUSE });
        file.try_lock_shared().is_ok()
    });
    locked.then_some(file)
}

/// The id of the run if this is a link that will become `latest`.
pub(super) fn pending(link: &Path) -> Option<String> {
    let to = fs::read_link(link).ok()?.to_str()?.to_owned();
    (link.file_name()?.to_str()?.strip_prefix(PENDING)? == to).then_some(to)
}

/// The run that `latest` should lead to, if a start was killed before it renamed the link.
pub(super) fn pending_latest(link: &Path) -> Result<Option<PathBuf>> {
    let runs = link.parent().filter(|runs| !runs.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if link.file_name().is_none_or(|name| name != LATEST) || !link.is_symlink() {
        return Ok(None);
    }
    let mut newest = None;
    for entry in fs::read_dir(runs)? {
        let id = pending(&entry?.path()).filter(|id| runs.join(id).join("run.json").is_file());
        // Ids sort by time.
        newest = newest.max(id);
    }
    Ok(newest.map(|id| link.with_file_name(id)))
}

/// Creates the link that will become `latest`.
pub(super) fn announce(runs: &Path, id: &str) -> Result<PathBuf> {
    let link = runs.join(format!("{PENDING}{id}"));
    if pending(&link).as_deref() != Some(id) {
        if link.is_symlink() {
            fs::remove_file(&link)?;
        }
        std::os::unix::fs::symlink(id, &link)?;
    }
    Ok(link)
}

/// Atomically makes `latest` lead to a run.
pub(super) fn set_latest(runs: &Path, id: &str) -> Result<()> {
    let latest = runs.join(LATEST);
    let link = announce(runs, id)?;
    let placed = match not_ours(&latest) {
        Some(why) => {
            let text = format!("{} {why}, and is not replaced", latest.display());
            Err(Error::new(ErrorKind::AlreadyExists, text))
        }
        None => fs::rename(&link, &latest),
    };
    placed.inspect_err(|_| {
        let _ = fs::remove_file(&link);
    })?;
    sync_parent(&latest)
}

/// Why an existing `latest` was not created by this program, which creates a link to a run beside it. The run
/// may have been removed.
fn not_ours(latest: &Path) -> Option<String> {
    if !latest.symlink_metadata().ok()?.is_symlink() {
        return Some("is not a link".to_owned());
    }
    let to = fs::read_link(latest).ok()?;
    let is_beside = to.file_name().is_some_and(|name| name == to);
    let is_run = latest.join("run.json").is_file() || !latest.exists();
    (!is_beside || !is_run).then(|| format!("leads to {}, which is no run of this directory", to.display()))
}

fn remove_leftovers(runs: &Path) -> Result<()> {
    let mut names: Vec<_> = fs::read_dir(runs)?.flatten().map(|entry| entry.file_name()).collect();
    // Ids sort by time, so `latest` leads to the newest of several killed starts.
    names.sort();
    for path in names.into_iter().map(|name| runs.join(name)) {
        match pending(&path) {
            // The current start reports an error for its own run.
            Some(id) if runs.join(&id).join("run.json").is_file() => drop(set_latest(runs, &id)),
            Some(_) => fs::remove_file(&path)?,
            None if is_unfinished_run(&path) => fs::remove_dir_all(&path)?,
            None => {}
        }
    }
    Ok(())
}

/// Whether this is an unfinished run directory: by its name, with only files of ours, and not locked.
fn is_unfinished_run(path: &Path) -> bool {
    const OURS: [&str; 6] = ["checkpoints", "config.toml", METRICS, EVENTS, "run.json", "lock"];
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let id = name.strip_prefix('.').and_then(|name| name.strip_suffix(UNFINISHED));
    let is_ours = |name: &str| {
        OURS.contains(&name.strip_prefix('.').and_then(|name| name.strip_suffix(UNFINISHED)).unwrap_or(name))
    };
    let holds_ours_alone = || {
        let mut entries = fs::read_dir(path).into_iter().flatten();
        entries.all(|entry| entry.is_ok_and(|entry| entry.file_name().to_str().is_some_and(is_ours)))
            && fs::read_dir(path.join("checkpoints")).into_iter().flatten().next().is_none()
    };
    let is_directory = path.symlink_metadata().is_ok_and(|found| found.is_dir());
    id.is_some_and(|id| !id.is_empty()) && is_directory && holds_ours_alone() && holder(path).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(runs: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(runs).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        names.into_iter().map(|name| name.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn only_leftovers_of_killed_starts_are_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let runs = dir.path();
        let unfinished = |name: &str| {
            let path = runs.join(name);
            fs::create_dir_all(path.join("checkpoints")).expect("it is made");
            path
        };
        fs::write(unfinished(".killed.unfinished").join(".run.json.unfinished"), "{").expect("it is written");
        fs::create_dir(runs.join(".empty.unfinished")).expect("it is made");
        fs::write(unfinished(".foreign.unfinished").join("thesis.tex"), "").expect("it is written");
        fs::write(unfinished(".saved.unfinished").join("checkpoints/a"), "").expect("it is written");
        let held = unfinished(".held.unfinished");
        let _lock = super::super::RunLock::lock(held).expect("it is locked");
        fs::create_dir(runs.join("other")).expect("it is made");
        fs::write(runs.join(".file.unfinished"), "").expect("it is written");
        announce(runs, "gone").expect("a link");
        std::os::unix::fs::symlink("elsewhere", runs.join(".latest-mine")).expect("a link");
        let all = names(runs);
        // While another start is in progress, nothing is removed.
        let other = File::open(runs).expect("it opens");
        other.lock_shared().expect("it is locked");
        drop(lock_runs(runs));
        assert_eq!(names(runs), all);
        drop(other);
        drop(lock_runs(runs));
        let left = [
            ".file.unfinished",
            ".foreign.unfinished",
            ".held.unfinished",
            ".latest-mine",
            ".saved.unfinished",
            "other",
        ];
        assert_eq!(names(runs), left);
    }

    #[test]
    fn a_start_that_was_killed_before_it_was_the_latest_becomes_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let runs = dir.path();
        for id in ["a", "b"] {
            fs::create_dir(runs.join(id)).expect("it is made");
            fs::write(runs.join(id).join("run.json"), "{}").expect("it is written");
        }
        set_latest(runs, "a").expect("it is linked");
        announce(runs, "b").expect("a link");
        announce(runs, "gone").expect("a link");
        let latest = |link: &str| pending_latest(&runs.join(link)).expect("it is read");
        assert_eq!((latest("latest"), latest("a")), (Some(runs.join("b")), None));
        drop(lock_runs(runs));
        assert_eq!(latest("latest"), None);
        assert_eq!(fs::read_link(runs.join("latest")).expect("a link"), Path::new("b"));
        assert_eq!(names(runs), ["a", "b", "latest"]);
    }

    #[test]
    fn a_latest_that_links_to_something_else_is_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        let runs = dir.path();
        let latest = runs.join("latest");
        fs::create_dir(runs.join("theirs")).expect("it is made");
        let elsewhere = tempfile::tempdir().expect("a directory");
        for to in [Path::new("theirs"), elsewhere.path()] {
            std::os::unix::fs::symlink(to, &latest).expect("a link");
            assert_eq!(set_latest(runs, "a").expect_err("it is refused").kind(), ErrorKind::AlreadyExists);
            assert_eq!(fs::read_link(&latest).expect("a link"), to);
            assert_eq!(names(runs), ["latest", "theirs"]);
            fs::remove_file(&latest).expect("it goes");
        }
        // A run that was removed is no reason to keep the link to it.
        std::os::unix::fs::symlink("gone", &latest).expect("a link");
        set_latest(runs, "a").expect("it is linked");
        assert_eq!(fs::read_link(&latest).expect("a link"), Path::new("a"));
    }

    #[test]
    fn a_latest_that_is_not_a_link_is_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("latest"), "notes").expect("it is written");
        assert_eq!(set_latest(dir.path(), "a").expect_err("it is refused").kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(dir.path().join("latest")).expect("it is there"), "notes");
        assert_eq!(names(dir.path()), ["latest"]);
    }
}
