//! Lowers the learning rates when there were too many high losses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::{
    Controller, Decision, FromOptions, HookResult, HookSpec, LrChange, OptionError, Request, RunContext,
    Tier, TrainBatchEnd, hook,
};

use crate::checks;

/// The options of [`LossSpike`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LossSpikeOptions {
    /// A loss above this is high.
    pub threshold: f64,
    /// Act when there were more high losses than this.
    pub count: u64,
    /// What the learning rates are multiplied by, between 0 and 1.
    #[schemars(extend("exclusiveMinimum" = 0, "exclusiveMaximum" = 1))]
    pub factor: f64,
    /// Only high losses in a row count: one that is not high begins the count anew.
    pub consecutive: bool,
    /// No learning rate is made lower than this.
    #[schemars(range(min = 0))]
    pub min_lr: f64,
    /// After acting, losses of so many optimizer steps are not counted.
    pub cooldown: u64,
}

impl Default for LossSpikeOptions {
    fn default() -> LossSpikeOptions {
        LossSpikeOptions {
            threshold: 10.0,
            count: 10,
            factor: 0.5,
            consecutive: false,
            min_lr: 0.0,
            cooldown: 0,
        }
    }
}

/// Halves the learning rates when there were more than so many high losses.
///
/// - **Fires** at `on_train_batch_end`, for batches that have a loss. A NaN is not counted (`nan_guard` looks
///   for those), an infinite loss is high.
/// - **Reads** the loss of every batch; **changes** the learning rates of all optimizers, and says so.
/// - **Cost**: it reads every loss, so each batch waits for its own.
/// - **When it fails** the run is aborted.
///
/// When it has acted it counts anew. Without that every further high loss would halve the rates again, and
/// a short bad stretch would bring them to nothing before the first halving shows any effect.
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
    memory: Memory,
}

/// What a checkpoint keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Memory {
    high: u64,
    /// Losses up to this step are not counted.
    quiet_until: Option<u64>,
}

impl FromOptions for LossSpike {
    type Options = LossSpikeOptions;
    const PURPOSE: &str = "lowers the learning rates when there were too many high losses";
    const EXAMPLE: &str = "
threshold = 5.0
count = 10
factor = 0.5
min_lr = 1e-6
cooldown = 100
";

    fn from_options(options: LossSpikeOptions) -> Result<LossSpike, OptionError> {
        LossSpike::new(options)
    }
}

impl LossSpike {
    /// With these options, which are checked.
    pub fn new(options: LossSpikeOptions) -> Result<LossSpike, OptionError> {
        let LossSpikeOptions { threshold, factor, min_lr, .. } = options;
        checks::fits("threshold", threshold, threshold.is_finite(), "it must be a number")?;
        checks::fits("factor", factor, factor > 0.0 && factor < 1.0, "it must lie between 0 and 1")?;
        checks::fits("min_lr", min_lr, min_lr.is_finite() && min_lr >= 0.0, "it must be 0 or more")?;
        Ok(LossSpike { options, memory: Memory::default() })
    }

    /// How many high losses have been counted since it last acted.
    #[must_use]
    pub fn high_losses(&self) -> u64 {
        self.memory.high
    }

    fn count(&mut self, loss: f64, step: u64) {
        if self.memory.quiet_until.is_some_and(|until| step <= until) || loss.is_nan() {
            return;
        }
        if loss > self.options.threshold {
            self.memory.high = self.memory.high.saturating_add(1);
        } else if self.options.consecutive {
            self.memory.high = 0;
        }
    }

    /// By what the rates of one optimizer may be multiplied, so that none falls below the least.
    fn factor_of(&self, run_cx: &RunContext<'_>, optimizer: usize) -> f64 {
        let groups = run_cx.optimizers().groups(optimizer);
        // A group whose rate is 0 is not trained, and cannot fall.
        let rates = groups.iter().map(|group| group.lr).filter(|lr| *lr > 0.0);
        let bounds = rates.map(|lr| self.options.min_lr / lr);
        bounds.fold(self.options.factor, f64::max).min(1.0)
    }

    fn act(&mut self, run_cx: &RunContext<'_>) -> Decision {
        let LossSpikeOptions { threshold, factor, min_lr, cooldown, .. } = self.options;
        let seen = std::mem::take(&mut self.memory.high);
        self.memory.quiet_until = (cooldown > 0).then(|| run_cx.step + cooldown);
        let factors: Vec<_> =
            (0..run_cx.optimizers().count()).map(|optimizer| self.factor_of(run_cx, optimizer)).collect();
        let losses = if seen == 1 { "loss was" } else { "losses were" };
        let story = format!("{seen} {losses} above {threshold}");
        #[allow(clippy::float_cmp)] // they are the very numbers that were put there
        if factors.iter().all(|of| *of == factor) {
            run_cx.say(format!("{story}; the learning rates are multiplied by {factor}"));
            return Decision::scale_lr(factor);
        }
        if factors.iter().all(|of| *of >= 1.0) {
            run_cx.say(format!("{story}; the learning rates stay, they are at `min_lr` = {min_lr}"));
            return Decision::CONTINUE;
        }
        run_cx.say(format!("{story}; the learning rates are lowered, none below `min_lr` = {min_lr}"));
        let lowered = factors.into_iter().enumerate().filter(|(_, of)| *of < 1.0);
        lowered.fold(Decision::CONTINUE, |decision, (optimizer, of)| {
            decision.request(Request::Lr { optimizer: Some(optimizer), change: LrChange::Scale(of) })
        })
    }
}

#[hook(state = "memory")]
impl Controller for LossSpike {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.tier(Tier::BuiltIn).reads("train/loss")
    }

    fn on_train_batch_end(&mut self, cx: &TrainBatchEnd) -> HookResult<Decision> {
        let Some(loss) = &cx.loss else { return Ok(Decision::CONTINUE) };
        self.count(loss.value(), cx.step);
        if self.memory.high > self.options.count {
            return Ok(self.act(cx));
        }
        Ok(Decision::CONTINUE)
    }
}

#[cfg(test)]
mod tests;
