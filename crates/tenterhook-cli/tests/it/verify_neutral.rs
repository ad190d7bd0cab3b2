//! `verify-neutral`: of the program itself, and of one with an observer that changes training.

use std::process::{Command, ExitCode};

use serde_json::Value;

use crate::tenter::{Place, Ran};

#[path = "../../examples/intruder.rs"]
#[allow(dead_code, unreachable_pub)] // its `main` is not called here
mod intruder;

/// Where the arguments stand, one a line, when this test program is to be the example's.
const ARGUMENTS: &str = "TENTERHOOK_TEST_INTRUDER";

/// Does nothing by itself: the tests below start this program anew, to be the example's.
#[test]
fn the_example_as_a_program() {
    let Ok(arguments) = std::env::var(ARGUMENTS) else { return };
    let code = intruder::app().run_with(std::iter::once("intruder").chain(arguments.lines()));
    let number = (0..=u8::MAX).find(|number| ExitCode::from(*number) == code);
    std::process::exit(number.map_or(-1, i32::from));
}

/// Runs the example's program with this configuration.
fn intruder(config: &str, more: &[&str]) -> Ran {
    let place = Place::new();
    place.write("c.toml", config);
    let arguments = [&["verify-neutral", "c.toml"], more].concat().join("\n");
    let mut program = Command::new(std::env::current_exe().expect("this program"));
    program.args(["verify_neutral::the_example_as_a_program", "--exact", "--nocapture"]);
    let ran: Ran =
        program.env(ARGUMENTS, arguments).current_dir(place.path()).output().expect("it runs").into();
    let left: Vec<_> = std::fs::read_dir(place.path()).expect("it is there").collect();
    assert_eq!(left.len(), 1, "nothing is left behind but the configuration: {left:?}");
    ran
}

fn json(text: &str) -> Value {
    // Before it, the test harness says what it runs.
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
        "Draw from `cx.rng()`",
    ] {
        assert!(ran.stdout.contains(part), "no `{part}` in: {}", ran.stdout);
    }
    assert!(ran.stderr.contains("run 3, without observers, once more: done after step 1"), "{}", ran.stderr);
}

#[test]
fn among_innocent_observers_the_guilty_one_is_named() {
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
fn without_the_guilty_one_the_others_are_neutral() {
    let ran = intruder(INNOCENT, &["--steps", "3"]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("neutral: 3 observers change nothing in 3 steps"), "{}", ran.stdout);
    assert!(ran.stdout.contains("the loss, 8 parameters ("), "{}", ran.stdout);
}

#[test]
fn dropout_is_what_gives_the_intruder_away() {
    let config = ["[model]\ndropout = 0.0\n", GUILTY].concat();
    let ran = intruder(&config, &["--steps", "3"]);
    assert_eq!(ran.code, 0, "nobody else draws: {}{}", ran.stdout, ran.stderr);
}

#[test]
fn the_built_in_observers_are_neutral_and_nothing_is_left_behind() {
    let place = Place::new();
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
    place.write("c.toml", ["task = \"toy\"\n", &hooks, rest].concat());
    let ran = place.run(&["verify-neutral", "c.toml", "--steps", "12", "--json"]).succeeded();
    let report = json(&ran.stdout);
    assert_eq!((&report["finding"]["result"], &report["steps"]), (&"neutral".into(), &12.into()));
    assert_eq!(report["tested"].as_array().map(Vec::len), Some(observers.len()), "{report}");
    assert_eq!(
        report["excluded"],
        serde_json::json!([{ "hook": "checkpoint", "reason": "saves_checkpoints" }])
    );
    assert_eq!(std::fs::read_dir(place.path()).expect("it is there").count(), 1, "only the configuration");
}

#[test]
fn a_configuration_without_observers_is_told_that_nothing_was_compared() {
    let place = Place::new();
    let ran = place.run(&["verify-neutral", "--set", "task=toy"]).succeeded();
    assert!(ran.stdout.starts_with("nothing was compared: there is no observer to test"), "{}", ran.stdout);
    assert!(ran.stdout.contains("`tenter hooks` lists what there is"), "{}", ran.stdout);
}

#[test]
fn a_training_that_is_shorter_is_compared_whole() {
    let place = Place::new();
    place.write("c.toml", "task = \"toy\"\n[trainer]\nmax_steps = 5\n[[hooks]]\nuse = \"lr_monitor\"\n");
    let ran = place.run(&["verify-neutral", "c.toml"]).succeeded();
    assert!(ran.stdout.starts_with("neutral: 1 observer changes nothing in 5 steps"), "{}", ran.stdout);
}

#[test]
fn the_usual_number_of_steps_lets_the_slowest_observer_fire() {
    let place = Place::new();
    place.write("c.toml", "task = \"toy\"\n[[hooks]]\nuse = \"gradient_monitor\"\n");
    let ran = place.run(&["verify-neutral", "c.toml", "--set", "trainer.max_epochs=100"]).succeeded();
    assert!(ran.stdout.starts_with("neutral: 1 observer changes nothing in 100 steps"), "{}", ran.stdout);
    let ran = place.run(&["verify-neutral", "c.toml", "--steps", "10"]);
    assert_eq!(ran.code, 2, "{}{}", ran.stdout, ran.stderr);
    for part in ["nothing was proved", "not exercised: `gradient_monitor`", "100 steps would do", "`--steps`"]
    {
        assert!(ran.stdout.contains(part), "no `{part}` in: {}", ran.stdout);
    }
}

#[test]
fn a_run_that_fails_is_told_apart_from_a_difference() {
    let place = Place::new();
    let hook = "[[hooks]]\nuse = \"jsonl\"\npath = \"run.json/below\"\non_error = \"abort\"\n";
    place.write("c.toml", ["task = \"toy\"\n", hook].concat());
    let ran = place.run(&["verify-neutral", "c.toml", "--json"]);
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
fn wrong_input_is_refused_before_anything_is_trained() {
    let place = Place::new();
    place.run(&["verify-neutral", "no.toml"]).refused(&["no.toml"]);
    place.run(&["verify-neutral", "--steps", "0"]).refused(&["--steps", "0"]);
    place.write("c.toml", "task = \"toy\"\n[[hooks]]\nuse = \"early_stopping\"\nmonitor = \"val/los\"\n");
    place.run(&["verify-neutral", "c.toml"]).refused(&["c.toml:4:1", "did you mean `val/loss`?"]);
    place.write("none.toml", "task = \"toy\"\n[trainer]\nmax_epochs = 0\n[[hooks]]\nuse = \"lr_monitor\"\n");
    place.run(&["verify-neutral", "none.toml"]).refused(&["nothing is trained", "`max_epochs`"]);
}
