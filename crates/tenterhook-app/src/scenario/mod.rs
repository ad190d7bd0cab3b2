//! A scenario: settings, data, a toy module, hooks, things to make happen, and the order expected.

mod hook;
mod module;
mod others;
mod tape;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use tenterhook::config::HookTable;
use tenterhook::registry::Registry;
use tenterhook::toy::ToyData;
use tenterhook::{RunError, Settings, Trainer};
use tenterhook_files::{SMALL_FILE, read_bounded_text};

pub(crate) use tape::{Row, Tape};

use hook::RecordingHook;
use module::RecordingModule;
use others::{RecordingData, RecordingStrategy};

/// A scenario file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
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
    pub(crate) hooks: Vec<HookSpec>,
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

/// A hook that records, or a built-in one.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum HookSpec {
    Record { record: String },
    BuiltIn(Box<HookTable>),
}

/// What to make happen at the nth call of an event on a source.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Injection {
    #[serde(rename = "in")]
    source: String,
    at: String,
    nth: u64,
    #[serde(rename = "do")]
    what: Happening,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Happening {
    Error,
    Stop,
    Skip,
    EndEpoch,
}

impl Scenario {
    pub(crate) fn read(path: &Path) -> Result<Scenario, String> {
        let text = read_bounded_text(path, SMALL_FILE)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        serde_json::from_str(&text).map_err(|error| format!("{} is not a scenario: {error}", path.display()))
    }

    /// The trainer of the scenario: exactly the listed hooks and no defaults.
    pub(crate) fn trainer(&self, tape: &Tape) -> Result<Trainer, String> {
        let trainer = Trainer::new(self.trainer.clone()).map_err(|error| error.to_string())?;
        let mut trainer = trainer.without_introduction();
        let registry = Registry::default();
        for spec in &self.hooks {
            match spec {
                HookSpec::Record { record } => {
                    trainer
                        .add_hook(RecordingHook::new(record, tape.clone()))
                        .map_err(|error| error.to_string())?;
                }
                HookSpec::BuiltIn(table) => {
                    let mut table = table.clone();
                    // Ours have no silent default; Lightning's is this, and that is what was recorded.
                    let judges = ["early_stopping", "checkpoint"].contains(&table.common.use_.as_str());
                    if judges && table.options.contains_key("monitor") {
                        table.options.entry("mode").or_insert_with(|| "min".into());
                    }
                    table.register(&mut trainer, &registry).map_err(|problem| problem.to_string())?;
                }
            }
        }
        // What Lightning would run is run; what our plan would refuse of it is a diagnostic.
        Ok(trainer.lenient().with_strategy(RecordingStrategy::new(tape.clone())))
    }

    /// The module and the data of the scenario.
    pub(crate) fn parts(&self, tape: &Tape) -> (RecordingModule, RecordingData) {
        let data = &self.data;
        let loaders = |batches: u64| vec![batches; data.eval_loaders];
        let toy_data = ToyData {
            train: vec![data.train_batches],
            validate: loaders(data.val_batches),
            test: loaders(data.test_batches),
            predict: loaders(data.predict_batches),
            sized: data.sized,
        };
        (RecordingModule::new(&self.module, tape.clone()), RecordingData::new(toy_data, tape.clone()))
    }

    /// Rehearses it in the given directory; the rows are on the tape whatever happens.
    pub(crate) fn run(&self, scratch: &Path) -> Result<(Tape, Option<RunError>), String> {
        let tape = Tape::new(self.inject.clone());
        let mut trainer = self.trainer(&tape)?.rehearsing_in(scratch);
        let (mut module, mut data) = self.parts(&tape);
        let ran = match self.entry {
            Entry::Fit => trainer.fit(&mut module, &mut data).map(|_| ()),
            Entry::Validate => trainer.validate(&mut module, &mut data).map(|_| ()),
            Entry::Test => trainer.test(&mut module, &mut data).map(|_| ()),
            Entry::Predict => trainer.predict(&mut module, &mut data).map(|_| ()),
        };
        Ok((tape, ran.err()))
    }
}
