//! The simulated run: the values from which contexts are built.

use std::any::Any;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use tenterhook_core::context::{CheckpointEntries, ClipRule};
use tenterhook_core::metrics::MetricsState;
use tenterhook_core::random::RandomStreams;
use tenterhook_core::run_context::FixedClock;
use tenterhook_core::{
    Batch, Event, Failure, Histogram, NamedTensors, Origin, Outcome, Phase, Progress, RunContext, RunInfo,
    RunState, Stage, Status, Tensors,
};

use crate::model::Model;

/// The values of the next context.
pub(crate) struct SimulatedRun {
    pub(crate) shared: RunState,
    pub(crate) model: Model,
    pub(crate) at: Position,
    pub(crate) batch: SimulatedBatch,
    pub(crate) result: BatchResult,
    pub(crate) update: LastUpdate,
    pub(crate) times: Times,
    /// The activation to deliver.
    /// The hook point and the values of the current activation.
    pub(crate) activation: (String, NamedTensors),
    pub(crate) checkpoint: Checkpoint,
    pub(crate) log: Log,
    pub(crate) values: EventValues,
    loops: Loops,
}

/// Position of the run. `None` is the usual value for the event.
#[derive(Clone, Default)]
pub(crate) struct Position {
    pub(crate) progress: Progress,
    pub(crate) stage: Option<Stage>,
    pub(crate) phase: Option<Phase>,
    pub(crate) status: Option<Status>,
    pub(crate) outcome: Outcome,
}

#[derive(Clone, Default)]
pub(crate) struct SimulatedBatch {
    /// `None` for the index in the progress counters.
    pub(crate) index: Option<u64>,
    pub(crate) size: usize,
    pub(crate) loader_index: usize,
    pub(crate) loader: String,
    pub(crate) is_last: bool,
    pub(crate) tensors: NamedTensors,
}

/// Results of a step of the module.
#[derive(Clone, Default)]
pub(crate) struct BatchResult {
    pub(crate) loss: Option<f64>,
    /// The latest and the average loss.
    pub(crate) losses: (Option<f64>, Option<f64>),
    /// Metrics and outputs of an evaluation step.
    pub(crate) metrics: BTreeMap<String, f64>,
    pub(crate) outputs: NamedTensors,
}

/// The current or last update.
#[derive(Clone, Default)]
pub(crate) struct LastUpdate {
    pub(crate) optimizer: usize,
    pub(crate) gradients: NamedTensors,
    pub(crate) norms: Norms,
    pub(crate) next_lr: Option<f64>,
}

/// The norms of the gradients: those that a test set, and those that contexts show.
#[derive(Clone, Copy, Default)]
pub(crate) struct Norms {
    pub(crate) overridden: Option<(f64, f64)>,
    pub(crate) rule: Option<ClipRule>,
    pub(crate) before: f64,
    pub(crate) after: f64,
}

/// Durations of the parts of a step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    pub(crate) wait: Duration,
    pub(crate) forward: Duration,
    pub(crate) backward: Duration,
    pub(crate) optimizer: Duration,
}

#[derive(Clone, Default)]
pub(crate) struct Checkpoint {
    pub(crate) step: u64,
    pub(crate) epoch: u64,
    pub(crate) metrics: BTreeMap<String, f64>,
    pub(crate) metric_steps: BTreeMap<String, u64>,
    pub(crate) path: PathBuf,
    pub(crate) root: PathBuf,
    pub(crate) best_score: Option<f64>,
    pub(crate) redelivered: bool,
    pub(crate) entries: CheckpointEntries,
}

/// One line of metrics.
#[derive(Clone, Default)]
pub(crate) struct LogLine {
    pub(crate) metrics: BTreeMap<String, f64>,
    pub(crate) histograms: BTreeMap<String, Histogram>,
}

/// The current line, the values logged after it, and the loop of the next line.
#[derive(Clone)]
pub(crate) struct Log {
    pub(crate) line: LogLine,
    pub(crate) pending: LogLine,
    logged_in: Phase,
}

/// Values of single events.
pub(crate) struct EventValues {
    /// The disabled hook and the reason.
    pub(crate) disabled: (String, String),
    /// The notice as in `events.jsonl`.
    pub(crate) notice: serde_json::Value,
    pub(crate) failure: Failure,
    pub(crate) prediction: Box<dyn Any>,
}

#[derive(Clone, Copy, Default)]
struct Loops {
    in_sanity_check: bool,
    evaluating: bool,
}

impl Default for SimulatedRun {
    fn default() -> SimulatedRun {
        let run = RunInfo { id: "made-up".into(), device: "cpu".into(), ..RunInfo::default() };
        let checkpoint = Checkpoint {
            path: "checkpoints/made-up".into(),
            root: "checkpoints".into(),
            ..Checkpoint::default()
        };
        SimulatedRun {
            shared: RunState::new(run, 0, Box::new(FixedClock::default())),
            model: Model::default(),
            at: Position::default(),
            batch: SimulatedBatch { size: 1, loader: "train".into(), ..SimulatedBatch::default() },
            result: BatchResult { loss: Some(1.0), ..BatchResult::default() },
            update: LastUpdate::default(),
            times: Times::default(),
            activation: Default::default(),
            checkpoint,
            log: Log { line: LogLine::default(), pending: LogLine::default(), logged_in: Phase::Train },
            values: EventValues::default(),
            loops: Loops::default(),
        }
    }
}

impl Default for EventValues {
    fn default() -> EventValues {
        EventValues {
            disabled: ("another".into(), "a made-up reason".into()),
            notice: serde_json::json!({ "event": "said", "by": "another", "text": "made up" }),
            failure: Failure {
                origin: Origin::Module,
                place: "training_step",
                epoch: 0,
                step: 0,
                panicked: false,
                error: "a made-up failure".into(),
                trace: None,
            },
            prediction: Box::new(()),
        }
    }
}

impl SimulatedRun {
    pub(crate) fn run_cx(&self, event: Event) -> RunContext<'_> {
        let phase = self.at.phase.unwrap_or_else(|| self.usual_phase(event));
        let stage = self.at.stage.unwrap_or(match phase {
            Phase::Test => Stage::Test,
            Phase::Predict => Stage::Predict,
            Phase::SanityCheck | Phase::Train | Phase::Validate => Stage::Fit,
        });
        let status = self.at.status.unwrap_or_else(|| usual_status(event));
        RunContext::new(
            (stage, phase, status),
            self.at.progress,
            &self.shared,
            &self.model,
            &self.result.losses,
        )
    }

    pub(crate) fn batch(&self) -> Batch<'_> {
        let SimulatedBatch { index, size, loader_index, loader, is_last, tensors } = &self.batch;
        Batch {
            index: index.unwrap_or(self.at.progress.batches.saturating_sub(1)),
            size: *size,
            loader_index: *loader_index,
            loader,
            is_last: *is_last,
            tensors: Tensors::new(tensors),
        }
    }

    /// Updates the metrics as the loop does before it delivers an event.
    pub(crate) fn before(&mut self, event: Event) {
        let metrics = &self.shared.metrics;
        let evaluation = matches!(event.phase(), Phase::Validate | Phase::Test | Phase::Predict);
        if evaluation && !self.loops.evaluating {
            metrics.begin_evaluation();
        } else if self.loops.evaluating && !evaluation && event.is_within_epoch() {
            metrics.end_evaluation();
        }
        self.loops.evaluating = evaluation || (self.loops.evaluating && !event.is_within_epoch());
        metrics.set_batch_size(self.batch.size);
        match event {
            Event::SanityCheckStart => self.loops.in_sanity_check = true,
            Event::TrainEpochStart => metrics.begin_epoch(),
            Event::Log => {
                self.log.line = std::mem::take(&mut self.log.pending);
                self.log.line.metrics.extend(metrics.take_changes().unwrap_or_default());
                self.log.line.histograms.append(&mut metrics.take_histograms());
            }
            Event::TrainEpochEnd
            | Event::ValidationEpochEnd
            | Event::TestEpochEnd
            | Event::PredictEpochEnd => metrics.finish_aggregates(),
            _ => {}
        }
        let norm = self.update.gradients.norm();
        (self.update.norms.before, self.update.norms.after) =
            self.update.norms.overridden.unwrap_or((norm, norm));
    }

    /// Updates the state as the loop does after it has delivered an event.
    pub(crate) fn after(&mut self, event: Event) {
        let metrics = &self.shared.metrics;
        match event {
            Event::SanityCheckEnd => {
                self.loops.in_sanity_check = false;
                metrics.restore(MetricsState::default());
            }
            Event::ValidationEnd | Event::TestEnd | Event::PredictEnd => {
                metrics.end_evaluation();
                self.loops.evaluating = false;
                self.log.logged_in = event.phase();
            }
            Event::Log => self.log.logged_in = Phase::Train,
            _ => {}
        }
    }

    /// A run that is resumed at this point from a checkpoint.
    pub(crate) fn resumed(&self) -> SimulatedRun {
        let run = self.shared.run.clone();
        let mut shared = RunState::new(run, 0, Box::new(FixedClock::default()));
        shared.elapsed_before = self.shared.elapsed();
        shared.metrics.restore(self.shared.metrics.state());
        if let Ok(board) = self.shared.board.to_json() {
            shared.board.restore(board, self.shared.board.taken_keys());
            shared.board.protect_keys(&self.shared.board.protected_keys());
        }
        let positions = self.shared.streams.borrow().positions();
        shared.streams.replace(RandomStreams::at(&positions));
        SimulatedRun {
            shared,
            model: self.model.clone(),
            at: self.at.clone(),
            batch: self.batch.clone(),
            result: self.result.clone(),
            update: self.update.clone(),
            times: self.times,
            activation: self.activation.clone(),
            checkpoint: self.checkpoint.clone(),
            log: self.log.clone(),
            values: EventValues::default(),
            loops: Loops::default(),
        }
    }

    fn usual_phase(&self, event: Event) -> Phase {
        match event.phase() {
            Phase::Validate if self.loops.in_sanity_check => Phase::SanityCheck,
            _ if event == Event::Log => self.log.logged_in,
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
