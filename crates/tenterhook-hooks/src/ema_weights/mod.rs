//! Keeps an exponential moving average of the weights, and evaluates it.

mod average;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::state::EVALUATE_WITH;
use tenterhook_core::{
    Cadence, Controller, Decision, Exception, FromOptions, HookResult, HookSpec, OptionError, Phase, Policy,
    Request, RunContext, SaveCheckpoint, Stage, State, Tier, TrainBatchEnd, TrainEnd, TrainStart,
    ValidationEnd, ValidationStart, Weights, hook,
};

use average::Average;

use crate::checks;

/// The options of [`EmaWeights`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EmaWeightsOptions {
    /// How much of the average stays when new weights come in, from 0 to below 1. The larger, the longer it
    /// remembers: 0.999 averages over about the last 1000 updates of it.
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub decay: f64,
    /// Take the weights into the average after every so many optimizer steps.
    #[schemars(range(min = 1))]
    pub update_every_n_steps: u64,
    /// Begin to average only after this much training, such as `500 steps` or `2 epochs`; unset is at once.
    #[schemars(example = &"500 steps")]
    pub start_after: Option<Cadence>,
    /// Let the decay grow with the number n of updates so far, as (1 + n) / (10 + n) up to `decay`, so that a
    /// young average does not cling to the first weights it saw.
    pub warmup: bool,
    /// Validate the average instead of the weights in training. The final weights are the average in any case.
    pub swap_for_validation: bool,
}

impl Default for EmaWeightsOptions {
    fn default() -> EmaWeightsOptions {
        EmaWeightsOptions {
            decay: 0.999,
            update_every_n_steps: 1,
            start_after: None,
            warmup: true,
            swap_for_validation: true,
        }
    }
}

impl EmaWeightsOptions {
    /// When to begin, or what is wrong with the options.
    fn check(&self) -> Result<(), OptionError> {
        let decay = self.decay;
        let fits = (0.0..1.0).contains(&decay);
        checks::fits("decay", decay, fits, "it must be at least 0 and less than 1, such as 0.999")?;
        checks::one_or_more("update_every_n_steps", self.update_every_n_steps)
    }
}

/// Keeps an exponential moving average of the weights: swapped in for validations, and at the end of training
/// for good.
///
/// - **Fires** at `on_train_batch_end` when a step is complete; swaps at `on_validation_start` and
///   `on_validation_end` of a fit, not in its sanity check and not before there is an average. The first
///   average is a copy of the weights, so random first weights are not in it. At `on_train_end` the average
///   becomes the module's weights, so what the run leaves behind, and what is tested after it, is the
///   average. A fit after that begins with it.
/// - **Reads** the parameters; writes nothing but its state. Checkpoints hold the weights in training and,
///   as this hook's tensors, the average; a best checkpoint that the average earned is evaluated with it.
///   Checkpoints of weights alone hold the average instead of them, unless `swap_for_validation` is off:
///   what was scored is what they keep.
/// - **Cost**: a copy of all parameters in memory, in 32-bit floats; at every update of it all parameters
///   are read from the device; at every validation all weights are copied out and loaded twice.
/// - **When it fails** the run is aborted.
///
/// Training itself goes on as without it, to the bit.
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
    average: Average,
    /// The steps that were counted.
    counted_to: u64,
    /// The module has the average now, and its own weights wait.
    swapped: bool,
    /// After how many batches a validation last saw the average; behind a gate it does not see every one.
    validated_after: Option<u64>,
}

/// What a checkpoint keeps beside the average itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Memory {
    updates: u64,
    counted_to: u64,
    /// See [`EmaWeights`].
    #[serde(default)]
    validated_after: Option<u64>,
}

const VERSION: u32 = 1;

impl FromOptions for EmaWeights {
    type Options = EmaWeightsOptions;
    const PURPOSE: &str = "averages the weights: validates the average, and leaves it as the final weights";
    const EXAMPLE: &str = r#"
decay = 0.999
update_every_n_steps = 10
start_after = "1 epoch"
"#;

    fn from_options(options: EmaWeightsOptions) -> Result<EmaWeights, OptionError> {
        EmaWeights::new(options)
    }
}

impl EmaWeights {
    /// With these options, which are checked.
    pub fn new(options: EmaWeightsOptions) -> Result<EmaWeights, OptionError> {
        options.check()?;
        Ok(EmaWeights {
            options,
            average: Average::default(),
            counted_to: 0,
            swapped: false,
            validated_after: None,
        })
    }

    /// How often the weights were taken into the average.
    #[must_use]
    pub fn updates(&self) -> u64 {
        self.average.updates
    }

    /// Whether a step has come that ends a stretch of `update_every_n_steps`; a module that steps its
    /// optimizers itself may make several steps in a batch.
    fn is_due(&mut self, cx: &TrainBatchEnd) -> bool {
        let every = self.options.update_every_n_steps;
        let came = cx.step / every > self.counted_to / every;
        self.counted_to = cx.step;
        came && self.has_begun(cx)
    }

    fn has_begun(&self, run_cx: &RunContext<'_>) -> bool {
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
        let n = self.average.updates as f64;
        let grown = if self.options.warmup { (1.0 + n) / (10.0 + n) } else { 1.0 };
        self.options.decay.min(grown)
    }

    fn swap_in(&mut self) -> Decision {
        self.swapped = true;
        Decision::CONTINUE.request(Request::SwapWeights(Weights(Arc::clone(&self.average.weights))))
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
            // A second fit counts its steps anew.
            self.counted_to = 0;
        }
        self.swapped = false;
        Ok(Decision::CONTINUE)
    }

    fn on_train_batch_end(&mut self, cx: &TrainBatchEnd) -> HookResult<Decision> {
        if cx.count_call_if(self.is_due(cx)) {
            let decay = self.decay();
            self.average.take_in(&cx.params(), decay)?;
        }
        Ok(Decision::CONTINUE)
    }

    fn on_validation_start(&mut self, cx: &ValidationStart) -> HookResult<Decision> {
        let validates = cx.stage == Stage::Fit && cx.phase == Phase::Validate;
        if !validates || !self.options.swap_for_validation || self.average.updates == 0 {
            return Ok(Decision::CONTINUE);
        }
        self.validated_after = Some(cx.total_batches);
        Ok(self.swap_in())
    }

    fn on_validation_end(&mut self, _cx: &ValidationEnd) -> HookResult<Decision> {
        Ok(self.swap_out())
    }

    fn on_train_end(&mut self, cx: &TrainEnd) -> HookResult<Decision> {
        if self.average.updates == 0 {
            cx.say("there is no average yet, so the weights stay as training left them");
            return Ok(Decision::CONTINUE);
        }
        let times = self.average.updates;
        cx.say(format!("the module's weights are now their average, taken at {times} steps"));
        let decision = self.swap_in();
        self.swapped = false;
        Ok(decision)
    }

    /// A run that fails in a validation leaves the module with its own weights.
    fn on_exception(&mut self, _cx: &Exception) -> HookResult<Decision> {
        Ok(self.swap_out())
    }

    fn on_save_checkpoint(&mut self, cx: &SaveCheckpoint) -> HookResult {
        // What a validation scores is the average only if it was swapped in for it.
        let scored = cx.phase != Phase::Validate || self.validated_after == Some(cx.total_batches);
        if scored && self.options.swap_for_validation && self.average.updates > 0 {
            cx.entries.put(EVALUATE_WITH, &cx.hook_name().to_owned())?;
        }
        Ok(())
    }

    fn state_dict(&self) -> HookResult<State> {
        let EmaWeights { average, counted_to, validated_after, .. } = self;
        let memory =
            Memory { updates: average.updates, counted_to: *counted_to, validated_after: *validated_after };
        Ok(State::of(VERSION, &memory)?.with_tensors((*self.average.weights).clone()))
    }

    fn check_state_dict(&self, state: &State) -> HookResult {
        Ok(state.read::<Memory>(VERSION).map(drop)?)
    }

    fn load_state_dict(&mut self, state: &State) -> HookResult {
        let Memory { updates, counted_to, validated_after } = state.read(VERSION)?;
        self.average = Average { weights: Arc::new(state.tensors.clone()), updates };
        (self.counted_to, self.validated_after) = (counted_to, validated_after);
        Ok(())
    }
}
