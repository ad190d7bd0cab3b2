//! The toy as a task: `task = "toy"`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Toy, ToyData};
use crate::task::{BuildContext, Problem, Task};

/// The toy problem, a plane through a few fixed points, as a task: `task = "toy"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToyTask;

/// The options of [`ToyTask`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ToyOptions {
    /// The optimizers.
    pub optimizer: ToyOptimizerOptions,
    /// The data: the number of batches, of four samples each.
    pub data: ToyData,
}

/// The optimizer options of [`ToyTask`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ToyOptimizerOptions {
    /// The learning rate.
    pub lr: f64,
    /// The number of optimizers: 1, or 2 (one for the weights and one for the bias).
    pub count: usize,
}

impl Default for ToyOptimizerOptions {
    fn default() -> ToyOptimizerOptions {
        ToyOptimizerOptions { lr: 0.1, count: 1 }
    }
}

impl Task for ToyTask {
    type Options = ToyOptions;
    type Module = Toy;
    type Data = ToyData;

    fn name(&self) -> &'static str {
        "toy"
    }

    fn purpose(&self) -> &'static str {
        "finds a plane through a few points, with plain numbers"
    }

    fn defaults(&self) -> &'static str {
        "[trainer]\nmax_epochs = 30\n"
    }

    fn build(&self, options: ToyOptions, build: &BuildContext<'_>) -> Result<(Toy, ToyData), Vec<Problem>> {
        let (mut problems, lr) = (Vec::new(), options.optimizer.lr);
        if build.device != "cpu" {
            problems.push(
                Problem::new("device", "the toy computes on the cpu only").fix("set `device = \"cpu\"`"),
            );
        }
        if !(1..=2).contains(&options.optimizer.count) {
            problems.push(Problem::new("optimizer.count", "`count` must be 1 or 2"));
        }
        if !(lr.is_finite() && lr > 0.0) {
            problems.push(Problem::new("optimizer.lr", "`lr` must be a number above 0"));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok((Toy::new(options.optimizer.count).with_lr(lr), options.data))
    }

    fn show(&self, prediction: &Vec<f32>) -> Vec<serde_json::Value> {
        prediction.iter().map(|y| json!({ "y": y })).collect()
    }
}
