//! The Burn engine: a Burn model becomes a module that the trainer runs.
//!
//! A user implements [`BurnModule`] for the type that derives Burn's `Module`, and hands
//! [`Burn::new`] to `Trainer::fit`. This crate absorbs Burn's breaking changes; nothing else in the
//! workspace but the built-in tasks knows Burn.

// Only one place prints, which makes untrusted text harmless.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod algorithm;
mod assign;
mod device;
mod engine;
mod erased;
mod gradients;
mod module;
mod native;
mod optimizer;
mod optimizer_state;
pub mod options;
mod params;
mod points;
mod saved;
mod scalar;
mod stepper;

pub use burn;

/// The version of Burn that this engine is made for.
pub const BURN_VERSION: &str = "0.22.1";

pub use crate::device::{DeviceError, device};
pub use crate::engine::Burn;
pub use crate::module::{BurnCx, BurnModule, Step};
pub use crate::native::{BurnGradient, BurnGradients, BurnTensor, MapGradient};
pub use crate::optimizer::{Group, Optimizer, Optimizers, Schedule};
pub use crate::points::{Points, TensorList};
pub use crate::scalar::Loss;
