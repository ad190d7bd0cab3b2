//! What a module says about its optimizers: algorithms, parameter groups, schedules.

use std::sync::Arc;

use burn::optim::DynOptimizer;
use tenterhook::module::{Interval, SchedulerPlan};
use tenterhook::schedule::Scheduler;

use crate::algorithm::AnyAlgorithm;

/// The optimizers of a module, each over parameters of its own.
///
/// ```
/// use burn::optim::AdamWConfig;
/// use tenterhook_burn::{Group, Optimizer, Optimizers, Schedule};
/// use tenterhook::schedule::from_fn;
///
/// let decayed = AdamWConfig::new().with_weight_decay(0.01).build();
/// let plain = AdamWConfig::new().with_weight_decay(0.0).build();
/// let all = Optimizers::one(
///     Optimizer::new("adamw", decayed, 3e-3)
///         .group(Group::new("no_decay", ["**.bias"]).with(plain))
///         .schedule(Schedule::per_step(from_fn(|tick| 0.99_f64.powi(tick.count as i32)))),
/// );
/// # let _: Optimizers = all;
/// ```
#[derive(Default)]
pub struct Optimizers(pub(crate) Vec<Optimizer>);

impl Optimizers {
    /// One optimizer for everything.
    #[must_use]
    pub fn one(optimizer: Optimizer) -> Optimizers {
        Optimizers(vec![optimizer])
    }

    /// The same and one more.
    #[must_use]
    pub fn and(mut self, optimizer: Optimizer) -> Optimizers {
        self.0.push(optimizer);
        self
    }
}

impl From<Optimizer> for Optimizers {
    fn from(optimizer: Optimizer) -> Optimizers {
        Optimizers::one(optimizer)
    }
}

/// One optimizer: an algorithm of Burn's, a learning rate, and which parameters it moves.
pub struct Optimizer {
    pub(crate) name: String,
    pub(crate) only: Vec<String>,
    /// What is in no group of its own.
    pub(crate) rest: Group,
    pub(crate) groups: Vec<Group>,
    pub(crate) schedules: Vec<Schedule>,
}

impl Optimizer {
    /// An optimizer for all parameters, such as `Optimizer::new("adamw", AdamWConfig::new().build(), 1e-3)`.
    #[must_use]
    pub fn new(name: impl Into<String>, algorithm: impl DynOptimizer + 'static, lr: f64) -> Optimizer {
        Optimizer::shared(name, Arc::new(algorithm), lr)
    }

    pub(crate) fn shared(name: impl Into<String>, algorithm: Arc<dyn AnyAlgorithm>, lr: f64) -> Optimizer {
        let rest = Group { lr: Some(lr), algorithm: Some(algorithm), ..Group::new("rest", ["**"]) };
        Optimizer { name: name.into(), only: Vec::new(), rest, groups: Vec::new(), schedules: Vec::new() }
    }

    /// Only for parameters that one of these patterns chooses: `["generator.**"]`.
    #[must_use]
    pub fn only<P: Into<String>>(mut self, patterns: impl IntoIterator<Item = P>) -> Optimizer {
        self.only = patterns.into_iter().map(Into::into).collect();
        self
    }

    /// Other settings for some of them. A parameter belongs to the first group that chooses it.
    #[must_use]
    pub fn group(mut self, group: Group) -> Optimizer {
        self.groups.push(group);
        self
    }

    /// Changes its learning rates over time. Several schedules multiply.
    #[must_use]
    pub fn schedule(mut self, schedule: Schedule) -> Optimizer {
        self.schedules.push(schedule);
        self
    }

    /// What hooks are shown of its settings; Burn's algorithms do not tell.
    #[must_use]
    pub fn showing(mut self, momentum: Option<f64>, weight_decay: Option<f64>) -> Optimizer {
        (self.rest.momentum, self.rest.weight_decay) = (momentum, weight_decay);
        self
    }
}

/// Some of an optimizer's parameters, with settings of their own.
pub struct Group {
    pub(crate) name: String,
    pub(crate) patterns: Vec<String>,
    pub(crate) lr: Option<f64>,
    pub(crate) algorithm: Option<Arc<dyn AnyAlgorithm>>,
    pub(crate) momentum: Option<f64>,
    pub(crate) weight_decay: Option<f64>,
}

impl Group {
    /// The parameters that one of these patterns chooses: `["**.bias", "norm*.**"]`.
    #[must_use]
    pub fn new<P: Into<String>>(name: impl Into<String>, patterns: impl IntoIterator<Item = P>) -> Group {
        Group {
            name: name.into(),
            patterns: patterns.into_iter().map(Into::into).collect(),
            lr: None,
            algorithm: None,
            momentum: None,
            weight_decay: None,
        }
    }

    /// With another learning rate.
    #[must_use]
    pub fn lr(mut self, lr: f64) -> Group {
        self.lr = Some(lr);
        self
    }

    /// With another algorithm, or the same one set differently (without weight decay, say).
    #[must_use]
    pub fn with(mut self, algorithm: impl DynOptimizer + 'static) -> Group {
        self.algorithm = Some(Arc::new(algorithm));
        self
    }

    /// What hooks are shown of its settings; Burn's algorithms do not tell.
    #[must_use]
    pub fn showing(mut self, momentum: Option<f64>, weight_decay: Option<f64>) -> Group {
        (self.momentum, self.weight_decay) = (momentum, weight_decay);
        self
    }
}

/// A schedule, and when it steps.
pub struct Schedule {
    pub(crate) scheduler: Box<dyn Scheduler>,
    pub(crate) plan: SchedulerPlan,
}

impl Schedule {
    /// Steps after optimizer steps.
    #[must_use]
    pub fn per_step(scheduler: impl Scheduler) -> Schedule {
        Schedule::new(Box::new(scheduler), SchedulerPlan::every(Interval::Step))
    }

    /// Steps after epochs.
    #[must_use]
    pub fn per_epoch(scheduler: impl Scheduler) -> Schedule {
        Schedule::new(Box::new(scheduler), SchedulerPlan::every(Interval::Epoch))
    }

    /// Judges a metric after every epoch.
    #[must_use]
    pub fn on_plateau_of(metric: impl Into<String>, scheduler: impl Scheduler) -> Schedule {
        Schedule::new(Box::new(scheduler), SchedulerPlan::on_plateau_of(metric))
    }

    /// Steps as this plan says.
    #[must_use]
    pub fn new(scheduler: Box<dyn Scheduler>, plan: SchedulerPlan) -> Schedule {
        Schedule { scheduler, plan }
    }
}
