//! Finds the differences between two runs, except for times.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

/// Paths in `state.json` that may differ: times, lengths of files with times in them, counts of real events, and
/// deliveries so far. `*` matches one part.
const OF_TIME: [&str; 11] = [
    "elapsed",
    "loops.train_began",
    "loops.last_validation",
    "file_positions.*.length",
    "number",
    "unannounced",
    // Times of `checkpoint` (`train_time_interval`) and of `every`.
    "hooks.*.data.last_time_ns",
    "hooks.*.data.$gate.last_ns",
    // File names of `csv` and `tensorboard`, which contain a time, and the times of their last writes.
    "hooks.*.data.file.path",
    "hooks.*.data.file.time",
    "hooks.*.data.file.first",
];

/// The keys of `run.json` with the result.
const RESULT: [&str; 8] =
    ["status", "steps", "epochs", "samples", "tokens", "metrics", "parameters", "hooks"];

/// Compares a run with an uninterrupted one. `except` are further keys of `state.json`, and names of files.
pub(super) fn differences(uninterrupted: &Path, run: &Path, except: &[&str]) -> Vec<String> {
    let mut found = Differences { found: Vec::new() };
    found.bytes(uninterrupted, run, "weights.safetensors");
    for file in ["metrics.jsonl", "histograms.jsonl", "updates.jsonl"] {
        found.lines(uninterrupted, run, file);
    }
    found.same("metrics.csv", [uninterrupted, run].map(table_without_time));
    found.same("tensorboard", [uninterrupted, run].map(events_without_time));
    let [one, other] = [uninterrupted, run].map(|run| json(&run.join("run.json")));
    for key in RESULT {
        found.values(&format!("run.json: {key}"), &one[key], &other[key]);
    }
    for directory in [".", "activations", "checkpoints"] {
        let names = found.names(uninterrupted, run, directory, except);
        for name in names.iter().filter(|_| directory == "activations") {
            found.bytes(uninterrupted, run, &format!("activations/{name}"));
        }
        for name in names.iter().filter(|_| directory == "checkpoints") {
            found.checkpoint(uninterrupted, run, &format!("checkpoints/{name}"), except);
        }
    }
    found.found
}

struct Differences {
    found: Vec<String>,
}

impl Differences {
    fn bytes(&mut self, one: &Path, other: &Path, file: &str) {
        let [one, other] = [one, other].map(|run| Some(without_id(run, fs::read(run.join(file)).ok()?)));
        if one != other {
            let lengths = [one, other].map(|bytes| bytes.map(|bytes| bytes.len()));
            self.found.push(format!("{file}: other bytes, lengths {lengths:?}"));
        }
    }

    fn same<T: PartialEq>(&mut self, what: &str, [one, other]: [Vec<T>; 2]) {
        let first = one.iter().zip(&other).position(|(one, other)| one != other);
        if first.is_some() || one.len() != other.len() {
            let first = first.unwrap_or_else(|| one.len().min(other.len()));
            self.found.push(format!(
                "{what}: {} entries, and {}; they part at {first}",
                one.len(),
                other.len()
            ));
        }
    }

    /// The names that both directories have. Hidden files are leftovers of kills.
    fn names(&mut self, one: &Path, other: &Path, directory: &str, except: &[&str]) -> BTreeSet<String> {
        let [one, other] = [one, other].map(|run| {
            let entries = fs::read_dir(run.join(directory)).into_iter().flatten().flatten();
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<BTreeSet<_>>()
        });
        for name in one.symmetric_difference(&other).filter(|name| !except.contains(&name.as_str())) {
            let whose = if one.contains(name) { "untouched" } else { "killed" };
            self.found.push(format!("{directory}/{name}: only in the {whose} run"));
        }
        let litter = one.union(&other).filter(|name| name.starts_with('.'));
        self.found.extend(litter.map(|name| format!("{directory}/{name}: litter")));
        &one & &other
    }

    fn lines(&mut self, one: &Path, other: &Path, file: &str) {
        let [one, other] = [one, other].map(|run| {
            let text = fs::read_to_string(run.join(file)).unwrap_or_default();
            text.lines().map(without_time).collect::<Vec<_>>()
        });
        if one.len() != other.len() {
            self.found.push(format!("{file}: {} lines, and {}", one.len(), other.len()));
        }
        for (number, (one, other)) in one.iter().zip(&other).enumerate() {
            self.values(&format!("{file}:{}", number + 1), one, other);
        }
    }

    fn checkpoint(&mut self, one: &Path, other: &Path, name: &str, except: &[&str]) {
        let links = [one, other].map(|run| fs::read_link(run.join(name)).ok());
        if links[0] != links[1] {
            self.found.push(format!("{name}: leads to {links:?}"));
        }
        for file in self.names(one, other, name, except).iter().filter(|file| file.ends_with(".safetensors"))
        {
            self.bytes(one, other, &format!("{name}/{file}"));
        }
        let file = format!("{name}/state.json");
        let [one, other] = [one, other].map(|run| {
            let text = fs::read(run.join(&file)).expect("a state");
            let mut state: Value = serde_json::from_slice(&without_id(run, text)).expect("JSON");
            for key in OF_TIME.iter().chain(except) {
                forget(&mut state, &key.split('.').collect::<Vec<_>>());
            }
            state
        });
        self.values(&file, &one, &other);
    }

    /// Lists the paths at which two values differ.
    fn values(&mut self, path: &str, one: &Value, other: &Value) {
        match (one, other) {
            (Value::Object(one), Value::Object(other)) => {
                for key in one.keys().chain(other.keys().filter(|key| !one.contains_key(*key))) {
                    let [one, other] = [one, other].map(|map| map.get(key).unwrap_or(&Value::Null));
                    self.values(&format!("{path}.{key}"), one, other);
                }
            }
            (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
                for (index, (one, other)) in one.iter().zip(other).enumerate() {
                    self.values(&format!("{path}.{index}"), one, other);
                }
            }
            (one, other) if one != other => self.found.push(format!("{path}: {one}, and {other}")),
            _ => {}
        }
    }
}

fn json(file: &Path) -> Value {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The content of a file with the run's id replaced by zeros.
fn without_id(run: &Path, mut bytes: Vec<u8>) -> Vec<u8> {
    let id = json(&run.join("run.json"))["id"].as_str().expect("an id").to_owned();
    let mut from = 0;
    while let Some(found) = bytes[from..].windows(id.len()).position(|process| process == id.as_bytes()) {
        bytes[from + found..from + found + id.len()].fill(b'0');
        from += found + id.len();
    }
    bytes
}

/// The rows of the CSV file, without the time in the fourth column.
fn table_without_time(run: &Path) -> Vec<Vec<String>> {
    let text = fs::read_to_string(run.join("metrics.csv")).unwrap_or_default();
    let cells = text.lines().map(|row| row.split(',').enumerate().filter(|(column, _)| *column != 3));
    cells.map(|cells| cells.map(|(_, cell)| cell.to_owned()).collect()).collect()
}

/// The records of all event files, without their times.
fn events_without_time(run: &Path) -> Vec<Vec<u8>> {
    let files = fs::read_dir(run.join("tensorboard")).into_iter().flatten().flatten();
    let mut records = Vec::new();
    for file in files {
        let bytes = without_id(run, fs::read(file.path()).expect("it is there"));
        let mut rest = bytes.as_slice();
        while let Some((length, after)) = rest.split_first_chunk::<8>() {
            let length = usize::try_from(u64::from_le_bytes(*length)).expect("it is short");
            // Skip two checksums of four bytes, and the time with its key.
            let record = after.get(4..4 + length).expect("whole records");
            records.push(record[9..].to_vec());
            rest = &after[4 + length + 4..];
        }
    }
    records
}

fn without_time(line: &str) -> Value {
    let mut line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}"));
    line.as_object_mut().expect("an object").remove("time");
    line
}

/// Replaces the value at a path with null.
fn forget(value: &mut Value, path: &[&str]) {
    let Some((first, rest)) = path.split_first() else {
        *value = Value::Null;
        return;
    };
    match value {
        Value::Array(values) => values.iter_mut().for_each(|value| forget(value, rest)),
        Value::Object(map) if *first == "*" => map.values_mut().for_each(|value| forget(value, rest)),
        Value::Object(map) => {
            if let Some(value) = map.get_mut(*first) {
                forget(value, rest);
            }
        }
        _ => {}
    }
}

#[test]
fn a_different_number_is_found_and_a_different_time_ignored() {
    let mut found = Differences { found: Vec::new() };
    let [mut one, mut other] = [3, 4].map(|losses| {
        serde_json::json!({ "elapsed": losses, "file_positions": [{ "file": "m", "length": losses }], "losses": [1, losses] })
    });
    for state in [&mut one, &mut other] {
        for key in OF_TIME {
            forget(state, &key.split('.').collect::<Vec<_>>());
        }
    }
    found.values("state.json", &one, &other);
    assert_eq!(found.found, ["state.json.losses.1: 3, and 4"]);
}
