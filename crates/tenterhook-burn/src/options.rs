//! The `[optimizer]` table and the `[[schedulers]]` tables of a configuration.

use std::sync::Arc;

use burn::optim::decay::WeightDecayConfig;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{AdaGradConfig, AdamConfig, AdamWConfig, LionConfig, RmsPropConfig, SgdConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tenterhook::module::{Interval, SchedulerPlan};
use tenterhook::registry::Registry;
use tenterhook::task::Problem;

use crate::algorithm::AnyAlgorithm;
use crate::optimizer::{Group, Optimizer, Optimizers, Schedule};

/// Which algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// Adam with decoupled weight decay.
    #[default]
    AdamW,
    /// Adam.
    Adam,
    /// Stochastic gradient descent, with or without momentum.
    Sgd,
    /// `RMSprop`.
    RmsProp,
    /// `AdaGrad`.
    AdaGrad,
    /// Lion.
    Lion,
}

impl Algorithm {
    fn name(self) -> &'static str {
        match self {
            Algorithm::AdamW => "adamw",
            Algorithm::Adam => "adam",
            Algorithm::Sgd => "sgd",
            Algorithm::RmsProp => "rmsprop",
            Algorithm::AdaGrad => "adagrad",
            Algorithm::Lion => "lion",
        }
    }
}

/// The `[optimizer]` table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OptimizerOptions {
    /// Which algorithm: `adamw`, `adam`, `sgd`, `rmsprop`, `adagrad` or `lion`.
    #[serde(rename = "use")]
    pub algorithm: Algorithm,
    /// The learning rate.
    pub lr: f64,
    /// How strongly weights are pulled towards 0.
    pub weight_decay: f64,
    /// Momentum, of `sgd` and `rmsprop`. Unset: none.
    pub momentum: Option<f64>,
    /// Whether the momentum looks ahead, of `sgd`. Unset: no.
    pub nesterov: Option<bool>,
    /// How slowly the two means forget, of `adamw`, `adam` and `lion`. Unset: the algorithm's own.
    pub betas: Option<[f64; 2]>,
    /// What keeps a division from being one by 0. Unset: the algorithm's own.
    pub epsilon: Option<f64>,
    /// Parameters with settings of their own. A parameter belongs to the first group that chooses it.
    pub groups: Vec<GroupOptions>,
}

/// One `[[optimizer.groups]]` table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupOptions {
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

impl Default for OptimizerOptions {
    fn default() -> OptimizerOptions {
        OptimizerOptions {
            algorithm: Algorithm::AdamW,
            lr: 1e-3,
            weight_decay: 0.01,
            momentum: None,
            nesterov: None,
            betas: None,
            epsilon: None,
            groups: Vec::new(),
        }
    }
}

impl OptimizerOptions {
    /// Everything that is wrong with them.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        use Algorithm::{Adam, AdamW, Lion, RmsProp, Sgd};
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
        let within = |value: f64| (0.0..1.0).contains(&value);
        refuse(
            self.momentum.is_some_and(|momentum| !within(momentum)),
            "momentum".into(),
            "momentum must be from 0.0 to below 1.0".into(),
        );
        refuse(
            self.betas.is_some_and(|betas| !betas.into_iter().all(within)),
            "betas".into(),
            "both must be from 0.0 to below 1.0".into(),
        );
        refuse(
            self.epsilon.is_some_and(|epsilon| !(epsilon.is_finite() && epsilon > 0.0)),
            "epsilon".into(),
            "it must be above 0".into(),
        );
        let algorithm = self.algorithm;
        for (key, set, of) in [
            ("momentum", self.momentum.is_some(), &[Sgd, RmsProp][..]),
            ("nesterov", self.nesterov.is_some(), &[Sgd][..]),
            ("betas", self.betas.is_some(), &[AdamW, Adam, Lion][..]),
            ("epsilon", self.epsilon.is_some(), &[AdamW, Adam, RmsProp, Algorithm::AdaGrad][..]),
        ] {
            let owners: Vec<_> = of.iter().map(|algorithm| algorithm.name()).collect();
            let message =
                format!("`{}` has no such option; it is one of {}", algorithm.name(), owners.join(", "));
            refuse(set && !of.contains(&algorithm), key.into(), message);
        }
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

    /// The optimizer they describe.
    #[must_use]
    pub fn optimizer(&self) -> Optimizer {
        // Of those with two means, the first one is the momentum.
        let momentum = self.momentum.or(self.means().map(|[first, _]| first));
        let mut optimizer =
            Optimizer::shared(self.algorithm.name(), self.algorithm(self.weight_decay), self.lr)
                .showing(momentum, Some(self.weight_decay));
        for group in &self.groups {
            let name = group.name.clone().or_else(|| group.patterns.first().cloned()).unwrap_or_default();
            let mut made = Group::new(name, group.patterns.clone());
            made.lr = group.lr;
            (made.momentum, made.weight_decay) = (momentum, group.weight_decay.or(Some(self.weight_decay)));
            made.algorithm = group.weight_decay.map(|weight_decay| self.algorithm(weight_decay));
            optimizer = optimizer.group(made);
        }
        optimizer
    }

    /// How slowly the two means forget, of the algorithms that have them.
    fn means(&self) -> Option<[f64; 2]> {
        let usual = match self.algorithm {
            Algorithm::AdamW | Algorithm::Adam => [0.9, 0.999],
            Algorithm::Lion => [0.9, 0.99],
            Algorithm::Sgd | Algorithm::RmsProp | Algorithm::AdaGrad => return None,
        };
        Some(self.betas.unwrap_or(usual))
    }

    #[allow(clippy::cast_possible_truncation)] // Burn's settings are 32-bit
    fn algorithm(&self, weight_decay: f64) -> Arc<dyn AnyAlgorithm> {
        let decay = (weight_decay > 0.0).then(|| WeightDecayConfig::new(weight_decay as f32));
        let [beta_1, beta_2] = self.means().unwrap_or_default();
        let (beta_1, beta_2) = (beta_1 as f32, beta_2 as f32);
        let epsilon = |usual: f64| self.epsilon.unwrap_or(usual) as f32;
        match self.algorithm {
            Algorithm::AdamW => Arc::new(
                AdamWConfig::new()
                    .with_beta_1(beta_1)
                    .with_beta_2(beta_2)
                    .with_epsilon(epsilon(1e-8))
                    .with_weight_decay(weight_decay as f32)
                    .build(),
            ),
            Algorithm::Adam => Arc::new(
                AdamConfig::new()
                    .with_beta_1(beta_1)
                    .with_beta_2(beta_2)
                    .with_epsilon(epsilon(1e-8))
                    .with_weight_decay(decay)
                    .build(),
            ),
            Algorithm::Sgd => {
                let momentum = self.momentum.filter(|momentum| *momentum > 0.0).map(|momentum| {
                    MomentumConfig::new()
                        .with_momentum(momentum)
                        .with_dampening(0.0)
                        .with_nesterov(self.nesterov.unwrap_or(false))
                });
                Arc::new(SgdConfig::new().with_weight_decay(decay).with_momentum(momentum).build())
            }
            Algorithm::RmsProp => Arc::new(
                RmsPropConfig::new()
                    .with_momentum(self.momentum.unwrap_or(0.0) as f32)
                    .with_epsilon(epsilon(1e-8))
                    .with_weight_decay(decay)
                    .build(),
            ),
            Algorithm::AdaGrad => {
                Arc::new(AdaGradConfig::new().with_epsilon(epsilon(1e-10)).with_weight_decay(decay).build())
            }
            Algorithm::Lion => Arc::new(
                LionConfig::new()
                    .with_beta_1(beta_1)
                    .with_beta_2(beta_2)
                    .with_weight_decay(weight_decay as f32)
                    .build(),
            ),
        }
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
pub struct Recipe {
    optimizer: OptimizerOptions,
    schedulers: Vec<SchedulerTable>,
    registry: Registry,
}

impl Recipe {
    /// Checks both tables: what is wrong is said at once, with its key.
    pub fn new(
        optimizer: OptimizerOptions,
        schedulers: Vec<SchedulerTable>,
        registry: &Registry,
    ) -> Result<Recipe, Vec<Problem>> {
        let mut problems = optimizer.problems();
        for (index, table) in schedulers.iter().enumerate() {
            problems.extend(table.schedule(registry, &format!("schedulers.{index}")).err());
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Recipe { optimizer, schedulers, registry: registry.clone() })
    }

    /// The optimizer with its schedules.
    pub fn optimizers(&self) -> Result<Optimizers, String> {
        let mut optimizer = self.optimizer.optimizer();
        for table in &self.schedulers {
            let schedule = table.schedule(&self.registry, "schedulers").map_err(|problem| problem.message)?;
            optimizer = optimizer.schedule(schedule);
        }
        Ok(optimizer.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_are_shown_the_momentum_that_the_algorithm_has_also_where_nobody_set_it() {
        let shown = |algorithm, betas| {
            let options = OptimizerOptions { algorithm, betas, ..OptimizerOptions::default() };
            options.optimizer().rest.momentum
        };
        for algorithm in [Algorithm::AdamW, Algorithm::Adam, Algorithm::Lion] {
            assert_eq!(shown(algorithm, None), Some(0.9), "{algorithm:?}");
        }
        assert_eq!(shown(Algorithm::AdamW, Some([0.8, 0.9])), Some(0.8));
        assert_eq!(shown(Algorithm::Sgd, None), None);
    }
}
