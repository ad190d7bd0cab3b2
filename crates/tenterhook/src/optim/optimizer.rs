//! The builders of optimizers, parameter groups and schedules.

use super::Engine;
use crate::module::{Interval, SchedulerPlan};
use crate::schedule::Scheduler;

/// The optimizers of a module, over disjoint parameters.
pub struct Optimizers<E: Engine>(pub(super) Vec<Optimizer<E>>);

impl<E: Engine> Optimizers<E> {
    /// A single optimizer.
    #[must_use]
    pub fn one(optimizer: Optimizer<E>) -> Optimizers<E> {
        Optimizers(vec![optimizer])
    }

    /// Adds an optimizer.
    #[must_use]
    pub fn and(mut self, optimizer: Optimizer<E>) -> Optimizers<E> {
        self.0.push(optimizer);
        self
    }
}

impl<E: Engine> Default for Optimizers<E> {
    fn default() -> Optimizers<E> {
        Optimizers(Vec::new())
    }
}

impl<E: Engine> From<Optimizer<E>> for Optimizers<E> {
    fn from(optimizer: Optimizer<E>) -> Optimizers<E> {
        Optimizers::one(optimizer)
    }
}

/// An optimizer: an algorithm of the engine, a learning rate, and parameter groups.
pub struct Optimizer<E: Engine> {
    pub(super) name: String,
    pub(super) only: Vec<String>,
    pub(super) algorithm: E::Algorithm,
    pub(super) lr: f64,
    pub(super) momentum: Option<f64>,
    pub(super) weight_decay: Option<f64>,
    pub(super) groups: Vec<Group<E>>,
    pub(super) schedules: Vec<Schedule>,
}

impl<E: Engine> Optimizer<E> {
    /// An optimizer for all parameters.
    #[must_use]
    pub fn new(name: impl Into<String>, algorithm: impl Into<E::Algorithm>, lr: f64) -> Optimizer<E> {
        Optimizer {
            name: name.into(),
            only: Vec::new(),
            algorithm: algorithm.into(),
            lr,
            momentum: None,
            weight_decay: None,
            groups: Vec::new(),
            schedules: Vec::new(),
        }
    }

    /// Restricts it to the parameters that match one of these patterns, such as `["generator.**"]`.
    #[must_use]
    pub fn only<P: Into<String>>(mut self, patterns: impl IntoIterator<Item = P>) -> Optimizer<E> {
        self.only = patterns.into_iter().map(Into::into).collect();
        self
    }

    /// Adds a parameter group. A parameter belongs to the first group that matches it.
    #[must_use]
    pub fn group(mut self, group: Group<E>) -> Optimizer<E> {
        self.groups.push(group);
        self
    }

    /// Adds a learning-rate schedule. The factors of several schedules are multiplied.
    #[must_use]
    pub fn schedule(mut self, schedule: Schedule) -> Optimizer<E> {
        self.schedules.push(schedule);
        self
    }

    /// Sets the hyperparameters that hooks see; they are not read from the algorithm.
    #[must_use]
    pub fn hyperparameters(mut self, momentum: Option<f64>, weight_decay: Option<f64>) -> Optimizer<E> {
        (self.momentum, self.weight_decay) = (momentum, weight_decay);
        self
    }
}

/// A parameter group with its own settings.
pub struct Group<E: Engine> {
    pub(super) name: String,
    pub(super) patterns: Vec<String>,
    pub(super) lr: Option<f64>,
    pub(super) algorithm: Option<E::Algorithm>,
    pub(super) momentum: Option<f64>,
    pub(super) weight_decay: Option<f64>,
}

impl<E: Engine> Group<E> {
    /// A group of the parameters that match one of these patterns, such as `["**.bias", "norm*.**"]`.
    #[must_use]
    pub fn new<P: Into<String>>(name: impl Into<String>, patterns: impl IntoIterator<Item = P>) -> Group<E> {
        Group {
            name: name.into(),
            patterns: patterns.into_iter().map(Into::into).collect(),
            lr: None,
            algorithm: None,
            momentum: None,
            weight_decay: None,
        }
    }

    /// Sets the learning rate.
    #[must_use]
    pub fn lr(mut self, lr: f64) -> Group<E> {
        self.lr = Some(lr);
        self
    }

    /// Sets the algorithm, or other options of the same one (without weight decay, for example).
    #[must_use]
    pub fn with(mut self, algorithm: impl Into<E::Algorithm>) -> Group<E> {
        self.algorithm = Some(algorithm.into());
        self
    }

    /// Sets the hyperparameters that hooks see; they are not read from the algorithm.
    #[must_use]
    pub fn hyperparameters(mut self, momentum: Option<f64>, weight_decay: Option<f64>) -> Group<E> {
        (self.momentum, self.weight_decay) = (momentum, weight_decay);
        self
    }
}

/// A schedule with its plan of steps.
pub struct Schedule {
    pub(super) scheduler: Box<dyn Scheduler>,
    pub(super) plan: SchedulerPlan,
}

impl Schedule {
    /// Steps after each optimizer step.
    #[must_use]
    pub fn per_step(scheduler: impl Scheduler) -> Schedule {
        Schedule::new(Box::new(scheduler), SchedulerPlan::every(Interval::Step))
    }

    /// Steps after each epoch.
    #[must_use]
    pub fn per_epoch(scheduler: impl Scheduler) -> Schedule {
        Schedule::new(Box::new(scheduler), SchedulerPlan::every(Interval::Epoch))
    }

    /// Steps after each epoch with the value of a metric.
    #[must_use]
    pub fn on_plateau_of(metric: impl Into<String>, scheduler: impl Scheduler) -> Schedule {
        Schedule::new(Box::new(scheduler), SchedulerPlan::on_plateau_of(metric))
    }

    /// Steps by this plan.
    #[must_use]
    pub fn new(scheduler: Box<dyn Scheduler>, plan: SchedulerPlan) -> Schedule {
        Schedule { scheduler, plan }
    }
}
