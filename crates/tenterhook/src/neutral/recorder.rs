//! The recorder: an observer that compares training at every step, at validations and at the end.
//!
//! It keeps one digest per item and step of a run. Values are kept only for the items that differ, at the
//! first step that differs.

use std::sync::{Arc, Mutex, PoisonError};

use tenterhook_core::{
    HookResult, HookSpec, Observer, OptimizerSource, Phase, Policy, RunContext, StepEnd, Tensor, Tensors,
    Tier, TrainBatchStart, TrainEnd, TrainStart, ValidationEnd, hook,
};

use super::OnProgress;
use super::report::{ChangedItem, ComparePoint, ComparedCounts, ComparedItem, Difference, LossPair};
use super::runs::{RunKind, RunProgress};
use crate::run::Interrupt;
use crate::trainer::BatchClock;

/// BLAKE3, truncated to 128 bits.
type Digest = [u8; 16];

/// The snapshots of a run, by [`ComparePoint`].
pub(super) type Trace = [Vec<Snapshot>; 3];

/// The state of training at one point.
#[derive(Debug)]
pub(super) struct Snapshot {
    step: u64,
    loss: Option<u64>,
    /// Shared by consecutive snapshots with the same items.
    items: Arc<[ComparedItem]>,
    digests: Vec<Digest>,
}

impl Snapshot {
    /// The digest of an item, which usually has the same index.
    fn digest(&self, index: usize, item: &ComparedItem) -> Option<Digest> {
        let is_here = self.items.get(index) == Some(item);
        let index =
            if is_here { index } else { self.items.iter().position(|candidate| candidate == item)? };
        self.digests.get(index).copied()
    }
}

/// The values of an item, as hooks see them.
pub(super) enum Values {
    /// A tensor.
    F32(Vec<f32>),
    /// A metric, or the settings of a parameter group.
    F64(Vec<f64>),
}

impl Values {
    fn digest(&self, shape: &[usize]) -> Digest {
        let mut hasher = blake3::Hasher::new();
        for size in shape {
            hasher.update(&(*size as u64).to_le_bytes());
        }
        let mut bytes = Vec::new();
        match self {
            Values::F32(values) => {
                bytes.reserve_exact(values.len() * 4);
                bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            }
            Values::F64(values) => bytes.extend(values.iter().flat_map(|value| value.to_le_bytes())),
        }
        hasher.update(&bytes);
        let mut digest = Digest::default();
        hasher.finalize_xof().fill(&mut digest);
        digest
    }

    /// The largest absolute difference; infinite if a value is not finite in one of the runs only.
    fn distance(&self, other: &Values) -> Option<f64> {
        match (self, other) {
            (Values::F32(a), Values::F32(b)) if a.len() == b.len() => {
                Some(largest(a.iter().zip(b).map(|(a, b)| (f64::from(*a), f64::from(*b)))))
            }
            (Values::F64(a), Values::F64(b)) if a.len() == b.len() => {
                Some(largest(a.iter().copied().zip(b.iter().copied())))
            }
            _ => None,
        }
    }
}

fn largest(pairs: impl Iterator<Item = (f64, f64)>) -> f64 {
    let distance = |(a, b): (f64, f64)| match (a - b).abs() {
        distance if distance.is_finite() => distance,
        _ if a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()) => 0.0,
        _ => f64::INFINITY,
    };
    pairs.map(distance).fold(0.0, f64::max)
}

/// The first point at which two runs differ, with the values of the items that differ.
pub(super) struct Mismatch {
    /// Counted from the start of the run.
    pub(super) step: u64,
    /// The steps before the start of the run.
    began: u64,
    pub(super) point: ComparePoint,
    losses: Option<LossPair>,
    items: Vec<(ComparedItem, Option<Values>)>,
    /// The number of steps of both runs, if one of them ended early.
    ended: Option<[u64; 2]>,
}

impl Mismatch {
    fn at(step: u64, began: u64, point: ComparePoint) -> Mismatch {
        Mismatch { step, began, point, losses: None, items: Vec::new(), ended: None }
    }

    /// Whether two runs differ from a third in the same way, bit for bit.
    pub(super) fn is_same(&self, other: &Mismatch) -> bool {
        let loss = |mismatch: &Mismatch| mismatch.losses.map(|losses| losses.with.to_bits());
        let digest = |values: &Option<Values>| values.as_ref().map(|values| values.digest(&[]));
        let items = |mismatch: &Mismatch| -> Vec<_> {
            mismatch.items.iter().map(|(item, values)| (item.clone(), digest(values))).collect()
        };
        (self.step, self.point, self.ended) == (other.step, other.point, other.ended)
            && loss(self) == loss(other)
            && items(self) == items(other)
    }

    /// The difference, without the size of the changes.
    pub(super) fn unmeasured(&self) -> Difference {
        let unmeasured = |(item, _): &(ComparedItem, _)| ChangedItem { what: item.clone(), largest: None };
        Difference {
            step: self.began + self.step,
            place: self.point,
            losses: self.losses,
            tensors: self.items.iter().map(unmeasured).collect(),
            ended: self.ended.map(|ended| ended.map(|steps| self.began + steps)),
        }
    }
}

/// The comparison of a run, and its result.
#[derive(Default)]
pub(super) struct RunRecord {
    /// The run to compare with. Without one, the trace of this run is kept.
    baseline: Option<Arc<Trace>>,
    /// A difference whose size is to be measured.
    sought: Option<Arc<Mismatch>>,
    /// The step at which the run ends.
    pub(super) limit: Option<u64>,
    /// The run ends before the end of training, which is not compared.
    ends_early: bool,
    /// The number of snapshots at each point.
    count: [usize; 3],
    /// The steps before the start of the run, if it is resumed.
    began: u64,
    pub(super) steps: u64,
    pub(super) trace: Trace,
    pub(super) compared: ComparedCounts,
    pub(super) found: Option<Mismatch>,
    pub(super) measured: Option<Difference>,
}

impl RunRecord {
    /// Ends the run where it first differs from the baseline.
    pub(super) fn comparing(baseline: &Arc<Trace>) -> RunRecord {
        RunRecord { baseline: Some(Arc::clone(baseline)), ..RunRecord::default() }
    }

    /// Also measures the difference between this run and `sought`.
    pub(super) fn measuring(baseline: &Arc<Trace>, sought: &Arc<Mismatch>) -> RunRecord {
        RunRecord {
            measured: Some(sought.unmeasured()),
            sought: Some(Arc::clone(sought)),
            ..RunRecord::comparing(baseline)
        }
    }

    /// Ends the run after the step of this difference.
    pub(super) fn until_shown(self, shown: &Mismatch) -> RunRecord {
        match shown.point {
            ComparePoint::Step => RunRecord { ends_early: true, limit: Some(shown.step), ..self },
            ComparePoint::Validation | ComparePoint::End => self,
        }
    }

    /// Records or compares a snapshot. Returns `true` if the run can end.
    fn record(&mut self, cx: &RunContext<'_>, point: ComparePoint, loss: Option<f64>) -> bool {
        if self.found.is_some() || (point == ComparePoint::End && self.ends_early) {
            return true;
        }
        if self.count == [0; 3] {
            self.began = cx.step;
        }
        self.steps = cx.step - self.began;
        match self.baseline.clone() {
            None => self.keep(cx, point, loss),
            Some(baseline) => self.found = self.compare(cx, point, loss, &baseline),
        }
        self.count[point as usize] += 1;
        self.found.is_some() || self.limit.is_some_and(|limit| self.steps >= limit)
    }

    fn keep(&mut self, cx: &RunContext<'_>, point: ComparePoint, loss: Option<f64>) {
        let (mut items, mut digests) = (Vec::new(), Vec::new());
        let mut compared = ComparedCounts::default();
        for_each_item(cx, point, |item, shape, values| {
            compared.count(&item, shape);
            digests.push(values.digest(shape));
            items.push(item);
        });
        match point {
            ComparePoint::Step => {
                self.compared = ComparedCounts { metrics: self.compared.metrics, ..compared };
            }
            ComparePoint::Validation => self.compared.metrics = compared.metrics,
            ComparePoint::End => {}
        }
        let trace = &mut self.trace[point as usize];
        let same = trace.last().map(|last| &last.items).filter(|last| ***last == *items);
        let items = same.map_or_else(|| items.into(), Arc::clone);
        trace.push(Snapshot { step: self.steps, loss: loss.map(f64::to_bits), items, digests });
    }

    fn compare(
        &mut self,
        cx: &RunContext<'_>,
        point: ComparePoint,
        loss: Option<f64>,
        baseline: &Trace,
    ) -> Option<Mismatch> {
        let mut found = Mismatch::at(self.steps, self.began, point);
        let expected = match (baseline[point as usize].get(self.count[point as usize]), point) {
            (Some(expected), ComparePoint::Step) => expected,
            (Some(expected), _) if expected.step == self.steps => expected,
            (None, ComparePoint::Step) => {
                found.ended = Some([self.steps - 1, self.steps]);
                return Some(found);
            }
            // A validation at another step: the comparison of steps finds the difference.
            _ => return None,
        };
        if let (Some(without), Some(with)) = (expected.loss, loss)
            && without != with.to_bits()
        {
            found.losses = Some(LossPair { without: f64::from_bits(without), with });
        }
        let mut items = Vec::new();
        let sought = self.sought.as_ref().filter(|sought| (sought.step, sought.point) == (self.steps, point));
        for_each_item(cx, point, |item, shape, values| {
            let digest = expected.digest(items.len(), &item);
            if digest.is_none() && point == ComparePoint::Validation {
                // A metric that the baseline lacks, because an observer logged it.
                return;
            }
            if let (Some(sought), Some(measured)) = (sought, &mut self.measured) {
                measure(&item, &values, sought, measured);
            }
            if digest != Some(values.digest(shape)) {
                found.items.push((item.clone(), Some(values)));
            }
            items.push(item);
        });
        if *items != *expected.items {
            let missing = expected.items.iter().filter(|item| !items.contains(item));
            found.items.extend(missing.map(|item| (item.clone(), None)));
        }
        (found.losses.is_some() || !found.items.is_empty()).then_some(found)
    }

    /// Compares the end of the run. A run that ended too early also differs.
    pub(super) fn finish(&mut self) {
        let baseline = self.baseline.as_ref();
        let Some(last) = baseline.and_then(|baseline| baseline[ComparePoint::Step as usize].last()) else {
            return;
        };
        let expected = self.limit.map_or(last.step, |limit| limit.min(last.step));
        if self.found.is_none() && (self.steps < expected || self.count == [0; 3]) {
            let ended = Some([last.step, self.steps]);
            self.found =
                Some(Mismatch { ended, ..Mismatch::at(self.steps + 1, self.began, ComparePoint::Step) });
        }
    }
}

/// Measures the distance of an item's values from those of the other run.
fn measure(item: &ComparedItem, values: &Values, sought: &Mismatch, measured: &mut Difference) {
    let Some(index) = sought.items.iter().position(|(changed, _)| changed == item) else { return };
    let other = sought.items[index].1.as_ref();
    measured.tensors[index].largest = other.and_then(|other| values.distance(other));
}

/// Calls `with` for every item at this point: parameters in the module's order, then optimizer state and
/// rates; for a validation, its metrics.
fn for_each_item(
    cx: &RunContext<'_>,
    point: ComparePoint,
    mut with: impl FnMut(ComparedItem, &[usize], Values),
) {
    if point == ComparePoint::Validation {
        let metrics = cx.metrics().to_map().into_iter().filter(|(name, _)| name.starts_with("val/"));
        return metrics
            .for_each(|(name, value)| with(ComparedItem::Metric { name }, &[], Values::F64(vec![value])));
    }
    let values = |tensor: &Tensor<'_>| Values::F32(tensor.to_vec());
    for tensor in cx.params().iter() {
        let name = tensor.name().to_owned();
        with(ComparedItem::Parameter { name }, tensor.shape(), values(&tensor));
    }
    let optimizers = cx.optimizers();
    for index in 0..optimizers.count() {
        let optimizer = unique_name(optimizers, index);
        for tensor in Tensors::new(optimizers.state(index)).iter() {
            let (optimizer, name) = (optimizer.clone(), tensor.name().to_owned());
            with(ComparedItem::OptimizerState { optimizer, name }, tensor.shape(), values(&tensor));
        }
        for group in optimizers.groups(index) {
            let unset = |setting: Option<f64>| setting.unwrap_or_default();
            let rates = vec![group.lr, unset(group.momentum), unset(group.weight_decay)];
            let item = ComparedItem::Rates { optimizer: optimizer.clone(), group: group.name };
            with(item, &[rates.len()], Values::F64(rates));
        }
    }
}

/// The name of an optimizer, with its number if another has the same name.
fn unique_name(optimizers: &dyn OptimizerSource, index: usize) -> String {
    let name = optimizers.name(index);
    let is_unique = (0..optimizers.count()).all(|other| other == index || optimizers.name(other) != name);
    if is_unique { name.to_owned() } else { format!("{name} {index}") }
}

/// The observer. It is the last of all, so that it sees the effects of every other hook in an event.
pub(super) struct StateRecorder {
    pub(super) record: Arc<Mutex<RunRecord>>,
    /// The run's clock, which advances with its batches.
    pub(super) clock: BatchClock,
    /// Ends the run.
    pub(super) end: Interrupt,
    pub(super) kind: RunKind,
    pub(super) run: usize,
    pub(super) steps: u64,
    pub(super) progress: Option<OnProgress>,
}

impl StateRecorder {
    fn record(&self, cx: &RunContext<'_>, point: ComparePoint, loss: Option<f64>) {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        if record.record(cx, point, loss) {
            self.end.request("the comparison is done");
        }
        if point == ComparePoint::Step {
            let (step, steps) = (record.steps, record.limit.unwrap_or(self.steps));
            let progress = RunProgress { run: self.run, kind: &self.kind, step, steps, ended: false };
            progress.report(self.progress.as_ref());
        }
    }
}

#[hook(name = "neutrality_recorder")]
impl Observer for StateRecorder {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.tier(Tier::Checkpoint).policy(Policy::ABORT)
    }

    fn on_train_start(&mut self, cx: &TrainStart) -> HookResult {
        self.record(cx, ComparePoint::Step, None);
        Ok(())
    }

    fn on_train_batch_start(&mut self, _: &TrainBatchStart) -> HookResult {
        self.clock.tick();
        Ok(())
    }

    fn on_step_end(&mut self, cx: &StepEnd) -> HookResult {
        self.record(cx, ComparePoint::Step, Some(cx.loss.value()));
        Ok(())
    }

    fn on_validation_end(&mut self, cx: &ValidationEnd) -> HookResult {
        if cx.phase == Phase::Validate {
            self.record(cx, ComparePoint::Validation, None);
        }
        Ok(())
    }

    fn on_train_end(&mut self, cx: &TrainEnd) -> HookResult {
        self.record(cx, ComparePoint::End, None);
        Ok(())
    }
}
