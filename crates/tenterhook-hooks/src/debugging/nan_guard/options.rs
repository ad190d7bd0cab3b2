//! The options of the NaN guard.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::OptionError;

use crate::support::options;
use crate::support::point_filter::PointFilter;

/// The reaction to a NaN or infinite value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum NanAction {
    /// Report it and continue.
    Warn,
    /// Skip the update; with gradient accumulation, that of the whole window.
    Skip,
    /// Skip the update and stop training gracefully.
    Stop,
    /// Skip the update and fail the run at the end of the batch.
    #[default]
    Raise,
}

impl NanAction {
    /// Whether training continues afterwards.
    pub(super) fn continues(self) -> bool {
        matches!(self, NanAction::Warn | NanAction::Skip)
    }

    /// The name in a configuration.
    pub(super) fn name(self) -> &'static str {
        ["warn", "skip", "stop", "raise"][self as usize]
    }
}

options! {
    /// The options of [`NanGuard`](super::NanGuard).
    // The combinations that `check` rejects.
    #[schemars(extend("not" = { "anyOf": [
        { "required": ["max_dumps"], "properties": { "max_dumps": { "const": 0 } },
          "not": { "required": ["dump"], "properties": { "dump": { "const": false } } } },
        { "required": ["points"], "properties": { "points": { "maxItems": 0 } },
          "not": { "required": ["check_activations"], "properties": { "check_activations": { "const": false } } } },
    ] }))]
    pub struct NanGuardOptions {
        /// The reaction to a non-finite value: `warn` reports it, `skip` skips the update, `stop` skips the update and
        /// stops training gracefully, `raise` skips the update and fails the run at the end of the batch.
        pub action: NanAction = NanAction::Raise,
        /// Check every loss. This reads it before every backward pass.
        pub check_loss: bool = true,
        /// Check all gradients after every backward pass.
        pub check_gradients: bool = true,
        /// Check the activations that the module exposes in training.
        pub check_activations: bool = true,
        /// Patterns of the hook points to check: `*` matches within a part of a dotted name, `**` across parts.
        pub points: Vec<String> = vec!["**".to_owned()],
        /// With `warn` or `skip`: number of consecutive non-finite steps after which the run fails; 0 disables.
        pub max_consecutive: u64 = 0,
        /// Report the shapes of the batch tensors, once per new set of shapes.
        #[schemars(extend("x-harmless-change" = true))]
        pub log_shapes: bool = false,
        /// Write the batch and the statistics of all checked tensors into the run directory.
        #[schemars(extend("x-harmless-change" = true))]
        pub dump: bool = true,
        /// Maximum number of dumps.
        #[schemars(extend("x-harmless-change" = true))]
        pub max_dumps: u64 = 3,
    }
}

impl NanGuardOptions {
    /// Checks the options and returns the filter of hook points.
    pub(super) fn check(&self) -> Result<PointFilter, OptionError> {
        if !(self.check_loss || self.check_gradients || self.check_activations || self.log_shapes) {
            let what =
                "`check_loss`, `check_gradients` and `check_activations` are all off, so nothing is checked";
            let error = OptionError::new("check_loss", what).and("check_gradients").and("check_activations");
            return Err(error.fix("set one of them to true"));
        }
        if self.check_activations && self.points.is_empty() {
            return Err(OptionError::new("points", "`points` is empty")
                .and("check_activations")
                .fix("write [\"**\"] for all of them, or set `check_activations` to false"));
        }
        if self.max_consecutive > 0 && !self.action.continues() {
            return Err(OptionError::new("max_consecutive", format!("`max_consecutive` needs an action that continues, but with `action` \"{}\" the first non-finite step ends the run", self.action.name())).and("action").fix("leave it out, or set `action` to \"skip\" or \"warn\""));
        }
        if self.dump && self.max_dumps == 0 {
            return Err(OptionError::new("max_dumps", "`max_dumps` must be 1 or more")
                .and("dump")
                .fix("to write none, set `dump` to false"));
        }
        let is_set = self.check_activations && self.points != NanGuardOptions::default().points;
        PointFilter::new(&self.points, is_set)
    }
}
