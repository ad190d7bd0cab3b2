//! The JSON that a command reads on its standard input.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tenterhook_core::{EventRef, Outcome, Phase, Stage};

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
    Saved { path: PathBuf, root: PathBuf, best: bool, redelivered: bool },
    Loaded { path: PathBuf },
    Disabled { hook: String, reason: String },
}

impl Payload {
    pub(super) fn of(event: EventRef<'_>) -> Payload {
        let cx = event.run_cx();
        let (step, epoch, metrics) = match event {
            // A saved checkpoint has the values of its save.
            EventRef::CheckpointSaved(saved) => {
                (saved.saved_step, saved.saved_epoch, saved.saved_metrics.clone())
            }
            _ => (cx.step, cx.epoch, cx.metrics().to_map()),
        };
        Payload {
            event: event.event().handler(),
            run: cx.run.id.clone(),
            // A command may have another working directory.
            directory: cx.run.directory.as_ref().and_then(|path| std::path::absolute(path).ok()),
            stage: cx.stage,
            phase: cx.phase,
            step,
            epoch,
            time: cx.elapsed().as_secs_f64(),
            metrics,
            own: OwnFields::of(event),
        }
    }
}

impl OwnFields {
    fn of(event: EventRef<'_>) -> OwnFields {
        match event {
            EventRef::TrainEnd(cx) => OwnFields::Ended(cx.outcome.clone()),
            EventRef::FitEnd(cx) => OwnFields::Ended(cx.outcome.clone()),
            EventRef::Teardown(cx) => OwnFields::Ended(cx.outcome.clone()),
            EventRef::Exception(cx) => OwnFields::Failed {
                origin: cx.failure.origin.to_string(),
                place: cx.failure.place,
                error: cx.failure.error.to_string(),
                panicked: cx.failure.panicked,
            },
            EventRef::CheckpointSaved(cx) => OwnFields::Saved {
                path: absolute(cx.path),
                root: absolute(cx.root),
                best: cx.best_score.is_some(),
                redelivered: cx.redelivered,
            },
            EventRef::CheckpointLoaded(cx) => OwnFields::Loaded { path: absolute(cx.path) },
            EventRef::HookDisabled(cx) => {
                OwnFields::Disabled { hook: cx.hook.to_owned(), reason: cx.reason.to_owned() }
            }
            _ => OwnFields::None {},
        }
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
