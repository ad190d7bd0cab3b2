//! The Burn engine: a Burn model becomes a module that the trainer runs.
//!
//! A user implements [`BurnModule`] for the type that derives Burn's `Module`, and hands
//! [`Burn::new`] to `Trainer::fit`. This crate absorbs Burn's breaking changes; nothing else in the
//! workspace but the built-in tasks knows Burn.
//!
//! How it works:
//!
//! - Models stay plain Burn modules. `Burn<M>` holds the model with gradients, optimizers and schedules, and derefs to the model.
//! - Burn's tensors carry their rank in their type. One list holds parameters of all ranks, so the rank is kept beside the tensor
//!   and restored by a `match` over 1 to 8 (`with_rank!`).
//! - Burn's `ModuleOptimizer` keys its state by random parameter ids and silently starts anew where one is missing. `update` calls
//!   Burn's algorithms per parameter; [`tenterhook::optim`] keeps their state by name, and incomplete state is an error.
//! - Evaluation runs on `model.valid()`: no graph, no dropout.
//! - Parameters are initialised in the model's order by `Burn::new`. Burn initialises them at first use, so the random values would
//!   depend on the first reader.
//! - flex has one random generator per process that can be seeded but not saved, so it is seeded before every step.
//! - The step yields the loss, `backward` gets it with its divisor, then it is detached. A loss in this process's memory becomes a
//!   number at once; elsewhere it stays on the device until it is read.

// Only one place prints, which makes untrusted text harmless.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod algorithm;
mod device;
mod engine;
mod erased;
mod gradients;
mod module;
mod native;
mod optimizers;
mod params;
mod points;
mod saved;
mod scalar;
mod update;

pub use burn;

/// The version of Burn that this engine is made for.
pub const BURN_VERSION: &str = "0.22.1";

pub use crate::algorithm::{Algorithm, BurnEngine};
pub use crate::device::{DeviceError, device};
pub use crate::engine::Burn;
pub use crate::module::{BurnCx, BurnModule, Step};
pub use crate::native::{BurnGradient, BurnGradients, BurnTensor, MapGradient};
pub use crate::points::{Points, TensorList};
pub use crate::scalar::Loss;
pub use tenterhook::optim::Schedule;

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
pub type Optimizers = tenterhook::optim::Optimizers<BurnEngine>;

/// One optimizer of Burn's, such as `Optimizer::new("adamw", AdamWConfig::new().build(), 1e-3)`.
pub type Optimizer = tenterhook::optim::Optimizer<BurnEngine>;

/// The `[optimizer]` table of a configuration.
pub type OptimizerTable = tenterhook::optim::OptimizerTable<BurnEngine>;

/// Some of an optimizer's parameters, with settings of their own.
pub type Group = tenterhook::optim::Group<BurnEngine>;
