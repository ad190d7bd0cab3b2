//! A hook of your own: remembers the batch with the highest loss of each epoch.

use schemars::JsonSchema;
use serde::Deserialize;
use tenterhook::prelude::*;

/// Says which batch of an epoch had the highest loss.
// The line above is what `hooks` shows as its purpose.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Say nothing about losses below this.
    pub above: f64,
}

/// The hook: it remembers the worst batch until the epoch ends.
pub struct WorstBatch {
    above: f64,
    worst: Option<(u64, f64)>,
}

impl WorstBatch {
    pub fn new(options: Options) -> Result<WorstBatch, String> {
        if options.above < 0.0 {
            return Err("`above` must be 0 or more".into());
        }
        Ok(WorstBatch { above: options.above, worst: None })
    }
}

#[hook]
impl Observer for WorstBatch {
    fn on_train_batch_end(&mut self, cx: &TrainBatchEnd) -> HookResult {
        let Some(loss) = cx.loss.as_ref().map(|loss| loss.value()) else { return Ok(()) };
        if loss > self.above && self.worst.is_none_or(|(_, worst)| loss > worst) {
            self.worst = Some((cx.batch.index, loss));
        }
        Ok(())
    }

    fn on_train_epoch_end(&mut self, cx: &TrainEpochEnd) -> HookResult {
        if let Some((batch, loss)) = self.worst.take() {
            cx.log("worst_loss", loss);
            if cx.epoch == 0 {
                cx.say(format!("the hardest batch of the first epoch was number {batch}, with a loss of {loss:.3}"));
            }
        }
        Ok(())
    }
}
