//! The JSON that a command reads on its standard input.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;
#[allow(clippy::wildcard_imports)] // a context for every event that a command can be run at
use tenterhook_core::*;

/// An event as a command receives it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Payload {
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
    own: OwnFields,
}

/// The fields of one kind of event.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum OwnFields {
    None {},
    Ended(Outcome),
    Failed { origin: String, place: &'static str, error: String, panicked: bool },
    Saved { path: PathBuf, root: PathBuf, best: bool, again: bool },
    Loaded { path: PathBuf },
    Disabled { hook: String, reason: String },
}

impl Payload {
    pub(super) fn of<C: EventPayload>(cx: &C) -> Payload {
        let moment = cx.moment();
        let TimePoint { step, epoch, metrics } = cx.time_point();
        Payload {
            event: C::EVENT.handler(),
            run: moment.run.id.clone(),
            // A command may have another working directory.
            directory: moment.run.directory.as_ref().and_then(|path| std::path::absolute(path).ok()),
            stage: moment.stage,
            phase: moment.phase,
            step,
            epoch,
            time: moment.elapsed().as_secs_f64(),
            metrics,
            own: cx.own_fields(),
        }
    }
}

/// Step, epoch and metrics that an event is about.
pub(super) struct TimePoint {
    step: u64,
    epoch: u64,
    metrics: BTreeMap<String, f64>,
}

/// The part of a payload that depends on the event.
pub(super) trait EventPayload: Context {
    fn own_fields(&self) -> OwnFields {
        OwnFields::None {}
    }

    /// The time of the event; for a saved checkpoint, that of the save.
    fn time_point(&self) -> TimePoint {
        let moment = self.moment();
        TimePoint { step: moment.step, epoch: moment.epoch, metrics: moment.metrics().to_map() }
    }
}

macro_rules! without_fields {
    ($($Event:ident)*) => { $(impl EventPayload for $Event<'_> {})* };
}

without_fields! {
    Setup FitStart TrainStart TrainEpochStart TrainEpochEnd
    ValidationStart ValidationEpochStart ValidationEpochEnd ValidationEnd
    TestStart TestEpochStart TestEpochEnd TestEnd
    PredictStart PredictEpochStart PredictEpochEnd PredictEnd
}

macro_rules! with_outcome {
    ($($Event:ident)*) => {$(
        impl EventPayload for $Event<'_> {
            fn own_fields(&self) -> OwnFields {
                OwnFields::Ended(self.outcome.clone())
            }
        }
    )*};
}

with_outcome! { TrainEnd FitEnd Teardown }

impl EventPayload for Exception<'_> {
    fn own_fields(&self) -> OwnFields {
        let Failure { origin, place, error, panicked, .. } = self.failure;
        OwnFields::Failed { origin: origin.to_string(), place, error: error.to_string(), panicked: *panicked }
    }
}

impl EventPayload for CheckpointSaved<'_> {
    fn own_fields(&self) -> OwnFields {
        let (path, root) = (absolute(self.path), absolute(self.root));
        OwnFields::Saved { path, root, best: self.best_score.is_some(), again: self.again }
    }

    fn time_point(&self) -> TimePoint {
        let (step, epoch) = (self.saved_step, self.saved_epoch);
        TimePoint { step, epoch, metrics: self.saved_metrics.clone() }
    }
}

impl EventPayload for CheckpointLoaded<'_> {
    fn own_fields(&self) -> OwnFields {
        OwnFields::Loaded { path: absolute(self.path) }
    }
}

impl EventPayload for HookDisabled<'_> {
    fn own_fields(&self) -> OwnFields {
        OwnFields::Disabled { hook: self.hook.to_owned(), reason: self.reason.to_owned() }
    }
}

fn absolute(path: &std::path::Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
