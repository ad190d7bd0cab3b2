//! A run in use by another process is not changed.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use tenterhook::run::RunLock;

use crate::fuzz::runs::copied;
use crate::tenter::TestDir;

const CONFIG: &str = r#"
task = "toy"
[trainer]
max_epochs = 2
[[hooks]]
use = "checkpoint"
every_n_epochs = 2
[[hooks]]
use = "jsonl"
[[hooks]]
use = "csv"
[[hooks]]
use = "tensorboard"
"#;

/// Hooks with visible effects outside of the run directory.
const OUTSIDE: &str = r#"
[[hooks]]
use = "exec"
on = ["setup", "on_exception", "teardown"]
command = "echo called >> called"
[[hooks]]
use = "notify"
url_env = "ADDRESS"
notify_on = ["training_end", "exception"]
"#;

/// All files below a directory, with their contents or link targets.
fn contents(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_symlink() {
            let to = fs::read_link(&path).expect("a link");
            all.push((path, to.into_os_string().into_encoded_bytes()));
        } else if path.is_dir() {
            all.extend(contents(&path));
        } else {
            let bytes = fs::read(&path).expect("a file");
            all.push((path, bytes));
        }
    }
    all.sort();
    all
}

#[test]
fn files_of_another_tool_among_the_runs_are_not_touched() {
    let dir = TestDir::new();
    dir.write("c.toml", CONFIG);
    for (name, file, text) in [
        ("exp-1", "events.jsonl", "{\"event\":\"start\"}\nhalf"),
        ("exp-2", "run.json", "{\"name\":\"mine\",\"status\":\"running\"}"),
        ("exp-2", "events.jsonl", "not ours"),
        (".exp-3.unfinished", "notes.txt", "mine"),
    ] {
        fs::create_dir_all(dir.path().join("runs").join(name)).expect("it is made");
        dir.write(&format!("runs/{name}/{file}"), text);
    }
    let before = contents(&dir.path().join("runs"));
    let listed = dir.run(&["runs"]);
    assert!(!format!("{}{}", listed.stdout, listed.stderr).contains("exp-"), "{}", listed.stderr);
    for what in ["exp-1", "exp-2", "runs/exp-2"] {
        dir.run(&["show", what]).refused(&["is not a tenterhook run"]);
        dir.run(&["resume", what]).refused(&["is not a tenterhook run"]);
        dir.run(&["train", "c.toml", "--resume", what]).refused(&["run"]);
    }
    assert_eq!(contents(&dir.path().join("runs")), before);
    dir.run(&["train", "c.toml", "--resume", "auto", "--quiet"]).succeeded();
    let after = contents(&dir.path().join("runs"));
    assert!(before.iter().all(|file| after.contains(file)), "a new training does not change them");
}

#[test]
fn a_resume_of_a_run_in_use_changes_no_byte_and_calls_no_hook() {
    let dir = TestDir::new();
    dir.write("c.toml", CONFIG);
    dir.write("outside.toml", format!("{CONFIG}{OUTSIDE}"));
    dir.run(&["train", "c.toml", "--quiet"]).succeeded();
    let run = dir.path().join("runs/latest").canonicalize().expect("a run");
    // Extends the files beyond the checkpoint, as a running training does.
    for file in ["metrics.jsonl", "json_log.jsonl", "metrics.csv"] {
        let path = run.join(file);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
        fs::write(&path, format!("{text}{}\n", text.lines().last().expect("a line"))).expect("it is written");
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("it does not wait");
    let address = format!("http://{}/", listener.local_addr().expect("an address"));

    let lock = RunLock::acquire(&run).expect("it is free");
    let before = contents(&dir.path().join("runs"));
    let more = ["--accept-hook-changes", "--set", "trainer.max_epochs=4"];
    for command in
        [&["train", "outside.toml", "--resume", "latest"][..], &["train", "outside.toml", "--resume", "auto"]]
    {
        let mut command = dir.command(&[command, &more].concat());
        let refused = crate::tenter::Ran::from(command.env("ADDRESS", &address).output().expect("it runs"));
        refused.refused(&["is in use by process", "wait until it ends, or stop it"]);
        assert!(!refused.stderr.contains("resuming"), "{}", refused.stderr);
    }
    dir.run(&["resume", "latest", "--set", "trainer.max_epochs=4"]).refused(&["is in use by process"]);
    assert_eq!(contents(&dir.path().join("runs")), before);
    assert!(!dir.path().join("called").exists(), "`exec` ran");
    assert!(listener.accept().is_err(), "`notify` sent something");

    drop(lock);
    let resumed = dir.run(&["resume", "latest", "--set", "trainer.max_epochs=4"]).succeeded();
    assert!(
        resumed.stderr.contains("resuming from checkpoints/epoch=1-step=16: 2 epochs, 16 steps done"),
        "{}",
        resumed.stderr
    );
}

#[test]
fn a_refused_resume_calls_no_hook_and_changes_no_byte_of_the_run() {
    let dir = TestDir::new();
    let exec = "[[hooks]]\nuse = \"exec\"\non = [\"setup\", \"on_exception\", \"teardown\"]\ncommand = \"echo called >> called\"\n";
    let config = format!("{CONFIG}{exec}");
    dir.write("c.toml", &config);
    dir.write("more.toml", format!("{config}[[hooks]]\nuse = \"timer\"\n"));
    dir.run(&["train", "c.toml", "--quiet"]).succeeded();
    fs::remove_file(dir.path().join("called")).expect("it was called");
    let run = dir.path().join("runs/latest").canonicalize().expect("a run");
    let refused = |config: &str, more: &[&str], why: &str| {
        let before = contents(&run);
        let resume = ["train", config, "--resume", "latest", "--set", "trainer.max_epochs=3"];
        let ran = dir.run(&[&resume[..], more].concat());
        assert!(!ran.stderr.contains("resuming") && !ran.stderr.contains("other settings"), "{}", ran.stderr);
        ran.refused(&[why]);
        assert!(contents(&run) == before, "{why}: the run has changed");
        assert!(!dir.path().join("called").exists(), "{why}: a hook was called");
    };
    refused("more.toml", &[], "`timer` is registered and not in the checkpoint");
    refused("c.toml", &["--set", "trainer.seed=7"], "trainer.seed: 0 -> 7");
    let checkpoint = run.join("checkpoints/latest").canonicalize().expect("a checkpoint");
    let state = fs::read(checkpoint.join("state.json")).expect("a state");
    let mut state: serde_json::Value = serde_json::from_slice(&state).expect("JSON");
    state["hooks"]["checkpoint"]["data"]["last"] = "../up".into();
    let forged = dir.path().join("forged");
    copied(&checkpoint, &forged, state.to_string().as_bytes());
    fs::remove_dir_all(&checkpoint).expect("it is removed");
    fs::rename(forged, &checkpoint).expect("it is in its dir");
    refused("c.toml", &[], "is not a path below its directory");
}
