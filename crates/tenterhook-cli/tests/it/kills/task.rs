//! A task with the result of an uninterrupted run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::compare::differences;
use crate::tenter::TestDir;

/// A configuration with an uninterrupted run of it.
pub(super) struct Task {
    pub(super) name: &'static str,
    config: &'static str,
    uninterrupted: TestDir,
    pub(super) duration: Duration,
}

impl Task {
    pub(super) fn digits() -> Task {
        Task::new("digits", include_str!("digits.toml"))
    }

    pub(super) fn text() -> Task {
        Task::new("text", include_str!("text.toml"))
    }

    fn new(name: &'static str, config: &'static str) -> Task {
        let mut task = Task { name, config, uninterrupted: TestDir::new(), duration: Duration::ZERO };
        task.uninterrupted = task.dir();
        let began = Instant::now();
        task.uninterrupted.run(&["train", "config.toml"]).succeeded();
        task.duration = began.elapsed();
        task
    }

    /// A new directory with the configuration.
    pub(super) fn dir(&self) -> TestDir {
        let dir = TestDir::new();
        dir.write("config.toml", self.config);
        dir.write("other.txt", include_str!("text.toml").repeat(20));
        dir
    }

    /// Fails with all differences, and keeps both runs for inspection.
    pub(super) fn assert_equal(&self, dir: &TestDir, except: &[&str], how: &str) {
        let [uninterrupted, run] = [&self.uninterrupted, dir].map(|dir| dir.path().join("runs/latest"));
        let found = differences(&uninterrupted, &run, except);
        if found.is_empty() {
            return;
        }
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kills-{}", self.name));
        let _ = fs::remove_dir_all(&kept);
        copy(self.uninterrupted.path(), &kept.join("untouched"));
        copy(dir.path(), &kept.join("killed"));
        panic!(
            "{}: {} differences\n{}\n{how}\nboth are kept in {}",
            self.name,
            found.len(),
            found.join("\n"),
            kept.display()
        );
    }
}

/// Copies a directory, including symbolic links.
pub(super) fn copy(from: &Path, to: &Path) -> PathBuf {
    fs::create_dir_all(to.parent().expect("it is below something")).expect("it is made");
    assert!(Command::new("cp").arg("-a").args([from, to]).status().expect("cp runs").success());
    to.to_owned()
}
