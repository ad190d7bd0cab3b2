//! A training loop for Rust whose heart is its hook system.
//!
//! What users `cargo add`: the [`Trainer`] and its loops, settings, configuration, checkpoints. All of
//! the core contract ([`Hook`], [`Event`], the contexts, …) is re-exported at the root.

// Only one place prints, which makes untrusted text harmless.
#![warn(clippy::print_stdout, clippy::print_stderr)]

// `#[hook]` names this crate by its public name, also when it is used in here.
#[allow(unused_extern_crates)]
extern crate self as tenterhook;

#[macro_use]
mod emit;

mod accounts;
pub mod checkpoint;
pub mod config;
mod cx;
pub mod data;
mod evaluate;
mod failures;
mod feed;
mod fit;
mod identify;
mod losses;
pub mod memory;
pub mod module;
pub mod neutral;
mod notice;
mod outputs;
mod problems;
mod refuse;
pub mod registry;
mod report;
pub mod run;
mod running;
pub mod schedule;
mod session;
pub mod settings;
pub mod sources;
mod stall;
mod step;
pub mod strategy;
mod taking_up;
pub mod task;
pub mod tensors;
pub mod toy;
mod trainer;

pub use tenterhook_core::*;
pub use tenterhook_hooks as hooks;

pub use crate::cx::Cx;
pub use crate::data::{BatchData, DataModule, Loader, Split};
pub use crate::failures::{FailureKind, Failures};
pub use crate::module::{Module, ModuleResult, StepOutput};
pub use crate::notice::Notice;
pub use crate::settings::Settings;
pub use crate::strategy::Strategy;
pub use crate::tensors::{TensorBytes, TensorMap};
pub use crate::trainer::{AddError, Predictions, Report, RunError, Trainer};

/// What a hook's or a program's file usually needs. It has no name that Burn's prelude has, so both can be used:
/// [`Tensor`], the view that hooks get, and [`Module`] are at the root.
pub mod prelude {
    pub use tenterhook_core::context::*;
    pub use tenterhook_core::{
        Access, AnyHook, Batch, Board, BoxError, Cadence, Condition, Controller, Decision, Event, Events,
        Failure, Flow, FromOptions, Gradient, Gradients, Histogram, Hook, HookExt, HookInfo, HookKind,
        HookResult, Key, LogOptions, Lr, Metrics, ModelView, Moment, NamedTensors, Observer, OnError,
        OptionError, Outcome, ParamGroup, Pattern, Phase, Policy, Progress, Reduce, Registration, Request,
        RunInfo, SaveRequest, Scalar, Stage, State, Stats, Status, TensorSource, Tensors, Tier, Update,
        UpdateError, UpdateHook, closure, hook, hooks,
    };

    // Its methods without its name, which is also that of Burn's trait.
    pub use crate::Module as _;
    pub use crate::settings::{Amount, Check, ClipAlgorithm, OnSaveError, Switch, Time};
    pub use crate::{
        BatchData, Cx, DataModule, Loader, ModuleResult, Notice, Report, RunError, Settings, StepOutput,
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
