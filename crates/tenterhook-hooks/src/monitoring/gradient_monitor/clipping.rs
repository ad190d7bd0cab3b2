//! Counts clipped steps, and logs the norms before and after clipping.

use serde::{Deserialize, Serialize};
use tenterhook_core::GradientClip;

/// The number of monitored steps, and of those that were clipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Clips {
    steps: u64,
    clipped: u64,
}

/// The clipping of one step: the norms of all optimizers together, each of which is clipped separately.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StepClip {
    counted: bool,
    clipped: bool,
    squares_before: f64,
    squares_after: f64,
}

impl Clips {
    /// Adds the clipping of one optimizer's gradients and logs the step so far.
    pub(super) fn record(&mut self, step: &mut StepClip, cx: &GradientClip<'_>) {
        if !std::mem::replace(&mut step.counted, true) {
            self.steps += 1;
        }
        if cx.clipped() && !std::mem::replace(&mut step.clipped, true) {
            self.clipped += 1;
        }
        step.squares_before += cx.norm_before.value().powi(2);
        step.squares_after += cx.norm_after.value().powi(2);
        cx.log("grad_clip/norm_before", step.squares_before.sqrt());
        cx.log("grad_clip/norm_after", step.squares_after.sqrt());
        cx.log("grad_clip/clipped", f64::from(u8::from(step.clipped)));
        cx.log("grad_clip/share", self.clipped as f64 / self.steps as f64);
    }
}
