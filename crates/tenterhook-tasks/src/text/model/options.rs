//! What a user may set about the language model.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
}
