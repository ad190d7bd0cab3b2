//! What a run's directory shows of the instant at which its process stands still.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::Value;

/// What a process was doing when it was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// It had not begun, or not begun to go on.
    Starting,
    /// There was no checkpoint yet.
    BeforeTheFirst,
    /// A checkpoint was being written.
    Saving,
    /// Its weights were there, and its `state.json` was not.
    BetweenFiles,
    /// It had all its files, and not its name.
    BeforeItsName,
    /// It had its name, and `latest` led to an older one.
    BeforeLatest,
    /// An older one was being removed.
    Removing,
    /// A validation had begun and not ended.
    Validating,
    /// The test after its training had begun and not ended.
    Testing,
}

impl Kind {
    /// Those that every run of the test must hit.
    pub(super) const AIMED: [Kind; 8] = [
        Kind::BeforeTheFirst,
        Kind::Saving,
        Kind::BetweenFiles,
        Kind::BeforeItsName,
        Kind::BeforeLatest,
        Kind::Removing,
        Kind::Validating,
        Kind::Testing,
    ];
}

/// How a run's directory was before a process came, to tell what is the process's own.
pub(super) struct Before {
    runs: PathBuf,
    starts: usize,
    latest: u64,
    activations: BTreeMap<String, SystemTime>,
}

impl Before {
    pub(super) fn of(place: &Path) -> Before {
        let runs = place.join("runs");
        let run = runs.join("latest");
        Before { starts: starts(&run), latest: latest(&run), activations: activations(&run), runs }
    }

    /// The directory of the run, once this process has taken it over and removed what others had left.
    fn run(&self) -> Option<PathBuf> {
        let run = self.runs.join("latest");
        (starts(&run) > self.starts).then_some(run)
    }

    /// Whether it has begun.
    pub(super) fn has_begun(&self) -> bool {
        self.run().is_some()
    }

    /// How many checkpoints it has saved.
    pub(super) fn saves(&self) -> u64 {
        latest(&self.runs.join("latest")).saturating_sub(self.latest)
    }

    /// Whether it is worth while to stop the process and look closer.
    pub(super) fn may_be(&self, kind: Kind) -> bool {
        let run = self.runs.join("latest");
        match kind {
            Kind::Starting | Kind::BeforeTheFirst | Kind::Validating => true,
            Kind::Testing => is_testing(&run),
            _ => names(&run.join("checkpoints")).any(|name| name.starts_with('.')),
        }
    }

    /// What the process is doing, which must stand still.
    pub(super) fn look(&self) -> BTreeSet<Kind> {
        let Some(run) = self.run() else { return BTreeSet::from([Kind::Starting]) };
        let checkpoints = Checkpoints::of(&run.join("checkpoints"));
        let mut kinds = checkpoints.kinds();
        if self.is_validating(&run) {
            kinds.insert(Kind::Validating);
        }
        if is_testing(&run) {
            kinds.insert(Kind::Testing);
        }
        kinds
    }

    /// Whether the newest validation has got to its 13th batch and not to its 39th, as the files of
    /// `activation_store` say.
    fn is_validating(&self, run: &Path) -> bool {
        let now = activations(run);
        let own = |name: &String| now.get(name).is_some_and(|time| self.activations.get(name) != Some(time));
        let newest = now.keys().filter(|name| name.ends_with("-00000012.safetensors") && own(name)).max();
        newest.is_some_and(|begun| !own(&begun.replace("-00000012.", "-00000038.")))
    }
}

/// Whether the last call that began is a test, and has not ended.
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

/// How many processes have begun to train here.
fn starts(run: &Path) -> usize {
    fs::read_to_string(run.join("events.jsonl")).map_or(0, |text| text.matches("\"event\":\"run\"").count())
}

fn activations(run: &Path) -> BTreeMap<String, SystemTime> {
    let directory = run.join("activations");
    let time = |name: &String| fs::metadata(directory.join(name)).and_then(|file| file.modified()).ok();
    names(&directory).filter_map(|name| Some((name.clone(), time(&name)?))).collect()
}

/// The numbers of checkpoints, as their `state.json` says.
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

    fn kinds(&self) -> BTreeSet<Kind> {
        let mut kinds = BTreeSet::new();
        for path in &self.unfinished {
            let has = |file: &str| path.join(file).exists();
            // What has exchanged its name with a newer one is only waiting to be removed.
            if has("manifest.json") && number(path) < self.newest {
                continue;
            }
            kinds.insert(Kind::Saving);
            kinds.extend((has("weights.safetensors") && !has("state.json")).then_some(Kind::BetweenFiles));
            kinds.extend(has("manifest.json").then_some(Kind::BeforeItsName));
        }
        kinds.extend(self.removing.then_some(Kind::Removing));
        kinds.extend((self.newest > self.latest).then_some(Kind::BeforeLatest));
        kinds.extend(self.newest.is_none().then_some(Kind::BeforeTheFirst));
        kinds
    }
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))
}

fn number(checkpoint: &Path) -> Option<u64> {
    let text = fs::read_to_string(checkpoint.join("state.json")).ok()?;
    serde_json::from_str::<Value>(&text).ok()?["number"].as_u64()
}
