//! The exit code and the run directory after failures of hooks: of every kind, under every policy, alone or together,
//! before, during and after training.
//!
//! The exit code depends only on whether the run had started and whether the failure ended it. The failure
//! matrix of the crate `tenterhook` tests the other effects for every event.

use std::process::{Command, ExitCode};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tenterhook::prelude::*;
use tenterhook::{AnyHook, Gradients, Setup, Teardown, Update, UpdateHook};
use tenterhook_app::App;
use tenterhook_tasks::digits::Digits;

use crate::tenter::TestDir;

#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Fault {
    kind: String,
    at: String,
    panics: bool,
}

impl Fault {
    fn at(&self, dir: &str) -> HookResult {
        match self.panics {
            _ if self.at != dir => Ok(()),
            false => Err("it goes wrong".into()),
            true => panic!("it goes wrong"),
        }
    }
}

struct Observes(Fault);
struct Shows(Fault);
struct Controls(Fault);
struct Updates(Fault);

#[hook]
impl Observer for Observes {
    fn setup(&mut self, _: &Setup) -> HookResult {
        self.0.at("setup")
    }
    fn on_fit_start(&mut self, _: &FitStart) -> HookResult {
        self.0.at("on_fit_start")
    }
    fn on_train_start(&mut self, _: &TrainStart) -> HookResult {
        self.0.at("on_train_start")
    }
    fn on_step_end(&mut self, _: &StepEnd) -> HookResult {
        self.0.at("on_step_end")
    }
    fn on_train_end(&mut self, _: &TrainEnd) -> HookResult {
        self.0.at("on_train_end")
    }
    fn teardown(&mut self, _: &Teardown) -> HookResult {
        self.0.at("teardown")
    }
}

#[hook]
impl Observer for Shows {
    fn on_activation(&mut self, cx: &Activation) -> HookResult {
        if cx.phase == Phase::Train { self.0.at("on_activation") } else { Ok(()) }
    }
}

#[hook]
impl Controller for Controls {
    fn setup(&mut self, _: &Setup) -> HookResult<Decision> {
        self.0.at("setup").map(Into::into)
    }
    fn on_fit_start(&mut self, _: &FitStart) -> HookResult<Decision> {
        self.0.at("on_fit_start").map(Into::into)
    }
    fn on_train_start(&mut self, _: &TrainStart) -> HookResult<Decision> {
        self.0.at("on_train_start").map(Into::into)
    }
    fn on_step_end(&mut self, _: &StepEnd) -> HookResult<Decision> {
        self.0.at("on_step_end").map(Into::into)
    }
    fn on_train_end(&mut self, _: &TrainEnd) -> HookResult<Decision> {
        self.0.at("on_train_end").map(Into::into)
    }
    fn teardown(&mut self, _: &Teardown) -> HookResult {
        self.0.at("teardown")
    }
}

#[hook]
impl UpdateHook for Updates {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.name("updates")
    }
    fn update(&mut self, _: &mut Gradients<'_>, _: &Update<'_>) -> HookResult {
        self.0.at("update")
    }
}

fn faulty(fault: Fault) -> Result<AnyHook, String> {
    Ok(match fault.kind.as_str() {
        "observer" => AnyHook::new(Observes(fault)),
        "forward" => AnyHook::new(Shows(fault)),
        "controller" => AnyHook::new(Controls(fault)),
        "update" => AnyHook::new(Updates(fault)),
        kind => return Err(format!("`{kind}` is no kind of hook")),
    })
}

const BEFORE: [&str; 2] = ["setup", "on_fit_start"];
const BEGUN: [&str; 4] = ["on_train_start", "on_step_end", "on_train_end", "teardown"];

fn places(kind: &str) -> Vec<&'static str> {
    match kind {
        "forward" => vec!["on_activation"],
        "update" => vec!["update"],
        _ => [&BEFORE[..], &BEGUN].concat(),
    }
}

/// One training run: the directory of its runs, its configuration, and the expected result.
struct Case {
    directory: String,
    config: String,
    code: u8,
    began: bool,
    policy: &'static str,
    at: &'static str,
    panics: bool,
    hooks: usize,
}

fn cases(kind: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for at in places(kind) {
        for policy in ["abort", "warn", "disable"] {
            for panics in [false, true] {
                for hooks in [1, 2] {
                    let directory = format!("{kind}-{at}-{policy}-{panics}-{hooks}");
                    let most = if policy == "disable" { "max_failures = 2" } else { "" };
                    let hook = |number| {
                        format!(
                            "[[hooks]]\nuse = \"faulty\"\nname = \"x{number}\"\nkind = \"{kind}\"\nat = \"{at}\"\n\
                             panics = {panics}\non_error = \"{policy}\"\n{most}\n"
                        )
                    };
                    let all: String = (1..=hooks).map(hook).collect();
                    let config = format!("runs_dir = \"{directory}\"\n{all}");
                    let began = policy != "abort" || !BEFORE.contains(&at);
                    let code = if policy == "abort" { 1 + u8::from(!began) } else { 0 };
                    cases.push(Case { directory, config, code, began, policy, at, panics, hooks });
                }
            }
        }
    }
    cases
}

/// The environment variable with the kind of hooks that the program below tests.
const KIND: &str = "TENTERHOOK_TEST_EXIT_CODES";
const CODES: &str = "codes.json";

/// Does nothing in a normal test run; the test below runs it in another process, to capture its output.
#[test]
fn trainings_of_one_kind_of_hooks() {
    let Ok(kind) = std::env::var(KIND) else { return };
    let train = |case: Case| {
        std::fs::write("c.toml", &case.config).unwrap();
        let app = App::new("faulty").task(Digits).hook("faulty", faulty);
        let few = ["faulty", "train", "c.toml", "--no-test", "--quiet", "--set", "trainer.max_epochs=1"];
        let fewer = ["limit_train_batches=3", "limit_val_batches=1"].map(|limit| format!("trainer.{limit}"));
        let more = fewer.iter().flat_map(|limit| ["--set", limit]);
        let code = app.run_with(few.into_iter().chain(more));
        (0..=u8::MAX).find(|number| ExitCode::from(*number) == code).unwrap()
    };
    let codes: Vec<u8> = cases(&kind).into_iter().map(train).collect();
    std::fs::write(CODES, serde_json::to_string(&codes).unwrap()).unwrap();
}

fn check(kind: &str) {
    let dir = TestDir::new();
    let mut program = Command::new(std::env::current_exe().expect("this program"));
    program.env("XDG_CONFIG_HOME", crate::CONFIG_HOME);
    program.args(["exit_codes::trainings_of_one_kind_of_hooks", "--exact"]);
    let ran = program.env(KIND, kind).current_dir(dir.path()).output().expect("it runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
    let codes = dir.json(CODES);
    for (case, code) in cases(kind).iter().zip(codes.as_array().unwrap()) {
        let Case { directory, policy, at, panics, hooks, .. } = case;
        assert_eq!(*code, case.code, "{directory}");
        assert_eq!(dir.path().join(directory).exists(), case.began, "{directory}");
        if !case.began {
            continue;
        }
        let run = dir.json(&format!("{directory}/latest/run.json"));
        let status = if *policy == "abort" { "failed" } else { "completed" };
        assert_eq!(run["status"], status, "{directory}");
        // The first failure that ends the run also ends the event, except for the teardown.
        let failing = if *policy == "abort" && *at != "teardown" { 1 } else { *hooks };
        let failures = run["failures"].as_array().unwrap();
        let by: Vec<_> = failures.iter().map(|kind| kind["by"].as_str().unwrap()).collect();
        let all: Vec<_> = (1..=failing).map(|number| format!("hook `x{number}`")).collect();
        assert_eq!(by, all, "{directory}: {run}");
        assert!(failures.iter().all(|kind| kind["at"] == *at && kind["panicked"] == *panics), "{directory}");
        let lines = dir.lines(&format!("{directory}/latest/events.jsonl"));
        let counted: u64 = failures.iter().filter_map(|kind| kind["count"].as_u64()).sum();
        let written = lines.iter().filter(|line| line["event"] == "failure").count() as u64;
        assert_eq!(written, counted, "{directory}");
        let often = ["on_step_end", "update", "on_activation"].contains(at);
        let disabled = *policy != "abort" && (*panics || *policy == "disable" && often);
        for hook in run["hooks"].as_array().unwrap() {
            let is_faulty = hook["name"].as_str().is_some_and(|name| name.starts_with('x'));
            assert_eq!(hook["enabled"], Value::Bool(!(is_faulty && disabled)), "{directory}: {hook}");
        }
    }
}

#[test]
fn the_exit_code_after_a_failing_observer_follows_its_policy() {
    check("observer");
}

#[test]
fn the_exit_code_after_a_failing_forward_hook_follows_its_policy() {
    check("forward");
}

#[test]
fn the_exit_code_after_a_failing_controller_follows_its_policy() {
    check("controller");
}

#[test]
fn the_exit_code_after_a_failing_update_hook_follows_its_policy() {
    check("update");
}
