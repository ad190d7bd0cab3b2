//! The options of the guard, and what is wrong with them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::OptionError;

use crate::points::Points;

/// What to do about a NaN or an infinity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NanAction {
    /// Say it, and go on as if nothing were.
    Warn,
    /// Skip the update; with accumulation the whole window's.
    Skip,
    /// Skip the update and stop training in good order.
    Stop,
    /// Skip the update and fail the run when the batch is done.
    #[default]
    Raise,
}

impl NanAction {
    /// Whether training goes on after it.
    pub(super) fn goes_on(self) -> bool {
        matches!(self, NanAction::Warn | NanAction::Skip)
    }

    /// As a configuration has it.
    pub(super) fn word(self) -> &'static str {
        ["warn", "skip", "stop", "raise"][self as usize]
    }
}

/// The options of [`NanGuard`](super::NanGuard).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
// What the check below refuses of two options together.
#[schemars(extend("not" = { "anyOf": [
    { "required": ["max_dumps"], "properties": { "max_dumps": { "const": 0 } },
      "not": { "required": ["dump"], "properties": { "dump": { "const": false } } } },
    { "required": ["points"], "properties": { "points": { "maxItems": 0 } },
      "not": { "required": ["check_activations"], "properties": { "check_activations": { "const": false } } } },
] }))]
pub struct NanGuardOptions {
    /// What to do: `warn` says it, `skip` skips the update, `stop` skips it and stops training in good
    /// order, `raise` skips it and fails the run when the batch is done.
    pub action: NanAction,
    /// Look at every loss, which reads it before every backward pass.
    pub check_loss: bool,
    /// Look at all gradients after every backward pass.
    pub check_gradients: bool,
    /// Look at the activations that the module shows in training.
    pub check_activations: bool,
    /// Which hook points to look at: dotted names, `*` within a part of a name, `**` across parts.
    pub points: Vec<String>,
    /// With `warn` or `skip`: fail the run after so many poisoned steps in a row; 0 is never.
    pub max_consecutive: u64,
    /// Say the shapes of the batches' tensors, once for every new set of shapes.
    #[schemars(extend("x-harmless-change" = true))]
    pub log_shapes: bool,
    /// Write the batch and the statistics of everything seen into the run directory.
    #[schemars(extend("x-harmless-change" = true))]
    pub dump: bool,
    /// How many dumps to write at most.
    #[schemars(extend("x-harmless-change" = true))]
    pub max_dumps: u64,
}

impl Default for NanGuardOptions {
    fn default() -> NanGuardOptions {
        NanGuardOptions {
            action: NanAction::Raise,
            check_loss: true,
            check_gradients: true,
            check_activations: true,
            points: vec!["**".to_owned()],
            max_consecutive: 0,
            log_shapes: false,
            dump: true,
            max_dumps: 3,
        }
    }
}

impl NanGuardOptions {
    /// The points, or what is wrong with the options.
    pub(super) fn check(&self) -> Result<Points, OptionError> {
        if !(self.check_loss || self.check_gradients || self.check_activations || self.log_shapes) {
            let what = "`check_loss`, `check_gradients` and `check_activations` are all off, so there is nothing to guard";
            let error = OptionError::new("check_loss", what).and("check_gradients").and("check_activations");
            return Err(error.fix("set one of them to true"));
        }
        if self.check_activations && self.points.is_empty() {
            return Err(OptionError::new("points", "`points` is empty")
                .and("check_activations")
                .fix("write [\"**\"] for all of them, or set `check_activations` to false"));
        }
        if self.max_consecutive > 0 && !self.action.goes_on() {
            return Err(OptionError::new("max_consecutive", format!("`max_consecutive` counts what is let pass, and with `action` \"{}\" the first one ends the run", self.action.word())).and("action").fix("leave it out, or set `action` to \"skip\" or \"warn\""));
        }
        if self.dump && self.max_dumps == 0 {
            return Err(OptionError::new("max_dumps", "`max_dumps` must be 1 or more")
                .and("dump")
                .fix("to write none, set `dump` to false"));
        }
        let chosen = self.check_activations && self.points != NanGuardOptions::default().points;
        Points::new(&self.points, chosen)
    }
}
