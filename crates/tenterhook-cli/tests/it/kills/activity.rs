//! Determines from the run directory what a paused process was doing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::Value;

/// The activity of a process when it was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Activity {
    /// It had not started or resumed the run yet.
    Starting,
    /// There was no checkpoint yet.
    BeforeFirstCheckpoint,
    /// It was writing a checkpoint.
    Saving,
    /// It had written the weights of a checkpoint, but not its `state.json`.
    BetweenFiles,
    /// It had written all files of a checkpoint, but not renamed it yet.
    BeforeRename,
    /// It had renamed a checkpoint, but `latest` pointed to an older one.
    BeforeLatest,
    /// It was removing an older checkpoint.
    Removing,
    /// It was running a validation.
    Validating,
    /// It was running the test after training.
    Testing,
}

impl Activity {
    /// The activities during which every test must kill a process.
    pub(super) const AIMED: [Activity; 8] = [
        Activity::BeforeFirstCheckpoint,
        Activity::Saving,
        Activity::BetweenFiles,
        Activity::BeforeRename,
        Activity::BeforeLatest,
        Activity::Removing,
        Activity::Validating,
        Activity::Testing,
    ];
}

/// The state of the run directory before a process started, for comparison with later states.
pub(super) struct RunBefore {
    runs: PathBuf,
    starts: usize,
    latest: u64,
    activations: BTreeMap<String, SystemTime>,
}

impl RunBefore {
    pub(super) fn of(dir: &Path) -> RunBefore {
        let runs = dir.join("runs");
        let run = runs.join("latest");
        RunBefore { starts: starts(&run), latest: latest(&run), activations: activations(&run), runs }
    }

    /// The run directory, once this process has started the run.
    fn run(&self) -> Option<PathBuf> {
        let run = self.runs.join("latest");
        (starts(&run) > self.starts).then_some(run)
    }

    /// Whether the process has started the run.
    pub(super) fn has_started(&self) -> bool {
        self.run().is_some()
    }

    /// The number of checkpoints that the process has saved.
    pub(super) fn saves(&self) -> u64 {
        latest(&self.runs.join("latest")).saturating_sub(self.latest)
    }

    /// A quick check whether this activity is possible, before the process is paused.
    pub(super) fn is_possible(&self, activity: Activity) -> bool {
        let run = self.runs.join("latest");
        match activity {
            Activity::Starting | Activity::BeforeFirstCheckpoint | Activity::Validating => true,
            Activity::Testing => is_testing(&run),
            _ => names(&run.join("checkpoints")).any(|name| name.starts_with('.')),
        }
    }

    /// The activities of the paused process.
    pub(super) fn activities(&self) -> BTreeSet<Activity> {
        let Some(run) = self.run() else { return BTreeSet::from([Activity::Starting]) };
        let checkpoints = Checkpoints::of(&run.join("checkpoints"));
        let mut activities = checkpoints.activities();
        if self.is_validating(&run) {
            activities.insert(Activity::Validating);
        }
        if is_testing(&run) {
            activities.insert(Activity::Testing);
        }
        activities
    }

    /// Whether the newest validation has passed its 13th batch but not its 39th, according to the files of
    /// `activation_store`.
    fn is_validating(&self, run: &Path) -> bool {
        let now = activations(run);
        let own = |name: &String| now.get(name).is_some_and(|time| self.activations.get(name) != Some(time));
        let newest = now.keys().filter(|name| name.ends_with("-00000012.safetensors") && own(name)).max();
        newest.is_some_and(|begun| !own(&begun.replace("-00000012.", "-00000038.")))
    }
}

/// Whether the last call is a test that has not ended.
fn is_testing(run: &Path) -> bool {
    let text = fs::read_to_string(run.join("events.jsonl")).unwrap_or_default();
    let calls = ["start", "end"].map(|event| format!("\"event\":\"{event}\""));
    let last = text.lines().rfind(|line| calls.iter().any(|call| line.contains(call)));
    last.is_some_and(|line| line.contains(&calls[0]) && line.contains("\"stage\":\"test\""))
}

fn names(directory: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

fn latest(run: &Path) -> u64 {
    number(&run.join("checkpoints/latest")).unwrap_or(0)
}

/// The number of processes that have started this run.
fn starts(run: &Path) -> usize {
    fs::read_to_string(run.join("events.jsonl")).map_or(0, |text| text.matches("\"event\":\"run\"").count())
}

fn activations(run: &Path) -> BTreeMap<String, SystemTime> {
    let directory = run.join("activations");
    let time = |name: &String| fs::metadata(directory.join(name)).and_then(|file| file.modified()).ok();
    names(&directory).filter_map(|name| Some((name.clone(), time(&name)?))).collect()
}

/// The checkpoints of a run; numbers are those in `state.json`.
struct Checkpoints {
    newest: Option<u64>,
    latest: Option<u64>,
    unfinished: Vec<PathBuf>,
    removing: bool,
}

impl Checkpoints {
    fn of(root: &Path) -> Checkpoints {
        let (hidden, named): (Vec<_>, Vec<_>) = names(root)
            .map(|name| root.join(name))
            .filter(|path| path.is_dir())
            .partition(|path| is_hidden(path));
        let ends_with = |path: &PathBuf, end: &str| path.to_string_lossy().ends_with(end);
        Checkpoints {
            newest: named.iter().filter(|path| !path.is_symlink()).filter_map(|path| number(path)).max(),
            latest: number(&root.join("latest")),
            removing: hidden.iter().any(|path| ends_with(path, ".removed")),
            unfinished: hidden
                .into_iter()
                .filter(|path| ends_with(path, ".unfinished") && !path.is_symlink())
                .collect(),
        }
    }

    fn activities(&self) -> BTreeSet<Activity> {
        let mut activities = BTreeSet::new();
        for path in &self.unfinished {
            let has = |file: &str| path.join(file).exists();
            // A newer checkpoint has replaced this one, which is about to be removed.
            if has("manifest.json") && number(path) < self.newest {
                continue;
            }
            activities.insert(Activity::Saving);
            activities
                .extend((has("weights.safetensors") && !has("state.json")).then_some(Activity::BetweenFiles));
            activities.extend(has("manifest.json").then_some(Activity::BeforeRename));
        }
        activities.extend(self.removing.then_some(Activity::Removing));
        activities.extend((self.newest > self.latest).then_some(Activity::BeforeLatest));
        activities.extend(self.newest.is_none().then_some(Activity::BeforeFirstCheckpoint));
        activities
    }
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))
}

fn number(checkpoint: &Path) -> Option<u64> {
    let text = fs::read_to_string(checkpoint.join("state.json")).ok()?;
    serde_json::from_str::<Value>(&text).ok()?["number"].as_u64()
}
