//! Records of gradients changed by update hooks.

use serde::{Deserialize, Serialize};

use super::Update;
use crate::tensor::norm;

/// A change of one gradient by one update hook in one step. A gradient that is unchanged to the bit has no
/// record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GradientChange {
    /// The step in progress, from 1.
    pub step: u64,
    /// The epoch, from 0.
    pub epoch: u64,
    /// Index of the optimizer.
    pub optimizer: usize,
    /// Name of the hook.
    pub hook: String,
    /// Name of the parameter.
    pub parameter: String,
    /// The gradient's norm before; `None` if there was no gradient.
    #[serde(with = "crate::number::option")]
    pub norm_before: Option<f64>,
    /// The gradient's norm after; `None` if the hook removed it.
    #[serde(with = "crate::number::option")]
    pub norm_after: Option<f64>,
    /// The norm of the difference; a missing gradient counts as zeros.
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
