//! What a controller can decide: values, never exceptions or magic numbers.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::named::NamedTensors;

/// How training goes on after an event, from weakest to strongest. When controllers disagree, each
/// decision has its effect and all are logged; the strongest says how the run ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Flow {
    /// As if nobody had said anything.
    #[default]
    Continue,
    /// Compute no update from the gradients of this batch, nor from the accumulation window whose sum
    /// they are part of. Counts up to `on_before_optimizer_step`; there, with several optimizers, this
    /// one and those after it do not step.
    SkipUpdate,
    /// Do not run the module's step on this batch. Counts at `on_train_batch_start`.
    SkipBatch,
    /// Leave this epoch: at once when said at `on_train_batch_start`, else when the batch is done.
    EndEpoch,
    /// Finish the batch, validate, end the epoch, then stop, once `min_epochs` and `min_steps` are met.
    Stop {
        /// Why, for people: it stands in the run's summary.
        reason: String,
    },
}

/// A change of a learning rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LrChange {
    /// To this value.
    Set(f64),
    /// By this factor.
    Scale(f64),
}

/// Something a controller wants done, besides how training goes on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Request {
    /// Change the learning rate of one optimizer, or of all.
    Lr {
        /// Which optimizer; `None` is all of them.
        optimizer: Option<usize>,
        /// What to change.
        change: LrChange,
    },
    /// Write a checkpoint, once all hooks have received the event.
    Save(SaveRequest),
    /// Run a validation when this batch is done.
    Validate,
    /// Let the module have other weights from here on; its own wait to be given back, and are what
    /// checkpoints hold meanwhile. For averages that are swapped in to be evaluated.
    SwapWeights(Weights),
    /// Give the module its own weights back. Nothing happens when it has them.
    SwapBack,
}

/// The weights to swap in, by parameter name. Shared, so that asking for them copies nothing.
///
/// A checkpoint that holds the request holds no second copy of them: they are the tensors of the hook that asked,
/// and are found there when the request is restored.
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

/// Where and how to save.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SaveRequest {
    /// The checkpoint's directory below the checkpoints' root, or an absolute one below the directory that the hook
    /// declares with [`Effect::SaveCheckpoints`](crate::Effect::SaveCheckpoints); `None` names it by epoch and step.
    pub path: Option<PathBuf>,
    /// Only the weights: nothing to resume from, and no hook is asked for its state.
    pub weights_only: bool,
    /// Checkpoints to remove once this one is durable.
    pub replaces: Vec<PathBuf>,
    /// A link to make to it once it is durable.
    pub link: Option<PathBuf>,
    /// Its score where it is the best so far, for `on_checkpoint_saved`.
    #[serde(default, with = "crate::number::option")]
    pub best_score: Option<f64>,
}

/// A controller's answer to an event. Saying nothing costs nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Decision(Option<Box<Orders>>);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Orders {
    flows: Vec<Flow>,
    requests: Vec<Request>,
}

impl Decision {
    /// Go on.
    pub const CONTINUE: Decision = Decision(None);

    /// Stop training, for this reason, at Lightning's `should_stop`.
    pub fn stop(reason: impl Into<String>) -> Decision {
        Decision::CONTINUE.and(Flow::Stop { reason: reason.into() })
    }

    /// Leave this epoch.
    #[must_use]
    pub fn end_epoch() -> Decision {
        Decision::CONTINUE.and(Flow::EndEpoch)
    }

    /// Do not run the module's step on this batch.
    #[must_use]
    pub fn skip_batch() -> Decision {
        Decision::CONTINUE.and(Flow::SkipBatch)
    }

    /// Compute no update from this batch's gradients.
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

    /// Validate when this batch is done.
    #[must_use]
    pub fn validate_now() -> Decision {
        Decision::CONTINUE.request(Request::Validate)
    }

    /// This decision and one more about how training goes on: `Decision::stop("NaN").and(Flow::SkipUpdate)`.
    #[must_use]
    pub fn and(mut self, flow: Flow) -> Decision {
        if flow != Flow::Continue {
            self.0.get_or_insert_default().flows.push(flow);
        }
        self
    }

    /// This decision with one more request.
    #[must_use]
    pub fn request(mut self, request: Request) -> Decision {
        self.0.get_or_insert_default().requests.push(request);
        self
    }

    /// Whether nothing at all was decided.
    #[inline]
    #[must_use]
    pub fn is_continue(&self) -> bool {
        self.0.is_none()
    }

    /// How training goes on: the strongest of what was decided.
    #[must_use]
    pub fn flow(&self) -> &Flow {
        self.flows().iter().max().unwrap_or(&Flow::Continue)
    }

    /// Everything that was decided about how training goes on.
    #[must_use]
    pub fn flows(&self) -> &[Flow] {
        self.0.as_ref().map_or(&[], |orders| &orders.flows)
    }

    /// What else is wanted, in the order in which it was asked for.
    #[must_use]
    pub fn requests(&self) -> &[Request] {
        self.0.as_ref().map_or(&[], |orders| &orders.requests)
    }

    /// Takes the decision apart.
    #[must_use]
    pub fn into_parts(self) -> (Vec<Flow>, Vec<Request>) {
        self.0.map_or_else(Default::default, |orders| (orders.flows, orders.requests))
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
    fn saying_nothing_is_continue_and_fits_a_word() {
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
