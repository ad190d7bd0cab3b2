//! A hook that finds the batch with the highest loss of each epoch.

use schemars::JsonSchema;
use serde::Deserialize;
use tenterhook::prelude::*;

/// Logs the highest loss of each epoch.
// The command `hooks` shows the first line of this doc comment as the purpose.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Ignore losses up to this value.
    pub above: f64,
}

pub struct WorstBatch {
    above: f64,
    /// Index and loss of the worst batch of this epoch.
    worst: Option<(u64, f64)>,
}

impl WorstBatch {
    /// Builds the hook from its options. An error is shown with the line of the configuration.
    pub fn new(options: Options) -> Result<WorstBatch, String> {
        if options.above < 0.0 {
            return Err("`above` must be 0 or more".into());
        }
        Ok(WorstBatch { above: options.above, worst: None })
    }
}

// An observer sees events, but cannot change training. Each method handles the event of its name.
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
            // A metric, for `metrics.jsonl` and the other loggers.
            cx.log("worst_loss", loss);
            if cx.epoch == 0 {
                // A message for the terminal.
                cx.say(format!(
                    "the worst batch of the first epoch was number {batch}, with a loss of {loss:.3}"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tenterhook_testkit::Rig;

    use super::*;

    // The rig sends events to the hook, without a trainer.
    #[test]
    fn the_highest_loss_of_an_epoch_is_logged() {
        let mut rig = Rig::new(WorstBatch::new(Options::default()).unwrap());
        for loss in [0.5, 2.0, 1.0] {
            rig.loss(loss).on_train_batch_end();
        }
        rig.on_train_epoch_end();
        assert_eq!(rig.metrics().get("worst_loss"), Some(2.0));
        assert_eq!(rig.said().len(), 1);
        assert!(rig.failures().is_empty());
    }

    #[test]
    fn losses_below_the_threshold_are_ignored() {
        let mut rig = Rig::new(WorstBatch::new(Options { above: 3.0 }).unwrap());
        rig.loss(2.0).on_train_batch_end();
        rig.on_train_epoch_end();
        assert_eq!(rig.metrics().get("worst_loss"), None);
    }

    #[test]
    fn a_negative_threshold_is_refused() {
        assert!(WorstBatch::new(Options { above: -1.0 }).is_err());
    }
}
