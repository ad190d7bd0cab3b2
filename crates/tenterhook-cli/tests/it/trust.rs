//! A run that somebody else made has no effects outside of its directory unless the user trusts it.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::tenter::{Place, Ran};

/// Runs a command at every start and end, and writes a table outside of the run directory.
fn config(place: &Place) -> String {
    let outside = place.path().join("outside");
    fs::create_dir_all(&outside).expect("it is made");
    let outside = outside.display();
    format!(
        "[trainer]\nmax_epochs = 1\nlimit_train_batches = 2\n[[hooks]]\nuse = \"checkpoint\"\n\
         [[hooks]]\nuse = \"exec\"\non = [\"setup\"]\ncommand = [\"touch\", \"{outside}/ran\"]\n\
         [[hooks]]\nuse = \"csv\"\npath = \"{outside}/table.csv\"\n"
    )
}

/// A user of this name, with a home directory of their own.
struct User<'a>(&'a Place, &'static str);

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

/// What has happened outside of the runs since the last time.
fn happened(place: &Place) -> Vec<String> {
    let outside = place.path().join("outside");
    let entries = fs::read_dir(&outside).expect("it is there");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect();
    names.sort();
    fs::remove_dir_all(&outside).expect("it is ours");
    fs::create_dir(&outside).expect("it is made");
    names
}

fn signatures(place: &Place, run: &str) -> usize {
    let record: Value = place.json(&format!("{run}/run.json"));
    record["config_signatures"].as_array().map_or(0, Vec::len)
}

#[test]
fn a_run_of_another_user_is_acted_on_only_when_it_is_trusted() {
    let place = Place::new();
    let (me, other) = (User(&place, "me"), User(&place, "other"));
    place.write("c.toml", config(&place));
    other.run(&["train", "c.toml", "--no-test"]).succeeded();
    assert_eq!(happened(&place), ["ran", "table.csv"]);
    let files = |name: &str| fs::read(place.path().join("runs/latest").join(name)).expect("it is there");
    let before = ["run.json", "config.toml", "events.jsonl", "metrics.jsonl"].map(files);

    // The user's own resumes without a question, also elsewhere; with other options from the command line as well.
    let longer = |epochs: u32| ["--set".to_owned(), format!("trainer.max_epochs={epochs}")];
    let effects = [
        "is not known to be yours (another user or another machine made it, or it was changed since)",
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
    assert_eq!(happened(&place), [""; 0]);
    assert_eq!(["run.json", "config.toml", "events.jsonl", "metrics.jsonl"].map(files), before);
    assert!(!me.home().join("tenterhook").exists(), "a question needs no key");

    // A configuration that the user names, or one without effects, needs no trust.
    me.run(&["test", "c.toml", "--weights", "runs/latest"]).succeeded();
    assert!(happened(&place).contains(&"ran".to_owned()));
    let harmless = ["--set", "hooks.exec.enabled=false", "--set", "hooks.csv.path=table.csv"];
    me.run(&[&["test", "--weights", "runs/latest"], &harmless[..]].concat()).succeeded();
    assert_eq!(happened(&place), [""; 0]);

    // Whoever trusts it once has signed it.
    me.with(&["validate", "--weights", "runs/latest"], &[("TENTER_TRUST", "1")]).succeeded();
    assert_eq!(happened(&place), ["ran", "table.csv"]);
    me.resume("latest", &[&more[..], &["--trust"]].concat()).succeeded();
    assert_eq!(
        (happened(&place), signatures(&place, "runs/latest")),
        (vec!["ran".into(), "table.csv".into()], 2)
    );
    let more = longer(3);
    let more: Vec<_> = more.iter().map(String::as_str).collect();
    me.resume("latest", &more).succeeded();
    assert_eq!(happened(&place), ["ran", "table.csv"]);
}

#[test]
fn an_own_run_resumes_where_it_was_moved_to_and_not_after_its_configuration_was_changed() {
    let place = Place::new();
    let me = User(&place, "me");
    place.write("c.toml", config(&place));
    me.run(&["train", "c.toml", "--no-test"]).succeeded();
    let id = fs::read_link(place.path().join("runs/latest")).expect("a link");
    fs::create_dir(place.path().join("moved")).expect("it is made");
    fs::rename(place.path().join("runs").join(&id), place.path().join("moved/run")).expect("it moves");
    happened(&place);
    me.resume("moved/run", &["--set", "trainer.max_epochs=2"]).succeeded();
    assert_eq!(happened(&place), ["ran", "table.csv"]);

    let changed = place.read("moved/run/config.toml").replace("\"touch\"", "\"rm\"");
    place.write("moved/run/config.toml", changed);
    let evil = ["or it was changed since", "hook `exec` runs the command [\"rm\", "];
    me.resume("moved/run", &["--set", "trainer.max_epochs=3"]).refused(&evil);
    let mut record: Value = place.json("moved/run/run.json");
    record.as_object_mut().expect("an object").remove("config_signatures");
    place.write("moved/run/run.json", record.to_string());
    me.resume("moved/run", &["--set", "trainer.max_epochs=3"]).refused(&["it is not signed", "[\"rm\", "]);
    assert_eq!(happened(&place), [""; 0]);
    // The user's own file decides, whatever lies in the directory.
    let named = ["train", "c.toml", "--resume", "moved/run", "--no-test", "--set", "trainer.max_epochs=3"];
    me.run(&named).succeeded();
    assert_eq!(happened(&place), ["ran", "table.csv"]);
}

#[test]
fn a_run_without_a_key_is_not_signed_and_says_so_once() {
    let place = Place::new();
    place.write("c.toml", config(&place));
    let ran =
        User(&place, "nobody").with(&["train", "c.toml", "--no-test"], &[("XDG_CONFIG_HOME", "/dev/null")]);
    let ran = ran.succeeded();
    assert_eq!(ran.stderr.matches("the run is not signed").count(), 1, "{}", ran.stderr);
    assert!(Path::new("/dev/null").exists() && signatures(&place, "runs/latest") == 0);
    let resume = ["resume", "latest", "--set", "trainer.max_epochs=2", "--no-test"];
    let user = User(&place, "nobody");
    user.run(&resume).refused(&["it is not signed"]);
    user.with(&resume, &[("TENTER_TRUST", "1")]).succeeded();
}
