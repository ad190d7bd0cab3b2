//! The lines of the file.

use std::collections::BTreeMap;

use serde::Serialize;
use tenterhook_core::{Outcome, RunContext, Stage};

/// A line: the common fields, and those of one event.
#[derive(Serialize)]
pub(super) struct Line<'a> {
    event: &'static str,
    /// Seconds since the start of the run.
    pub(super) time: f64,
    epoch: u64,
    step: u64,
    #[serde(flatten)]
    fields: LineFields<'a>,
}

/// The fields of each event.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum LineFields<'a> {
    TrainStart {
        run: &'a str,
        resumed: bool,
        parameters: u64,
        total_epochs: Option<u64>,
        total_batches: Option<u64>,
    },
    Batch {
        batch: u64,
        loader: &'a str,
        #[serde(with = "tenterhook_core::number::option")]
        loss: Option<f64>,
        #[serde(with = "tenterhook_core::number::option")]
        average_loss: Option<f64>,
        #[serde(with = "tenterhook_core::number::option")]
        lr: Option<f64>,
        #[serde(with = "tenterhook_core::number::map")]
        metrics: BTreeMap<String, f64>,
    },
    EpochEnd {
        #[serde(with = "tenterhook_core::number::option")]
        average_loss: Option<f64>,
        #[serde(with = "tenterhook_core::number::map")]
        metrics: BTreeMap<String, f64>,
    },
    ValidationEnd {
        stage: Stage,
        #[serde(with = "tenterhook_core::number::map")]
        metrics: BTreeMap<String, f64>,
    },
    TestEnd {
        #[serde(with = "tenterhook_core::number::map")]
        metrics: BTreeMap<String, f64>,
    },
    TrainEnd {
        #[serde(flatten)]
        outcome: &'a Outcome,
        #[serde(with = "tenterhook_core::number::map")]
        metrics: BTreeMap<String, f64>,
    },
    Exception {
        origin: String,
        place: &'a str,
        error: String,
    },
}

impl LineFields<'_> {
    fn event(&self) -> &'static str {
        match self {
            LineFields::TrainStart { .. } => "train_start",
            LineFields::Batch { .. } => "batch",
            LineFields::EpochEnd { .. } => "epoch_end",
            LineFields::ValidationEnd { .. } => "validation_end",
            LineFields::TestEnd { .. } => "test_end",
            LineFields::TrainEnd { .. } => "train_end",
            LineFields::Exception { .. } => "exception",
        }
    }
}

impl<'a> Line<'a> {
    pub(super) fn of(cx: &RunContext<'_>, fields: LineFields<'a>) -> Line<'a> {
        let time = cx.elapsed().as_secs_f64();
        Line { event: fields.event(), time, epoch: cx.epoch, step: cx.step, fields }
    }
}
