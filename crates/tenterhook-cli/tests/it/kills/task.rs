//! What is trained, and how it comes out when nobody touches it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::compare::differences;
use crate::tenter::Place;

/// A configuration, and a run of it that was never touched.
pub(super) struct Task {
    pub(super) name: &'static str,
    config: &'static str,
    untouched: Place,
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
        let mut task = Task { name, config, untouched: Place::new(), duration: Duration::ZERO };
        task.untouched = task.place();
        let began = Instant::now();
        task.untouched.run(&["train", "config.toml"]).succeeded();
        task.duration = began.elapsed();
        task
    }

    /// A place for a run of its own.
    pub(super) fn place(&self) -> Place {
        let place = Place::new();
        place.write("config.toml", self.config);
        place.write("other.txt", include_str!("text.toml").repeat(20));
        place
    }

    /// Fails with every difference, and keeps both runs to look at.
    pub(super) fn must_equal(&self, place: &Place, except: &[&str], how: &str) {
        let [untouched, run] = [&self.untouched, place].map(|place| place.path().join("runs/latest"));
        let found = differences(&untouched, &run, except);
        if found.is_empty() {
            return;
        }
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kills-{}", self.name));
        let _ = fs::remove_dir_all(&kept);
        copy(self.untouched.path(), &kept.join("untouched"));
        copy(place.path(), &kept.join("killed"));
        panic!(
            "{}: {} differences\n{}\n{how}\nboth are kept in {}",
            self.name,
            found.len(),
            found.join("\n"),
            kept.display()
        );
    }
}

/// Copies a directory with all links in it.
pub(super) fn copy(from: &Path, to: &Path) -> PathBuf {
    fs::create_dir_all(to.parent().expect("it is below something")).expect("it is made");
    assert!(Command::new("cp").arg("-a").args([from, to]).status().expect("cp runs").success());
    to.to_owned()
}
