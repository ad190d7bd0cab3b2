//! The option `stages` of hooks on activations.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::{Event, Events, OptionError, Phase};

use crate::support::checks;

/// A stage in which a hook receives activations. The sanity check is excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ActivationStage {
    /// Training.
    Train,
    /// Validation, within `fit` or alone.
    Validate,
    /// Test.
    Test,
    /// Prediction.
    Predict,
}

impl ActivationStage {
    /// All stages.
    pub const ALL: [ActivationStage; 4] =
        [ActivationStage::Train, ActivationStage::Validate, ActivationStage::Test, ActivationStage::Predict];

    /// The stage of a phase, if it is one of these.
    pub(crate) fn of(phase: Phase, among: &[ActivationStage]) -> Option<ActivationStage> {
        let stage = match phase {
            Phase::SanityCheck => return None,
            Phase::Train => ActivationStage::Train,
            Phase::Validate => ActivationStage::Validate,
            Phase::Test => ActivationStage::Test,
            Phase::Predict => ActivationStage::Predict,
        };
        Some(stage).filter(|stage| among.contains(stage))
    }

    /// The prefix of its metric names.
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            ActivationStage::Train => "",
            ActivationStage::Validate => "val/",
            ActivationStage::Test => "test/",
            ActivationStage::Predict => "predict/",
        }
    }

    /// The start and end events of its batches.
    fn batches(self) -> [Event; 2] {
        match self {
            ActivationStage::Train => [Event::TrainBatchStart, Event::TrainBatchEnd],
            ActivationStage::Validate => [Event::ValidationBatchStart, Event::ValidationBatchEnd],
            ActivationStage::Test => [Event::TestBatchStart, Event::TestBatchEnd],
            ActivationStage::Predict => [Event::PredictBatchStart, Event::PredictBatchEnd],
        }
    }
}

/// Rejects an empty option `stages`.
pub(crate) fn check(stages: &[ActivationStage]) -> Result<(), OptionError> {
    let fix = "write one or more of \"train\", \"validate\", \"test\" and \"predict\"";
    checks::filled("stages", stages.is_empty(), fix)
}

/// The batch events of all other stages.
pub(crate) fn unused_events(stages: &[ActivationStage]) -> Events {
    let unused = ActivationStage::ALL.into_iter().filter(|stage| !stages.contains(stage));
    unused.flat_map(ActivationStage::batches).fold(Events::NONE, Events::with)
}
