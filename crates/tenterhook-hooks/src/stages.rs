//! The stages in which activations are looked at.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::{Event, Events, OptionError, Phase};

use crate::checks;

/// A stage in which a hook looks at activations. The sanity check is none: it leaves no trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ActivationStage {
    /// Training.
    Train,
    /// Validation, also within `fit`.
    Validate,
    /// Test.
    Test,
    /// Prediction.
    Predict,
}

impl ActivationStage {
    /// All of them.
    pub const ALL: [ActivationStage; 4] =
        [ActivationStage::Train, ActivationStage::Validate, ActivationStage::Test, ActivationStage::Predict];

    /// The stage that a phase belongs to, if it is one of these.
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

    /// What the names of its metrics begin with.
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            ActivationStage::Train => "",
            ActivationStage::Validate => "val/",
            ActivationStage::Test => "test/",
            ActivationStage::Predict => "predict/",
        }
    }

    /// The start and the end of its batches.
    fn batches(self) -> [Event; 2] {
        match self {
            ActivationStage::Train => [Event::TrainBatchStart, Event::TrainBatchEnd],
            ActivationStage::Validate => [Event::ValidationBatchStart, Event::ValidationBatchEnd],
            ActivationStage::Test => [Event::TestBatchStart, Event::TestBatchEnd],
            ActivationStage::Predict => [Event::PredictBatchStart, Event::PredictBatchEnd],
        }
    }
}

/// Refuses an option `stages` that names none.
pub(crate) fn check(stages: &[ActivationStage]) -> Result<(), OptionError> {
    let fix = "write one or more of \"train\", \"validate\", \"test\" and \"predict\"";
    checks::filled("stages", stages.is_empty(), fix)
}

/// The batch events of the stages that are not among these.
pub(crate) fn idle(stages: &[ActivationStage]) -> Events {
    let idle = ActivationStage::ALL.into_iter().filter(|stage| !stages.contains(stage));
    idle.flat_map(ActivationStage::batches).fold(Events::NONE, Events::with)
}
