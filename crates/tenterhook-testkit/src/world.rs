//! The made-up run that contexts are built from: what is true at the next event.

use std::any::Any;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use tenterhook_core::context::{ClipRule, Entries};
use tenterhook_core::metrics::MetricsState;
use tenterhook_core::moment::FixedClock;
use tenterhook_core::random::Streams;
use tenterhook_core::{
    Batch, Event, Failure, Histogram, Moment, Origin, Outcome, Phase, Progress, RunInfo, Shared, Stage,
    Status, Tensors,
};

use crate::model::Model;
use tenterhook_core::NamedTensors;

pub(crate) struct World {
    pub(crate) shared: Shared,
    pub(crate) model: Model,
    pub(crate) progress: Progress,
    /// Where these are `None`, the event says what is usual.
    pub(crate) stage: Option<Stage>,
    pub(crate) phase: Option<Phase>,
    pub(crate) status: Option<Status>,
    pub(crate) batch: MadeUpBatch,
    pub(crate) loss: Option<f64>,
    /// What the step of an evaluation logged, and its outputs.
    pub(crate) batch_metrics: BTreeMap<String, f64>,
    pub(crate) outputs: NamedTensors,
    /// The latest and the average loss.
    pub(crate) losses: (Option<f64>, Option<f64>),
    pub(crate) gradients: NamedTensors,
    pub(crate) optimizer: usize,
    pub(crate) norms: Norms,
    pub(crate) next_lr: Option<f64>,
    pub(crate) times: Times,
    /// The activation to show.
    pub(crate) point: (String, NamedTensors),
    pub(crate) outcome: Outcome,
    pub(crate) entries: Entries,
    pub(crate) checkpoint: Checkpoint,
    /// The line that is logged, what was logged since the last one, and in which loop.
    pub(crate) line: Line,
    pub(crate) unlogged: Line,
    log_of: Phase,
    /// The hook that was disabled, and why.
    pub(crate) disabled: (String, String),
    /// The notice, as it stands in `events.jsonl`.
    pub(crate) notice: serde_json::Value,
    pub(crate) failure: Failure,
    pub(crate) prediction: Box<dyn Any>,
    in_sanity_check: bool,
    evaluating: bool,
}

#[derive(Clone)]
pub(crate) struct MadeUpBatch {
    /// Where it is `None`, the progress says which.
    pub(crate) index: Option<u64>,
    pub(crate) size: usize,
    pub(crate) loader_index: usize,
    pub(crate) loader: String,
    pub(crate) is_last: bool,
    pub(crate) tensors: NamedTensors,
}

/// What is logged at once: numbers and histograms.
pub(crate) type Line = (BTreeMap<String, f64>, BTreeMap<String, Histogram>);

/// How long the parts of a step took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    pub(crate) wait: Duration,
    pub(crate) forward: Duration,
    pub(crate) backward: Duration,
    pub(crate) optimizer: Duration,
}

/// The norms of the gradients: those that were given, and those that are in force.
#[derive(Clone, Copy, Default)]
pub(crate) struct Norms {
    pub(crate) given: Option<(f64, f64)>,
    pub(crate) rule: Option<ClipRule>,
    pub(crate) before: f64,
    pub(crate) after: f64,
}

#[derive(Clone)]
pub(crate) struct Checkpoint {
    pub(crate) step: u64,
    pub(crate) epoch: u64,
    pub(crate) metrics: BTreeMap<String, f64>,
    pub(crate) metric_steps: BTreeMap<String, u64>,
    pub(crate) path: PathBuf,
    pub(crate) root: PathBuf,
    pub(crate) best_score: Option<f64>,
    pub(crate) again: bool,
}

impl Default for World {
    fn default() -> World {
        let run = RunInfo { id: "made-up".into(), device: "cpu".into(), ..RunInfo::default() };
        let batch = MadeUpBatch {
            index: None,
            size: 1,
            loader_index: 0,
            loader: "train".into(),
            is_last: false,
            tensors: NamedTensors::default(),
        };
        World {
            shared: Shared::new(run, 0, Box::new(FixedClock::default())),
            model: Model::default(),
            progress: Progress::default(),
            stage: None,
            phase: None,
            status: None,
            batch,
            loss: Some(1.0),
            batch_metrics: BTreeMap::new(),
            outputs: NamedTensors::default(),
            losses: (None, None),
            gradients: NamedTensors::default(),
            optimizer: 0,
            norms: Norms::default(),
            next_lr: None,
            times: Times::default(),
            point: Default::default(),
            outcome: Outcome::Completed,
            entries: Entries::default(),
            checkpoint: Checkpoint {
                step: 0,
                epoch: 0,
                metrics: BTreeMap::new(),
                metric_steps: BTreeMap::new(),
                path: "checkpoints/made-up".into(),
                root: "checkpoints".into(),
                best_score: None,
                again: false,
            },
            line: Line::default(),
            unlogged: Line::default(),
            log_of: Phase::Train,
            disabled: ("another".into(), "a made-up reason".into()),
            notice: serde_json::json!({ "event": "said", "by": "another", "text": "made up" }),
            failure: made_up_failure(),
            prediction: Box::new(()),
            in_sanity_check: false,
            evaluating: false,
        }
    }
}

fn made_up_failure() -> Failure {
    Failure {
        origin: Origin::Module,
        place: "training_step",
        epoch: 0,
        step: 0,
        panicked: false,
        error: "a made-up failure".into(),
        trace: None,
    }
}

impl World {
    pub(crate) fn moment(&self, event: Event) -> Moment<'_> {
        let phase = self.phase.unwrap_or_else(|| self.usual_phase(event));
        let stage = self.stage.unwrap_or(match phase {
            Phase::Test => Stage::Test,
            Phase::Predict => Stage::Predict,
            Phase::SanityCheck | Phase::Train | Phase::Validate => Stage::Fit,
        });
        let status = self.status.unwrap_or_else(|| usual_status(event));
        Moment::new((stage, phase, status), self.progress, &self.shared, &self.model, &self.losses)
    }

    pub(crate) fn batch(&self) -> Batch<'_> {
        let MadeUpBatch { index, size, loader_index, loader, is_last, tensors } = &self.batch;
        Batch {
            index: index.unwrap_or(self.progress.batches.saturating_sub(1)),
            size: *size,
            loader_index: *loader_index,
            loader,
            is_last: *is_last,
            tensors: Tensors::new(tensors),
        }
    }

    /// What the loop does before it delivers an event: the metrics follow it.
    pub(crate) fn before(&mut self, event: Event) {
        let metrics = &self.shared.metrics;
        let evaluation = matches!(event.phase(), Phase::Validate | Phase::Test | Phase::Predict);
        if evaluation && !self.evaluating {
            metrics.begin_evaluation();
        } else if self.evaluating && !evaluation && event.is_within_epoch() {
            metrics.end_evaluation();
        }
        self.evaluating = evaluation || (self.evaluating && !event.is_within_epoch());
        metrics.set_batch_size(self.batch.size);
        match event {
            Event::SanityCheckStart => self.in_sanity_check = true,
            Event::TrainEpochStart => metrics.begin_epoch(),
            Event::Log => {
                self.line = std::mem::take(&mut self.unlogged);
                self.line.0.extend(metrics.take_changes().unwrap_or_default());
                self.line.1.append(&mut metrics.take_histograms());
            }
            Event::TrainEpochEnd
            | Event::ValidationEpochEnd
            | Event::TestEpochEnd
            | Event::PredictEpochEnd => metrics.close(),
            _ => {}
        }
        let norm = self.gradients.norm();
        (self.norms.before, self.norms.after) = self.norms.given.unwrap_or((norm, norm));
    }

    /// What the loop does when an event has reached everyone.
    pub(crate) fn after(&mut self, event: Event) {
        let metrics = &self.shared.metrics;
        match event {
            Event::SanityCheckEnd => {
                self.in_sanity_check = false;
                metrics.restore(MetricsState::default());
            }
            Event::ValidationEnd | Event::TestEnd | Event::PredictEnd => {
                metrics.end_evaluation();
                self.evaluating = false;
                self.log_of = event.phase();
            }
            Event::Log => self.log_of = Phase::Train,
            _ => {}
        }
    }

    /// The same point of another run, as a checkpoint carries it over.
    pub(crate) fn resumed(&self) -> World {
        let run = self.shared.run.clone();
        let mut shared = Shared::new(run, 0, Box::new(FixedClock::default()));
        shared.elapsed_before = self.shared.elapsed();
        shared.metrics.restore(self.shared.metrics.state());
        if let Ok(board) = self.shared.board.to_json() {
            shared.board.restore(board, self.shared.board.taken());
            shared.board.keep_from_observers(self.shared.board.kept_from_observers());
        }
        let positions = self.shared.streams.borrow().positions();
        shared.streams.replace(Streams::at(&positions));
        World {
            shared,
            model: self.model.clone(),
            progress: self.progress,
            stage: self.stage,
            phase: self.phase,
            status: self.status,
            batch: self.batch.clone(),
            loss: self.loss,
            batch_metrics: self.batch_metrics.clone(),
            outputs: self.outputs.clone(),
            losses: self.losses,
            gradients: self.gradients.clone(),
            optimizer: self.optimizer,
            norms: self.norms,
            next_lr: self.next_lr,
            times: self.times,
            point: self.point.clone(),
            outcome: self.outcome.clone(),
            entries: self.entries.clone(),
            checkpoint: self.checkpoint.clone(),
            unlogged: self.unlogged.clone(),
            log_of: self.log_of,
            ..World::default()
        }
    }

    fn usual_phase(&self, event: Event) -> Phase {
        match event.phase() {
            Phase::Validate if self.in_sanity_check => Phase::SanityCheck,
            _ if event == Event::Log => self.log_of,
            phase => phase,
        }
    }
}

fn usual_status(event: Event) -> Status {
    match event {
        Event::Setup | Event::FitStart | Event::SanityCheckStart | Event::SanityCheckEnd => Status::Starting,
        Event::TrainEnd | Event::FitEnd | Event::Teardown => Status::Completed,
        Event::Exception => Status::Error,
        _ => Status::Training,
    }
}
