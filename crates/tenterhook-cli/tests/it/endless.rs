//! The program refuses endless and blocking files with their name.
#![cfg(unix)]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::tenter::{Ran, TestDir};

fn fifo(path: &Path) {
    let _ = std::fs::remove_file(path);
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo runs").success());
}

/// Runs the program, and fails if it hangs.
fn ends(dir: &TestDir, arguments: &[&str]) -> Ran {
    let mut child = dir.command(arguments).spawn().expect("it runs");
    let until = Instant::now() + Duration::from_mins(2);
    while child.try_wait().expect("it is a child").is_none() {
        if Instant::now() > until {
            child.kill().expect("it is killed");
            panic!("{arguments:?} hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("its output").into()
}

#[test]
fn only_regular_files_are_configurations_and_data() {
    let dir = TestDir::new();
    fifo(&dir.path().join("fifo"));
    for file in ["/dev/zero", "fifo", "."] {
        ends(&dir, &["plan", file]).refused(&[file]);
        for task in ["\"digits\"\n[data]\nformat = \"csv\"", "\"text\"\n[data]"] {
            dir.write("c.toml", format!("task = {task}\npath = \"{file}\"\n"));
            // For `text`, the path may be a directory.
            if file != "." || task.contains("digits") {
                ends(&dir, &["plan", "c.toml"]).refused(&[file]);
            }
        }
        ends(&dir, &["export", file, "--output", "w.safetensors"]).refused(&[file]);
    }
    dir.write("long.toml", "#".repeat((16 << 20) + 1));
    ends(&dir, &["plan", "long.toml"]).refused(&["long.toml", "16777216 bytes"]);
}

#[test]
fn a_configuration_is_read_from_a_stream_that_the_user_names() {
    let dir = TestDir::new();
    for name in ["-", "/dev/stdin", "/dev/fd/0"] {
        let mut child = dir.command(&["plan", name]).stdin(Stdio::piped()).spawn().expect("it runs");
        child.stdin.take().expect("a pipe").write_all(b"task = \"toy\"\n").expect("it reads");
        let ran: Ran = child.wait_with_output().expect("it ends").into();
        assert_eq!(ran.code, 0, "{name}: {}", ran.stderr);
    }
}

#[test]
fn an_unreadable_run_is_reported_and_does_not_hide_others() {
    let dir = TestDir::new();
    dir.write("c.toml", "task = \"toy\"\n[trainer]\nmax_epochs = 1\n");
    let good = dir.run(&["train", "c.toml", "--json"]).succeeded();
    let good: serde_json::Value = serde_json::from_str(&good.stdout).expect("JSON");
    let good = good["run"].as_str().expect("an id").to_owned();
    let bad = dir.path().join("runs/bad");
    for file in ["run.json", "config.toml", "metrics.jsonl", "events.jsonl", "lock"] {
        let _ = std::fs::remove_dir_all(&bad);
        std::fs::create_dir(&bad).expect("a directory");
        for name in ["run.json", "config.toml", "metrics.jsonl", "events.jsonl"] {
            let text = dir.read(&format!("runs/{good}/{name}"));
            // Marks the run as not ended, so all files are read.
            let text = text.replace("\"completed\"", "\"running\"");
            std::fs::write(bad.join(name), text).expect("it is written");
        }
        fifo(&bad.join(file));
        let listed = ends(&dir, &["runs"]);
        assert!(
            listed.code == 0 && listed.stdout.contains(&good[good.len() - 8..]),
            "{file}: {}",
            listed.stdout
        );
        let shown = [ends(&dir, &["show", "bad"]), ends(&dir, &["compare", "bad", &good])];
        let all: String =
            shown.iter().map(|ran| ran.stderr.as_str()).chain([listed.stderr.as_str()]).collect();
        let reason = format!("runs/bad/{file}: not a regular file");
        assert!(all.contains(&reason), "no `{reason}` in: {all}");
        assert_ne!(ends(&dir, &["resume", "bad"]).code, 0, "{file}");
    }
}

#[test]
fn a_fifo_in_place_of_a_hooks_file_does_not_block_a_resume() {
    let dir = TestDir::new();
    let hooks = [
        ("jsonl", "path", "lines.jsonl"),
        ("csv", "path", "table.csv"),
        ("csv", "path", ".table.csv.unfinished"),
        ("profiler", "filename", "profile.json"),
        ("heartbeat", "file", "beat.json"),
        ("heartbeat", "file", ".beat.json.unfinished"),
    ];
    let configured = hooks.iter().filter(|(_, _, file)| !file.starts_with('.'));
    let tables: Vec<_> = configured
        .map(|(hook, key, file)| format!("[[hooks]]\nuse = \"{hook}\"\n{key} = \"{file}\"\n"))
        .collect();
    dir.write("c.toml", format!("task = \"toy\"\n[trainer]\nmax_epochs = 1\n{}", tables.concat()));
    dir.run(&["train", "c.toml"]).succeeded();
    let record = dir.read("runs/latest/run.json").replace("\"completed\"", "\"running\"");
    for (_, _, file) in hooks {
        let run = dir.path().join("runs/latest");
        std::fs::write(run.join("run.json"), &record).expect("it is written");
        let _ = std::fs::remove_dir_all(run.join("checkpoints"));
        fifo(&run.join(file));
        let resumed = ends(&dir, &["resume", "latest"]);
        // Files that are replaced by a rename replace the FIFO.
        let replaced = run.join(file).symlink_metadata().is_ok_and(|found| found.is_file());
        let removed = run.join(file).symlink_metadata().is_err();
        let named = resumed.stderr.contains("not a regular file");
        assert!(replaced || removed || named, "{file}: {}", resumed.stderr);
        let _ = std::fs::remove_file(run.join(file));
    }
}
