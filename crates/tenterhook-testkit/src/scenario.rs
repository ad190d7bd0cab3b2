//! A scenario: settings, data, a toy module, hooks, injected actions, and the expected order of calls.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use tenterhook::config::HookTable;
use tenterhook::module::{Interval, SchedulerPlan};
use tenterhook::registry::Registry;
use tenterhook::toy::{Toy, ToyData};
use tenterhook::{RunError, Settings, Trainer};
use tenterhook_files::{SMALL_FILE, read_bounded_text};

use crate::recording::{
    CallLog, InjectedAction, RecordingData, RecordingHook, RecordingModule, RecordingStrategy,
};

/// A scenario file: the configuration of a trainer, and the actions injected into its run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    #[serde(rename = "name")]
    _name: Option<String>,
    #[serde(rename = "note")]
    _note: Option<String>,
    #[serde(rename = "recorded_from")]
    _recorded_from: Option<String>,
    entry: Entry,
    #[serde(default)]
    trainer: Settings,
    data: DataSpec,
    module: ModuleSpec,
    #[serde(default)]
    hooks: Vec<HookEntry>,
    #[serde(default)]
    inject: Vec<Injection>,
    #[serde(rename = "until")]
    _until: Option<String>,
    #[serde(default, rename = "expect")]
    _expect: serde_json::Value,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Entry {
    Fit,
    Validate,
    Test,
    Predict,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DataSpec {
    train_batches: u64,
    val_batches: u64,
    test_batches: u64,
    predict_batches: u64,
    eval_loaders: usize,
    sized: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModuleSpec {
    scheduler: Option<SchedulerSpec>,
    #[serde(default)]
    log: BTreeMap<String, LogSpec>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SchedulerSpec {
    Epoch,
    Step,
    Plateau,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LogSpec {
    at: String,
    value: Value,
}

/// A number, `"epoch"` or `"1+epoch"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Value {
    Number(f64),
    Formula(Formula),
}

#[derive(Clone, Copy, Debug, Deserialize)]
enum Formula {
    #[serde(rename = "epoch")]
    Epoch,
    #[serde(rename = "1+epoch")]
    EpochPlusOne,
}

impl Value {
    fn at(&self, epoch: u64) -> f64 {
        match self {
            Value::Number(number) => *number,
            Value::Formula(Formula::Epoch) => epoch as f64,
            Value::Formula(Formula::EpochPlusOne) => epoch as f64 + 1.0,
        }
    }
}

/// A recording hook or a built-in one.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum HookEntry {
    Record { record: String },
    BuiltIn(Box<HookTable>),
}

/// An action injected into the nth call of a method of a source.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Injection {
    #[serde(rename = "in")]
    source: String,
    at: String,
    nth: u64,
    #[serde(rename = "do")]
    action: InjectedAction,
}

impl Scenario {
    /// Reads a scenario from its JSON file.
    pub fn read(path: &Path) -> Result<Scenario, String> {
        let text = read_bounded_text(path, SMALL_FILE)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        serde_json::from_str(&text).map_err(|error| format!("{} is not a scenario: {error}", path.display()))
    }

    /// The trainer of the scenario: exactly the listed hooks and no defaults.
    pub fn trainer(&self, call_log: &CallLog) -> Result<Trainer, String> {
        let trainer = Trainer::new(self.trainer.clone()).map_err(|error| error.to_string())?;
        let mut trainer = trainer.without_run_header();
        let registry = Registry::default();
        for spec in &self.hooks {
            match spec {
                HookEntry::Record { record } => {
                    trainer
                        .add_hook(RecordingHook::new(record, call_log))
                        .map_err(|error| error.to_string())?;
                }
                HookEntry::BuiltIn(table) => {
                    let mut table = table.clone();
                    // The recordings of Lightning use its default mode; here `mode` has no default.
                    let judges = ["early_stopping", "checkpoint"].contains(&table.common.use_.as_str());
                    if judges && table.options.contains_key("monitor") {
                        table.options.entry("mode").or_insert_with(|| "min".into());
                    }
                    table.register(&mut trainer, &registry).map_err(|problem| problem.to_string())?;
                }
            }
        }
        // Lenient, because Lightning accepts plans that are refused here.
        Ok(trainer.lenient().with_strategy(RecordingStrategy::new(call_log)))
    }

    /// The module and the data of the scenario.
    #[must_use]
    pub fn parts(&self, call_log: &CallLog) -> (RecordingModule, RecordingData) {
        let data = &self.data;
        let loaders = |batches: u64| vec![batches; data.eval_loaders];
        let toy_data = ToyData {
            train: vec![data.train_batches],
            validate: loaders(data.val_batches),
            test: loaders(data.test_batches),
            predict: loaders(data.predict_batches),
            sized: data.sized,
            ..ToyData::default()
        };
        let toy = match self.module.scheduler {
            None => Toy::default(),
            Some(scheduler) => Toy::default().with_scheduler(match scheduler {
                SchedulerSpec::Epoch => SchedulerPlan::every(Interval::Epoch),
                SchedulerSpec::Step => SchedulerPlan::every(Interval::Step),
                SchedulerSpec::Plateau => SchedulerPlan::on_plateau_of("val_loss"),
            }),
        };
        let logs = self.module.log.clone();
        let module = RecordingModule::new(toy, call_log).plain().with_handler(move |place, cx| {
            for (name, log) in logs.iter().filter(|(_, log)| log.at == place) {
                cx.log(name, log.value.at(cx.epoch()));
            }
        });
        (module, RecordingData::new(toy_data, call_log).numbered())
    }

    /// Runs the scenario in the given directory. The calls are recorded even if the run fails.
    pub fn run(&self, scratch: &Path) -> Result<(CallLog, Option<RunError>), String> {
        let call_log = CallLog::default();
        for Injection { source, at, nth, action } in &self.inject {
            call_log.inject(source, at, Some(*nth), *action);
        }
        let mut trainer = self.trainer(&call_log)?.rehearsing_in(scratch);
        let (mut module, mut data) = self.parts(&call_log);
        let ran = match self.entry {
            Entry::Fit => trainer.fit(&mut module, &mut data).map(|_| ()),
            Entry::Validate => trainer.validate(&mut module, &mut data).map(|_| ()),
            Entry::Test => trainer.test(&mut module, &mut data).map(|_| ()),
            Entry::Predict => trainer.predict(&mut module, &mut data).map(|_| ()),
        };
        Ok((call_log, ran.err()))
    }
}
