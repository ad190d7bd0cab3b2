//! Signals that are sent to the real program.

use std::io::{BufRead, BufReader, ErrorKind, Lines, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

use crate::tenter::TestDir;

/// A running program and its standard error.
pub(crate) struct RunningProgram {
    child: Child,
    stderr: Lines<BufReader<ChildStderr>>,
}

impl RunningProgram {
    pub(crate) fn start(dir: &TestDir, arguments: &[&str]) -> RunningProgram {
        RunningProgram::of(&mut dir.command(arguments))
    }

    pub(crate) fn of(command: &mut Command) -> RunningProgram {
        let mut child = command.spawn().expect("it starts");
        let stderr = BufReader::new(child.stderr.take().expect("standard error")).lines();
        RunningProgram { child, stderr }
    }

    /// A training run that lasts until it is stopped.
    pub(crate) fn train(dir: &TestDir, more: &[&str]) -> RunningProgram {
        let long = ["train", "--set", "task=toy", "--set", "trainer.max_epochs=100000000"];
        let mut program = RunningProgram::start(dir, &[&long, more].concat());
        program.wait_for("epoch 1/");
        program
    }

    /// Waits for a line with this text.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, what: &str) -> String {
        let mut lines = self.stderr.by_ref().map_while(Result::ok);
        lines.find(|line| line.contains(what)).unwrap_or_else(|| panic!("it never printed `{what}`"))
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it can be asked").is_none()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The exit code, the rest of standard error, and standard output.
    pub(crate) fn ended(mut self) -> (Option<i32>, String, String) {
        let rest: Vec<_> = self.stderr.by_ref().map_while(Result::ok).collect();
        let output = self.child.wait_with_output().expect("it ends");
        (output.status.code(), rest.join("\n"), String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// A full pipe, which blocks every writer.
struct Full {
    path: PathBuf,
    _held: std::fs::File,
}

impl Full {
    fn new(dir: &TestDir) -> Full {
        const NONBLOCKING: i32 = 0o4000;
        let path = pipe(dir);
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

    /// A configuration whose training starts and then blocks.
    fn config(&self, dir: &TestDir, trainer: &str) {
        let hook = format!("[[hooks]]\nuse = \"jsonl\"\npath = \"{}\"\n", self.path.display());
        dir.write("stuck.toml", format!("task = \"toy\"\n[trainer]\nmax_epochs = 2\n{trainer}\n{hook}"));
    }
}

fn pipe(dir: &TestDir) -> PathBuf {
    let path = dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().expect("mkfifo runs").success());
    path
}

fn emergencies(run: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(run.join("checkpoints")).expect("checkpoints").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("emergency-")).collect()
}

#[test]
fn every_signal_saves_a_checkpoint_and_prints_the_command_to_resume() {
    for (signal, code) in [("INT", 130), ("TERM", 143), ("USR1", 143)] {
        let dir = TestDir::new();
        let run = RunningProgram::train(&dir, &[]);
        run.signal(signal);
        let (ended, said, printed) = run.ended();
        assert_eq!(ended, Some(code), "{signal}: {said}");
        let record = dir.json("runs/latest/run.json");
        assert_eq!(record["status"], "interrupted", "{record}");
        let resume = format!("tenter resume {}", record["id"].as_str().expect("an id"));
        let answer =
            said.lines().find(|line| line.starts_with(&format!("SIG{signal}: "))).expect("an answer");
        assert!(answer.contains("emergency checkpoint") && answer.contains(&resume), "{answer}");
        assert!(
            printed.contains(&format!("interrupted by SIG{signal}")) && printed.contains(&resume),
            "{printed}"
        );
        assert_eq!(emergencies(&dir.path().join("runs/latest")).len(), 1);
    }
}

#[test]
fn a_second_signal_exits_immediately_and_the_run_counts_as_killed() {
    let dir = TestDir::new();
    let full = Full::new(&dir);
    full.config(&dir, "");
    let mut run = RunningProgram::start(&dir, &["train", "stuck.toml"]);
    run.wait_for("stuck.toml");
    run.signal("USR1");
    run.wait_for("SIGUSR1: ");
    run.signal("INT");
    let (code, said, _) = run.ended();
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("SIGINT again: exiting now"), "{said}");
    // Nothing was written at the exit, so `run.json` still says `running`, but its lock is free.
    assert_eq!(dir.json("runs/latest/run.json")["status"], "running");
    let listed: serde_json::Value =
        serde_json::from_str(&dir.run(&["runs", "--json"]).succeeded().stdout).expect("JSON");
    assert_eq!(listed["runs"][0]["status"], "killed", "{listed}");
    let table = dir.run(&["runs"]).succeeded().stdout;
    assert!(table.contains(" killed ") && !table.contains("running"), "{table}");
}

#[test]
fn a_shutdown_that_takes_too_long_is_aborted() {
    let dir = TestDir::new();
    let full = Full::new(&dir);
    full.config(&dir, "shutdown_timeout = \"1 s\"");
    let mut run = RunningProgram::start(&dir, &["train", "stuck.toml"]);
    run.wait_for("stuck.toml");
    run.signal("TERM");
    let (code, said, _) = run.ended();
    assert_eq!(code, Some(143), "{said}");
    assert!(
        said.contains("longer than `shutdown_timeout`") && said.contains("saved checkpoints are kept"),
        "{said}"
    );
    // The lock was released with the process.
    let again = dir.run(&["resume", "latest", "--set", "hooks.jsonl.path=free.jsonl"]).succeeded();
    assert!(again.stderr.contains("begins from the start"), "{}", again.stderr);
}

#[test]
fn a_signal_before_the_start_exits() {
    let train = ["train", "toy.toml", "--init-from", "/dev/stdin"];
    for command in [train, ["validate", "toy.toml", "--weights", "/dev/stdin"]] {
        let dir = TestDir::new();
        dir.write("toy.toml", "task = \"toy\"\n");
        let mut run = RunningProgram::of(dir.command(&command).stdin(Stdio::piped()));
        let mut held = run.child.stdin.take().expect("a pipe");
        // More than the capacity of a pipe, so this waits until the program reads.
        held.write_all(&vec![0; 1 << 20]).expect("it reads");
        run.signal("TERM");
        let (code, said, _) = run.ended();
        drop(held);
        assert_eq!(code, Some(143), "{said}");
        assert!(said.contains("SIGTERM: exiting; nothing was started yet"), "{said}");
        assert!(!dir.path().join("runs").exists());
    }
}

#[test]
fn an_interrupted_evaluation_prints_no_partial_results() {
    let dir = TestDir::new();
    let hook = "[[hooks]]\nuse = \"activation_store\"\npoints = [\"**\"]\nstages = [\"validate\"]\nmax_batches = 1\n";
    dir.write("toy.toml", format!("task = \"toy\"\n[trainer]\nmax_epochs = 1\n{hook}"));
    dir.run(&["train", "toy.toml", "--quiet"]).succeeded();
    let long = ["validate", "toy.toml", "--weights", "runs/latest", "--set", "data.validate=[1000000000]"];
    let mut run = RunningProgram::start(&dir, &long);
    let evaluations = dir.path().join("runs/evaluations");
    while !evaluations.exists() {
        assert!(run.is_running(), "it ended before it wrote a file");
        std::thread::yield_now();
    }
    run.signal("INT");
    let (code, said, printed) = run.ended();
    assert_eq!((code, printed.as_str()), (Some(130), ""), "{said}");
    assert!(said.contains("SIGINT: stopping after this batch"), "{said}");
}
