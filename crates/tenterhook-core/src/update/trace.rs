//! Who touched which gradient, and by how much.

use serde::{Deserialize, Serialize};

use super::Update;
use crate::tensor::norm;

/// How one update hook changed the gradient of one parameter in one step. One that it left as it was, to the bit, has
/// none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GradientChange {
    /// The step that is about to be made.
    pub step: u64,
    /// The epoch.
    pub epoch: u64,
    /// Which optimizer is about to make it.
    pub optimizer: usize,
    /// The hook.
    pub hook: String,
    /// The parameter.
    pub parameter: String,
    /// The gradient's norm before; `None` where there was none.
    #[serde(with = "crate::number::option")]
    pub norm_before: Option<f64>,
    /// The gradient's norm after; `None` where the hook dropped it.
    #[serde(with = "crate::number::option")]
    pub norm_after: Option<f64>,
    /// The norm of the difference; what is missing counts as zeros.
    #[serde(with = "crate::number")]
    pub change: f64,
}

impl GradientChange {
    pub(super) fn new(
        hook: &str,
        parameter: &str,
        cx: &Update<'_>,
        before: Option<&[f32]>,
        after: Option<&[f32]>,
    ) -> GradientChange {
        let change = match (before, after) {
            (Some(before), Some(after)) => {
                let apart =
                    before.iter().zip(after).map(|(before, after)| f64::from(*after) - f64::from(*before));
                apart.map(|apart| apart * apart).sum::<f64>().sqrt()
            }
            (one, other) => norm(one.or(other).unwrap_or_default()),
        };
        GradientChange {
            step: cx.current_step(),
            epoch: cx.epoch,
            optimizer: cx.optimizer,
            hook: hook.to_owned(),
            parameter: parameter.to_owned(),
            norm_before: before.map(norm),
            norm_after: after.map(norm),
            change,
        }
    }
}
