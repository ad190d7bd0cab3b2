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
        path: PathBuf,
        root: PathBuf,
        best: bool,
        again: bool,
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
    pub(super) fn of<C: Tells>(cx: &C) -> Told {
        let run_cx = cx.run_cx();
        let Place { step, epoch, metrics } = cx.place();
        Told {
            event: C::EVENT.handler(),
            run: run_cx.run.id.clone(),
            // A command may have another working directory.
            directory: run_cx.run.directory.as_ref().and_then(|path| std::path::absolute(path).ok()),
            stage: run_cx.stage,
            phase: run_cx.phase,
            step,
            epoch,
            time: run_cx.elapsed().as_secs_f64(),
            metrics,
            own: cx.own(),
        }
    }
}

/// Where the run stood.
pub(super) struct Place {
    step: u64,
    epoch: u64,
    metrics: BTreeMap<String, f64>,
}

/// An event that tells something of its own.
pub(super) trait Tells: Context {
    fn own(&self) -> Own {
        Own::Nothing {}
    }

    /// Where the run stood at what the event is about.
    fn place(&self) -> Place {
        let run_cx = self.run_cx();
        Place { step: run_cx.step, epoch: run_cx.epoch, metrics: run_cx.metrics().to_map() }
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
        let (path, root) = (absolute(self.path), absolute(self.root));
        Own::Saved { path, root, best: self.best_score.is_some(), again: self.again }
    }

    fn place(&self) -> Place {
        let (step, epoch) = (self.saved_step, self.saved_epoch);
        Place { step, epoch, metrics: self.saved_metrics.clone() }
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
