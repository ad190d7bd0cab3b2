//! Runs fuzz inputs, and minimizes the first failing one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tenterhook::{Report, RunError};

use super::mutate::{self, Rng};

/// Time limit of one input; sufficient on a busy machine.
const LONGEST: Duration = Duration::from_mins(1);
/// Maximum number of attempts to minimize a failing input.
const SHRINKS: usize = 400;

/// A fuzz target.
pub(super) struct Fuzz<'a> {
    /// The name of the target.
    pub(super) name: &'a str,
    /// Initial inputs, besides the files in `corpus/<name>/`.
    pub(super) corpus: Vec<Vec<u8>>,
    /// Words of the format.
    pub(super) words: &'a [&'a str],
    /// The format of inputs, if they are structured.
    pub(super) format: Option<Format>,
    /// The number of inputs, if no time is given.
    pub(super) inputs: usize,
}

/// A structured format.
#[derive(Clone, Copy)]
pub(super) struct Format {
    pub(super) read: fn(&[u8]) -> Option<Value>,
    pub(super) write: fn(&Value) -> Option<Vec<u8>>,
}

/// JSON, as a whole or line by line.
pub(super) const JSON: Format = Format {
    read: |bytes| {
        serde_json::from_slice(bytes).ok().or_else(|| {
            let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            let lines: Option<Vec<Value>> = lines.map(|line| serde_json::from_slice(line).ok()).collect();
            lines.map(|lines| serde_json::json!({ "lines": lines }))
        })
    },
    write: |value| match value.get("lines").and_then(Value::as_array) {
        Some(lines) => Some(lines.iter().flat_map(|line| format!("{line}\n").into_bytes()).collect()),
        None => Some(value.to_string().into_bytes()),
    },
};

/// The header of a safetensors file, with the right length before it and a few bytes of data after it.
pub(super) const SAFETENSORS: Format = Format {
    read: |bytes| {
        let length = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
        serde_json::from_slice(bytes.get(8..)?.get(..usize::try_from(length).ok()?)?).ok()
    },
    write: |header| {
        let header = header.to_string().into_bytes();
        Some([&(header.len() as u64).to_le_bytes()[..], &header, &[0; 20]].concat())
    },
};

/// TOML.
pub(super) const TOML: Format = Format {
    read: |bytes| {
        let table: toml::Table = str::from_utf8(bytes).ok()?.parse().ok()?;
        serde_json::to_value(table).ok()
    },
    write: |value| Some(toml::to_string(&in_toml(value)?).ok()?.into_bytes()),
};

/// Converts JSON to TOML, without nulls.
pub(super) fn in_toml(value: &Value) -> Option<toml::Value> {
    Some(match value {
        Value::Object(map) => toml::Value::Table(
            map.iter().filter_map(|(key, value)| Some((key.clone(), in_toml(value)?))).collect(),
        ),
        Value::Array(items) => toml::Value::Array(items.iter().filter_map(in_toml).collect()),
        simple => toml::Value::try_from(simple).ok().filter(|_| !simple.is_null())?,
    })
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// The seed of all inputs.
pub(super) fn seed() -> u64 {
    number("TENTERHOOK_FUZZ_SEED").unwrap_or(1)
}

/// The time per target, if it is set.
pub(super) fn time() -> Option<Duration> {
    number("TENTERHOOK_FUZZ_SECONDS").map(Duration::from_secs)
}

impl Fuzz<'_> {
    /// Runs the inputs of the corpus, then mutations of them. `check` returns an error if the result of an
    /// input is wrong.
    pub(super) fn run(&self, check: impl Fn(&[u8]) -> Result<(), String>) {
        if let Ok(file) = std::env::var("TENTERHOOK_FUZZ_INPUT") {
            let input = std::fs::read(&file).expect("the input is there");
            return check(&input).unwrap_or_else(|wrong| panic!("{}: {wrong}", self.name));
        }
        let began = Instant::now();
        let watch = Watch::start(self.name);
        let mixed = |mixed: u64, byte: u8| mixed.wrapping_mul(31).wrapping_add(byte.into());
        let mut rng = Rng(self.name.bytes().fold(seed(), mixed));
        let corpus = [self.corpus.clone(), files(self.name)].concat();
        let goes_on = |tried: usize| time().map_or(tried < self.inputs, |time| began.elapsed() < time);
        let mut tried = 0;
        while tried < corpus.len() || goes_on(tried) {
            let input = match corpus.get(tried) {
                Some(input) => input.clone(),
                None => self.input(&mut rng, &corpus),
            };
            watch.tries(&input);
            if let Err(wrong) = attempt(&check, &input) {
                self.report(&input, &wrong, &check);
            }
            tried += 1;
        }
        println!("fuzzed {} with {tried} inputs, seed {}", self.name, seed());
    }

    fn input(&self, rng: &mut Rng, corpus: &[Vec<u8>]) -> Vec<u8> {
        let (base, other) = (rng.pick(corpus).clone(), rng.pick(corpus).clone());
        let structured = self.format.filter(|_| rng.below(4) > 0);
        let document = structured.and_then(|format| Some((format, (format.read)(&base)?)));
        let written =
            document.and_then(|(format, document)| (format.write)(&mutate::document(rng, &document)));
        written.unwrap_or_else(|| mutate::bytes(rng, &base, &other, self.words))
    }

    /// Minimizes a failing input, writes it to a file, and fails.
    fn report(&self, input: &[u8], wrong: &str, check: &impl Fn(&[u8]) -> Result<(), String>) -> ! {
        let (mut small, mut why) = (input.to_vec(), wrong.to_owned());
        let (mut size, mut left) = (small.len().div_ceil(2), SHRINKS);
        while size > 0 && left > 0 {
            let mut at = 0;
            while at < small.len() && left > 0 {
                left -= 1;
                let mut shorter = small.clone();
                shorter.drain(at..(at + size).min(small.len()));
                match attempt(check, &shorter) {
                    Err(wrong) => (small, why) = (shorter, wrong),
                    Ok(()) => at += size,
                }
            }
            size /= 2;
        }
        let file = kept(self.name, &small);
        panic!(
            "{} (seed {}): {why}\nthe input, made small: {}\ntry it again with TENTERHOOK_FUZZ_INPUT={}",
            self.name,
            seed(),
            small.escape_ascii(),
            file.display()
        );
    }
}

/// The corpus files of a target, such as inputs that failed once.
fn files(target: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fuzz/corpus").join(target);
    if !directory.is_dir() {
        return Vec::new();
    }
    let entries = std::fs::read_dir(&directory).expect("the corpus is read");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("an input is read")).collect()
}

/// Fails if a call of the trainer caught a panic.
pub(super) fn no_panic(called: Result<Report, RunError>) -> Result<(), String> {
    let (report, failure) = match called {
        Ok(report) => (report, None),
        Err(RunError::Failed { report, failure, .. }) => (*report, Some(failure)),
        Err(_) => return Ok(()),
    };
    if let Some(failure) = failure.filter(|failure| failure.panicked) {
        return Err(failure.to_string());
    }
    let contained = report.failures.kinds.iter().find(|kind| kind.panicked);
    contained.map_or(Ok(()), |kind| Err(format!("{kind:?}")))
}

fn kept(name: &str, input: &[u8]) -> PathBuf {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{name}.input"));
    std::fs::write(&file, input).expect("the input is kept");
    file
}

fn attempt(check: &impl Fn(&[u8]) -> Result<(), String>, input: &[u8]) -> Result<(), String> {
    let began = Instant::now();
    let ran = catch_unwind(AssertUnwindSafe(|| check(input)));
    let took = began.elapsed();
    match ran {
        Err(panic) => Err(format!("it panicked: {}", tenterhook::failure::panic_message(&*panic))),
        Ok(Ok(())) if took > LONGEST => Err(format!("it took {} s", took.as_secs())),
        Ok(checked) => checked,
    }
}

/// Aborts the process if an input exceeds the time limit.
struct Watch(mpsc::Sender<Vec<u8>>);

impl Watch {
    fn start(name: &str) -> Watch {
        let (sender, inputs) = mpsc::channel::<Vec<u8>>();
        let name = name.to_owned();
        std::thread::spawn(move || {
            let mut input = Vec::new();
            loop {
                match inputs.recv_timeout(2 * LONGEST) {
                    Ok(next) => input = next,
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => {
                        eprintln!("{name}: an input never ends; it is in {}", kept(&name, &input).display());
                        std::process::abort();
                    }
                }
            }
        });
        Watch(sender)
    }

    fn tries(&self, input: &[u8]) {
        self.0.send(input.to_vec()).expect("the watchdog runs");
    }
}
