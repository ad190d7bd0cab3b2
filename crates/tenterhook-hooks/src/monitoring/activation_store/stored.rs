//! The stored activations of a batch, and the batch's position in the run.

use std::collections::BTreeMap;

use tenterhook_core::{Batch, DType, Phase, Progress, RunContext, Tensor};

use crate::support::tensor_file::{METADATA, TensorBytes};

/// A stored activation.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct StoredActivation<'a> {
    /// The phase of the run.
    pub phase: Phase,
    /// The current optimizer step; in an evaluation, the last completed one.
    pub step: u64,
    /// The epoch, from 0.
    pub epoch: u64,
    /// The batch's index within the epoch and its loader.
    pub batch: u64,
    /// The name of the loader.
    pub loader: &'a str,
    /// The name of the hook point; if it occurs again in a batch, with a number: `name#2`.
    pub name: &'a str,
    /// The shape.
    pub shape: &'a [usize],
    /// The values in row-major order.
    pub values: &'a [f32],
}

/// The position of a batch in the run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BatchPosition {
    pub(super) phase: Phase,
    pub(super) step: u64,
    pub(super) epoch: u64,
    pub(super) batch: u64,
    pub(super) loader: String,
    pub(super) loader_index: usize,
    pub(super) total_batches: u64,
}

impl BatchPosition {
    pub(super) fn of(run_cx: &RunContext<'_>, batch: &Batch<'_>) -> BatchPosition {
        let trains = run_cx.phase == Phase::Train;
        BatchPosition {
            phase: run_cx.phase,
            step: if trains { run_cx.progress.current_step() } else { run_cx.step },
            epoch: run_cx.epoch,
            batch: batch.index,
            loader: batch.loader.to_owned(),
            loader_index: batch.loader_index,
            total_batches: run_cx.total_batches,
        }
    }

    /// Whether an event belongs to this batch.
    pub(super) fn is_at(&self, run_cx: &RunContext<'_>) -> bool {
        self.is_in(run_cx.phase, &run_cx.progress)
    }

    /// Whether this phase and progress belong to this batch.
    pub(super) fn is_in(&self, phase: Phase, progress: &Progress) -> bool {
        (self.phase, self.total_batches) == (phase, progress.total_batches)
    }

    /// The file name, without suffix.
    pub(super) fn file_name(&self) -> String {
        let BatchPosition { phase, step, batch, loader_index, total_batches, .. } = self;
        if *phase == Phase::Train {
            format!("{phase}-{total_batches:08}")
        } else {
            format!("{phase}-{step:08}-{loader_index}-{batch:08}")
        }
    }

    /// The metadata of the file.
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
struct NamedValues {
    name: String,
    shape: Vec<usize>,
    values: Vec<f32>,
}

/// The activations of one batch.
#[derive(Clone, Debug)]
pub(super) struct StoredBatch {
    pub(super) position: BatchPosition,
    activations: Vec<NamedValues>,
    /// The number of occurrences of each name.
    names: BTreeMap<String, u64>,
    /// The bytes of all values of the batch, whether stored or not.
    pub(super) bytes: u64,
    /// Whether all values are stored.
    pub(super) is_complete: bool,
}

impl StoredBatch {
    pub(super) fn new(position: BatchPosition) -> StoredBatch {
        let names = BTreeMap::from([(METADATA.to_owned(), 1)]);
        StoredBatch { position, activations: Vec::new(), names, bytes: 0, is_complete: true }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0 && self.activations.is_empty()
    }

    /// Stores an activation if the whole batch fits into `room` bytes, otherwise drops the batch. Values that do not fit
    /// are not read.
    pub(super) fn add(&mut self, point: &str, tensor: &Tensor<'_>, room: u64) {
        let values: usize = tensor.shape().iter().product();
        self.bytes = self.bytes.saturating_add(4 * values as u64);
        if self.bytes > room {
            (self.is_complete, self.activations) = (false, Vec::new());
        }
        if self.is_complete {
            let name = self.unique(point);
            let (shape, values) = (tensor.shape().to_vec(), tensor.to_vec());
            self.activations.push(NamedValues { name, shape, values });
        }
    }

    /// The name, or if it occurred before, the name with a number.
    fn unique(&mut self, name: &str) -> String {
        let times = self.names.entry(name.to_owned()).or_default();
        *times += 1;
        match *times {
            1 => name.to_owned(),
            times => self.unique(&format!("{name}#{times}")),
        }
    }

    /// The activations in the format of a file.
    pub(super) fn into_bytes(self) -> Vec<(String, TensorBytes)> {
        let bytes = |it: NamedValues| (it.name, TensorBytes::new(DType::F32, &it.shape, &it.values));
        self.activations.into_iter().map(bytes).collect()
    }

    /// All activations.
    pub(super) fn iter(&self) -> impl Iterator<Item = StoredActivation<'_>> {
        let BatchPosition { phase, step, epoch, batch, loader, .. } = &self.position;
        self.activations.iter().map(|NamedValues { name, shape, values }| StoredActivation {
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
