//! Which direction of a metric is better.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which direction of a metric is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Less is better.
    #[default]
    Min,
    /// More is better.
    Max,
}

impl Mode {
    /// Whether the first value is strictly better than the second.
    #[must_use]
    pub fn is_better(self, value: f64, than: f64) -> bool {
        match self {
            Mode::Min => value < than,
            Mode::Max => value > than,
        }
    }
}
