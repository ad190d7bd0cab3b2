//! Tasks: trainable programs that a configuration can name. A task builds a module and its data from its
//! options.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tenterhook_core::{BoxError, PlanError};
use toml::{Table, Value};

pub use crate::config::{DecodeError, Problem};

use crate::checkpoint::weights_to_evaluate;
use crate::config::decode::{ErrorKind, read};
use crate::config::schema::schema_of;
use crate::data::DataModule;
use crate::memory::{self, Estimate};
use crate::module::{LoadReport, Module, ModuleResult};
use crate::registry::Registry;
use crate::tensors::TensorMap;
use crate::trainer::{Report, RunError, Trainer};

/// The inputs with which a task builds module and data, besides its options.
#[derive(Clone, Copy)]
pub struct BuildContext<'a> {
    /// The compute device, such as `cpu`.
    pub device: &'a str,
    /// The seed of all random numbers.
    pub seed: u64,
    /// The schedules, optimizers and hooks that options can name.
    pub registry: &'a Registry,
    /// Whether to build even if the estimated memory exceeds that of the machine: `trainer.allow_large`.
    pub allow_large: bool,
}

impl BuildContext<'_> {
    /// Checks that this machine has enough memory, unless [`allow_large`](BuildContext::allow_large) is set.
    /// A task calls it before it allocates anything whose size depends on its options.
    pub fn check_memory(&self, estimate: &Estimate) -> Result<(), Problem> {
        let (available, fix) = if self.allow_large {
            (None, "make it smaller")
        } else {
            (memory::available_bytes(), "make it smaller, or set `allow_large = true` in [trainer] to try it")
        };
        estimate
            .check(available)
            .map_err(|too_large| Problem::new(&too_large.key, too_large.to_string()).fix(fix))
    }
}

/// A trainable program with options.
pub trait Task: 'static {
    /// The options. Its fields are top-level keys and tables of the configuration, such as `[model]`,
    /// `[data]`, `[optimizer]` and `[[schedulers]]`. Their doc comments are the descriptions for users.
    type Options: Serialize + DeserializeOwned + JsonSchema;
    /// The module to train.
    type Module: Module;
    /// The training data.
    type Data: DataModule<<Self::Module as Module>::Batch>;

    /// Its name in configurations.
    fn name(&self) -> &str;

    /// Its purpose, in one line.
    fn purpose(&self) -> &str;

    /// The task's default configuration in TOML (`[trainer]`, `[[hooks]]`, …): the lowest layer above the
    /// built-in defaults.
    fn defaults(&self) -> &str;

    /// Builds module and data. Problems have keys such as `data.path`. Sizes from the options are checked
    /// with [`BuildContext::check_memory`] before anything is allocated.
    fn build(
        &self,
        options: Self::Options,
        build: &BuildContext<'_>,
    ) -> Result<(Self::Module, Self::Data), Vec<Problem>>;

    /// Converts the predictions of one batch to JSON, for `tenter predict`.
    fn show(&self, prediction: &<Self::Module as Module>::Prediction) -> Vec<serde_json::Value>;
}

/// A type-erased [`Task`].
pub trait AnyTask {
    /// See [`Task::name`].
    fn name(&self) -> &str;

    /// See [`Task::purpose`].
    fn purpose(&self) -> &str;

    /// See [`Task::defaults`].
    fn defaults(&self) -> &str;

    /// The JSON schema of its options.
    fn schema(&self) -> serde_json::Value;

    /// Decodes its options and adds defaults.
    fn complete(&self, options: Value) -> Result<Table, DecodeError>;

    /// Builds module and data.
    fn program(
        &self,
        options: Table,
        build: &BuildContext<'_>,
    ) -> Result<Box<dyn Program + '_>, Vec<Problem>>;
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

    fn complete(&self, options: Value) -> Result<Table, DecodeError> {
        let options: T::Options = read(options)?;
        Table::try_from(&options).map_err(|error| {
            let message = format!("task `{}` cannot write its options: {error}", Task::name(self));
            DecodeError::new(Vec::new(), ErrorKind::Rejected { what: message, fix: None })
        })
    }

    fn program(
        &self,
        options: Table,
        build: &BuildContext<'_>,
    ) -> Result<Box<dyn Program + '_>, Vec<Problem>> {
        let options = read(Value::Table(options))
            .map_err(|DecodeError { path, kind, .. }| vec![Problem::new(path.join("."), kind.to_string())])?;
        let (module, data) = self.build(options, build)?;
        Ok(Box::new(Built { task: self, module, data }))
    }
}

/// A type-erased module with its data, to run with a [`Trainer`].
pub trait Program {
    /// Trains.
    fn fit(&mut self, trainer: &mut Trainer) -> Result<Report, RunError>;

    /// Evaluates on the validation data.
    fn validate(&mut self, trainer: &mut Trainer) -> Result<Report, RunError>;

    /// Evaluates on the test data.
    fn test(&mut self, trainer: &mut Trainer) -> Result<Report, RunError>;

    /// Predicts, and returns all predictions in order.
    fn predict(&mut self, trainer: &mut Trainer) -> Result<(Report, Vec<serde_json::Value>), RunError>;

    /// Loads weights from a safetensors file, or from the directory of a checkpoint or a run. From a
    /// directory, the weights used for evaluation are loaded.
    fn load_weights(&mut self, path: &Path) -> Result<(), BoxError>;

    /// Loads the weights that match, for fine-tuning, and reports which. The path is as for
    /// [`load_weights`](Program::load_weights).
    fn load_matching(&mut self, path: &Path) -> Result<LoadReport, BoxError>;

    /// The errors and warnings of the plan of a fit, found before step 1.
    fn plan_errors(&mut self, trainer: &mut Trainer) -> Result<Vec<PlanError>, RunError>;
}

/// Loads the weights of a safetensors file, or the evaluated weights of a checkpoint or a run.
fn load<T>(path: &Path, load: impl FnOnce(&TensorMap) -> ModuleResult<T>) -> Result<T, BoxError> {
    let weights = if path.is_dir() { weights_to_evaluate(path)? } else { TensorMap::read(path)? };
    load(&weights).map_err(|error| format!("{}: {error}", path.display()).into())
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
        load(path, |weights| self.module.load_weights(weights))
    }

    fn load_matching(&mut self, path: &Path) -> Result<LoadReport, BoxError> {
        load(path, |weights| self.module.load_matching(weights))
    }

    fn plan_errors(&mut self, trainer: &mut Trainer) -> Result<Vec<PlanError>, RunError> {
        trainer.plan_errors(&mut self.module, &mut self.data)
    }
}
