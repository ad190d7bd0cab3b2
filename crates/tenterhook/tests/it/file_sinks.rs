//! `tensorboard` and `csv` in real runs: they do not change training, and their files contain all logged values.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tenterhook::registry::Registry;
use tenterhook::run::{RunDirectoryOptions, RunLock};
use tenterhook::toy::Toy;
use tenterhook::{Report, RunNotice, Settings, Trainer, closure};

use crate::lab::{bits, data, epochs};
use crate::run_directory::{latest, plan, run_json};

/// The final weights and the report of three epochs with these hooks.
fn trained(root: &Path, hooks: &[(&str, Value)]) -> (Vec<u32>, Report) {
    let mut toy = Toy::default();
    let report = trainer(plan(root), hooks).fit(&mut toy, &mut data(4, 2)).unwrap();
    (bits(&toy), report)
}

fn trainer(plan: RunDirectoryOptions, hooks: &[(&str, Value)]) -> Trainer {
    let settings = Settings { log_every_n_steps: 1, num_sanity_val_steps: 1, seed: 3, ..epochs(3) };
    let mut trainer = crate::lab::trainer(settings).with_run_directory(plan);
    // Metrics that are first logged late, and NaN values.
    let late = |cx: &tenterhook::StepEnd<'_>| {
        if cx.step > 6 {
            cx.log("late, \"and\" odd", if cx.step.is_multiple_of(2) { f64::NAN } else { 1e-9 });
        }
    };
    trainer.add_hook(closure::on_step_end("late", late)).unwrap();
    for (name, options) in hooks {
        trainer.add_hook(Registry::default().hook(name, options.clone()).unwrap()).unwrap();
    }
    trainer
}

fn sinks() -> Vec<(&'static str, Value)> {
    let histograms = json!({ "histograms": ["gradients", "weights"], "histogram_every_n_steps": 2 });
    vec![("csv", json!({})), ("tensorboard", histograms)]
}

/// The lines of `metrics.jsonl`.
fn lines(directory: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(directory.join("metrics.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_run_with_file_sinks_is_bit_identical_and_does_not_wait() {
    let (root, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (alone, _) = trained(root.path(), &[]);
    let (watched, report) = trained(other.path(), &sinks());
    assert_eq!(alone, watched);
    let sinks = &report.sinks;
    assert_eq!(sinks.iter().map(|sink| sink.hook.as_str()).collect::<Vec<_>>(), ["csv", "tensorboard"]);
    let lines = lines(&latest(other.path())).len() as u64;
    // The configuration, and two kinds of histograms at every second of twelve steps.
    assert_eq!(sinks.iter().map(|sink| sink.stats.delivered).collect::<Vec<_>>(), [lines, lines + 1 + 12]);
    for sink in sinks.iter().map(|sink| sink.stats) {
        assert_eq!((sink.sent - sink.delivered, sink.failed, sink.dropped, sink.lost), (0, 0, 0, 0));
        assert!(sink.waited.is_zero(), "{sink:?}");
    }
    let run = run_json(&latest(other.path()));
    assert_eq!(run["sinks"][0]["delivered"], lines);
}

#[test]
fn the_table_has_a_row_for_every_line_with_the_same_numbers() {
    let root = tempfile::tempdir().unwrap();
    trained(root.path(), &sinks());
    check_table(&latest(root.path()));
}

/// Checks that the table has exactly one row for every line of `metrics.jsonl`.
fn check_table(directory: &Path) {
    let text = std::fs::read_to_string(directory.join("metrics.csv")).unwrap();
    let header = text.lines().next().unwrap();
    assert!(header.ends_with(",\"late, \"\"and\"\" odd\""), "it came last: {header}");
    let plain = text.replace("\"late, \"\"and\"\" odd\"", "odd");
    let columns: Vec<_> = plain.lines().next().unwrap().split(',').collect();
    let rows = plain.lines().skip(1).map(|row| {
        let cells: BTreeMap<_, _> = columns.iter().copied().zip(row.split(',')).collect();
        assert_eq!(cells.len(), columns.len(), "{row}");
        cells.into_iter().filter(|(_, cell)| !cell.is_empty()).collect::<BTreeMap<_, _>>()
    });
    let number = |value: &Value| {
        value.as_f64().map_or_else(|| value.as_str().unwrap().to_owned(), |it| format!("{it:?}"))
    };
    let lines = lines(directory);
    assert!(lines.len() > 12, "{lines:?}");
    for (line, row) in lines.iter().zip(rows.collect::<Vec<_>>()) {
        let metrics = line["metrics"].as_object().unwrap().iter();
        let name = |name: &String| if name.starts_with("late") { "odd".to_owned() } else { name.clone() };
        let mut expected: BTreeMap<_, _> = metrics.map(|(key, value)| (name(key), number(value))).collect();
        for key in ["step", "epoch"] {
            expected.insert(key.into(), line[key].to_string());
        }
        expected.insert("stage".into(), line["stage"].as_str().unwrap().into());
        expected.insert("time".into(), number(&line["time"]));
        assert_eq!(
            row.into_iter().map(|(key, cell)| (key.to_owned(), cell.to_owned())).collect::<BTreeMap<_, _>>(),
            expected
        );
    }
    assert_eq!(plain.lines().count() - 1, lines.len());
}

/// The only event file of a run.
fn event_file(directory: &Path) -> PathBuf {
    let mut files = std::fs::read_dir(directory.join("tensorboard")).unwrap();
    files.next().unwrap().unwrap().path()
}

#[test]
fn a_resumed_run_restores_what_its_sinks_have_lost() {
    let root = tempfile::tempdir().unwrap();
    let every = json!({ "every_n_train_steps": 5, "save_top_k": -1 });
    let histograms = json!({ "log_histogram": true, "log_frequency": 2 });
    let hooks = [
        ("csv", json!({})),
        ("tensorboard", json!({})),
        ("gradient_monitor", histograms),
        ("checkpoint", every),
    ];
    trained(root.path(), &hooks);
    let directory = latest(root.path());
    let counts = |directory: &Path| {
        let text = |file: &str| std::fs::read_to_string(directory.join(file)).unwrap().lines().count();
        (text("metrics.jsonl"), text("histograms.jsonl"), text("metrics.csv"))
    };
    let (whole, events) = (counts(&directory), std::fs::read(event_file(&directory)).unwrap());
    for damage in 0..4 {
        let (table, event_file) = (directory.join("metrics.csv"), event_file(&directory));
        match damage {
            // As if the process was killed after the workers had written a fifth of the file.
            0 => {
                for path in [&table, &event_file] {
                    let bytes = std::fs::read(path).unwrap();
                    std::fs::write(path, &bytes[..bytes.len() / 5]).unwrap();
                }
            }
            1 => [&table, &event_file].into_iter().for_each(|path| std::fs::remove_file(path).unwrap()),
            2 => [&table, &event_file].into_iter().for_each(|path| std::fs::write(path, "damaged").unwrap()),
            _ => {}
        }
        let resume = Some(RunLock::acquire(directory.clone()).unwrap());
        let plan = RunDirectoryOptions { resume, ..plan(root.path()) };
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&said);
        let mut trainer = trainer(plan, &hooks).restoring(directory.join("checkpoints/epoch=1-step=5"));
        trainer = trainer.with_notices(move |notice| {
            if let RunNotice::Said { hook, text } = notice {
                heard.lock().unwrap().push(format!("{hook}: {text}"));
            }
        });
        trainer.fit(&mut Toy::default(), &mut data(4, 2)).unwrap();
        drop(trainer);
        check_table(&directory);
        assert_eq!(counts(&directory), whole, "{damage}");
        let restored = std::fs::read(&event_file).unwrap();
        assert_eq!(restored.len(), events.len(), "{damage}: as many events of the same size");
        let said = said.lock().unwrap().clone();
        let hooks: Vec<_> =
            said.iter().filter(|text| text.contains("restored")).map(|text| &text[..3]).collect();
        assert_eq!(hooks, if damage == 3 { vec![] } else { vec!["csv", "ten"] }, "{said:?}");
    }
}

/// A Python with TensorBoard, which CI installs.
fn python() -> Option<String> {
    let python = std::env::var("TENTERHOOK_PYTHON").unwrap_or_else(|_| "python3".into());
    let has_it = Command::new(&python).args(["-c", "import tensorboard"]).output();
    if has_it.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    assert!(std::env::var_os("CI").is_none(), "CI must have a Python with tensorboard");
    eprintln!("SKIPPED: there is no Python with tensorboard (name one in TENTERHOOK_PYTHON)");
    None
}

/// TensorBoard, on a free port of this machine.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(python: &str, directory: &Path) -> Server {
        let mut child = Command::new(python)
            .args(["-m", "tensorboard.main", "--host", "127.0.0.1", "--port", "0", "--logdir"])
            .arg(directory)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let address = said.find_map(|line| {
            let (_, address) = line.split_once("http://")?;
            Some(address.split(['/', ' ']).next()?.to_owned())
        });
        // The output must be read, or the server would block.
        std::thread::spawn(move || said.for_each(drop));
        Server { child, address: address.expect("it says where it is") }
    }

    /// The first non-empty answer, because the server reads files with a delay.
    fn ask(&self, path: &str) -> Value {
        let deadline = Instant::now() + Duration::from_mins(2);
        loop {
            let mut stream = TcpStream::connect(&self.address).unwrap();
            write!(stream, "GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.address).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
            let is_there = head.contains(" 200 ") && !["[]", "{}", ""].contains(&body.trim());
            if is_there {
                return serde_json::from_str(body).unwrap();
            }
            assert!(Instant::now() < deadline, "{path}: {answer}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_real_tensorboard_shows_what_was_logged() {
    let Some(python) = python() else { return };
    let root = tempfile::tempdir().unwrap();
    trained(root.path(), &sinks());
    let directory = latest(root.path());
    let server = Server::start(&python, &root.path().join("runs"));
    let id = directory.file_name().unwrap().to_string_lossy().into_owned();
    let run = format!("{id}/tensorboard");
    let tags = server.ask("/data/plugin/scalars/tags");
    assert!(tags[&run]["val/loss"].is_object(), "{tags}");
    let mut asked = 0;
    for tag in tags[&run].as_object().unwrap().keys() {
        let query = tag.bytes().map(|byte| format!("%{byte:02X}")).collect::<Vec<_>>().concat();
        let shown =
            server.ask(&format!("/data/plugin/scalars/scalars?run={}&tag={query}", run.replace('/', "%2F")));
        let shown: Vec<_> = shown
            .as_array()
            .unwrap()
            .iter()
            .map(|point| (point[1].as_u64().unwrap(), rounded(&point[2])))
            .collect();
        // TensorBoard shows the last of several values of one step, which is that of the epoch at its end.
        let logged: BTreeMap<_, _> = lines(&directory)
            .iter()
            .filter_map(|line| Some((line["step"].as_u64().unwrap(), rounded(line["metrics"].get(tag)?))))
            .collect();
        assert!(!logged.is_empty(), "{tag}");
        assert_eq!(shown, logged.into_iter().collect::<Vec<_>>(), "{tag}");
        asked += 1;
    }
    assert!(asked >= 3, "{tags}");
    let histograms = server.ask("/data/plugin/histograms/tags");
    for tag in ["gradients/weight", "weights/weight", "gradients/bias", "weights/bias"] {
        assert!(histograms[&run][tag].is_object(), "{histograms}");
    }
    let texts = server.ask("/data/plugin/text/tags");
    assert_eq!(texts[&run], json!(["config"]));
    let text = server.ask(&format!("/data/plugin/text/text?run={}&tag=config", run.replace('/', "%2F")));
    let text = text[0]["text"].as_str().unwrap();
    assert!(text.contains("<pre><code>{") && text.contains("\"trainer\""), "{text}");
}

/// A number rounded to 32 bits. NaN and infinity may be text.
#[allow(clippy::cast_possible_truncation)]
fn rounded(value: &Value) -> String {
    let number = value.as_f64().or_else(|| value.as_str()?.parse().ok()).unwrap();
    format!("{:?}", number as f32)
}
