//! What stands on a line.

use std::collections::BTreeMap;

use serde::Serialize;
use tenterhook_core::{Outcome, RunContext, Stage};

#[derive(Serialize)]
pub(super) struct Line<'a> {
    event: &'static str,
    /// Seconds since the run began.
    time: f64,
    epoch: u64,
    step: u64,
    #[serde(flatten)]
    what: What<'a>,
}

/// What belongs to each event.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum What<'a> {
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

impl What<'_> {
    fn event(&self) -> &'static str {
        match self {
            What::TrainStart { .. } => "train_start",
            What::Batch { .. } => "batch",
            What::EpochEnd { .. } => "epoch_end",
            What::ValidationEnd { .. } => "validation_end",
            What::TestEnd { .. } => "test_end",
            What::TrainEnd { .. } => "train_end",
            What::Exception { .. } => "exception",
        }
    }
}

impl<'a> Line<'a> {
    pub(super) fn of(cx: &RunContext<'_>, what: What<'a>) -> Line<'a> {
        let time = cx.elapsed().as_secs_f64();
        Line { event: what.event(), time, epoch: cx.epoch, step: cx.step, what }
    }
}
