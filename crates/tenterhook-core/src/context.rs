//! One context per event, holding only what exists at that moment.
//!
//! Gradients are fields of the events between backward and zero-grad and of no other, so reading
//! dead gradients does not compile. A context borrows from the loop, so no hook can keep one.
//!
//! ```
//! use tenterhook_core::AfterBackward;
//!
//! fn alive(cx: &AfterBackward) -> f64 {
//!     cx.gradients.norm()
//! }
//! ```
//!
//! ```compile_fail,E0609
//! # use tenterhook_core::StepEnd;
//! fn dead(cx: &StepEnd) -> f64 {
//!     cx.gradients.norm()
//! }
//! ```

use std::any::Any;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

pub use crate::checkpoint_entries::Entries;
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
            /// The names of the fields.
            #[doc(hidden)]
            pub const FIELDS: &'static [&'static str] = &["run_cx", $(stringify!($field)),*];

            /// The context with these values for its fields, in their order.
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

// Events that show the same are listed together.
contexts! {
    Setup: {
        /// The call that is being set up.
        stage: Stage,
        /// The full configuration.
        config: &'a Value,
    }
    Teardown: {
        /// The call that is being torn down.
        stage: Stage,
        /// How it ended.
        outcome: &'a Outcome,
    }
    FitStart, TrainStart: {
        /// The full configuration.
        config: &'a Value,
    }
    FitEnd, TrainEnd: {
        /// How it ended.
        outcome: &'a Outcome,
    }
    SanityCheckStart, SanityCheckEnd, TrainEpochStart, ValidationStart, ValidationEpochStart,
    ValidationEpochEnd, ValidationEnd, TestStart, TestEpochStart, TestEpochEnd, TestEnd, PredictStart,
    PredictEpochStart, PredictEpochEnd, PredictEnd: {}
    /// The epoch's metrics are in `cx.metrics()`.
    TrainEpochEnd: {}
    TrainBatchStart: {
        /// The batch.
        batch: Batch<'a>,
        /// How long the loop waited for it.
        wait: Duration,
    }
    TrainBatchEnd: {
        /// The batch.
        batch: Batch<'a>,
        /// Its loss, undivided; `None` when the step yielded none or was skipped.
        loss: Option<Scalar<'a>>,
    }
    BeforeForward, ValidationBatchStart, TestBatchStart, PredictBatchStart: {
        /// The batch.
        batch: Batch<'a>,
    }
    AfterForward: {
        /// The batch.
        batch: Batch<'a>,
        /// How long the module's step took.
        duration: Duration,
    }
    BeforeZeroGrad: {
        /// The gradients of the last window.
        gradients: Tensors<'a>,
    }
    BeforeBackward: {
        /// The loss, undivided.
        loss: Scalar<'a>,
    }
    AfterBackward: {
        /// The loss, undivided.
        loss: Scalar<'a>,
        /// The gradients accumulated in this window so far.
        gradients: Tensors<'a>,
        /// How long the backward pass took.
        duration: Duration,
    }
    BeforeOptimizerStep: {
        /// Which optimizer is about to step.
        optimizer: usize,
        /// The gradients, before update hooks and clipping.
        gradients: Tensors<'a>,
    }
    GradientClip: {
        /// Which optimizer is about to step.
        optimizer: usize,
        /// The norm after update hooks and before clipping.
        norm_before: Scalar<'a>,
        /// The norm after clipping.
        norm_after: Scalar<'a>,
        /// How it clips, where clipping is configured.
        rule: Option<ClipRule>,
        /// The gradients as the optimizer will use them.
        gradients: Tensors<'a>,
    }
    AfterOptimizerStep: {
        /// Which optimizer has stepped.
        optimizer: usize,
        /// The gradients it used.
        gradients: Tensors<'a>,
        /// How long clipping and the update took.
        duration: Duration,
    }
    StepEnd: {
        /// The loss of the batch that completed the step, undivided.
        loss: Scalar<'a>,
        /// The norm of all gradients, after update hooks and before clipping; NaN where every receiver
        /// [leaves it](crate::HookSpec::ignores_grad_norm).
        grad_norm: Scalar<'a>,
        /// The learning rate that the update used: of the first group of the first optimizer, or of
        /// the one that the module stepped itself.
        lr: f64,
        /// The learning rate that the next update will use.
        next_lr: f64,
    }
    /// The module is in the middle of its step, so the moment shows no parameters.
    Activation: {
        /// The point's name, such as `blocks.3.mlp`.
        point: &'a str,
        /// Its values: one tensor, of the point's name, which is also [`tensor`](Activation::tensor).
        values: Tensors<'a>,
    }
    ValidationBatchEnd, TestBatchEnd: {
        /// The batch.
        batch: Batch<'a>,
        /// Its loss: what the module's step logged as `val/loss` or `test/loss`.
        loss: Option<f64>,
        /// What the module's step logged for this batch, by name.
        batch_metrics: &'a BTreeMap<String, f64>,
        /// What the module gave as its outputs, such as logits; see `Cx::show_output`.
        outputs: Tensors<'a>,
    }
    PredictBatchEnd: {
        /// The batch.
        batch: Batch<'a>,
        /// What the module predicted.
        prediction: &'a dyn Any,
        /// Its loss: what the module's step logged as `predict/loss`.
        loss: Option<f64>,
        /// What the module's step logged for this batch, by name.
        batch_metrics: &'a BTreeMap<String, f64>,
        /// What the module gave as its outputs, such as logits; see `Cx::show_output`.
        outputs: Tensors<'a>,
    }
    SaveCheckpoint, LoadCheckpoint: {
        /// The checkpoint's free entries.
        entries: &'a CheckpointEntries,
    }
    /// Step, epoch and metrics of the checkpoint are the fields that begin with
    /// `saved_`; those of the moment (`cx.step`, `cx.metrics()`) may be later.
    CheckpointSaved: {
        /// The completed steps at the save.
        saved_step: u64,
        /// The epoch of the save, from 0.
        saved_epoch: u64,
        /// The latest value of every metric at the save.
        saved_metrics: &'a BTreeMap<String, f64>,
        /// The step that each of them belongs to. It may be an earlier one than the checkpoint's:
        /// [`fresh_metric`](CheckpointSaved::fresh_metric).
        saved_metric_steps: &'a BTreeMap<String, u64>,
        /// The checkpoint.
        path: &'a Path,
        /// The directory of all checkpoints.
        root: &'a Path,
        /// Its score where it was the best at the save, by the metric that its checkpoint hook monitors.
        best_score: Option<f64>,
        /// The event may have been delivered before: the process that saved the checkpoint was killed, or there is no run
        /// directory that shows a clean end.
        again: bool,
    }
    CheckpointLoaded: {
        /// The checkpoint.
        path: &'a Path,
        /// The directory it lies in.
        root: &'a Path,
    }
    /// The numbers are those of one line of `metrics.jsonl`, brought over once for all who pass
    /// them on; what is logged here belongs to the next.
    Log: {
        /// The loop in which they were logged.
        of: Phase,
        /// They are those of a whole epoch, or of the end of training.
        epoch_end: bool,
        /// The time of the line, in seconds since the run began.
        time: f64,
        /// The numbers, by name.
        metrics: &'a BTreeMap<String, f64>,
        /// The histograms, by name.
        histograms: &'a BTreeMap<String, Histogram>,
    }
    Notice: {
        /// The kind of notice, as in `events.jsonl`: `said`, `decision`, `failure`, `stall`, …
        kind: &'a str,
        /// What people read.
        text: &'a str,
        /// Whether people are told; otherwise only the journal has it.
        told: bool,
        /// The notice as it stands in `events.jsonl`.
        entry: &'a Value,
    }
    HookDisabled: {
        /// The hook's name.
        hook: &'a str,
        /// Why.
        reason: &'a str,
    }
    Exception: {
        /// What failed, and where it came from.
        failure: &'a Failure,
    }
}

/// A context by the names of its fields: `context!(StepEnd { moment, loss, grad_norm, lr: 0.1, next_lr: 0.1 })`. A field that is
/// missing, unknown or out of order does not compile.
#[macro_export]
macro_rules! context {
    ($Event:ident { $($field:ident $(: $value:expr)?),* $(,)? }) => {
        // A tuple and not a block, so that temporaries live as long as they do in a literal.
        (
            const { $crate::context::check_fields($crate::$Event::FIELDS, &[$(stringify!($field)),*]) },
            $crate::$Event::new($($crate::context!(@value $field $($value)?)),*),
        ).1
    };
    (@value $field:ident) => { $field };
    (@value $field:ident $value:expr) => { $value };
}

/// Compares the names of fields while compiling.
#[doc(hidden)]
pub const fn check_fields(fields: &[&str], given: &[&str]) {
    assert!(fields.len() == given.len(), "a context is made with all its fields and no others");
    let mut i = 0;
    while i < fields.len() {
        assert!(same_text(fields[i], given[i]), "the fields of a context are given in their order");
        i += 1;
    }
}

/// Whether two texts are the same, while compiling.
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
    /// The norm of all of an optimizer's gradients together is at most this.
    Norm(f64),
    /// No value is larger than this.
    Value(f64),
}

impl Activation<'_> {
    /// The values.
    #[must_use]
    pub fn tensor(&self) -> Tensor<'_> {
        self.values.first()
    }
}

impl CheckpointSaved<'_> {
    /// A metric at the save, where its value belongs to the checkpoint's own step and so to its weights.
    #[must_use]
    pub fn fresh_metric(&self, name: &str) -> Option<f64> {
        let is_fresh = self.saved_metric_steps.get(name) == Some(&self.saved_step);
        self.saved_metrics.get(name).copied().filter(|_| is_fresh)
    }
}

impl GradientClip<'_> {
    /// Whether clipping changed anything. Reading it makes both norms materialise.
    #[must_use]
    pub fn clipped(&self) -> bool {
        self.norm_after.value() < self.norm_before.value()
    }
}
