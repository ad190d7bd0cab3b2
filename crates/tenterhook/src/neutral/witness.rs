//! The witness: an observer that notes at every step, at validations and at the end what training has come to.
//!
//! What it keeps of a run is a hash per tensor and step. Values are kept only of the tensors that differ, at the first
//! step that does.

use std::sync::{Arc, Mutex, PoisonError};

use tenterhook_core::{
    HookResult, HookSpec, Observer, OptimizerSource, Phase, Policy, RunContext, StepEnd, Tensor, Tensors,
    Tier, TrainBatchStart, TrainEnd, TrainStart, ValidationEnd, hook,
};

use super::OnTick;
use super::judgement::{Changed, Compared, Difference, Losses, Place, What};
use super::runs::{Tick, Trial};
use crate::run::Interrupt;
use crate::trainer::BatchClock;

/// A hash, cut to what no accident will ever meet twice.
type Mark = [u8; 16];

/// What was seen of a run, by [`Place`].
pub(super) type Trace = [Vec<Sight>; 3];

/// What one moment of a run came to.
#[derive(Debug)]
pub(super) struct Sight {
    step: u64,
    loss: Option<u64>,
    /// The same list for all steps, while it does not change.
    things: Arc<[What]>,
    marks: Vec<Mark>,
}

impl Sight {
    /// The mark of a thing, which is mostly where it was.
    fn mark(&self, at: usize, what: &What) -> Option<Mark> {
        let here = self.things.get(at).filter(|thing| *thing == what).map(|_| at);
        let at = here.or_else(|| self.things.iter().position(|thing| thing == what))?;
        self.marks.get(at).copied()
    }
}

/// The values of one thing, as hooks see them.
pub(super) enum Values {
    Tensor(Vec<f32>),
    /// The settings of a parameter group.
    Rates([f64; 3]),
    Metric(f64),
}

impl Values {
    fn mark(&self, shape: &[usize]) -> Mark {
        let mut hasher = blake3::Hasher::new();
        for size in shape {
            hasher.update(&(*size as u64).to_le_bytes());
        }
        match self {
            Values::Tensor(values) => {
                let mut bytes = Vec::with_capacity(values.len() * 4);
                bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
                hasher.update(&bytes);
            }
            Values::Rates(rates) => {
                for rate in rates {
                    hasher.update(&rate.to_le_bytes());
                }
            }
            Values::Metric(value) => drop(hasher.update(&value.to_le_bytes())),
        }
        let mut mark = Mark::default();
        hasher.finalize_xof().fill(&mut mark);
        mark
    }

    /// The largest absolute difference. What is not finite on one side only is infinitely far away.
    fn distance(&self, other: &Values) -> Option<f64> {
        match (self, other) {
            (Values::Tensor(a), Values::Tensor(b)) if a.len() == b.len() => {
                Some(farthest(a.iter().zip(b).map(|(a, b)| (f64::from(*a), f64::from(*b)))))
            }
            (Values::Rates(a), Values::Rates(b)) => Some(farthest(a.iter().copied().zip(b.iter().copied()))),
            (Values::Metric(a), Values::Metric(b)) => Some(farthest(std::iter::once((*a, *b)))),
            _ => None,
        }
    }
}

fn farthest(pairs: impl Iterator<Item = (f64, f64)>) -> f64 {
    let apart = |(a, b): (f64, f64)| match (a - b).abs() {
        distance if distance.is_finite() => distance,
        _ if a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()) => 0.0,
        _ => f64::INFINITY,
    };
    pairs.map(apart).fold(0.0, f64::max)
}

/// The first moment that differs, with the values of what differs in it.
pub(super) struct Found {
    /// Counted from where the run began.
    pub(super) step: u64,
    began: u64,
    pub(super) place: Place,
    losses: Option<Losses>,
    tensors: Vec<(What, Option<Values>)>,
    /// How many steps the two runs had, where one of them ended earlier.
    ended: Option<[u64; 2]>,
}

impl Found {
    fn at(step: u64, began: u64, place: Place) -> Found {
        Found { step, began, place, losses: None, tensors: Vec::new(), ended: None }
    }

    /// What it takes for two runs to differ from a third in the same way.
    pub(super) fn sign(&self) -> Sign {
        let mark = |values: &Option<Values>| values.as_ref().map(|values| values.mark(&[]));
        Sign {
            place: (self.step, self.place),
            loss: self.losses.map(|losses| losses.with.to_bits()),
            tensors: self.tensors.iter().map(|(what, values)| (what.clone(), mark(values))).collect(),
            ended: self.ended,
        }
    }

    /// As far as it is known without a second look.
    pub(super) fn unmeasured(&self) -> Difference {
        let unmeasured = |(what, _): &(What, _)| Changed { what: Clone::clone(what), largest: None };
        Difference {
            step: self.began + self.step,
            place: self.place,
            losses: self.losses,
            tensors: self.tensors.iter().map(unmeasured).collect(),
            ended: self.ended.map(|ended| ended.map(|steps| self.began + steps)),
        }
    }
}

/// How a run differs, to the bit.
#[derive(PartialEq, Eq)]
pub(super) struct Sign {
    place: (u64, Place),
    loss: Option<u64>,
    tensors: Vec<(What, Option<Mark>)>,
    ended: Option<[u64; 2]>,
}

/// What to look for in a run, and then what was seen in it.
#[derive(Default)]
pub(super) struct Watch {
    /// The run that this one is compared with; without one, this one is kept.
    against: Option<Arc<Trace>>,
    /// A difference whose size is to be found out.
    sought: Option<Found>,
    pub(super) limit: Option<u64>,
    /// It ends for other reasons than the run that it is compared with: how, says nothing.
    cut_short: bool,
    /// How often it has looked in each place. Those of steps are once before the first, and after each.
    looks: [usize; 3],
    /// The steps that were done before the run began; more than 0 where it is resumed.
    began: u64,
    pub(super) steps: u64,
    pub(super) trace: Trace,
    pub(super) compared: Compared,
    pub(super) found: Option<Found>,
    pub(super) measured: Option<Difference>,
}

impl Watch {
    /// Keeps the run, to compare others with it.
    pub(super) fn keeping() -> Watch {
        Watch::default()
    }

    /// Ends the run where it first differs from this one.
    pub(super) fn comparing(with: &Arc<Trace>) -> Watch {
        Watch { against: Some(Arc::clone(with)), ..Watch::default() }
    }

    /// The same, and finds out how far away from this run that difference was.
    pub(super) fn measuring(with: &Arc<Trace>, sought: Found) -> Watch {
        Watch { measured: Some(sought.unmeasured()), sought: Some(sought), ..Watch::comparing(with) }
    }

    /// Ends the run after this many steps.
    pub(super) fn until(mut self, steps: u64) -> Watch {
        self.limit = Some(steps);
        self
    }

    /// Ends the run where this difference has shown itself.
    pub(super) fn until_shown(self, (step, place): (u64, Place)) -> Watch {
        match place {
            Place::Step => Watch { cut_short: true, ..self.until(step) },
            Place::Validation | Place::End => self,
        }
    }

    /// Looks at the moment. `true` when there is nothing more to see.
    fn look(&mut self, cx: &RunContext<'_>, place: Place, loss: Option<f64>) -> bool {
        if self.found.is_some() || (place == Place::End && self.cut_short) {
            return true;
        }
        if self.looks == [0; 3] {
            self.began = cx.step;
        }
        self.steps = cx.step - self.began;
        match self.against.clone() {
            None => self.keep(cx, place, loss),
            Some(with) => self.found = self.compare(cx, place, loss, &with),
        }
        self.looks[place as usize] += 1;
        self.found.is_some() || self.limit.is_some_and(|limit| self.steps >= limit)
    }

    fn keep(&mut self, cx: &RunContext<'_>, place: Place, loss: Option<f64>) {
        let (mut things, mut marks) = (Vec::new(), Vec::new());
        let mut compared = Compared::default();
        each(cx, place, |what, shape, values| {
            compared.count(&what, shape);
            marks.push(values.mark(shape));
            things.push(what);
        });
        match place {
            Place::Step => self.compared = Compared { metrics: self.compared.metrics, ..compared },
            Place::Validation => self.compared.metrics = compared.metrics,
            Place::End => {}
        }
        let trace = &mut self.trace[place as usize];
        let same = trace.last().map(|last| &last.things).filter(|last| ***last == *things);
        let things = same.map_or_else(|| things.into(), Arc::clone);
        trace.push(Sight { step: self.steps, loss: loss.map(f64::to_bits), things, marks });
    }

    fn compare(
        &mut self,
        cx: &RunContext<'_>,
        place: Place,
        loss: Option<f64>,
        with: &Trace,
    ) -> Option<Found> {
        let mut found = Found::at(self.steps, self.began, place);
        let known = with[place as usize].get(self.looks[place as usize]);
        let known = match (known, place) {
            (Some(known), Place::Step) => known,
            (Some(known), _) if known.step == self.steps => known,
            (None, Place::Step) => {
                found.ended = Some([self.steps - 1, self.steps]);
                return Some(found);
            }
            // Steps will tell why it is not at the same place.
            _ => return None,
        };
        if let (Some(without), Some(with)) = (known.loss, loss)
            && without != with.to_bits()
        {
            found.losses = Some(Losses { without: f64::from_bits(without), with });
        }
        let mut things = Vec::new();
        let sought = self.sought.as_ref().filter(|sought| (sought.step, sought.place) == (self.steps, place));
        each(cx, place, |what, shape, values| {
            let mark = known.mark(things.len(), &what);
            if mark.is_none() && place == Place::Validation {
                // What observers log of validations is theirs.
                return;
            }
            if let (Some(sought), Some(measured)) = (sought, &mut self.measured) {
                measure(&what, &values, sought, measured);
            }
            if mark != Some(values.mark(shape)) {
                found.tensors.push((what.clone(), Some(values)));
            }
            things.push(what);
        });
        if *things != *known.things {
            let gone = known.things.iter().filter(|thing| !things.contains(thing));
            found.tensors.extend(gone.map(|thing| (thing.clone(), None)));
        }
        (found.losses.is_some() || !found.tensors.is_empty()).then_some(found)
    }

    /// The run is over. One that ended too early differs, too.
    pub(super) fn finish(&mut self) {
        let Some(with) = self.against.as_ref().and_then(|with| with[Place::Step as usize].last()) else {
            return;
        };
        let expected = self.limit.map_or(with.step, |limit| limit.min(with.step));
        if self.found.is_none() && (self.steps < expected || self.looks == [0; 3]) {
            let ended = Some([with.step, self.steps]);
            self.found = Some(Found { ended, ..Found::at(self.steps + 1, self.began, Place::Step) });
        }
    }
}

/// Notes how far the values of one thing are from those of the other run.
fn measure(what: &What, values: &Values, sought: &Found, measured: &mut Difference) {
    let Some(at) = sought.tensors.iter().position(|(changed, _)| changed == what) else { return };
    let other = sought.tensors[at].1.as_ref();
    measured.tensors[at].largest = other.and_then(|other| values.distance(other));
}

/// Everything that training has come to, in the module's order: parameters, then what each optimizer keeps. Of a
/// validation, what it has come to.
fn each(cx: &RunContext<'_>, place: Place, mut seen: impl FnMut(What, &[usize], Values)) {
    if place == Place::Validation {
        let metrics = cx.metrics().to_map().into_iter().filter(|(name, _)| name.starts_with("val/"));
        return metrics.for_each(|(name, value)| seen(What::Metric { name }, &[], Values::Metric(value)));
    }
    let values = |tensor: &Tensor<'_>| Values::Tensor(tensor.to_vec());
    for tensor in cx.params().iter() {
        seen(What::Parameter { name: tensor.name().to_owned() }, tensor.shape(), values(&tensor));
    }
    let optimizers = cx.optimizers();
    for index in 0..optimizers.count() {
        let optimizer = called(optimizers, index);
        for tensor in Tensors::new(optimizers.state(index)).iter() {
            let (optimizer, name) = (optimizer.clone(), tensor.name().to_owned());
            seen(What::OptimizerState { optimizer, name }, tensor.shape(), values(&tensor));
        }
        for group in optimizers.groups(index) {
            let unset = |setting: Option<f64>| setting.unwrap_or_default();
            let rates = [group.lr, unset(group.momentum), unset(group.weight_decay)];
            let what = What::Rates { optimizer: optimizer.clone(), group: group.name };
            seen(what, &[rates.len()], Values::Rates(rates));
        }
    }
}

/// An optimizer's name; with its number, where another has the same.
fn called(optimizers: &dyn OptimizerSource, index: usize) -> String {
    let name = optimizers.name(index);
    let twice = (0..optimizers.count()).any(|other| other != index && optimizers.name(other) == name);
    if twice { format!("{name} {index}") } else { name.to_owned() }
}

/// The hook that looks. It comes last of all, so that it sees what every other hook has done in the event.
pub(super) struct Witness {
    pub(super) watch: Arc<Mutex<Watch>>,
    /// The run's time, which goes on with its batches.
    pub(super) clock: BatchClock,
    /// Ends the run.
    pub(super) end: Interrupt,
    pub(super) trial: Trial,
    pub(super) run: usize,
    pub(super) steps: u64,
    pub(super) progress: Option<OnTick>,
}

impl Witness {
    fn look(&self, cx: &RunContext<'_>, place: Place, loss: Option<f64>) {
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        if watch.look(cx, place, loss) {
            self.end.request("enough was seen");
        }
        if place != Place::Step {
            return;
        }
        let steps = watch.limit.unwrap_or(self.steps);
        let tick = Tick { run: self.run, trial: &self.trial, step: watch.steps, steps, ended: false };
        tick.tell(self.progress.as_ref());
    }
}

#[hook(name = "neutrality_witness")]
impl Observer for Witness {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.tier(Tier::Checkpoint).policy(Policy::ABORT)
    }

    fn on_train_start(&mut self, cx: &TrainStart) -> HookResult {
        self.look(cx, Place::Step, None);
        Ok(())
    }

    fn on_train_batch_start(&mut self, _: &TrainBatchStart) -> HookResult {
        self.clock.tick();
        Ok(())
    }

    fn on_step_end(&mut self, cx: &StepEnd) -> HookResult {
        self.look(cx, Place::Step, Some(cx.loss.value()));
        Ok(())
    }

    fn on_validation_end(&mut self, cx: &ValidationEnd) -> HookResult {
        if cx.phase == Phase::Validate {
            self.look(cx, Place::Validation, None);
        }
        Ok(())
    }

    fn on_train_end(&mut self, cx: &TrainEnd) -> HookResult {
        self.look(cx, Place::End, None);
        Ok(())
    }
}
