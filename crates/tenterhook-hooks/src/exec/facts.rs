//! What a command is told about an event.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;
#[allow(clippy::wildcard_imports)] // a context for every event that a command can be run at
use tenterhook_core::*;

/// What was copied when the event came.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Told {
    pub(super) event: &'static str,
    pub(super) run: String,
    pub(super) directory: Option<PathBuf>,
    stage: Stage,
    phase: Phase,
    pub(super) step: u64,
    epoch: u64,
    /// Seconds since the run began.
    time: f64,
    #[serde(with = "tenterhook_core::number::map")]
    metrics: BTreeMap<String, f64>,
    #[serde(flatten)]
    own: Own,
}

/// What belongs to the event alone.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Own {
    Nothing {},
    Ended(Outcome),
    Failed {
        /// Who failed.
        origin: String,
        place: &'static str,
        error: String,
        panicked: bool,
    },
    Saved {
        saved_step: u64,
        path: PathBuf,
        best: bool,
    },
    Loaded {
        path: PathBuf,
    },
    Disabled {
        hook: String,
        reason: String,
    },
}

impl Told {
    pub(super) fn of<C: Context + Tells>(cx: &C) -> Told {
        let moment = cx.moment();
        Told {
            event: C::EVENT.handler(),
            run: moment.run.id.clone(),
            // A command may have another working directory.
            directory: moment.run.directory.as_ref().and_then(|path| std::path::absolute(path).ok()),
            stage: moment.stage,
            phase: moment.phase,
            step: moment.step,
            epoch: moment.epoch,
            time: moment.elapsed().as_secs_f64(),
            metrics: moment.metrics().to_map(),
            own: cx.own(),
        }
    }
}

/// An event that tells something of its own.
pub(super) trait Tells {
    fn own(&self) -> Own {
        Own::Nothing {}
    }
}

macro_rules! tells_nothing {
    ($($Event:ident)*) => { $(impl Tells for $Event<'_> {})* };
}

tells_nothing! {
    Setup FitStart TrainStart TrainEpochStart TrainEpochEnd
    ValidationStart ValidationEpochStart ValidationEpochEnd ValidationEnd
    TestStart TestEpochStart TestEpochEnd TestEnd
    PredictStart PredictEpochStart PredictEpochEnd PredictEnd
}

macro_rules! tells_its_outcome {
    ($($Event:ident)*) => {$(
        impl Tells for $Event<'_> {
            fn own(&self) -> Own {
                Own::Ended(self.outcome.clone())
            }
        }
    )*};
}

tells_its_outcome! { TrainEnd FitEnd Teardown }

impl Tells for Exception<'_> {
    fn own(&self) -> Own {
        let Failure { origin, place, error, panicked, .. } = self.failure;
        Own::Failed { origin: origin.to_string(), place, error: error.to_string(), panicked: *panicked }
    }
}

impl Tells for CheckpointSaved<'_> {
    fn own(&self) -> Own {
        Own::Saved { saved_step: self.saved_step, path: absolute(self.path), best: self.best }
    }
}

impl Tells for CheckpointLoaded<'_> {
    fn own(&self) -> Own {
        Own::Loaded { path: absolute(self.path) }
    }
}

impl Tells for HookDisabled<'_> {
    fn own(&self) -> Own {
        Own::Disabled { hook: self.hook.to_owned(), reason: self.reason.to_owned() }
    }
}

fn absolute(path: &std::path::Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
