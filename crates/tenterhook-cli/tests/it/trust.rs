//! A run of another user has no effects outside of its directory unless it is trusted.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::tenter::{Ran, TestDir};

/// A configuration with a command at every start and end, and a CSV file outside of the run directory.
fn config(dir: &TestDir) -> String {
    let outside = dir.path().join("outside");
    fs::create_dir_all(&outside).expect("it is made");
    let outside = outside.display();
    format!(
        "[trainer]\nmax_epochs = 1\nlimit_train_batches = 2\n[[hooks]]\nuse = \"checkpoint\"\n\
         [[hooks]]\nuse = \"exec\"\non = [\"setup\"]\ncommand = [\"touch\", \"{outside}/ran\"]\n\
         [[hooks]]\nuse = \"csv\"\npath = \"{outside}/table.csv\"\n"
    )
}

/// A user with their own home directory.
struct User<'a>(&'a TestDir, &'static str);

impl User<'_> {
    fn run(&self, arguments: &[&str]) -> Ran {
        self.with(arguments, &[])
    }

    fn with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Ran {
        let mut command = self.0.command(arguments);
        command
            .env("XDG_CONFIG_HOME", self.home())
            .env_remove("TENTER_TRUST")
            .envs(variables.iter().copied());
        command.output().expect("it runs").into()
    }

    fn home(&self) -> PathBuf {
        self.0.path().join("homes").join(self.1)
    }

    fn resume(&self, run: &str, more: &[&str]) -> Ran {
        self.run(&[&["resume", run, "--no-test"], more].concat())
    }
}

/// The effects outside of the runs since the last call.
fn happened(dir: &TestDir) -> Vec<String> {
    let outside = dir.path().join("outside");
    let entries = fs::read_dir(&outside).expect("it is there");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect();
    names.sort();
    fs::remove_dir_all(&outside).expect("it is ours");
    fs::create_dir(&outside).expect("it is made");
    names
}

fn signatures(dir: &TestDir, run: &str) -> usize {
    let record: Value = dir.json(&format!("{run}/run.json"));
    record["config_signatures"].as_array().map_or(0, Vec::len)
}

#[test]
fn a_run_of_another_user_is_refused_unless_trusted() {
    let dir = TestDir::new();
    let (me, other) = (User(&dir, "me"), User(&dir, "other"));
    dir.write("c.toml", config(&dir));
    other.run(&["train", "c.toml", "--no-test"]).succeeded();
    assert_eq!(happened(&dir), ["ran", "table.csv"]);
    let files = |name: &str| fs::read(dir.path().join("runs/latest").join(name)).expect("it is there");
    let before = ["run.json", "config.toml", "events.jsonl", "metrics.jsonl"].map(files);

    // The user's own run resumes without `--trust`, also from another directory, and with overrides.
    let longer = |epochs: u32| ["--set".to_owned(), format!("trainer.max_epochs={epochs}")];
    let effects = [
        "may not be yours (another user or another machine made it, or it was changed since)",
        "hook `exec` runs the command [\"touch\", ",
        "hook `csv` writes to ",
        "--trust",
        "TENTER_TRUST=1",
    ];
    let more = longer(2);
    let more: Vec<_> = more.iter().map(String::as_str).collect();
    me.resume("latest", &more).refused(&effects);
    for command in ["test", "validate", "predict"] {
        me.run(&[command, "--weights", "runs/latest"]).refused(&effects[..4]);
    }
    assert_eq!(happened(&dir), [""; 0]);
    assert_eq!(["run.json", "config.toml", "events.jsonl", "metrics.jsonl"].map(files), before);
    assert!(!me.home().join("tenterhook").exists(), "a check creates no key");

    // A configuration named by the user, or one without effects, needs no trust.
    me.run(&["test", "c.toml", "--weights", "runs/latest"]).succeeded();
    assert!(happened(&dir).contains(&"ran".to_owned()));
    let harmless = ["--set", "hooks.exec.enabled=false", "--set", "hooks.csv.path=table.csv"];
    me.run(&[&["test", "--weights", "runs/latest"], &harmless[..]].concat()).succeeded();
    assert_eq!(happened(&dir), [""; 0]);

    // A run that was trusted once is signed.
    me.with(&["validate", "--weights", "runs/latest"], &[("TENTER_TRUST", "1")]).succeeded();
    assert_eq!(happened(&dir), ["ran", "table.csv"]);
    me.resume("latest", &[&more[..], &["--trust"]].concat()).succeeded();
    assert_eq!(
        (happened(&dir), signatures(&dir, "runs/latest")),
        (vec!["ran".into(), "table.csv".into()], 2)
    );
    let more = longer(3);
    let more: Vec<_> = more.iter().map(String::as_str).collect();
    me.resume("latest", &more).succeeded();
    assert_eq!(happened(&dir), ["ran", "table.csv"]);
}

#[test]
fn an_own_run_resumes_after_a_move_but_not_after_a_change_of_its_configuration() {
    let dir = TestDir::new();
    let me = User(&dir, "me");
    dir.write("c.toml", config(&dir));
    me.run(&["train", "c.toml", "--no-test"]).succeeded();
    let id = fs::read_link(dir.path().join("runs/latest")).expect("a link");
    fs::create_dir(dir.path().join("moved")).expect("it is made");
    fs::rename(dir.path().join("runs").join(&id), dir.path().join("moved/run")).expect("it moves");
    happened(&dir);
    me.resume("moved/run", &["--set", "trainer.max_epochs=2"]).succeeded();
    assert_eq!(happened(&dir), ["ran", "table.csv"]);

    let changed = dir.read("moved/run/config.toml").replace("\"touch\"", "\"rm\"");
    dir.write("moved/run/config.toml", changed);
    let evil = ["or it was changed since", "hook `exec` runs the command [\"rm\", "];
    me.resume("moved/run", &["--set", "trainer.max_epochs=3"]).refused(&evil);
    let mut record: Value = dir.json("moved/run/run.json");
    record.as_object_mut().expect("an object").remove("config_signatures");
    dir.write("moved/run/run.json", record.to_string());
    me.resume("moved/run", &["--set", "trainer.max_epochs=3"]).refused(&["it is not signed", "[\"rm\", "]);
    assert_eq!(happened(&dir), [""; 0]);
    // The file named by the user counts, not the one in the run directory.
    let named = ["train", "c.toml", "--resume", "moved/run", "--no-test", "--set", "trainer.max_epochs=3"];
    me.run(&named).succeeded();
    assert_eq!(happened(&dir), ["ran", "table.csv"]);
}

#[test]
fn a_run_without_a_key_is_not_signed_and_says_so_once() {
    let dir = TestDir::new();
    dir.write("c.toml", config(&dir));
    let ran =
        User(&dir, "nobody").with(&["train", "c.toml", "--no-test"], &[("XDG_CONFIG_HOME", "/dev/null")]);
    let ran = ran.succeeded();
    assert_eq!(ran.stderr.matches("the run is not signed").count(), 1, "{}", ran.stderr);
    assert!(Path::new("/dev/null").exists() && signatures(&dir, "runs/latest") == 0);
    let resume = ["resume", "latest", "--set", "trainer.max_epochs=2", "--no-test"];
    let user = User(&dir, "nobody");
    user.run(&resume).refused(&["it is not signed"]);
    user.with(&resume, &[("TENTER_TRUST", "1")]).succeeded();
}
