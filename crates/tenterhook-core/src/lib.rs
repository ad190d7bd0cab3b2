//! The contract between hooks and the training loop: events, their contexts, the kinds of hooks, the plan
//! that orders hooks, and the runner that calls them.
//!
//! **Invariants.** No I/O, no clock, no threads, no tensors of a concrete engine. The plan never changes
//! while an event is being delivered. No context is built for an event that no hook wants.
//!
//! | topic | item |
//! |---|---|
//! | the events and their order | [`Event`] |
//! | what is available at an event | [`context`](mod@context), [`RunContext`] |
//! | writing a hook | [`Observer`], [`Controller`], [`UpdateHook`] |
//! | running a hook less often | [`HookExt`] |
//! | what a hook declares | [`HookSpec`] |
//! | which hooks receive an event, and in which order | [`plan`] |
//! | failures of hooks | [`failure`] |
//! | the cost of hooks | [`account`] |
//! | running hooks in your own loop | [`runner`] |

// Only one place in the workspace prints, after making untrusted text harmless.
#![warn(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

// `#[hook]` refers to this crate by its public name, also within the crate.
#[allow(unused_extern_crates)]
extern crate self as tenterhook_core;

#[macro_use]
mod event_table;

pub mod account;
mod any_hook;
pub mod backtraces;
pub mod blackboard;
pub mod cadence;
mod checkpoint_entries;
pub mod closure;
pub mod condition;
pub mod context;
mod delivery_stats;
mod effect;
mod event;
mod event_ref;
pub mod failure;
pub mod flow;
pub mod hook;
pub mod metrics;
mod named;
pub mod number;
#[cfg(feature = "schemars")]
mod options;
pub mod pattern;
pub mod plan;
pub mod printable;
pub mod progress;
pub mod random;
pub mod read_counter;
pub mod readable;
pub mod roster;
pub mod run_context;
pub mod runner;
mod seconds;
pub mod spec;
pub mod state;
pub mod tensor;
mod time_span;
pub mod update;
mod world;
pub mod wrap;

pub use account::{Budget, BudgetOverrun, Cost, HookCost, OverBudget, ReadCounts};
pub use any_hook::AnyHook;
pub use blackboard::{Blackboard, BlackboardView, Key};
pub use cadence::Cadence;
pub use condition::{Condition, ConditionError, Operand};
pub use context::*;
pub use delivery_stats::DeliveryStats;
pub use effect::{Effect, EffectPermit};
pub use event::{Event, EventReceiver, Events};
pub use failure::{BoxError, Failure, OnError, Origin, Policy};
pub use flow::{Decision, Flow, LrChange, Request, SaveRequest, Weights};
pub use hook::{Controller, Hook, HookResult, Observer};
pub use metrics::{Histogram, LogOptions, LogPosition, Metrics, Reduce};
pub use named::NamedTensors;
#[cfg(feature = "schemars")]
pub use options::{FromOptions, IdentityOptions, OptionError};
pub use pattern::Pattern;
pub use plan::{Plan, PlanError, Tier};
pub use progress::{Outcome, Phase, Progress, RunInfo, Stage, Status, Validation, epoch_label};
pub use roster::{HookInfo, HookKind, RosterHandle, RosterRequest};
pub use run_context::{Batch, Clock, RunContext, RunState};
pub use runner::{
    HookDecision, HookGroup, HookRunner, ReceivedEvents, Registration, RequestedChange, RosterChange,
    RosterError,
};
pub use spec::{Claim, Declaration, EnvironmentProblem, FINDS_NAN, HookSpec, Ranks, SAVES_CHECKPOINTS};
pub use state::State;
pub use tensor::{
    DType, ModelView, OptimizerSource, ParamGroup, Scalar, Tensor, TensorSource, TensorStats, Tensors,
};
pub use tenterhook_macros::hook;
pub use time_span::{TimeSpan, TimeSpanError};
pub use update::{Gradient, Gradients, GradientsMut, Update, UpdateError, UpdateHook};
pub use world::World;
pub use wrap::HookExt;
