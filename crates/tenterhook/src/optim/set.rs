//! The optimizers of a module at work.

use std::cell::OnceCell;

use tenterhook_core::update::GradientsMut;
use tenterhook_core::{BoxError, ClipRule, DType, LrChange, OptimizerSource, ParamGroup, TensorSource};

use super::assign::{Owners, owners};
use super::gradients::Gradients;
use super::state::Held;
use super::{Engine, Group, Optimizer, Optimizers, ParamFacts, Schedule, StateParts, StateTensor};
use crate::module::{Horizon, ModuleResult, Optimization, OptimizerState};
use crate::schedule::{Scheduler, Tick};
use crate::tensors::{Buffers, TensorMap};

/// The optimizers of a module at work: groups with their learning rates, schedules, gradients and state.
pub struct OptimizerSet<E: Engine> {
    pub(super) engine: E,
    pub(super) optimizers: Vec<Live<E>>,
    pub(super) schedules: Vec<LiveSchedule>,
    pub(super) gradients: Gradients<E::Gradients>,
}

/// One optimizer at work.
pub(super) struct Live<E: Engine> {
    pub(super) engine: E,
    pub(super) name: String,
    pub(super) groups: Vec<LiveGroup<E>>,
    /// What the schedules multiply every learning rate by.
    factor: f64,
    /// By place in its part of the gradients.
    pub(super) slots: Vec<Slot<E>>,
    leaves: OnceCell<Vec<Leaf>>,
}

/// A group with the learning rate that hooks have made of its own.
pub(super) struct LiveGroup<E: Engine> {
    name: String,
    /// Before schedules.
    pub(super) base_lr: f64,
    pub(super) algorithm: E::Algorithm,
    momentum: Option<f64>,
    weight_decay: Option<f64>,
}

/// A parameter: its group, and what the algorithm remembers of it.
pub(super) struct Slot<E: Engine> {
    pub(super) name: String,
    pub(super) shape: Vec<usize>,
    pub(super) group: usize,
    pub(super) state: Option<E::State>,
}

/// A schedule at work.
pub(super) struct LiveSchedule {
    optimizer: usize,
    pub(super) scheduler: Box<dyn Scheduler>,
    pub(super) count: u64,
    of: Option<u64>,
    /// What it last said.
    pub(super) factor: f64,
}

/// One tensor of an optimizer's state, as hooks see it.
struct Leaf {
    name: String,
    shape: Vec<usize>,
    dtype: DType,
    slot: usize,
    at: usize,
}

/// What an engine needs to update one parameter.
pub struct Update<'a, E: Engine> {
    /// The algorithm of its group.
    pub algorithm: &'a E::Algorithm,
    /// The learning rate in force.
    pub lr: f64,
    /// What the algorithm remembers of it.
    pub state: &'a mut Option<E::State>,
    /// The gradients of its optimizer's parameters.
    pub gradients: &'a mut E::Gradients,
    /// The place of its gradient there.
    pub index: usize,
}

impl<E: Engine> OptimizerSet<E> {
    /// No optimizers yet.
    #[must_use]
    pub fn new(engine: E) -> OptimizerSet<E> {
        OptimizerSet { engine, optimizers: Vec::new(), schedules: Vec::new(), gradients: Gradients::none() }
    }

    /// Gives every parameter to its optimizer, and asks every schedule for its first factor.
    pub fn configure(
        &mut self,
        optimizers: Optimizers<E>,
        params: &[ParamFacts],
        horizon: Horizon,
    ) -> ModuleResult<Optimization> {
        let Optimizers(mut optimizers) = optimizers;
        let owners = owners(params, &optimizers)?;
        self.gradients = Gradients::new(&self.engine, params, &owners, optimizers.len());
        let mut plans = Vec::new();
        self.schedules.clear();
        for (optimizer, of_it) in optimizers.iter_mut().enumerate() {
            for Schedule { mut scheduler, plan } in of_it.schedules.drain(..) {
                let of = horizon.of_scheduler(&plan);
                let factor = scheduler.factor(Tick { count: 0, of, metric: None })?;
                self.schedules.push(LiveSchedule { optimizer, scheduler, count: 0, of, factor });
                plans.push(plan);
            }
        }
        let live = optimizers.into_iter().enumerate();
        let live = live.map(|(index, optimizer)| Live::new(&self.engine, index, optimizer, params, &owners));
        self.optimizers = live.collect::<Result<_, _>>()?;
        self.apply_schedules();
        Ok(Optimization { optimizers: self.optimizers.len(), schedulers: plans })
    }

    /// What updates this parameter of the model, if this optimizer does.
    pub fn update(&mut self, optimizer: usize, parameter: usize) -> Option<Update<'_, E>> {
        let place = self.gradients.places.get(parameter).copied().flatten();
        let (_, index) = place.filter(|(owner, _)| *owner == optimizer)?;
        let Live { groups, slots, factor, leaves, .. } = self.optimizers.get_mut(optimizer)?;
        leaves.take();
        let Slot { group, state, .. } = slots.get_mut(index)?;
        let LiveGroup { algorithm, base_lr, .. } = &groups[*group];
        let gradients = &mut self.gradients.parts[optimizer];
        Some(Update { algorithm, lr: base_lr * *factor, state, gradients, index })
    }

    /// Where the gradient of this parameter of the model stands, if an optimizer moves it.
    pub fn gradient_of(&mut self, parameter: usize) -> Option<(&mut E::Gradients, usize)> {
        let (part, index) = self.gradients.places.get(parameter).copied().flatten()?;
        Some((&mut self.gradients.parts[part], index))
    }

    /// The gradients by optimizer.
    #[must_use]
    pub fn parts(&self) -> &[E::Gradients] {
        &self.gradients.parts
    }

    /// The gradients by optimizer, to be changed.
    pub fn parts_mut(&mut self) -> &mut [E::Gradients] {
        &mut self.gradients.parts
    }

    /// The gradients of one optimizer's parameters, or of all.
    #[must_use]
    pub fn gradients(&self, optimizer: Option<usize>) -> &dyn TensorSource {
        match optimizer {
            Some(optimizer) => &self.gradients.parts[optimizer],
            None => &self.gradients,
        }
    }

    /// Takes all gradients of one optimizer away.
    pub fn zero_grad(&mut self, optimizer: usize) -> ModuleResult {
        let part = self.part_mut(optimizer)?;
        (0..part.count()).for_each(|index| part.remove(index));
        Ok(())
    }

    /// Clips all gradients of one optimizer.
    pub fn clip(&mut self, optimizer: usize, rule: ClipRule) -> ModuleResult {
        let part = self.part_mut(optimizer)?;
        let all: Vec<_> = (0..part.count()).collect();
        part.clip(&all, rule);
        Ok(())
    }

    /// The parameters of one optimizer that no gradient has arrived for, by name.
    #[must_use]
    pub fn without_gradient(&self, optimizer: usize) -> Vec<String> {
        let Some(part) = self.gradients.parts.get(optimizer) else { return Vec::new() };
        let missing = (0..part.count()).filter(|index| !part.is_present(*index));
        missing.map(|index| part.name(index).to_owned()).collect()
    }

    /// The learning rate in force of an optimizer's first group.
    #[must_use]
    pub fn lr(&self, optimizer: usize) -> f64 {
        self.optimizers[optimizer].lr(0)
    }

    /// Changes the learning rates of one optimizer; schedules go on from what they are then.
    pub fn change_lr(&mut self, optimizer: usize, change: LrChange) -> ModuleResult {
        let Live { groups, factor, .. } =
            self.optimizers.get_mut(optimizer).ok_or_else(|| no_such(optimizer))?;
        for group in groups {
            group.base_lr = match change {
                LrChange::Scale(scale) => group.base_lr * scale,
                // A schedule that has come down to 0 leaves nothing to scale.
                LrChange::Set(lr) if *factor == 0.0 => lr,
                LrChange::Set(lr) => lr / *factor,
            };
        }
        Ok(())
    }

    /// Steps a schedule; one on a plateau gets its metric.
    pub fn step_schedule(&mut self, schedule: usize, metric: Option<f64>) -> ModuleResult {
        let schedule = &mut self.schedules[schedule];
        schedule.count += 1;
        let tick = Tick { count: schedule.count, of: schedule.of, metric };
        schedule.factor = schedule.scheduler.factor(tick)?;
        self.apply_schedules();
        Ok(())
    }

    /// Multiplies the schedules of each optimizer.
    pub(super) fn apply_schedules(&mut self) {
        for (index, optimizer) in self.optimizers.iter_mut().enumerate() {
            let of_it = self.schedules.iter().filter(|schedule| schedule.optimizer == index);
            optimizer.factor = of_it.map(|schedule| schedule.factor).product();
        }
    }

    /// The state of optimizers and schedules. Nothing is copied.
    #[must_use]
    pub fn held(&self) -> Held<E> {
        Held::of(self)
    }

    /// The state of optimizers and schedules, for a checkpoint.
    pub fn state(&self) -> ModuleResult<OptimizerState> {
        self.held().read(&Buffers::default())
    }

    /// The gradients there are, by parameter name.
    #[must_use]
    pub fn gradients_state(&self) -> TensorMap {
        let mut there = TensorMap::default();
        for part in &self.gradients.parts {
            for index in (0..part.count()).filter(|index| part.is_present(*index)) {
                there.insert_f32(part.name(index), part.shape(index), &part.read(index));
            }
        }
        there
    }

    /// Refuses gradients that are not of these parameters.
    pub fn check_gradients(&self, gradients: &TensorMap) -> ModuleResult {
        let all = &self.gradients;
        let known = |name: &str| (0..all.count()).any(|index| all.name(index) == name);
        let unknown = gradients.names().filter(|name| !known(name));
        let unknown = unknown.map(|name| format!("`{name}` is no parameter of an optimizer"));
        let unfit = (0..all.count()).filter_map(|index| {
            let (name, shape, dtype) = (all.name(index), all.shape(index), all.dtype(index));
            let given = gradients.get(name).ok()?;
            let fits = given.shape == shape && given.dtype == dtype;
            (!fits).then(|| format!("`{name}` is {given:?}, its parameter {dtype:?}{shape:?}"))
        });
        let wrong: Vec<_> = unknown.chain(unfit).collect();
        if wrong.is_empty() {
            return Ok(());
        }
        Err(format!("these gradients are not of this model: {}", wrong.join(", ")).into())
    }

    /// The gradients, from a checkpoint: exactly these, and none where none are.
    pub fn load_gradients(&mut self, gradients: &TensorMap) -> ModuleResult {
        self.check_gradients(gradients)?;
        for part in &mut self.gradients.parts {
            for index in 0..part.count() {
                match gradients.get(part.name(index)) {
                    Ok(given) => part.replace(index, &given.to_f32()?),
                    Err(_) => part.remove(index),
                }
            }
        }
        Ok(())
    }

    fn part_mut(&mut self, optimizer: usize) -> Result<&mut E::Gradients, String> {
        self.gradients.parts.get_mut(optimizer).ok_or_else(|| no_such(optimizer))
    }
}

fn no_such(optimizer: usize) -> String {
    format!("there is no optimizer number {optimizer}, counted from 0")
}

impl<E: Engine> OptimizerSource for OptimizerSet<E> {
    fn count(&self) -> usize {
        self.optimizers.len()
    }
    fn name(&self, index: usize) -> &str {
        &self.optimizers[index].name
    }
    fn groups(&self, index: usize) -> Vec<ParamGroup> {
        self.optimizers[index].groups()
    }
    fn state(&self, index: usize) -> &dyn TensorSource {
        &self.optimizers[index]
    }
}

impl<E: Engine> Live<E> {
    fn new(
        engine: &E,
        index: usize,
        optimizer: Optimizer<E>,
        params: &[ParamFacts],
        owners: &Owners,
    ) -> Result<Live<E>, BoxError> {
        let Optimizer { name, algorithm, lr, momentum, weight_decay, groups, .. } = optimizer;
        let rest = Group::new("rest", ["**"]);
        let groups = std::iter::once(rest).chain(groups).map(|group| LiveGroup {
            name: group.name,
            base_lr: group.lr.unwrap_or(lr),
            algorithm: group.algorithm.unwrap_or_else(|| algorithm.clone()),
            momentum: group.momentum.or(momentum),
            weight_decay: group.weight_decay.or(weight_decay),
        });
        let groups: Vec<LiveGroup<E>> = groups.collect();
        let is_wrong = |lr: f64| !(lr.is_finite() && lr >= 0.0);
        if let Some(LiveGroup { base_lr, .. }) = groups.iter().find(|group| is_wrong(group.base_lr)) {
            let message = "must be a number of 0 or more, not";
            return Err(format!("the learning rate of optimizer `{name}` {message} {base_lr}").into());
        }
        let slots = params.iter().zip(owners).filter_map(|(param, owner)| {
            let (_, group) = owner.filter(|(owner, _)| *owner == index)?;
            Some(Slot { name: param.name.clone(), shape: param.shape.clone(), group, state: None })
        });
        let slots = slots.collect();
        Ok(Live { engine: engine.clone(), name, groups, factor: 1.0, slots, leaves: OnceCell::new() })
    }

    fn lr(&self, group: usize) -> f64 {
        self.groups[group].base_lr * self.factor
    }

    fn groups(&self) -> Vec<ParamGroup> {
        let used = |group: &usize| self.slots.iter().any(|slot| slot.group == *group);
        let one = |at: usize| {
            let LiveGroup { name, momentum, weight_decay, .. } = &self.groups[at];
            let (momentum, weight_decay) = (*momentum, *weight_decay);
            ParamGroup { name: name.clone(), lr: self.lr(at), momentum, weight_decay }
        };
        (0..self.groups.len()).filter(used).map(one).collect()
    }

    /// Gives each parameter what its algorithm remembered, in the order of the slots.
    pub(super) fn set_states(&mut self, states: Vec<Option<E::State>>) {
        self.leaves.take();
        for (slot, state) in self.slots.iter_mut().zip(states) {
            slot.state = state;
        }
    }

    fn parts(&self, slot: &Slot<E>) -> StateParts<E::Tensor> {
        let algorithm = &self.groups[slot.group].algorithm;
        let of = |state| self.engine.parts(algorithm, &slot.name, state);
        slot.state.as_ref().map(of).unwrap_or_default()
    }

    fn leaves(&self) -> &[Leaf] {
        self.leaves.get_or_init(|| {
            let mut leaves = Vec::new();
            for (slot, of_slot) in self.slots.iter().enumerate() {
                for (at, (name, tensor)) in self.parts(of_slot).tensors.into_iter().enumerate() {
                    leaves.push(Leaf { name, shape: tensor.shape(), dtype: tensor.dtype(), slot, at });
                }
            }
            leaves
        })
    }
}

/// Its state, as hooks see it.
impl<E: Engine> TensorSource for Live<E> {
    fn count(&self) -> usize {
        self.leaves().len()
    }
    fn name(&self, index: usize) -> &str {
        &self.leaves()[index].name
    }
    fn shape(&self, index: usize) -> &[usize] {
        &self.leaves()[index].shape
    }
    fn dtype(&self, index: usize) -> DType {
        self.leaves()[index].dtype
    }
    fn read(&self, index: usize) -> Vec<f32> {
        let Leaf { slot, at, .. } = self.leaves()[index];
        let StateParts { tensors, .. } = self.parts(&self.slots[slot]);
        tensors.get(at).map(|(_, tensor)| tensor.to_vec()).unwrap_or_default()
    }
}
