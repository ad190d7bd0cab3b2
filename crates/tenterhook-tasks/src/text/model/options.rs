//! What a user may set about the language model.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook::memory::Estimate;

use crate::loader::LoaderOptions;
use crate::{KEPT_BYTES, TRAINED_BYTES};

/// The byte-level language model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GptOptions {
    /// How many bytes the model sees at once.
    pub context: usize,
    /// Number of blocks of attention and perceptron.
    pub layers: usize,
    /// Attention heads per block. They share the width evenly.
    pub heads: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Share of the values zeroed at random, while training, in what is added to the stream.
    pub dropout: f64,
}

impl Default for GptOptions {
    fn default() -> Self {
        Self { context: 64, layers: 2, heads: 4, width: 128, dropout: 0.1 }
    }
}

impl GptOptions {
    /// What is impossible about these options: the key and what it must be.
    #[must_use]
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        let sizes = [
            ("context", self.context),
            ("layers", self.layers),
            ("heads", self.heads),
            ("width", self.width),
        ];
        let mut found: Vec<_> = sizes
            .into_iter()
            .filter(|(_, size)| *size == 0)
            .map(|(key, _)| (key, "must be at least 1".to_owned()))
            .collect();
        if self.heads > 0 && !self.width.is_multiple_of(self.heads) {
            found.push((
                "heads",
                format!("must divide the width, and {} does not divide {}", self.heads, self.width),
            ));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            found.push(("dropout", format!("must be at least 0 and below 1, not {}", self.dropout)));
        }
        found
    }

    /// The memory that training needs with batches of this many windows: the parameters, and what the forward pass
    /// keeps for the backward pass.
    #[must_use]
    pub fn memory(&self, batch: f64) -> Estimate {
        let usual = GptOptions::default();
        let [context, layers, heads, width] =
            [self.context, self.layers, self.heads, self.width].map(|size| size as f64);
        let tokens = super::TOKENS as f64;
        let blocks = layers * (12.0 * width * width + 13.0 * width);
        let around = (2.0 * tokens + context + 2.0) * width;
        let kept = batch * context * (layers * (16.0 * width + 4.0 * heads * context) + 4.0 * tokens);
        let sizes = [
            ("model.context", context / usual.context as f64),
            ("model.layers", layers / usual.layers as f64),
            ("model.width", width / usual.width as f64),
        ];
        let with_batch = [sizes[0], sizes[1], sizes[2], LoaderOptions::batch_size(batch)];
        Estimate::new()
            .part_of(&sizes, "weights, gradients and optimizer state", TRAINED_BYTES * (blocks + around))
            .part_of(&with_batch, "the activations of a batch", KEPT_BYTES * (kept + context * context))
    }
}
