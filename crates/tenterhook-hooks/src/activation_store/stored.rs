//! What is kept: the activations of a batch, and where in the run they come from.

use std::collections::BTreeMap;

use tenterhook_core::{Batch, DType, Phase, Progress, RunContext, Tensor};

use crate::tensor_file::{METADATA, OwnBytes};

/// One kept activation.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct StoredActivation<'a> {
    /// The loop it comes from.
    pub phase: Phase,
    /// The optimizer step that was being worked on or, in an evaluation, that was completed last.
    pub step: u64,
    /// The epoch, from 0.
    pub epoch: u64,
    /// The batch's index within the epoch and its loader.
    pub batch: u64,
    /// The name of that loader.
    pub loader: &'a str,
    /// The point's name; from the second time on that a batch shows it with a number, `name#2`.
    pub name: &'a str,
    /// Its shape.
    pub shape: &'a [usize],
    /// Its values, in row-major order.
    pub values: &'a [f32],
}

/// Where in the run a batch is.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Place {
    pub(super) phase: Phase,
    pub(super) step: u64,
    pub(super) epoch: u64,
    pub(super) batch: u64,
    pub(super) loader: String,
    pub(super) loader_index: usize,
    pub(super) total_batches: u64,
}

impl Place {
    pub(super) fn of(run_cx: &RunContext<'_>, batch: &Batch<'_>) -> Place {
        let trains = run_cx.phase == Phase::Train;
        Place {
            phase: run_cx.phase,
            step: if trains { run_cx.progress.current_step() } else { run_cx.step },
            epoch: run_cx.epoch,
            batch: batch.index,
            loader: batch.loader.to_owned(),
            loader_index: batch.loader_index,
            total_batches: run_cx.total_batches,
        }
    }

    /// Whether this moment can be one of this batch.
    pub(super) fn is_at(&self, run_cx: &RunContext<'_>) -> bool {
        self.is_in(run_cx.phase, &run_cx.progress)
    }

    /// The same of where a run stands.
    pub(super) fn is_in(&self, phase: Phase, progress: &Progress) -> bool {
        (self.phase, self.total_batches) == (phase, progress.total_batches)
    }

    /// What a file of it is called.
    pub(super) fn file_name(&self) -> String {
        let Place { phase, step, batch, loader_index, total_batches, .. } = self;
        if *phase == Phase::Train {
            format!("{phase}-{total_batches:08}")
        } else {
            format!("{phase}-{step:08}-{loader_index}-{batch:08}")
        }
    }

    /// What a file of it says about it.
    pub(super) fn metadata(&self, run: &str) -> [(&'static str, String); 8] {
        [
            ("run", run.to_owned()),
            ("phase", self.phase.to_string()),
            ("step", self.step.to_string()),
            ("epoch", self.epoch.to_string()),
            ("batch", self.batch.to_string()),
            ("total_batches", self.total_batches.to_string()),
            ("loader", self.loader.clone()),
            ("loader_index", self.loader_index.to_string()),
        ]
    }
}

#[derive(Clone, Debug)]
struct Kept {
    name: String,
    shape: Vec<usize>,
    values: Vec<f32>,
}

/// The activations of one batch.
#[derive(Clone, Debug)]
pub(super) struct StoredBatch {
    pub(super) place: Place,
    activations: Vec<Kept>,
    /// How often each name came.
    names: BTreeMap<String, u64>,
    /// The bytes of all values that were shown, also of those that are not kept.
    pub(super) bytes: u64,
    /// All that was shown is kept.
    pub(super) is_whole: bool,
}

impl StoredBatch {
    pub(super) fn new(place: Place) -> StoredBatch {
        let names = BTreeMap::from([(METADATA.to_owned(), 1)]);
        StoredBatch { place, activations: Vec::new(), names, bytes: 0, is_whole: true }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0 && self.activations.is_empty()
    }

    /// Keeps an activation if all of the batch fits into so many bytes, and else nothing of it. What does not fit
    /// is not read.
    pub(super) fn add(&mut self, point: &str, tensor: &Tensor<'_>, room: u64) {
        let values: usize = tensor.shape().iter().product();
        self.bytes = self.bytes.saturating_add(4 * values as u64);
        if self.bytes > room {
            (self.is_whole, self.activations) = (false, Vec::new());
        }
        if self.is_whole {
            let name = self.free(point);
            let (shape, values) = (tensor.shape().to_vec(), tensor.to_vec());
            self.activations.push(Kept { name, shape, values });
        }
    }

    /// The name, or with a number behind it where it was there before.
    fn free(&mut self, name: &str) -> String {
        let times = self.names.entry(name.to_owned()).or_default();
        *times += 1;
        match *times {
            1 => name.to_owned(),
            times => self.free(&format!("{name}#{times}")),
        }
    }

    /// As a file holds them.
    pub(super) fn into_bytes(self) -> Vec<(String, OwnBytes)> {
        let bytes = |kept: Kept| (kept.name, OwnBytes::new(DType::F32, &kept.shape, &kept.values));
        self.activations.into_iter().map(bytes).collect()
    }

    /// Each of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = StoredActivation<'_>> {
        let Place { phase, step, epoch, batch, loader, .. } = &self.place;
        self.activations.iter().map(|Kept { name, shape, values }| StoredActivation {
            phase: *phase,
            step: *step,
            epoch: *epoch,
            batch: *batch,
            loader,
            name,
            shape,
            values,
        })
    }
}
