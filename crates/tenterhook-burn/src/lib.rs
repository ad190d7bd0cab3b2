//! The Burn engine: turns a Burn model into a module for tenterhook's trainer.
//!
//! Implement [`BurnModule`] for the type that derives Burn's `Module`, and pass [`Burn::new`] to
//! `Trainer::fit`. Only this crate and the built-in tasks depend on Burn, so Burn's breaking changes are
//! absorbed here.
//!
//! How it works:
//!
//! - Models stay plain Burn modules. `Burn<M>` holds the model with gradients, optimizers and schedules, and derefs to the model.
//! - Burn's tensors have their rank in their type. One list holds parameters of all ranks, so the rank is a
//!   field; a `match` over 1 to 8 (`with_rank!`) turns it into a constant again.
//! - Burn's `ModuleOptimizer` keys its state by random parameter ids and silently resets the state of a
//!   missing id. `update` calls Burn's algorithms per parameter; [`tenterhook::optim`] keeps their state by
//!   name, and incomplete state is an error.
//! - Evaluation runs on `model.valid()`: no graph, no dropout.
//! - `Burn::new` initialises parameters in the model's order. Burn initialises them at first use, so the random values would
//!   depend on the first reader.
//! - flex has one random generator per process that can be seeded but not saved, so it is seeded before every step.
//! - A training step returns the loss; `backward` divides it and computes gradients; then the loss is
//!   detached. A loss in this process's memory is read immediately; others stay on the device until a hook
//!   reads them.

// Only the app prints, in one place that escapes untrusted text.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod algorithm;
mod burn_tensor;
mod device;
mod dyn_tensor;
mod engine;
mod gradients;
mod hook_points;
mod module;
mod optimizers;
mod params;
mod scalar;
mod tensor_data;
mod update;
mod weights;

pub use burn;

/// The version of Burn that this engine is built for.
pub const BURN_VERSION: &str = "0.22.1";

pub use crate::algorithm::{Algorithm, BurnEngine};
pub use crate::burn_tensor::{BurnGradient, BurnGradients, BurnTensor, MapGradient};
pub use crate::device::{DeviceError, device};
pub use crate::engine::Burn;
pub use crate::hook_points::{HookPoints, TensorList};
pub use crate::module::{BurnCx, BurnModule, Step};
pub use crate::scalar::Loss;
pub use tenterhook::optim::Schedule;

/// The optimizers of a module, over disjoint parameters.
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

/// A Burn optimizer with its learning rate, such as `Optimizer::new("adamw", AdamWConfig::new().build(), 1e-3)`.
pub type Optimizer = tenterhook::optim::Optimizer<BurnEngine>;

/// The `[optimizer]` table of a configuration.
pub type OptimizerTable = tenterhook::optim::OptimizerTable<BurnEngine>;

/// A parameter group: some of an optimizer's parameters, with their own options.
pub type Group = tenterhook::optim::Group<BurnEngine>;
