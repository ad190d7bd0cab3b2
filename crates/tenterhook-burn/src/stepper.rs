//! An optimizer at work: its groups with their learning rates, its state by parameter, and the update.

use std::cell::OnceCell;
use std::sync::Arc;
use std::time::Instant;

use burn::module::{Module, ModuleMapper, Param};
use burn::optim::{DynOptimizer, DynState};
use burn::tensor::Tensor;
use tenterhook::tensor::NextChange;
use tenterhook::{BoxError, DType, Lr, ParamGroup, TensorSource};

use crate::algorithm::{AnyAlgorithm, Parts, parts};
use crate::assign::Owners;
use crate::erased::Erased;
use crate::gradients::Gradients;
use crate::optimizer::{Group, Optimizer};
use crate::optimizer_state::HeldSlot;
use crate::params::ParamFacts;

/// A group with the learning rate that schedules and hooks have made of its own.
pub(crate) struct LiveGroup {
    pub(crate) name: String,
    /// Before schedules.
    pub(crate) base_lr: f64,
    algorithm: Arc<dyn AnyAlgorithm>,
    momentum: Option<f64>,
    weight_decay: Option<f64>,
}

pub(crate) struct Stepper {
    pub(crate) name: String,
    pub(crate) groups: Vec<LiveGroup>,
    /// What the schedules multiply every learning rate by.
    pub(crate) factor: f64,
    /// By place in its part of the gradients: the group, and what the algorithm remembers.
    slots: Vec<Slot>,
    leaves: OnceCell<Vec<Leaf>>,
}

struct Slot {
    name: String,
    group: usize,
    state: Option<DynState>,
}

/// One tensor of an optimizer's state, as hooks see it.
struct Leaf {
    name: String,
    shape: Vec<usize>,
    dtype: DType,
    slot: usize,
    at: usize,
}

impl Stepper {
    pub(crate) fn new(
        index: usize,
        optimizer: Optimizer,
        facts: &[ParamFacts],
        owners: &Owners,
    ) -> Result<Stepper, BoxError> {
        let Optimizer { name, rest, groups, .. } = optimizer;
        let lr = rest.lr.unwrap_or_default();
        let algorithm = rest.algorithm.clone().ok_or("an optimizer needs an algorithm")?;
        let live = |group: Group| LiveGroup {
            name: group.name,
            base_lr: group.lr.unwrap_or(lr),
            algorithm: group.algorithm.unwrap_or_else(|| algorithm.clone()),
            momentum: group.momentum.or(rest.momentum),
            weight_decay: group.weight_decay.or(rest.weight_decay),
        };
        let rest_group =
            Group { lr: rest.lr, algorithm: rest.algorithm.clone(), ..Group::new(rest.name.clone(), ["**"]) };
        let groups: Vec<_> = std::iter::once(rest_group).chain(groups).map(live).collect();
        if let Some(wrong) = groups.iter().find(|group| !(group.base_lr.is_finite() && group.base_lr >= 0.0))
        {
            return Err(format!(
                "the learning rate of optimizer `{name}` must be a number of 0 or more, not {}",
                wrong.base_lr
            )
            .into());
        }
        let slots = facts.iter().zip(owners).filter_map(|(facts, owner)| {
            let (_, group) = owner.filter(|(owner, _)| *owner == index)?;
            Some(Slot { name: facts.name.clone(), group, state: None })
        });
        let slots = slots.collect();
        Ok(Stepper { name, groups, factor: 1.0, slots, leaves: OnceCell::new() })
    }

    /// The learning rate in force of a group.
    pub(crate) fn lr(&self, group: usize) -> f64 {
        self.groups[group].base_lr * self.factor
    }

    /// Changes every group's learning rate; schedules go on from what it is then.
    pub(crate) fn change_lr(&mut self, change: Lr) {
        let factor = self.factor;
        for group in &mut self.groups {
            group.base_lr = match change {
                Lr::Scale(scale) => group.base_lr * scale,
                // A schedule that has come down to 0 leaves nothing to scale.
                Lr::Set(lr) if factor == 0.0 => lr,
                Lr::Set(lr) => lr / factor,
            };
        }
    }

    pub(crate) fn groups(&self) -> Vec<ParamGroup> {
        let used = |group: &usize| self.slots.iter().any(|slot| slot.group == *group);
        (0..self.groups.len())
            .filter(used)
            .map(|at| {
                let LiveGroup { name, momentum, weight_decay, .. } = &self.groups[at];
                ParamGroup {
                    name: name.clone(),
                    lr: self.lr(at),
                    momentum: *momentum,
                    weight_decay: *weight_decay,
                }
            })
            .collect()
    }

    /// Moves its parameters of the model, and consumes their gradients unless they are to be kept. Those that are followed
    /// are compared with what they were while both are near.
    pub(crate) fn step<M: Module>(
        &mut self,
        index: usize,
        model: M,
        gradients: &mut Gradients,
        keep: bool,
        followed: &mut [Option<NextChange>],
    ) -> M {
        self.leaves.take();
        model.map(&mut Apply { parameter: 0, optimizer: index, stepper: self, gradients, keep, followed })
    }

    /// The names of its parameters.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = &str> {
        self.slots.iter().map(|slot| slot.name.as_str())
    }

    /// What the algorithm remembers of each parameter, shared: the next step makes new tensors.
    pub(crate) fn held(&self) -> impl Iterator<Item = HeldSlot> {
        self.slots.iter().map(|slot| HeldSlot {
            name: slot.name.clone(),
            algorithm: self.groups[slot.group].algorithm.clone(),
            state: slot.state.clone(),
        })
    }

    fn parts(&self, slot: &Slot) -> Parts {
        let of = |state| parts(&*self.groups[slot.group].algorithm, &slot.name, state);
        slot.state.as_ref().map(of).unwrap_or_default()
    }

    /// Gives every parameter back what its algorithm remembered; `read` yields it. All of them, or none.
    pub(crate) fn load_states(
        &mut self,
        mut read: impl FnMut(&str, &dyn DynOptimizer) -> Result<Option<DynState>, BoxError>,
    ) -> Result<(), BoxError> {
        let states = self.slots.iter().map(|slot| read(&slot.name, &*self.groups[slot.group].algorithm));
        let states: Vec<_> = states.collect::<Result<_, _>>()?;
        self.leaves.take();
        for (slot, state) in self.slots.iter_mut().zip(states) {
            slot.state = state;
        }
        Ok(())
    }

    fn leaves(&self) -> &[Leaf] {
        self.leaves.get_or_init(|| {
            let mut leaves = Vec::new();
            for (slot, of_slot) in self.slots.iter().enumerate() {
                for (at, (name, part)) in self.parts(of_slot).tensors.into_iter().enumerate() {
                    leaves.push(Leaf { name, shape: part.shape(), dtype: part.dtype(), slot, at });
                }
            }
            leaves
        })
    }
}

/// Its state, as hooks see it.
impl TensorSource for Stepper {
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
        let Leaf { slot, at, .. } = &self.leaves()[index];
        let Parts { tensors, .. } = self.parts(&self.slots[*slot]);
        tensors.get(*at).map(|(_, part)| part.to_vec()).unwrap_or_default()
    }
}

/// Tells how a weight has changed, and what it took to see it.
fn tell(awaited: NextChange, before: &Erased, after: &Erased) {
    let began = Instant::now();
    let change = after.change_since(before);
    awaited.happened(change, began.elapsed());
}

struct Apply<'a> {
    parameter: usize,
    optimizer: usize,
    stepper: &'a mut Stepper,
    gradients: &'a mut Gradients,
    keep: bool,
    followed: &'a mut [Option<NextChange>],
}

impl ModuleMapper for Apply<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let parameter = self.parameter;
        self.parameter += 1;
        let place = self.gradients.place(parameter);
        let Some((_, slot)) = place.filter(|(part, _)| *part == self.optimizer) else { return param };
        let awaited = self.followed.get_mut(parameter).and_then(Option::take).filter(NextChange::is_awaited);
        let followed = awaited.map(|awaited| (awaited, Erased::new(param.val().inner())));
        let Some(gradient) = self.gradients.parts[self.optimizer].take(slot, self.keep) else {
            if let Some((awaited, unchanged)) = followed {
                tell(awaited, &unchanged, &unchanged);
            }
            return param;
        };
        let Stepper { slots, groups, factor, .. } = &mut *self.stepper;
        let Slot { group, state, .. } = &mut slots[slot];
        let group = &groups[*group];
        let (id, tensor, mapper) = param.consume();
        let strategy = tensor.gradient_checkpointing_strategy();
        let (tensor, new_state) = group.algorithm.step_dyn(
            D,
            group.base_lr * *factor,
            tensor.inner().into_bridge(),
            gradient.into_tensor::<D>().into_bridge(),
            state.take(),
        );
        *state = new_state;
        let tensor = Tensor::<D>::from_bridge(tensor);
        if let Some((awaited, before)) = followed {
            tell(awaited, &before, &Erased::new(tensor.clone()));
        }
        let mut tensor = Tensor::from_inner(tensor);
        if let Some(strategy) = strategy {
            tensor = tensor.with_gradient_checkpointing_strategy(strategy);
        }
        Param::from_mapped_value(id, tensor.require_grad(), mapper)
    }
}
