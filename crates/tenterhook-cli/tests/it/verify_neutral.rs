//! `verify-neutral`, on `tenter` and on the example `intruder`, whose observer changes training.

use std::process::{Command, ExitCode};

use serde_json::Value;

use crate::tenter::{Ran, TestDir};

#[path = "../../examples/intruder.rs"]
#[allow(dead_code, unreachable_pub)] // its `main` is not called here
mod intruder;

/// The environment variable with the path of a file that contains the arguments of the example, one per line.
const ARGUMENTS: &str = "TENTERHOOK_TEST_INTRUDER";

/// Does nothing in a normal test run; the tests below run it in another process, as the example.
#[test]
fn the_example_as_a_program() {
    let Ok(arguments) = std::env::var(ARGUMENTS) else { return };
    let code = intruder::app().run_with(std::iter::once("intruder").chain(arguments.lines()));
    let number = (0..=u8::MAX).find(|number| ExitCode::from(*number) == code);
    std::process::exit(number.map_or(-1, i32::from));
}

/// Runs the example with a configuration.
fn intruder(config: &str, more: &[&str]) -> Ran {
    let dir = TestDir::new();
    dir.write("c.toml", config);
    let arguments = [&["verify-neutral", "c.toml"], more].concat().join("\n");
    let mut program = Command::new(std::env::current_exe().expect("this program"));
    program.args(["verify_neutral::the_example_as_a_program", "--exact", "--nocapture"]);
    let ran: Ran =
        program.env(ARGUMENTS, arguments).current_dir(dir.path()).output().expect("it runs").into();
    let left: Vec<_> = std::fs::read_dir(dir.path()).expect("it is there").collect();
    assert_eq!(left.len(), 1, "nothing is left behind but the configuration: {left:?}");
    ran
}

fn json(text: &str) -> Value {
    // The test harness prints a line first.
    let line = text.lines().find(|line| line.contains('{')).expect("a line of JSON");
    serde_json::from_str(&line[line.find('{').expect("a brace")..]).expect("it is JSON")
}

const INNOCENT: &str = r#"
[[hooks]]
use = "gradient_monitor"
log_frequency = 1

[[hooks]]
use = "peek"
name = "careful"
from = "own_stream"

[[hooks]]
use = "lr_monitor"
"#;

const GUILTY: &str = r#"
[[hooks]]
use = "peek"
name = "intruder"
from = "engine"
"#;

#[test]
fn an_observer_that_draws_from_the_engine_is_caught_with_step_and_parameter() {
    let ran = intruder(GUILTY, &["--steps", "4"]);
    assert_eq!(ran.code, 1, "{}{}", ran.stdout, ran.stderr);
    for part in [
        "not neutral: `intruder` changes training, first at step 1",
        "parameter `conv1.weight`, by ",
        "in the state of adamw, by ",
        "the loss is ",
        "use `cx.rng()`",
    ] {
        assert!(ran.stdout.contains(part), "no `{part}` in: {}", ran.stdout);
    }
    assert!(ran.stderr.contains("run 3, without observers, once more: done after step 1"), "{}", ran.stderr);
}

#[test]
fn the_observer_that_changes_training_is_named_among_others() {
    let ran = intruder(&[INNOCENT, GUILTY].concat(), &["--steps", "3", "--json"]);
    assert_eq!(ran.code, 1, "{}{}", ran.stdout, ran.stderr);
    let report = json(&ran.stdout);
    assert_eq!(report["finding"]["result"], "differs");
    assert_eq!(report["finding"]["causes"], serde_json::json!([["intruder"]]));
    let difference = &report["finding"]["difference"];
    assert_eq!((&difference["step"], &difference["tensors"][0]["kind"]), (&1.into(), &"parameter".into()));
    assert_eq!(difference["tensors"][0]["name"], "conv1.weight");
    assert!(difference["tensors"][0]["largest"].as_f64().is_some_and(|size| size > 0.0), "{difference}");
    assert_eq!(report["tested"].as_array().map(Vec::len), Some(4), "{report}");
}

#[test]
fn the_other_observers_are_neutral() {
    let ran = intruder(INNOCENT, &["--steps", "3"]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("neutral: 3 observers change nothing in 3 steps"), "{}", ran.stdout);
    assert!(ran.stdout.contains("the loss, 8 parameters ("), "{}", ran.stdout);
}

#[test]
fn without_dropout_the_intruder_is_neutral() {
    let config = ["[model]\ndropout = 0.0\n", GUILTY].concat();
    let ran = intruder(&config, &["--steps", "3"]);
    assert_eq!(ran.code, 0, "only the intruder draws: {}{}", ran.stdout, ran.stderr);
}

#[test]
fn the_built_in_observers_are_neutral_and_nothing_is_left_behind() {
    let dir = TestDir::new();
    let observers = [
        "console",
        "jsonl",
        "logging",
        "tensorboard",
        "csv",
        "lr_monitor",
        "gradient_monitor",
        "throughput",
        "profiler",
        "activation_stats",
    ];
    let hooks = observers.map(|hook| format!("[[hooks]]\nuse = \"{hook}\"\n")).concat();
    let rest =
        "[[hooks]]\nuse = \"early_stopping\"\nmonitor = \"val/loss\"\n[[hooks]]\nuse = \"checkpoint\"\n";
    dir.write("c.toml", ["task = \"toy\"\n", &hooks, rest].concat());
    let ran = dir.run(&["verify-neutral", "c.toml", "--steps", "12", "--json"]).succeeded();
    let report = json(&ran.stdout);
    assert_eq!((&report["finding"]["result"], &report["steps"]), (&"neutral".into(), &12.into()));
    assert_eq!(report["tested"].as_array().map(Vec::len), Some(observers.len()), "{report}");
    assert_eq!(
        report["excluded"],
        serde_json::json!([{ "hook": "checkpoint", "reason": "saves_checkpoints" }])
    );
    assert_eq!(std::fs::read_dir(dir.path()).expect("it is there").count(), 1, "only the configuration");
}

#[test]
fn without_observers_nothing_is_compared() {
    let dir = TestDir::new();
    let ran = dir.run(&["verify-neutral", "--set", "task=toy"]).succeeded();
    assert!(ran.stdout.starts_with("nothing was compared: there is no observer to test"), "{}", ran.stdout);
    assert!(ran.stdout.contains("`tenter hooks` lists the available hooks"), "{}", ran.stdout);
}

#[test]
fn a_shorter_training_is_compared_to_its_end() {
    let dir = TestDir::new();
    dir.write("c.toml", "task = \"toy\"\n[trainer]\nmax_steps = 5\n[[hooks]]\nuse = \"lr_monitor\"\n");
    let ran = dir.run(&["verify-neutral", "c.toml"]).succeeded();
    assert!(ran.stdout.starts_with("neutral: 1 observer changes nothing in 5 steps"), "{}", ran.stdout);
}

#[test]
fn by_default_enough_steps_are_compared_for_the_slowest_observer() {
    let dir = TestDir::new();
    dir.write("c.toml", "task = \"toy\"\n[[hooks]]\nuse = \"gradient_monitor\"\n");
    let ran = dir.run(&["verify-neutral", "c.toml", "--set", "trainer.max_epochs=100"]).succeeded();
    assert!(ran.stdout.starts_with("neutral: 1 observer changes nothing in 100 steps"), "{}", ran.stdout);
    let ran = dir.run(&["verify-neutral", "c.toml", "--steps", "10"]);
    assert_eq!(ran.code, 2, "{}{}", ran.stdout, ran.stderr);
    for part in ["nothing was proved", "not exercised: `gradient_monitor`", "100 steps would do", "`--steps`"]
    {
        assert!(ran.stdout.contains(part), "no `{part}` in: {}", ran.stdout);
    }
}

#[test]
fn a_failing_run_is_not_a_difference() {
    let dir = TestDir::new();
    let hook = "[[hooks]]\nuse = \"jsonl\"\npath = \"run.json/below\"\non_error = \"abort\"\n";
    dir.write("c.toml", ["task = \"toy\"\n", hook].concat());
    let ran = dir.run(&["verify-neutral", "c.toml", "--json"]);
    assert_eq!(ran.code, 2, "{}{}", ran.stdout, ran.stderr);
    assert!(
        ran.stderr.contains("the run with all observers failed, so nothing was compared"),
        "{}",
        ran.stderr
    );
    let line = json(&ran.stdout);
    assert_eq!(line["result"], "failed");
    assert!(line["error"].as_str().is_some_and(|error| error.contains("run.json/below")), "{line}");
}

#[test]
fn invalid_input_is_refused_before_training() {
    let dir = TestDir::new();
    dir.run(&["verify-neutral", "no.toml"]).refused(&["no.toml"]);
    dir.run(&["verify-neutral", "--steps", "0"]).refused(&["--steps", "0"]);
    dir.write("c.toml", "task = \"toy\"\n[[hooks]]\nuse = \"early_stopping\"\nmonitor = \"val/los\"\n");
    dir.run(&["verify-neutral", "c.toml"]).refused(&["c.toml:4:1", "did you mean `val/loss`?"]);
    dir.write("none.toml", "task = \"toy\"\n[trainer]\nmax_epochs = 0\n[[hooks]]\nuse = \"lr_monitor\"\n");
    dir.run(&["verify-neutral", "none.toml"]).refused(&["nothing is trained", "`max_epochs`"]);
}
