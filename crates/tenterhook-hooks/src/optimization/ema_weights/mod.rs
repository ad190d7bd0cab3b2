//! Exponential moving average (EMA) of the weights.

mod average;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tenterhook_core::state::EVALUATE_WITH;
use tenterhook_core::{
    Cadence, Controller, Decision, Exception, HookResult, HookSpec, OptionError, Phase, Policy, Request,
    RunContext, SaveCheckpoint, Stage, State, Tier, TrainBatchEnd, TrainEnd, TrainStart, ValidationEnd,
    ValidationStart, Weights, hook,
};

use average::Average;

use crate::support::checks;
use crate::support::{from_options, options};

options! {
    /// The options of [`EmaWeights`].
    pub struct EmaWeightsOptions {
        /// Decay rate of the moving average, from 0 to below 1. 0.999 averages over about the last 1000 updates.
        #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
        pub decay: f64 = 0.999,
        /// Number of optimizer steps between updates of the average.
        #[schemars(range(min = 1))]
        pub update_every_n_steps: u64 = 1,
        /// When to start averaging, such as `500 steps` or `2 epochs`. Unset: immediately.
        #[schemars(example = &"500 steps")]
        pub start_after: Option<Cadence> = None,
        /// Warm up the decay rate: after n updates it is min(`decay`, (1 + n) / (10 + n)), so that the first weights do not
        /// dominate.
        pub warmup: bool = true,
        /// Validate with the average instead of the current weights. The final weights are the average in any case.
        pub swap_for_validation: bool = true,
    }
}

impl EmaWeightsOptions {
    fn check(&self) -> Result<(), OptionError> {
        let decay = self.decay;
        let fits = (0.0..1.0).contains(&decay);
        checks::fits("decay", decay, fits, "it must be at least 0 and less than 1, such as 0.999")?;
        checks::one_or_more("update_every_n_steps", self.update_every_n_steps)
    }
}

/// Keeps an exponential moving average (EMA) of the weights, and uses it for validation and as the final weights.
///
/// - **Fires** at `on_train_batch_end` after a completed step; swaps weights at `on_validation_start` and
///   `on_validation_end` of a fit, not in the sanity check and not before the first update. The first average is a copy of
///   the weights at that time. At `on_train_end` the average becomes the module's weights: the run's final weights, which
///   a later test or fit uses.
/// - **Reads** the parameters; writes only its state. Checkpoints hold the training weights and, as this hook's tensors,
///   the average; a best checkpoint that was scored with the average is evaluated with it. Weights-only checkpoints hold
///   the average, unless `swap_for_validation` is off.
/// - **Cost**: a copy of all parameters in memory, in 32-bit floats; every update reads all parameters from the device;
///   every validation copies out and loads all weights twice.
/// - **When it fails** the run is aborted.
///
/// Training is bit-identical to training without the hook.
///
/// ```toml
/// [[hooks]]
/// use = "ema_weights"
/// decay = 0.999
/// update_every_n_steps = 1
/// warmup = true
/// swap_for_validation = true
/// # start_after: unset
/// ```
#[derive(Clone, Debug)]
pub struct EmaWeights {
    options: EmaWeightsOptions,
    state: SavedState,
    /// Whether the module currently has the average instead of its own weights.
    swapped: bool,
}

/// State saved in checkpoints. The average is saved as tensors.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct SavedState {
    #[serde(flatten)]
    average: Average,
    /// The last step that was counted.
    counted_to: u64,
    /// The number of batches at the last validation with the average. With `every` or `when`, some validations use the
    /// current weights.
    #[serde(default)]
    validated_after: Option<u64>,
}

const VERSION: u32 = 1;

from_options! {
    EmaWeights from EmaWeightsOptions,
    purpose: "keeps an exponential moving average of the weights for validation and as final weights",
    example: r#"
decay = 0.999
update_every_n_steps = 10
start_after = "1 epoch"
"#
}

impl EmaWeights {
    /// Creates the hook, or reports an invalid option.
    pub fn new(options: EmaWeightsOptions) -> Result<EmaWeights, OptionError> {
        options.check()?;
        Ok(EmaWeights { options, state: SavedState::default(), swapped: false })
    }

    /// The number of updates of the average.
    #[must_use]
    pub fn updates(&self) -> u64 {
        self.state.average.updates
    }

    /// Whether a multiple of `update_every_n_steps` was reached since the last batch. With manual optimization a batch may
    /// have several steps.
    fn is_due(&mut self, cx: &TrainBatchEnd) -> bool {
        let every = self.options.update_every_n_steps;
        let reached = cx.step / every > self.state.counted_to / every;
        self.state.counted_to = cx.step;
        reached && self.has_started(cx)
    }

    fn has_started(&self, run_cx: &RunContext<'_>) -> bool {
        match self.options.start_after {
            None => true,
            Some(Cadence::Steps(n)) => run_cx.step > n,
            Some(Cadence::Epochs(n)) => run_cx.epoch >= n,
            Some(Cadence::Batches(n)) => run_cx.total_batches > n,
            Some(Cadence::Time(time)) => run_cx.elapsed() >= time,
        }
    }

    /// The decay of the next update.
    fn decay(&self) -> f64 {
        let n = self.state.average.updates as f64;
        let warmup = if self.options.warmup { (1.0 + n) / (10.0 + n) } else { 1.0 };
        self.options.decay.min(warmup)
    }

    fn swap_in(&mut self) -> Decision {
        self.swapped = true;
        Decision::CONTINUE.request(Request::SwapWeights(Weights(Arc::clone(&self.state.average.weights))))
    }

    fn swap_out(&mut self) -> Decision {
        if std::mem::take(&mut self.swapped) {
            return Decision::CONTINUE.request(Request::SwapBack);
        }
        Decision::CONTINUE
    }
}

#[hook]
impl Controller for EmaWeights {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        let spec = spec.tier(Tier::BuiltIn).policy(Policy::ABORT);
        let spec = spec
            .every_option("update_every_n_steps", Cadence::Steps(self.options.update_every_n_steps))
            .claims("weights", "remove one of them, or set its `enabled = false`");
        let spec = self
            .options
            .start_after
            .into_iter()
            .fold(spec, |spec, start| spec.after_option("start_after", start));
        if self.options.swap_for_validation { spec.provides_eval_weights() } else { spec }
    }

    fn on_train_start(&mut self, cx: &TrainStart) -> HookResult<Decision> {
        if cx.total_batches == 0 {
            // A new fit counts its steps from 0.
            self.state.counted_to = 0;
        }
        self.swapped = false;
        Ok(Decision::CONTINUE)
    }

    fn on_train_batch_end(&mut self, cx: &TrainBatchEnd) -> HookResult<Decision> {
        if cx.count_call_if(self.is_due(cx)) {
            let decay = self.decay();
            self.state.average.update(&cx.params(), decay)?;
        }
        Ok(Decision::CONTINUE)
    }

    fn on_validation_start(&mut self, cx: &ValidationStart) -> HookResult<Decision> {
        let validates = cx.stage == Stage::Fit && cx.phase == Phase::Validate;
        if !validates || !self.options.swap_for_validation || self.state.average.updates == 0 {
            return Ok(Decision::CONTINUE);
        }
        self.state.validated_after = Some(cx.total_batches);
        Ok(self.swap_in())
    }

    fn on_validation_end(&mut self, _cx: &ValidationEnd) -> HookResult<Decision> {
        Ok(self.swap_out())
    }

    fn on_train_end(&mut self, cx: &TrainEnd) -> HookResult<Decision> {
        if self.state.average.updates == 0 {
            cx.say("there is no average yet, so the final weights are those of training");
            return Ok(Decision::CONTINUE);
        }
        let times = self.state.average.updates;
        cx.say(format!("the final weights are the average of the weights at {times} steps"));
        let decision = self.swap_in();
        self.swapped = false;
        Ok(decision)
    }

    /// If the run fails in a validation, restores the module's own weights.
    fn on_exception(&mut self, _cx: &Exception) -> HookResult<Decision> {
        Ok(self.swap_out())
    }

    fn on_save_checkpoint(&mut self, cx: &SaveCheckpoint) -> HookResult {
        // A validation scores the average only if it was swapped in.
        let scored = cx.phase != Phase::Validate || self.state.validated_after == Some(cx.total_batches);
        if scored && self.options.swap_for_validation && self.state.average.updates > 0 {
            cx.entries.put(EVALUATE_WITH, &cx.hook_name().to_owned())?;
        }
        Ok(())
    }

    fn state_dict(&self) -> HookResult<State> {
        Ok(State::of(VERSION, &self.state)?.with_tensors((*self.state.average.weights).clone()))
    }

    fn check_state_dict(&self, state: &State) -> HookResult {
        Ok(state.read::<SavedState>(VERSION).map(drop)?)
    }

    fn load_state_dict(&mut self, state: &State) -> HookResult {
        self.state = state.read(VERSION)?;
        self.state.average.weights = Arc::new(state.tensors.clone());
        Ok(())
    }
}
