//! The fourth specification document, scenario by scenario: the registry, forward hooks, update hooks, the
//! header of a run, and hook safety.

mod hooks;
mod registry;
mod runs;
mod safety;

use std::path::{Path, PathBuf};

use serde_json::Value;
use tenterhook::config::Sources;
use tenterhook::registry::Registry;
use tenterhook::run::RunDirectoryOptions;
use tenterhook::run::ownership::Signer;
use tenterhook::task::AnyTask;
use tenterhook::toy::{Toy, ToyTask};
use tenterhook::{
    Activation, Gradients, HookInfo, HookResult, Observer, Pattern, Report, RunNotice, TensorMap, Update,
    UpdateHook, hook,
};

use crate::call_log::SharedVec;
use crate::lab::{bits, data, epochs, trainer};

/// The actions of the hooks of this document, in order: the hook's name and the action.
type Log = SharedVec<(String, String)>;

/// A forward hook that logs the mean and the standard deviation of its points.
struct Watch {
    points: Pattern,
    log: Log,
}

#[hook]
impl Observer for Watch {
    fn wants_point(&self, point: &str) -> bool {
        self.points.matches(point)
    }
    fn on_activation(&mut self, cx: &Activation) -> HookResult {
        let stats = cx.tensor().stats();
        cx.log(&format!("{}/{}/mean", cx.hook_name(), cx.point), stats.mean);
        cx.log(&format!("{}/{}/std", cx.hook_name(), cx.point), stats.std);
        self.log.push((cx.hook_name().to_owned(), cx.point.to_owned()));
        Ok(())
    }
}

/// An update hook that multiplies all gradients.
struct Times {
    factor: f32,
    log: Log,
}

#[hook]
impl UpdateHook for Times {
    fn update(&mut self, gradients: &mut Gradients, cx: &Update) -> HookResult {
        gradients.scale(self.factor);
        self.log.push((cx.hook_name().to_owned(), format!("step {}", cx.current_step())));
        Ok(())
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct WatchOptions {
    points: String,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct TimesOptions {
    factor: f32,
}

/// The built-in hooks and the two of this document.
fn hooks(log: &Log) -> Registry {
    let mut registry = Registry::default();
    let watching = log.clone();
    let watch = move |WatchOptions { points }: WatchOptions| {
        points.parse().map(|points| Watch { points, log: watching.clone() })
    };
    registry.add_hook("document::Watch", watch).unwrap();
    let log = log.clone();
    let times =
        move |options: TimesOptions| Ok::<_, String>(Times { factor: options.factor, log: log.clone() });
    registry.add_hook("document::Times", times).unwrap();
    registry
}

/// The results of a configured run.
struct Ran {
    report: Report,
    /// The hooks before the first step.
    listed: Vec<HookInfo>,
    /// The notices, as text.
    told: Vec<String>,
    /// The actions of the hooks of this document.
    done: Vec<(String, String)>,
    directory: PathBuf,
}

impl Ran {
    fn weights(&self) -> TensorMap {
        TensorMap::read(&self.directory.join("weights.safetensors")).unwrap()
    }

    fn run_json(&self) -> Value {
        crate::run_directory::run_json(&self.directory)
    }

    /// The lines of one of its files.
    fn lines(&self, file: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.directory.join(file)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The journal entry with the header of the run, which must come before the first step.
    fn introduction(&self) -> Value {
        let lines = self.lines("events.jsonl");
        let run = lines.iter().find(|line| line["event"] == "run").expect("it is introduced");
        assert_eq!(run["step"], 0, "at the start of training");
        run.clone()
    }
}

/// Trains the toy by this configuration, for an epoch of four batches, in a run directory below this one.
fn train(root: &Path, text: &str) -> Ran {
    let file = root.join("train.toml");
    let text = format!(
        "task = \"toy\"\n{text}\n[trainer]\nmax_epochs = 1\nlog_every_n_steps = 1\n[data]\ntrain = [4]\n"
    );
    std::fs::write(&file, text).unwrap();
    let log = Log::new();
    let tasks: Vec<Box<dyn AnyTask>> = vec![Box::new(ToyTask)];
    let registry = hooks(&log);
    let resolved = Sources::file(&file).resolve(&tasks, &registry).unwrap();
    let told = SharedVec::new();
    let tell = told.clone();
    let plan = RunDirectoryOptions {
        config: resolved.to_toml(),
        signer: Signer::None,
        ..RunDirectoryOptions::in_dir(root.join("runs"))
    };
    let trainer = resolved.bare_trainer(&registry).unwrap();
    let mut trainer = trainer
        .with_run_directory(plan)
        .with_notices(move |notice: &RunNotice| tell.push(notice.to_string()));
    let listed = trainer.list_hooks();
    let report = resolved.program(&tasks, &registry).unwrap().fit(&mut trainer).unwrap();
    let directory = trainer.run_info().directory.clone().unwrap();
    Ran { report, listed, told: told.take(), done: log.take(), directory }
}

/// The toy after an epoch of four batches without any hook.
fn untouched() -> Vec<u32> {
    let mut toy = Toy::default();
    trainer(epochs(1)).fit(&mut toy, &mut data(4, 0)).unwrap();
    bits(&toy)
}
