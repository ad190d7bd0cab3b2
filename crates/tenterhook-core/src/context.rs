//! The contexts of events: one type per event, with only what exists at that event.
//!
//! Only events between the backward pass and the clearing of the gradients have gradients as fields, so
//! reading stale gradients does not compile. A context borrows from the loop, so a hook cannot keep it.
//!
//! ```
//! use tenterhook_core::AfterBackward;
//!
//! fn norm(cx: &AfterBackward) -> f64 {
//!     cx.gradients.norm()
//! }
//! ```
//!
//! ```compile_fail,E0609
//! # use tenterhook_core::StepEnd;
//! fn norm(cx: &StepEnd) -> f64 {
//!     cx.gradients.norm()
//! }
//! ```

use std::any::Any;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

pub use crate::checkpoint_entries::CheckpointEntries;
pub use crate::event_ref::{Context, EventRef};
use crate::failure::Failure;
use crate::metrics::Histogram;
use crate::progress::{Outcome, Phase, Stage};
use crate::run_context::{Batch, RunContext};
use crate::tensor::{Scalar, Tensor, Tensors};

macro_rules! contexts {
    ($($($(#[$doc:meta])* $Event:ident),+: $fields:tt)*) => {
        $($(contexts! { @one [$($doc)*] $Event $fields })+)*
    };
    (@one [$($doc:meta)*] $Event:ident { $($(#[$field_doc:meta])* $field:ident: $Field:ty,)* }) => {
        #[doc = concat!("See [`Event::", stringify!($Event), "`](crate::Event::", stringify!($Event), ").")]
        $(#[$doc])*
        #[non_exhaustive]
        pub struct $Event<'a> {
            /// The state of the run, also reached through `Deref`: `cx.epoch`, `cx.step`, `cx.params()`.
            pub run_cx: RunContext<'a>,
            $($(#[$field_doc])* pub $field: $Field,)*
        }

        impl<'a> std::ops::Deref for $Event<'a> {
            type Target = RunContext<'a>;
            fn deref(&self) -> &RunContext<'a> {
                &self.run_cx
            }
        }

        impl<'a> $Event<'a> {
            /// The names of the fields, for `context!`.
            #[doc(hidden)]
            pub const FIELDS: &'static [&'static str] = &["run_cx", $(stringify!($field)),*];

            /// Makes the context from its fields, in this order.
            #[allow(clippy::too_many_arguments)]
            #[must_use]
            pub fn new(run_cx: RunContext<'a>, $($field: $Field),*) -> $Event<'a> {
                $Event { run_cx, $($field),* }
            }

            pub(crate) fn batch_if_any(&self) -> Option<&Batch<'a>> {
                contexts!(@batch self $($field)*)
            }
        }
    };
    (@batch $context:ident batch $($rest:ident)*) => { Some(&$context.batch) };
    (@batch $context:ident $($rest:ident)*) => { None };
}

// Events with the same fields are listed together.
contexts! {
    Setup: {
        /// The call that begins.
        stage: Stage,
        /// The full, resolved configuration.
        config: &'a Value,
    }
    Teardown: {
        /// The call that ends.
        stage: Stage,
        /// How the call ended.
        outcome: &'a Outcome,
    }
    FitStart, TrainStart: {
        /// The full, resolved configuration.
        config: &'a Value,
    }
    FitEnd, TrainEnd: {
        /// How the call ended.
        outcome: &'a Outcome,
    }
    SanityCheckStart, SanityCheckEnd, TrainEpochStart, ValidationStart, ValidationEpochStart,
    ValidationEpochEnd, ValidationEnd, TestStart, TestEpochStart, TestEpochEnd, TestEnd, PredictStart,
    PredictEpochStart, PredictEpochEnd, PredictEnd: {}
    /// `cx.metrics()` holds the metrics of the epoch.
    TrainEpochEnd: {}
    TrainBatchStart: {
        /// The batch.
        batch: Batch<'a>,
        /// How long the loop waited for the batch.
        wait: Duration,
    }
    TrainBatchEnd: {
        /// The batch.
        batch: Batch<'a>,
        /// The loss, before division by `accumulate_grad_batches`; `None` if the step yielded none or was
        /// skipped.
        loss: Option<Scalar<'a>>,
    }
    BeforeForward, ValidationBatchStart, TestBatchStart, PredictBatchStart: {
        /// The batch.
        batch: Batch<'a>,
    }
    AfterForward: {
        /// The batch.
        batch: Batch<'a>,
        /// The time of the module's step.
        duration: Duration,
    }
    BeforeZeroGrad: {
        /// The gradients of the previous accumulation window.
        gradients: Tensors<'a>,
    }
    BeforeBackward: {
        /// The loss, before division by `accumulate_grad_batches`.
        loss: Scalar<'a>,
    }
    AfterBackward: {
        /// The loss, before division by `accumulate_grad_batches`.
        loss: Scalar<'a>,
        /// The gradients accumulated so far in this window.
        gradients: Tensors<'a>,
        /// The time of the backward pass.
        duration: Duration,
    }
    BeforeOptimizerStep: {
        /// Index of the optimizer.
        optimizer: usize,
        /// The gradients before update hooks and clipping.
        gradients: Tensors<'a>,
    }
    GradientClip: {
        /// Index of the optimizer.
        optimizer: usize,
        /// The gradient norm after update hooks and before clipping.
        norm_before: Scalar<'a>,
        /// The gradient norm after clipping.
        norm_after: Scalar<'a>,
        /// How gradients are clipped, if clipping is configured.
        rule: Option<ClipRule>,
        /// The gradients that the optimizer will use.
        gradients: Tensors<'a>,
    }
    AfterOptimizerStep: {
        /// Index of the optimizer.
        optimizer: usize,
        /// The gradients that the optimizer used.
        gradients: Tensors<'a>,
        /// The time of clipping and the optimizer step.
        duration: Duration,
    }
    StepEnd: {
        /// The loss of the batch that completed the step, before division by `accumulate_grad_batches`.
        loss: Scalar<'a>,
        /// The norm of all gradients after update hooks and before clipping; NaN if every receiver
        /// [ignores it](crate::HookSpec::ignores_grad_norm).
        grad_norm: Scalar<'a>,
        /// The learning rate of the update, of the first parameter group of the first optimizer, or of the
        /// optimizer that the module stepped itself.
        lr: f64,
        /// The learning rate of the next update.
        next_lr: f64,
    }
    /// The module is within its step, so `cx.params()` is empty.
    Activation: {
        /// Name of the activation, such as `blocks.3.mlp`.
        point: &'a str,
        /// The values: a single tensor, which [`tensor`](Activation::tensor) returns.
        values: Tensors<'a>,
    }
    ValidationBatchEnd, TestBatchEnd: {
        /// The batch.
        batch: Batch<'a>,
        /// The loss: what the module's step logged as `val/loss` or `test/loss`.
        loss: Option<f64>,
        /// The metrics that the module's step logged for this batch.
        batch_metrics: &'a BTreeMap<String, f64>,
        /// Outputs that the module showed, such as logits; see `Cx::show_output`.
        outputs: Tensors<'a>,
    }
    PredictBatchEnd: {
        /// The batch.
        batch: Batch<'a>,
        /// The prediction of the module.
        prediction: &'a dyn Any,
        /// The loss: what the module's step logged as `predict/loss`.
        loss: Option<f64>,
        /// The metrics that the module's step logged for this batch.
        batch_metrics: &'a BTreeMap<String, f64>,
        /// Outputs that the module showed, such as logits; see `Cx::show_output`.
        outputs: Tensors<'a>,
    }
    SaveCheckpoint, LoadCheckpoint: {
        /// Entries that hooks and module can add and read.
        entries: &'a CheckpointEntries,
    }
    /// The fields `saved_…` hold step, epoch and metrics of the checkpoint. `cx.step` and `cx.metrics()` may
    /// be later ones, since a checkpoint is written in the background.
    CheckpointSaved: {
        /// The number of completed steps at the save.
        saved_step: u64,
        /// The epoch of the save, from 0.
        saved_epoch: u64,
        /// The latest value of every metric at the save.
        saved_metrics: &'a BTreeMap<String, f64>,
        /// The step of each value, which may be earlier than the checkpoint's; see
        /// [`fresh_metric`](CheckpointSaved::fresh_metric).
        saved_metric_steps: &'a BTreeMap<String, u64>,
        /// Path of the checkpoint.
        path: &'a Path,
        /// The directory of all checkpoints.
        root: &'a Path,
        /// The checkpoint's score in the metric that its checkpoint hook monitors, if it was the best at the
        /// save.
        best_score: Option<f64>,
        /// Whether the event may have been delivered before: the process that saved the checkpoint was
        /// killed, or no run directory shows that it ended cleanly.
        redelivered: bool,
    }
    CheckpointLoaded: {
        /// Path of the checkpoint.
        path: &'a Path,
        /// The directory that contains it.
        root: &'a Path,
    }
    /// The metrics of one line of `metrics.jsonl`, read from the engine once for all hooks. A metric that is
    /// logged in this event belongs to the next line.
    Log: {
        /// The loop in which the metrics were logged.
        logged_in: Phase,
        /// Whether the metrics are those of a whole epoch, or of the end of training.
        epoch_end: bool,
        /// The time of the line, in seconds since the run began.
        time: f64,
        /// The metrics, by name.
        metrics: &'a BTreeMap<String, f64>,
        /// The histograms, by name.
        histograms: &'a BTreeMap<String, Histogram>,
    }
    Notice: {
        /// The kind of notice, as in `events.jsonl`: `said`, `decision`, `failure`, `stall`, …
        kind: &'a str,
        /// The text for people.
        text: &'a str,
        /// Whether the notice is shown to people; otherwise it is in the journal only.
        shown: bool,
        /// The notice as in `events.jsonl`.
        entry: &'a Value,
    }
    HookDisabled: {
        /// The hook's name.
        hook: &'a str,
        /// The reason.
        reason: &'a str,
    }
    Exception: {
        /// The failure and its origin.
        failure: &'a Failure,
    }
}

/// Makes a context with named fields: `context!(StepEnd { run_cx, loss, grad_norm, lr: 0.1, next_lr: 0.1 })`.
/// A field that is missing, unknown or out of order does not compile.
#[macro_export]
macro_rules! context {
    ($Event:ident { $($field:ident $(: $value:expr)?),* $(,)? }) => {
        // A tuple, because temporaries in a block would be dropped too early.
        (
            const { $crate::context::check_fields($crate::$Event::FIELDS, &[$(stringify!($field)),*]) },
            $crate::$Event::new($($crate::context!(@value $field $($value)?)),*),
        ).1
    };
    (@value $field:ident) => { $field };
    (@value $field:ident $value:expr) => { $value };
}

/// Compares the names of fields at compile time.
#[doc(hidden)]
pub const fn check_fields(fields: &[&str], given: &[&str]) {
    assert!(fields.len() == given.len(), "a context is made with all its fields and no others");
    let mut i = 0;
    while i < fields.len() {
        assert!(same_text(fields[i], given[i]), "the fields of a context are given in their order");
        i += 1;
    }
}

/// Compares two texts at compile time.
pub(crate) const fn same_text(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut i = 0;
    while i < a.len() && i < b.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    a.len() == b.len()
}

/// How gradients are clipped.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClipRule {
    /// Maximum norm of all gradients of an optimizer together.
    Norm(f64),
    /// Maximum absolute value of an element.
    Value(f64),
}

impl Activation<'_> {
    /// The tensor of the activation.
    #[must_use]
    pub fn tensor(&self) -> Tensor<'_> {
        self.values.first()
    }
}

impl CheckpointSaved<'_> {
    /// A metric at the save, if its value was computed at the checkpoint's step, and so with its weights.
    #[must_use]
    pub fn fresh_metric(&self, name: &str) -> Option<f64> {
        let is_fresh = self.saved_metric_steps.get(name) == Some(&self.saved_step);
        self.saved_metrics.get(name).copied().filter(|_| is_fresh)
    }
}

impl GradientClip<'_> {
    /// Whether clipping changed the gradients. Reads both norms from the engine.
    #[must_use]
    pub fn clipped(&self) -> bool {
        self.norm_after.value() < self.norm_before.value()
    }
}
