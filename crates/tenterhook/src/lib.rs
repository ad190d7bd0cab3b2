//! A training loop for Rust whose heart is its hook system.
//!
//! The crate to `cargo add`: the [`Trainer`] and its loops, settings, configuration, checkpoints. The
//! contract of hooks ([`Observer`], [`Event`], the contexts, …) is re-exported at the root.

// Only one module may print: the one that escapes untrusted text.
#![warn(clippy::print_stdout, clippy::print_stderr)]

// The code that `#[hook]` generates refers to this crate by its public name.
#[allow(unused_extern_crates)]
extern crate self as tenterhook;

#[macro_use]
mod loops;

mod accounts;
mod call;
mod check_plan;
pub mod checkpoint;
pub mod config;
mod cx;
pub mod data;
mod fingerprints;
mod journal;
mod losses;
pub mod memory;
pub mod module;
pub mod neutral;
pub mod optim;
mod outputs;
mod own_loop;
mod problems;
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

/// The usual imports of hooks and programs. It shares no name with Burn's prelude; [`Tensor`], the view that
/// hooks get, and [`Module`] are only at the root.
pub mod prelude {
    pub use tenterhook_core::context::*;
    pub use tenterhook_core::{
        AnyHook, BoxError, Cadence, Controller, Decision, Event, FromOptions, Gradients, HookExt, HookResult,
        HookSpec, Key, Observer, OptionError, Phase, Policy, Progress, Registration, Request, RunContext,
        SaveRequest, Scalar, Stage, State, Tensors, Tier, TimeSpan, Update, UpdateHook, closure, hook, hooks,
    };

    // Unnamed, because Burn's trait has the same name.
    pub use crate::Module as _;
    pub use crate::settings::{BatchLimit, ClipAlgorithm, FastDevRun, OnSaveError, ValInterval};
    pub use crate::{
        BatchData, Cx, DataModule, Loader, ModuleResult, Report, RunError, RunNotice, Settings, StepOutput,
        Trainer,
    };
}

/// The Rust blocks of README and book are compiled and run as doc-tests.
#[cfg(doctest)]
mod book {
    #[doc = include_str!("../../../README.md")]
    struct Readme;

    macro_rules! pages {
        ($($name:ident $page:literal)*) => {
            $(#[doc = include_str!(concat!("../../../docs/", $page))] struct $name;)*
        };
    }

    pages! {
        FirstHook "guide/first-hook.md"
        OwnLoop "guide/own-loop.md"
        Concepts "hooks/concepts.md"
        Kinds "hooks/kinds.md"
        State "hooks/state.md"
        Testing "hooks/testing.md"
        FromScratch "hooks/from-scratch.md"
        Recipes "hooks/recipes.md"
        Neutrality "explanation/neutrality.md"
    }
}
