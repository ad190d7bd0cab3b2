//! The `[optimizer]` table and the `[[schedulers]]` tables of a configuration.

use std::marker::PhantomData;

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::named::{OptimizerOptions, allow};
use super::{Engine, Group, Optimizer, Optimizers, Schedule};
use crate::module::{Interval, SchedulerPlan};
use crate::registry::Registry;
use crate::task::Problem;

/// The `[optimizer]` table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, bound = "")]
#[schemars(rename = "OptimizerTable", bound = "", extend("x-optimizers" = true), transform = built_in::<E>)]
pub struct OptimizerTable<E: Engine> {
    /// Which algorithm.
    #[serde(rename = "use")]
    pub name: String,
    /// The learning rate.
    pub lr: f64,
    /// How strongly weights are pulled towards 0.
    pub weight_decay: f64,
    /// The optimizer's own options.
    #[serde(flatten)]
    pub options: Map<String, Value>,
    /// Parameters with settings of their own. A parameter belongs to the first group that chooses it.
    pub groups: Vec<GroupTable>,
    #[serde(skip)]
    engine: PhantomData<E>,
}

/// One `[[optimizer.groups]]` table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupTable {
    /// What hooks and logs call it. Unset: its first pattern.
    pub name: Option<String>,
    /// Patterns of parameter names: `["**.bias", "blocks.*.norm1.**"]`.
    #[serde(rename = "match")]
    pub patterns: Vec<String>,
    /// Its learning rate. Unset: the optimizer's.
    pub lr: Option<f64>,
    /// Its weight decay. Unset: the optimizer's.
    pub weight_decay: Option<f64>,
}

impl<E: Engine> Default for OptimizerTable<E> {
    fn default() -> OptimizerTable<E> {
        let first = E::optimizers().into_iter().next();
        OptimizerTable {
            name: first.map(|first| first.name().to_owned()).unwrap_or_default(),
            lr: 1e-3,
            weight_decay: 0.01,
            options: Map::new(),
            groups: Vec::new(),
            engine: PhantomData,
        }
    }
}

/// The optimizers that the engine brings.
fn built_in<E: Engine>(schema: &mut Schema) {
    for optimizer in E::optimizers() {
        allow(schema.ensure_object(), &optimizer.listed());
    }
}

impl<E: Engine> OptimizerTable<E> {
    /// The optimizer's own options, or everything that is wrong with the table.
    fn read(&self, registry: &Registry) -> Result<Box<dyn OptimizerOptions<E>>, Vec<Problem>> {
        let mut problems = self.problems();
        match registry.optimizer::<E>(&self.name, &self.options) {
            Ok(options) if problems.is_empty() => return Ok(options),
            Ok(_) => {}
            Err(more) => problems.extend(more.into_iter().map(|problem| problem.below("optimizer"))),
        }
        Err(problems)
    }

    fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut refuse = |wrong: bool, key: String, message: String| {
            if wrong {
                problems.push(Problem::new(format!("optimizer.{key}"), message));
            }
        };
        let positive = |value: f64| value.is_finite() && value >= 0.0;
        refuse(
            !positive(self.lr),
            "lr".into(),
            format!("a learning rate must be 0 or more, not {}", self.lr),
        );
        refuse(
            !positive(self.weight_decay),
            "weight_decay".into(),
            format!("weight decay must be 0 or more, not {}", self.weight_decay),
        );
        for (index, group) in self.groups.iter().enumerate() {
            refuse(
                group.lr.is_some_and(|lr| !positive(lr)),
                format!("groups.{index}.lr"),
                "a learning rate must be 0 or more".into(),
            );
            refuse(
                group.patterns.is_empty(),
                format!("groups.{index}.match"),
                "a group needs a pattern, as in [\"**.bias\"]".into(),
            );
        }
        problems
    }

    /// The optimizer that it describes.
    fn optimizer(&self, registry: &Registry) -> Result<Optimizer<E>, String> {
        let options = self.read(registry).map_err(|problems| {
            problems.into_iter().map(|problem| problem.message).collect::<Vec<_>>().join("; ")
        })?;
        let algorithm = |decay| options.algorithm(decay).map_err(|error| error.to_string());
        let momentum = options.momentum();
        let mut optimizer = Optimizer::new(&self.name, algorithm(self.weight_decay)?, self.lr)
            .showing(momentum, Some(self.weight_decay));
        for GroupTable { name, patterns, lr, weight_decay } in &self.groups {
            let name = name.clone().or_else(|| patterns.first().cloned()).unwrap_or_default();
            let mut group = Group::new(name, patterns.clone())
                .showing(momentum, weight_decay.or(Some(self.weight_decay)));
            group.lr = *lr;
            group.algorithm = weight_decay.map(algorithm).transpose()?;
            optimizer = optimizer.group(group);
        }
        Ok(optimizer)
    }
}

/// One `[[schedulers]]` table: when it steps, and the schedule's own options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SchedulerTable {
    /// Which schedule: a built-in one, or one that the program registered.
    #[serde(rename = "use")]
    pub name: String,
    /// When it steps: after every `step`, or after every `epoch`. Unset: `step`, and `epoch` with a `monitor`.
    pub interval: Option<When>,
    /// On every how many of these.
    #[serde(default = "one")]
    pub frequency: u64,
    /// The metric whose plateau it waits for.
    pub monitor: Option<String>,
    /// Whether a missing metric is an error.
    #[serde(default = "yes")]
    pub strict: bool,
    /// The schedule's own options.
    #[serde(flatten)]
    pub options: Map<String, Value>,
}

/// When a schedule steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum When {
    /// After optimizer steps.
    Step,
    /// After epochs.
    Epoch,
}

fn one() -> u64 {
    1
}

fn yes() -> bool {
    true
}

impl SchedulerTable {
    /// Its schedule; `key` is where its table stands.
    fn schedule(&self, registry: &Registry, key: &str) -> Result<Schedule, Problem> {
        let scheduler = registry.scheduler(&self.name, &self.options).map_err(|error| error.at(key))?;
        let interval = match self.interval {
            Some(When::Epoch) => Interval::Epoch,
            None if self.monitor.is_some() => Interval::Epoch,
            Some(When::Step) | None => Interval::Step,
        };
        if self.frequency == 0 {
            return Err(Problem::new(format!("{key}.frequency"), "must be 1 or more"));
        }
        let plan = SchedulerPlan {
            interval,
            frequency: self.frequency,
            plateau_of: self.monitor.clone(),
            strict: self.strict,
        };
        Ok(Schedule::new(scheduler, plan))
    }
}

/// The optimizer that both tables describe, made anew for every training.
#[derive(Clone)]
pub struct Recipe<E: Engine> {
    optimizer: OptimizerTable<E>,
    schedulers: Vec<SchedulerTable>,
    registry: Registry,
}

impl<E: Engine> Recipe<E> {
    /// Checks both tables: what is wrong is said at once, with its key.
    pub fn new(
        optimizer: OptimizerTable<E>,
        schedulers: Vec<SchedulerTable>,
        registry: &Registry,
    ) -> Result<Recipe<E>, Vec<Problem>> {
        let mut problems = optimizer.read(registry).err().unwrap_or_default();
        for (index, table) in schedulers.iter().enumerate() {
            problems.extend(table.schedule(registry, &format!("schedulers.{index}")).err());
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Recipe { optimizer, schedulers, registry: registry.clone() })
    }

    /// The optimizer with its schedules.
    pub fn optimizers(&self) -> Result<Optimizers<E>, String> {
        let mut optimizer = self.optimizer.optimizer(&self.registry)?;
        for table in &self.schedulers {
            let schedule = table.schedule(&self.registry, "schedulers").map_err(|problem| problem.message)?;
            optimizer = optimizer.schedule(schedule);
        }
        Ok(optimizer.into())
    }
}
