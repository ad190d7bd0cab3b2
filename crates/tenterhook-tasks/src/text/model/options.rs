//! The `[model]` table.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook::memory::Estimate;
use tenterhook::task::Problem;

use crate::loader::LoaderOptions;
use crate::{KEPT_BYTES, TRAINED_BYTES};

/// The byte-level language model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GptOptions {
    /// Context length in bytes.
    pub context: usize,
    /// Number of transformer blocks.
    pub layers: usize,
    /// Attention heads per block. Must divide the width.
    pub heads: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Dropout probability of the embeddings and of the outputs of attention and MLP.
    pub dropout: f64,
}

impl Default for GptOptions {
    fn default() -> Self {
        Self { context: 64, layers: 2, heads: 4, width: 128, dropout: 0.1 }
    }
}

impl GptOptions {
    /// All invalid options.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        let GptOptions { context, layers, heads, width, dropout } = *self;
        let mut problems = Vec::new();
        for (key, size) in [("context", context), ("layers", layers), ("heads", heads), ("width", width)] {
            if size == 0 {
                problems.push(Problem::new(format!("model.{key}"), "must be at least 1"));
            }
        }
        if heads > 0 && !width.is_multiple_of(heads) {
            let message = format!("must divide the width, and {heads} does not divide {width}");
            problems.push(Problem::new("model.heads", message));
        }
        if !(0.0..1.0).contains(&dropout) {
            let message = format!("must be at least 0 and below 1, not {dropout}");
            problems.push(Problem::new("model.dropout", message));
        }
        problems
    }

    /// An estimate of the memory for training with this batch size: the parameters, and the activations that
    /// are kept for the backward pass.
    #[must_use]
    pub fn memory(&self, batch: f64) -> Estimate {
        let default = GptOptions::default();
        let [context, layers, heads, width] =
            [self.context, self.layers, self.heads, self.width].map(|size| size as f64);
        let tokens = super::TOKENS as f64;
        let blocks = layers * (12.0 * width * width + 13.0 * width);
        let around = (2.0 * tokens + context + 2.0) * width;
        let kept = batch * context * (layers * (16.0 * width + 4.0 * heads * context) + 4.0 * tokens);
        let sizes = [
            ("model.context", context / default.context as f64),
            ("model.layers", layers / default.layers as f64),
            ("model.width", width / default.width as f64),
        ];
        let with_batch = [sizes[0], sizes[1], sizes[2], LoaderOptions::batch_size_key(batch)];
        Estimate::new()
            .part_of(&sizes, "weights, gradients and optimizer state", TRAINED_BYTES * (blocks + around))
            .part_of(&with_batch, "the activations of a batch", KEPT_BYTES * (kept + context * context))
    }
}
