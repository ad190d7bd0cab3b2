//! Reduces learning rates after loss spikes.

use serde::{Deserialize, Serialize};
use tenterhook_core::{
    Controller, Decision, HookResult, HookSpec, LrChange, OptionError, Request, RunContext, Tier,
    TrainBatchEnd, hook,
};

use crate::support::checks;
use crate::support::{from_options, options};

options! {
    /// The options of [`LossSpike`].
    pub struct LossSpikeOptions {
        /// Loss above which a batch counts as high.
        pub threshold: f64 = 10.0,
        /// Maximum number of high losses; one more reduces the learning rates.
        pub count: u64 = 10,
        /// Factor for the learning rates, between 0 and 1.
        #[schemars(extend("exclusiveMinimum" = 0, "exclusiveMaximum" = 1))]
        pub factor: f64 = 0.5,
        /// Count only consecutive high losses.
        pub consecutive: bool = false,
        /// Lower bound of the learning rates.
        #[schemars(range(min = 0))]
        pub min_lr: f64 = 0.0,
        /// Number of optimizer steps after a reduction in which losses are not counted.
        pub cooldown: u64 = 0,
    }
}

/// Multiplies the learning rates by `factor` after more than `count` high losses.
///
/// - **Fires** at `on_train_batch_end` for batches with a loss. A NaN is not counted (see `nan_guard`); an infinite loss is
///   high.
/// - **Reads** the loss of every batch; **changes** the learning rates of all optimizers, and reports it.
/// - **Cost**: every loss is read, so each batch waits for its loss.
/// - **When it fails** the run is aborted.
///
/// A reduction resets the count. Otherwise every further high loss would reduce the rates again, before the first
/// reduction has any effect.
///
/// ```toml
/// [[hooks]]
/// use = "loss_spike"
/// threshold = 10.0
/// count = 10
/// factor = 0.5
/// consecutive = false
/// min_lr = 0.0
/// cooldown = 0
/// ```
#[derive(Clone, Debug)]
pub struct LossSpike {
    options: LossSpikeOptions,
    state: SavedState,
}

/// State saved in checkpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct SavedState {
    high: u64,
    /// Losses up to this step are not counted.
    cooldown_until: Option<u64>,
}

from_options! {
    LossSpike from LossSpikeOptions,
    purpose: "reduces the learning rates after too many high losses",
    example: "
threshold = 5.0
count = 10
factor = 0.5
min_lr = 1e-6
cooldown = 100
"
}

impl LossSpike {
    /// Creates the hook, or reports an invalid option.
    pub fn new(options: LossSpikeOptions) -> Result<LossSpike, OptionError> {
        let LossSpikeOptions { threshold, factor, min_lr, .. } = options;
        checks::fits("threshold", threshold, threshold.is_finite(), "it must be a number")?;
        checks::fits("factor", factor, factor > 0.0 && factor < 1.0, "it must lie between 0 and 1")?;
        checks::fits("min_lr", min_lr, min_lr.is_finite() && min_lr >= 0.0, "it must be 0 or more")?;
        Ok(LossSpike { options, state: SavedState::default() })
    }

    /// The number of high losses since the last reduction.
    #[must_use]
    pub fn high_losses(&self) -> u64 {
        self.state.high
    }

    fn count(&mut self, loss: f64, step: u64) {
        if self.state.cooldown_until.is_some_and(|until| step <= until) || loss.is_nan() {
            return;
        }
        if loss > self.options.threshold {
            self.state.high = self.state.high.saturating_add(1);
        } else if self.options.consecutive {
            self.state.high = 0;
        }
    }

    /// The factor for one optimizer, such that no rate falls below `min_lr`.
    fn factor_of(&self, run_cx: &RunContext<'_>, optimizer: usize) -> f64 {
        let groups = run_cx.optimizers().groups(optimizer);
        // A group with rate 0 is not trained.
        let rates = groups.iter().map(|group| group.lr).filter(|lr| *lr > 0.0);
        let bounds = rates.map(|lr| self.options.min_lr / lr);
        bounds.fold(self.options.factor, f64::max).min(1.0)
    }

    fn reduce(&mut self, run_cx: &RunContext<'_>) -> Decision {
        let LossSpikeOptions { threshold, factor, min_lr, cooldown, .. } = self.options;
        let high = std::mem::take(&mut self.state.high);
        self.state.cooldown_until = (cooldown > 0).then(|| run_cx.step + cooldown);
        let factors: Vec<_> =
            (0..run_cx.optimizers().count()).map(|optimizer| self.factor_of(run_cx, optimizer)).collect();
        let losses = if high == 1 { "loss was" } else { "losses were" };
        let reason = format!("{high} {losses} above {threshold}");
        #[allow(clippy::float_cmp)] // an unchanged factor is exactly equal
        if factors.iter().all(|of| *of == factor) {
            run_cx.say(format!("{reason}; the learning rates are multiplied by {factor}"));
            return Decision::scale_lr(factor);
        }
        if factors.iter().all(|of| *of >= 1.0) {
            run_cx.say(format!("{reason}; the learning rates stay at `min_lr` = {min_lr}"));
            return Decision::CONTINUE;
        }
        run_cx.say(format!("{reason}; the learning rates are reduced to no less than `min_lr` = {min_lr}"));
        let lowered = factors.into_iter().enumerate().filter(|(_, of)| *of < 1.0);
        lowered.fold(Decision::CONTINUE, |decision, (optimizer, of)| {
            decision.request(Request::Lr { optimizer: Some(optimizer), change: LrChange::Scale(of) })
        })
    }
}

#[hook(state = "state", version = 2)]
impl Controller for LossSpike {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.tier(Tier::BuiltIn).reads("train/loss")
    }

    fn on_train_batch_end(&mut self, cx: &TrainBatchEnd) -> HookResult<Decision> {
        let Some(loss) = &cx.loss else { return Ok(Decision::CONTINUE) };
        self.count(loss.value(), cx.step);
        if self.state.high > self.options.count {
            return Ok(self.reduce(cx));
        }
        Ok(Decision::CONTINUE)
    }
}

#[cfg(test)]
mod tests;
