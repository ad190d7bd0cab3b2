//! A training loop for Rust whose heart is its hook system.
//!
//! What users `cargo add`: the [`Trainer`] and its loops, settings, configuration, checkpoints. All of
//! the core contract ([`Observer`], [`Event`], the contexts, …) is re-exported at the root.

// Only one place prints, which makes untrusted text harmless.
#![warn(clippy::print_stdout, clippy::print_stderr)]

// `#[hook]` names this crate by its public name, also when it is used in here.
#[allow(unused_extern_crates)]
extern crate self as tenterhook;

#[macro_use]
mod loops;

mod accounts;
mod call;
pub mod checkpoint;
pub mod config;
mod cx;
pub mod data;
mod identify;
mod journal;
mod losses;
pub mod memory;
pub mod module;
pub mod neutral;
pub mod optim;
mod outputs;
mod own_loop;
mod problems;
mod refuse;
pub mod registry;
mod report;
mod resume;
pub mod run;
pub mod schedule;
pub mod settings;
pub mod sources;
mod stall;
pub mod strategy;
pub mod task;
pub mod tensors;
pub mod toy;
mod train_stream;
mod trainer;

pub use tenterhook_core::*;
pub use tenterhook_hooks as hooks;

pub use crate::cx::Cx;
pub use crate::data::{BatchData, DataModule, Loader, Split};
pub use crate::journal::{FailureKind, Failures, RunNotice};
pub use crate::module::{Module, ModuleResult, StepOutput};
pub use crate::own_loop::{OwnLoop, Verdict};
pub use crate::settings::Settings;
pub use crate::strategy::Strategy;
pub use crate::tensors::{TensorBytes, TensorMap};
pub use crate::trainer::{AddError, Predictions, Report, RunError, Trainer};

/// What a hook's or a program's file usually needs. It has no name that Burn's prelude has, so both can be used:
/// [`Tensor`], the view that hooks get, and [`Module`] are at the root.
pub mod prelude {
    pub use tenterhook_core::context::*;
    pub use tenterhook_core::{
        AnyHook, BoxError, Cadence, Controller, Decision, Event, FromOptions, Gradients, HookExt, HookResult,
        HookSpec, Key, Moment, Observer, OptionError, Phase, Policy, Progress, Registration, Request,
        SaveRequest, Scalar, Stage, State, Tensors, Tier, TimeSpan, Update, UpdateHook, closure, hook, hooks,
    };

    // Its methods without its name, which is also that of Burn's trait.
    pub use crate::Module as _;
    pub use crate::settings::{Amount, Check, ClipAlgorithm, OnSaveError, Switch};
    pub use crate::{
        BatchData, Cx, DataModule, Loader, ModuleResult, Report, RunError, RunNotice, Settings, StepOutput,
        Trainer,
    };
}

/// The README's Rust is compiled, so that it cannot go stale.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// So are the recipes.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/recipes.md")]
struct Recipes;
