//! Decisions of controllers.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::named::NamedTensors;

/// How training continues after an event, from weakest to strongest. If controllers disagree, each decision
/// takes effect and all are logged; the strongest determines how the run ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Flow {
    /// Continue as usual.
    #[default]
    Continue,
    /// Skip the optimizer step of the current accumulation window. Possible up to `on_before_optimizer_step`;
    /// there, with several optimizers, the current one and those after it do not step.
    SkipUpdate,
    /// Skip the current batch: the module's step does not run. Possible at `on_train_batch_start`.
    SkipBatch,
    /// End the epoch: immediately if decided at `on_train_batch_start`, otherwise after the batch.
    EndEpoch,
    /// Stop training once `min_epochs` and `min_steps` are reached: finish the batch, validate, end the
    /// epoch.
    Stop {
        /// The reason, for the run's summary.
        reason: String,
    },
}

/// A change of a learning rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LrChange {
    /// Set it to this value.
    Set(f64),
    /// Multiply it by this factor.
    Scale(f64),
}

/// A request of a controller to the trainer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Request {
    /// Change the learning rate of one optimizer, or of all.
    Lr {
        /// Index of the optimizer; `None` for all.
        optimizer: Option<usize>,
        /// The change.
        change: LrChange,
    },
    /// Save a checkpoint after all hooks have received the event.
    Save(SaveRequest),
    /// Run a validation after this batch.
    Validate,
    /// Replace the module's weights until `SwapBack`, for example by their average during a validation.
    /// Checkpoints still contain the module's own weights.
    SwapWeights(Weights),
    /// Restore the module's own weights after `SwapWeights`. Does nothing if they were not replaced.
    SwapBack,
}

/// Weights to swap in, by parameter name. They are shared, so the request copies nothing.
///
/// A checkpoint that contains the request stores the weights only once, as tensors of the hook that made it.
#[derive(Clone, PartialEq)]
pub struct Weights(pub Arc<NamedTensors>);

impl Serialize for Weights {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_unit()
    }
}

impl<'de> Deserialize<'de> for Weights {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Weights, D::Error> {
        <()>::deserialize(deserializer).map(|()| Weights(Arc::default()))
    }
}

impl std::fmt::Debug for Weights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Weights({} values)", self.0.values())
    }
}

/// The options of a requested checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SaveRequest {
    /// The checkpoint's directory, relative to the checkpoints' root, or absolute and below the directory
    /// that the hook declares with [`Effect::SaveCheckpoints`](crate::Effect::SaveCheckpoints). `None` names
    /// it by epoch and step.
    pub path: Option<PathBuf>,
    /// Save the weights only. Such a checkpoint cannot be resumed, and contains no states of hooks.
    pub weights_only: bool,
    /// Checkpoints to remove after this one is durable.
    pub replaces: Vec<PathBuf>,
    /// A link to create to the checkpoint after it is durable.
    pub link: Option<PathBuf>,
    /// The checkpoint's score if it is the best so far, for `on_checkpoint_saved`.
    #[serde(default, with = "crate::number::option")]
    pub best_score: Option<f64>,
}

/// A controller's decision at an event: how training continues, and requests. [`Decision::CONTINUE`] does not
/// allocate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Decision(Option<Box<Parts>>);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Parts {
    flows: Vec<Flow>,
    requests: Vec<Request>,
}

impl Decision {
    /// Continue as usual.
    pub const CONTINUE: Decision = Decision(None);

    /// Stop training for this reason. See [`Flow::Stop`].
    pub fn stop(reason: impl Into<String>) -> Decision {
        Decision::CONTINUE.and(Flow::Stop { reason: reason.into() })
    }

    /// End the epoch. See [`Flow::EndEpoch`].
    #[must_use]
    pub fn end_epoch() -> Decision {
        Decision::CONTINUE.and(Flow::EndEpoch)
    }

    /// Skip the current batch. See [`Flow::SkipBatch`].
    #[must_use]
    pub fn skip_batch() -> Decision {
        Decision::CONTINUE.and(Flow::SkipBatch)
    }

    /// Skip the optimizer step. See [`Flow::SkipUpdate`].
    #[must_use]
    pub fn skip_update() -> Decision {
        Decision::CONTINUE.and(Flow::SkipUpdate)
    }

    /// Set the learning rate of every optimizer.
    #[must_use]
    pub fn set_lr(lr: f64) -> Decision {
        Decision::CONTINUE.request(Request::Lr { optimizer: None, change: LrChange::Set(lr) })
    }

    /// Multiply the learning rate of every optimizer.
    #[must_use]
    pub fn scale_lr(factor: f64) -> Decision {
        Decision::CONTINUE.request(Request::Lr { optimizer: None, change: LrChange::Scale(factor) })
    }

    /// Save a checkpoint after this event.
    #[must_use]
    pub fn save_now() -> Decision {
        Decision::CONTINUE.request(Request::Save(SaveRequest::default()))
    }

    /// Run a validation after this batch.
    #[must_use]
    pub fn validate_now() -> Decision {
        Decision::CONTINUE.request(Request::Validate)
    }

    /// Adds a flow: `Decision::stop("NaN").and(Flow::SkipUpdate)`.
    #[must_use]
    pub fn and(mut self, flow: Flow) -> Decision {
        if flow != Flow::Continue {
            self.0.get_or_insert_default().flows.push(flow);
        }
        self
    }

    /// Adds a request.
    #[must_use]
    pub fn request(mut self, request: Request) -> Decision {
        self.0.get_or_insert_default().requests.push(request);
        self
    }

    /// Whether training continues as usual, without requests.
    #[inline]
    #[must_use]
    pub fn is_continue(&self) -> bool {
        self.0.is_none()
    }

    /// The strongest flow of the decision.
    #[must_use]
    pub fn flow(&self) -> &Flow {
        self.flows().iter().max().unwrap_or(&Flow::Continue)
    }

    /// All flows of the decision.
    #[must_use]
    pub fn flows(&self) -> &[Flow] {
        self.0.as_ref().map_or(&[], |parts| &parts.flows)
    }

    /// The requests of the decision, in order.
    #[must_use]
    pub fn requests(&self) -> &[Request] {
        self.0.as_ref().map_or(&[], |parts| &parts.requests)
    }

    /// Splits the decision into flows and requests.
    #[must_use]
    pub fn into_parts(self) -> (Vec<Flow>, Vec<Request>) {
        self.0.map_or_else(Default::default, |parts| (parts.flows, parts.requests))
    }
}

impl From<Flow> for Decision {
    fn from(flow: Flow) -> Decision {
        Decision::CONTINUE.and(flow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stronger_flow_wins_in_either_order() {
        let stop = Flow::Stop { reason: "enough".into() };
        assert_eq!(Decision::end_epoch().and(stop.clone()).flow(), &stop);
        assert_eq!(Decision::stop("enough").and(Flow::EndEpoch).flow(), &stop);
        assert_eq!(Decision::stop("enough").and(Flow::SkipUpdate).flows(), [stop, Flow::SkipUpdate]);
    }

    #[test]
    fn the_default_decision_is_continue_and_fits_a_word() {
        assert!(Decision::default().is_continue());
        assert_eq!(Decision::from(Flow::Continue), Decision::CONTINUE);
        assert_eq!(size_of::<Decision>(), size_of::<usize>());
    }

    #[test]
    fn requests_keep_their_order() {
        let decision = Decision::validate_now().request(Request::Save(SaveRequest::default()));
        assert_eq!(decision.requests(), [Request::Validate, Request::Save(SaveRequest::default())]);
        assert_eq!(decision.flow(), &Flow::Continue);
    }
}
