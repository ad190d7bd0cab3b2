//! Tasks: what a configuration can name to be trained. A task knows its options, and builds a module and its
//! data from them.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tenterhook_core::{BoxError, PlanError};
use toml::{Table, Value};

pub use crate::config::{Misfit, Problem};

use crate::checkpoint::weights_to_evaluate;
use crate::config::read::{Fault, read};
use crate::config::schema::schema_of;
use crate::data::DataModule;
use crate::memory::{self, Estimate};
use crate::module::{LoadReport, Module};
use crate::registry::Registry;
use crate::tensors::TensorMap;
use crate::trainer::{Report, RunError, Trainer};

/// What a task is given to build with, besides its options.
#[derive(Clone, Copy)]
pub struct Build<'a> {
    /// The device to compute on, such as `cpu`.
    pub device: &'a str,
    /// The seed of everything random.
    pub seed: u64,
    /// The schedules (and hooks) that the options can name.
    pub registry: &'a Registry,
    /// Whether to build also what is estimated to need more memory than there is: `trainer.allow_large`.
    pub allow_large: bool,
}

impl Build<'_> {
    /// Refuses what needs more memory than this machine has, unless [`allow_large`](Build::allow_large) is set. A task
    /// calls it before it allocates anything whose size depends on its options.
    pub fn check_memory(&self, estimate: &Estimate) -> Result<(), Problem> {
        let (available, fix) = if self.allow_large {
            (None, "make it smaller")
        } else {
            (memory::of_this_machine(), "make it smaller, or set `allow_large = true` in [trainer] to try it")
        };
        estimate.check(available).map_err(|refused| Problem::new(&refused.key, refused.to_string()).fix(fix))
    }
}

/// Something to train, that a configuration can name.
pub trait Task: 'static {
    /// Its fields are top-level keys and tables of the configuration: `[model]`, `[data]`, `[optimizer]`,
    /// `[[schedulers]]`, whatever it wants. Doc comments are what users read.
    type Options: Serialize + DeserializeOwned + JsonSchema;
    /// What is trained.
    type Module: Module;
    /// What it is trained on.
    type Data: DataModule<<Self::Module as Module>::Batch>;

    /// What a configuration calls it.
    fn name(&self) -> &str;

    /// What it is for, in one line.
    fn purpose(&self) -> &str;

    /// TOML: what this task sets where the user says nothing (`[trainer]`, `[[hooks]]`, …). The lowest layer
    /// above the built-in defaults.
    fn defaults(&self) -> &str;

    /// Builds module and data. Problems have keys such as `data.path`. Sizes from the options are checked with
    /// [`Build::check_memory`] before anything is allocated.
    fn build(
        &self,
        options: Self::Options,
        build: &Build<'_>,
    ) -> Result<(Self::Module, Self::Data), Vec<Problem>>;

    /// The predictions for one batch as JSON, for `tenter predict`.
    fn show(&self, prediction: &<Self::Module as Module>::Prediction) -> Vec<serde_json::Value>;
}

/// A task whose types are forgotten, so that tasks fit one list. Every [`Task`] is one.
pub trait AnyTask {
    /// See [`Task::name`].
    fn name(&self) -> &str;

    /// See [`Task::purpose`].
    fn purpose(&self) -> &str;

    /// See [`Task::defaults`].
    fn defaults(&self) -> &str;

    /// The JSON schema of its options.
    fn schema(&self) -> serde_json::Value;

    /// Reads its part of a configuration, and fills in what has a default.
    fn complete(&self, options: Value) -> Result<Table, Misfit>;

    /// Builds module and data.
    fn program(&self, options: Table, build: &Build<'_>) -> Result<Box<dyn Program + '_>, Vec<Problem>>;
}

impl<T: Task> AnyTask for T {
    fn name(&self) -> &str {
        Task::name(self)
    }

    fn purpose(&self) -> &str {
        Task::purpose(self)
    }

    fn defaults(&self) -> &str {
        Task::defaults(self)
    }

    fn schema(&self) -> serde_json::Value {
        schema_of::<T::Options>()
    }

    fn complete(&self, options: Value) -> Result<Table, Misfit> {
        let options: T::Options = read(options)?;
        Table::try_from(&options).map_err(|error| {
            let message = format!("task `{}` cannot write its options: {error}", Task::name(self));
            Misfit::new(Vec::new(), Fault::Refused { what: message, fix: None })
        })
    }

    fn program(&self, options: Table, build: &Build<'_>) -> Result<Box<dyn Program + '_>, Vec<Problem>> {
        let options = read(Value::Table(options))
            .map_err(|Misfit { path, fault, .. }| vec![Problem::new(path.join("."), fault.to_string())])?;
        let (module, data) = self.build(options, build)?;
        Ok(Box::new(Built { task: self, module, data }))
    }
}

/// A module with its data, whose types are forgotten, to be run with a [`Trainer`].
pub trait Program {
    /// Trains.
    fn fit(&mut self, trainer: &mut Trainer) -> Result<Report, RunError>;

    /// Evaluates on the validation data.
    fn validate(&mut self, trainer: &mut Trainer) -> Result<Report, RunError>;

    /// Evaluates on the test data.
    fn test(&mut self, trainer: &mut Trainer) -> Result<Report, RunError>;

    /// Predicts: all predictions, in order.
    fn predict(&mut self, trainer: &mut Trainer) -> Result<(Report, Vec<serde_json::Value>), RunError>;

    /// Sets the weights: from a safetensors file, or from the directory of a checkpoint or a run as they were
    /// evaluated.
    fn load_weights(&mut self, path: &Path) -> Result<(), BoxError>;

    /// Sets those of the weights that fit, and says which they were: for fine-tuning. They come from where
    /// [`load_weights`](Program::load_weights) takes them.
    fn load_matching(&mut self, path: &Path) -> Result<LoadReport, BoxError>;

    /// What the plan would refuse before step 1 of a fit, and what it would only warn of.
    fn refusals(&mut self, trainer: &mut Trainer) -> Result<Vec<PlanError>, RunError>;
}

/// The weights of a safetensors file, or of a checkpoint or a run as they were evaluated.
fn weights_at(path: &Path) -> Result<TensorMap, BoxError> {
    if path.is_dir() { weights_to_evaluate(path) } else { Ok(TensorMap::read(path)?) }
}

struct Built<'t, T: Task> {
    task: &'t T,
    module: T::Module,
    data: T::Data,
}

impl<T: Task> Program for Built<'_, T> {
    fn fit(&mut self, trainer: &mut Trainer) -> Result<Report, RunError> {
        trainer.fit(&mut self.module, &mut self.data)
    }

    fn validate(&mut self, trainer: &mut Trainer) -> Result<Report, RunError> {
        trainer.validate(&mut self.module, &mut self.data)
    }

    fn test(&mut self, trainer: &mut Trainer) -> Result<Report, RunError> {
        trainer.test(&mut self.module, &mut self.data)
    }

    fn predict(&mut self, trainer: &mut Trainer) -> Result<(Report, Vec<serde_json::Value>), RunError> {
        let (report, predictions) = trainer.predict(&mut self.module, &mut self.data)?;
        let shown = predictions.iter().flatten().flat_map(|prediction| self.task.show(prediction));
        Ok((report, shown.collect()))
    }

    fn load_weights(&mut self, path: &Path) -> Result<(), BoxError> {
        let weights = weights_at(path)?;
        self.module.load_weights(&weights).map_err(|error| format!("{}: {error}", path.display()).into())
    }

    fn load_matching(&mut self, path: &Path) -> Result<LoadReport, BoxError> {
        let weights = weights_at(path)?;
        self.module.load_matching(&weights).map_err(|error| format!("{}: {error}", path.display()).into())
    }

    fn refusals(&mut self, trainer: &mut Trainer) -> Result<Vec<PlanError>, RunError> {
        trainer.refusals(&mut self.module, &mut self.data)
    }
}
