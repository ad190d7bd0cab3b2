//! What signals do, to the real program.

use std::io::{BufRead, BufReader, ErrorKind, Lines, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

use crate::tenter::Place;

/// A program under way, and what it says.
pub(crate) struct UnderWay {
    child: Child,
    said: Lines<BufReader<ChildStderr>>,
}

impl UnderWay {
    pub(crate) fn start(place: &Place, arguments: &[&str]) -> UnderWay {
        UnderWay::of(&mut place.command(arguments))
    }

    pub(crate) fn of(command: &mut Command) -> UnderWay {
        let mut child = command.spawn().expect("it starts");
        let said = BufReader::new(child.stderr.take().expect("standard error")).lines();
        UnderWay { child, said }
    }

    /// A training that lasts until somebody ends it.
    pub(crate) fn train(place: &Place, more: &[&str]) -> UnderWay {
        let long = ["train", "--set", "task=toy", "--set", "trainer.max_epochs=100000000"];
        let mut under_way = UnderWay::start(place, &[&long, more].concat());
        under_way.wait_for("epoch 1/");
        under_way
    }

    /// Waits until it says this.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, what: &str) -> String {
        let mut lines = self.said.by_ref().map_while(Result::ok);
        lines.find(|line| line.contains(what)).unwrap_or_else(|| panic!("it never said `{what}`"))
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    fn is_there(&mut self) -> bool {
        self.child.try_wait().expect("it can be asked").is_none()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its exit code, and what else it said and printed.
    pub(crate) fn ended(mut self) -> (Option<i32>, String, String) {
        let rest: Vec<_> = self.said.by_ref().map_while(Result::ok).collect();
        let output = self.child.wait_with_output().expect("it ends");
        (output.status.code(), rest.join("\n"), String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// A pipe without room: whoever writes to it waits as long as this is held.
struct Full {
    path: PathBuf,
    _held: std::fs::File,
}

impl Full {
    fn new(place: &Place) -> Full {
        const NONBLOCKING: i32 = 0o4000;
        let path = pipe(place);
        let mut held = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(NONBLOCKING)
            .open(&path)
            .expect("it opens");
        let full = (0..).find_map(|_| held.write_all(&[b'\n'; 4096]).err()).expect("it fills up");
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        Full { path, _held: held }
    }

    /// A configuration whose training begins and then waits for ever.
    fn config(&self, place: &Place, trainer: &str) {
        let hook = format!("[[hooks]]\nuse = \"jsonl\"\npath = \"{}\"\n", self.path.display());
        place.write("stuck.toml", format!("task = \"toy\"\n[trainer]\nmax_epochs = 2\n{trainer}\n{hook}"));
    }
}

fn pipe(place: &Place) -> PathBuf {
    let path = place.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().expect("mkfifo runs").success());
    path
}

fn emergencies(run: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(run.join("checkpoints")).expect("checkpoints").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("emergency-")).collect()
}

#[test]
fn every_signal_leaves_a_checkpoint_says_how_to_go_on_and_has_its_code() {
    for (signal, code) in [("INT", 130), ("TERM", 143), ("USR1", 143)] {
        let place = Place::new();
        let run = UnderWay::train(&place, &[]);
        run.signal(signal);
        let (ended, said, printed) = run.ended();
        assert_eq!(ended, Some(code), "{signal}: {said}");
        let record = place.json("runs/latest/run.json");
        assert_eq!(record["status"], "interrupted", "{record}");
        let go_on = format!("tenter resume {}", record["id"].as_str().expect("an id"));
        let answer =
            said.lines().find(|line| line.starts_with(&format!("SIG{signal}: "))).expect("an answer");
        assert!(answer.contains("emergency checkpoint") && answer.contains(&go_on), "{answer}");
        assert!(
            printed.contains(&format!("interrupted by SIG{signal}")) && printed.contains(&go_on),
            "{printed}"
        );
        assert_eq!(emergencies(&place.path().join("runs/latest")).len(), 1);
    }
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let place = Place::new();
    let full = Full::new(&place);
    full.config(&place, "");
    let mut run = UnderWay::start(&place, &["train", "stuck.toml"]);
    run.wait_for("stuck.toml");
    run.signal("USR1");
    run.wait_for("SIGUSR1: ");
    run.signal("INT");
    let (code, said, _) = run.ended();
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("SIGINT again: ending at once"), "{said}");
}

#[test]
fn an_end_that_takes_too_long_is_cut_short() {
    let place = Place::new();
    let full = Full::new(&place);
    full.config(&place, "shutdown_timeout = \"1 s\"");
    let mut run = UnderWay::start(&place, &["train", "stuck.toml"]);
    run.wait_for("stuck.toml");
    run.signal("TERM");
    let (code, said, _) = run.ended();
    assert_eq!(code, Some(143), "{said}");
    assert!(
        said.contains("longer than `shutdown_timeout`") && said.contains("what was saved stays"),
        "{said}"
    );
    // The lock went with the process.
    let again = place.run(&["resume", "latest", "--set", "hooks.jsonl.path=free.jsonl"]).succeeded();
    assert!(again.stderr.contains("begins from the start"), "{}", again.stderr);
}

#[test]
fn before_anything_begins_a_signal_simply_ends_it() {
    let train = ["train", "toy.toml", "--init-from", "/dev/stdin"];
    for command in [train, ["validate", "toy.toml", "--weights", "/dev/stdin"]] {
        let place = Place::new();
        place.write("toy.toml", "task = \"toy\"\n");
        let mut run = UnderWay::of(place.command(&command).stdin(Stdio::piped()));
        let mut held = run.child.stdin.take().expect("a pipe");
        // More than a pipe holds: this waits until the program reads from it.
        held.write_all(&vec![0; 1 << 20]).expect("it reads");
        run.signal("TERM");
        let (code, said, _) = run.ended();
        drop(held);
        assert_eq!(code, Some(143), "{said}");
        assert!(said.contains("SIGTERM: ending; nothing had begun"), "{said}");
        assert!(!place.path().join("runs").exists());
    }
}

#[test]
fn an_evaluation_ends_and_prints_no_half_results() {
    let place = Place::new();
    let hook = "[[hooks]]\nuse = \"activation_store\"\npoints = [\"**\"]\nstages = [\"validate\"]\nmax_batches = 1\n";
    place.write("toy.toml", format!("task = \"toy\"\n[trainer]\nmax_epochs = 1\n{hook}"));
    place.run(&["train", "toy.toml", "--quiet"]).succeeded();
    let long = ["validate", "toy.toml", "--weights", "runs/latest", "--set", "data.validate=[1000000000]"];
    let mut run = UnderWay::start(&place, &long);
    let evaluations = place.path().join("runs/evaluations");
    while !evaluations.exists() {
        assert!(run.is_there(), "it ended before it wrote anything");
        std::thread::yield_now();
    }
    run.signal("INT");
    let (code, said, printed) = run.ended();
    assert_eq!((code, printed.as_str()), (Some(130), ""), "{said}");
    assert!(said.contains("SIGINT: it ends after this batch"), "{said}");
}
