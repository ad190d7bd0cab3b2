//! The `[optimizer]` and `[[schedulers]]` tables of a configuration.

use std::marker::PhantomData;

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::options::{OptimizerOptions, add_to_schema};
use super::{Engine, Group, Optimizer, Optimizers, Schedule};
use crate::module::{Interval, SchedulerPlan};
use crate::registry::Registry;
use crate::task::Problem;

/// The `[optimizer]` table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, bound = "")]
#[schemars(rename = "OptimizerTable", bound = "", extend("x-optimizers" = true), transform = built_in::<E>)]
pub struct OptimizerTable<E: Engine> {
    /// The optimization algorithm.
    #[serde(rename = "use")]
    pub name: String,
    /// Learning rate.
    pub lr: f64,
    /// Weight decay coefficient.
    pub weight_decay: f64,
    /// The options of the algorithm.
    #[serde(flatten)]
    pub options: Map<String, Value>,
    /// Parameter groups with their own settings. A parameter belongs to the first group that matches it.
    pub groups: Vec<GroupTable>,
    #[serde(skip)]
    engine: PhantomData<E>,
}

/// An `[[optimizer.groups]]` table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupTable {
    /// Name of the group in hooks and logs. Unset: its first pattern.
    pub name: Option<String>,
    /// Patterns of parameter names, such as `["**.bias", "blocks.*.norm1.**"]`.
    #[serde(rename = "match")]
    pub patterns: Vec<String>,
    /// Learning rate of the group. Unset: that of the optimizer.
    pub lr: Option<f64>,
    /// Weight decay of the group. Unset: that of the optimizer.
    pub weight_decay: Option<f64>,
}

impl<E: Engine> Default for OptimizerTable<E> {
    fn default() -> OptimizerTable<E> {
        let first = E::optimizers().into_iter().next();
        OptimizerTable {
            name: first.map(|first| first.factory.entry().name.to_owned()).unwrap_or_default(),
            lr: 1e-3,
            weight_decay: 0.01,
            options: Map::new(),
            groups: Vec::new(),
            engine: PhantomData,
        }
    }
}

/// Adds the optimizers of the engine to the schema.
fn built_in<E: Engine>(schema: &mut Schema) {
    for optimizer in E::optimizers() {
        add_to_schema(schema.ensure_object(), &optimizer.factory.entry());
    }
}

impl<E: Engine> OptimizerTable<E> {
    /// The options of the algorithm, or all problems of the table.
    fn read(&self, registry: &Registry) -> Result<Box<dyn OptimizerOptions<E>>, Vec<Problem>> {
        let mut problems = self.problems();
        let options = registry.optimizer::<E>(&self.name, &self.options).map_err(|more| {
            problems.extend(more.into_iter().map(|problem| problem.below("optimizer")));
        });
        options.ok().filter(|_| problems.is_empty()).ok_or(problems)
    }

    fn problems(&self) -> Vec<Problem> {
        let invalid = |value: f64| !(value.is_finite() && value >= 0.0);
        let mut problems = Vec::new();
        if invalid(self.lr) {
            let message = format!("a learning rate must be 0 or more, not {}", self.lr);
            problems.push(Problem::new("optimizer.lr", message));
        }
        if invalid(self.weight_decay) {
            let message = format!("weight decay must be 0 or more, not {}", self.weight_decay);
            problems.push(Problem::new("optimizer.weight_decay", message));
        }
        for (index, group) in self.groups.iter().enumerate() {
            let key = |key: &str| format!("optimizer.groups.{index}.{key}");
            if group.lr.is_some_and(invalid) {
                problems.push(Problem::new(key("lr"), "a learning rate must be 0 or more"));
            }
            if group.patterns.is_empty() {
                problems.push(Problem::new(key("match"), "a group needs a pattern, as in [\"**.bias\"]"));
            }
        }
        problems
    }

    /// Builds the optimizer.
    fn optimizer(&self, registry: &Registry) -> Result<Optimizer<E>, String> {
        let options = self.read(registry).map_err(|problems| {
            problems.into_iter().map(|problem| problem.message).collect::<Vec<_>>().join("; ")
        })?;
        let algorithm = |decay| options.algorithm(decay).map_err(|error| error.to_string());
        let momentum = options.momentum();
        let mut optimizer = Optimizer::new(&self.name, algorithm(self.weight_decay)?, self.lr)
            .hyperparameters(momentum, Some(self.weight_decay));
        for GroupTable { name, patterns, lr, weight_decay } in &self.groups {
            let name = name.clone().or_else(|| patterns.first().cloned()).unwrap_or_default();
            let mut group = Group::new(name, patterns.clone())
                .hyperparameters(momentum, weight_decay.or(Some(self.weight_decay)));
            group.lr = *lr;
            group.algorithm = weight_decay.map(algorithm).transpose()?;
            optimizer = optimizer.group(group);
        }
        Ok(optimizer)
    }
}

/// A `[[schedulers]]` table: when the schedule steps, and its options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SchedulerTable {
    /// The registered name of the schedule.
    #[serde(rename = "use")]
    pub name: String,
    /// Unit of scheduling: `step` (optimizer steps) or `epoch`. Unset: `step`, or `epoch` with a `monitor`.
    pub interval: Option<Interval>,
    /// Number of intervals per step of the schedule.
    #[serde(default = "one")]
    pub frequency: u64,
    /// Metric to monitor, for schedules such as `plateau`.
    pub monitor: Option<String>,
    /// Whether a missing `monitor` metric is an error.
    #[serde(default = "yes")]
    pub strict: bool,
    /// The options of the schedule.
    #[serde(flatten)]
    pub options: Map<String, Value>,
}

fn one() -> u64 {
    1
}

fn yes() -> bool {
    true
}

impl SchedulerTable {
    /// Builds the schedule. `key` is the dotted key of its table.
    fn schedule(&self, registry: &Registry, key: &str) -> Result<Schedule, Problem> {
        let scheduler = registry.scheduler(&self.name, &self.options).map_err(|error| error.at(key))?;
        let default = if self.monitor.is_some() { Interval::Epoch } else { Interval::Step };
        if self.frequency == 0 {
            return Err(Problem::new(format!("{key}.frequency"), "must be 1 or more"));
        }
        let plan = SchedulerPlan {
            interval: self.interval.unwrap_or(default),
            frequency: self.frequency,
            monitor: self.monitor.clone(),
            strict: self.strict,
        };
        Ok(Schedule::new(scheduler, plan))
    }
}

/// Builds the optimizer of both tables, once for each training run.
#[derive(Clone)]
pub struct OptimizerFactory<E: Engine> {
    optimizer: OptimizerTable<E>,
    schedulers: Vec<SchedulerTable>,
    registry: Registry,
}

impl<E: Engine> OptimizerFactory<E> {
    /// Checks both tables. The error has all problems.
    pub fn new(
        optimizer: OptimizerTable<E>,
        schedulers: Vec<SchedulerTable>,
        registry: &Registry,
    ) -> Result<OptimizerFactory<E>, Vec<Problem>> {
        let mut problems = optimizer.read(registry).err().unwrap_or_default();
        for (index, table) in schedulers.iter().enumerate() {
            problems.extend(table.schedule(registry, &format!("schedulers.{index}")).err());
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(OptimizerFactory { optimizer, schedulers, registry: registry.clone() })
    }

    /// Builds the optimizer with its schedules.
    pub fn optimizers(&self) -> Result<Optimizers<E>, String> {
        let mut optimizer = self.optimizer.optimizer(&self.registry)?;
        for table in &self.schedulers {
            let schedule = table.schedule(&self.registry, "schedulers").map_err(|problem| problem.message)?;
            optimizer = optimizer.schedule(schedule);
        }
        Ok(optimizer.into())
    }
}
