//! An optimizer during training: its groups, its parameters and their state.

use std::cell::OnceCell;

use tenterhook_core::{BoxError, DType, ParamGroup, TensorSource};

use super::param_groups::Owners;
use super::{Engine, Group, Optimizer, ParamInfo, StateParts, StateTensor};

/// An optimizer during training.
pub(super) struct ActiveOptimizer<E: Engine> {
    pub(super) engine: E,
    pub(super) name: String,
    pub(super) groups: Vec<ActiveGroup<E>>,
    /// The product of the factors of its schedules.
    pub(super) factor: f64,
    /// Its parameters, in the order of its gradients.
    pub(super) slots: Vec<Slot<E>>,
    /// Computed when hooks look at the state.
    pub(super) entries: OnceCell<Vec<StateEntry>>,
}

/// A parameter group during training.
pub(super) struct ActiveGroup<E: Engine> {
    name: String,
    /// The learning rate before schedules.
    pub(super) base_lr: f64,
    pub(super) algorithm: E::Algorithm,
    momentum: Option<f64>,
    weight_decay: Option<f64>,
}

/// A parameter with its group and the state of the algorithm.
pub(super) struct Slot<E: Engine> {
    pub(super) name: String,
    pub(super) shape: Vec<usize>,
    pub(super) group: usize,
    pub(super) state: Option<E::State>,
}

/// A tensor of an optimizer's state, as hooks see it.
pub(super) struct StateEntry {
    name: String,
    shape: Vec<usize>,
    dtype: DType,
    slot: usize,
    /// The index among the tensors of the slot.
    at: usize,
}

impl<E: Engine> ActiveOptimizer<E> {
    pub(super) fn new(
        engine: &E,
        index: usize,
        optimizer: Optimizer<E>,
        params: &[ParamInfo],
        owners: &Owners,
    ) -> Result<ActiveOptimizer<E>, BoxError> {
        let Optimizer { name, algorithm, lr, momentum, weight_decay, groups, .. } = optimizer;
        let rest = Group::new("rest", ["**"]);
        let groups = std::iter::once(rest).chain(groups).map(|group| ActiveGroup {
            name: group.name,
            base_lr: group.lr.unwrap_or(lr),
            algorithm: group.algorithm.unwrap_or_else(|| algorithm.clone()),
            momentum: group.momentum.or(momentum),
            weight_decay: group.weight_decay.or(weight_decay),
        });
        let groups: Vec<ActiveGroup<E>> = groups.collect();
        let is_wrong = |lr: f64| !(lr.is_finite() && lr >= 0.0);
        if let Some(ActiveGroup { base_lr, .. }) = groups.iter().find(|group| is_wrong(group.base_lr)) {
            let message = "must be a number of 0 or more, not";
            return Err(format!("the learning rate of optimizer `{name}` {message} {base_lr}").into());
        }
        let slots = params.iter().zip(owners).filter_map(|(param, owner)| {
            let (_, group) = owner.filter(|(owner, _)| *owner == index)?;
            Some(Slot { name: param.name.clone(), shape: param.shape.clone(), group, state: None })
        });
        let slots = slots.collect();
        Ok(ActiveOptimizer {
            engine: engine.clone(),
            name,
            groups,
            factor: 1.0,
            slots,
            entries: OnceCell::new(),
        })
    }

    pub(super) fn lr(&self, group: usize) -> f64 {
        self.groups[group].base_lr * self.factor
    }

    pub(super) fn groups(&self) -> Vec<ParamGroup> {
        let used = |group: &usize| self.slots.iter().any(|slot| slot.group == *group);
        let one = |at: usize| {
            let ActiveGroup { name, momentum, weight_decay, .. } = &self.groups[at];
            let (momentum, weight_decay) = (*momentum, *weight_decay);
            ParamGroup { name: name.clone(), lr: self.lr(at), momentum, weight_decay }
        };
        (0..self.groups.len()).filter(used).map(one).collect()
    }

    /// Sets the states, in the order of the slots.
    pub(super) fn set_states(&mut self, states: Vec<Option<E::State>>) {
        self.entries.take();
        for (slot, state) in self.slots.iter_mut().zip(states) {
            slot.state = state;
        }
    }

    fn parts(&self, slot: &Slot<E>) -> StateParts<E::Tensor> {
        let algorithm = &self.groups[slot.group].algorithm;
        let of = |state| self.engine.parts(algorithm, &slot.name, state);
        slot.state.as_ref().map(of).unwrap_or_default()
    }

    fn entries(&self) -> &[StateEntry] {
        self.entries.get_or_init(|| {
            let mut entries = Vec::new();
            for (slot, of_slot) in self.slots.iter().enumerate() {
                for (at, (name, tensor)) in self.parts(of_slot).tensors.into_iter().enumerate() {
                    entries.push(StateEntry { name, shape: tensor.shape(), dtype: tensor.dtype(), slot, at });
                }
            }
            entries
        })
    }
}

/// The state of the optimizer, as hooks see it.
impl<E: Engine> TensorSource for ActiveOptimizer<E> {
    fn count(&self) -> usize {
        self.entries().len()
    }
    fn name(&self, index: usize) -> &str {
        &self.entries()[index].name
    }
    fn shape(&self, index: usize) -> &[usize] {
        &self.entries()[index].shape
    }
    fn dtype(&self, index: usize) -> DType {
        self.entries()[index].dtype
    }
    fn read(&self, index: usize) -> Vec<f32> {
        let StateEntry { slot, at, .. } = self.entries()[index];
        let StateParts { tensors, .. } = self.parts(&self.slots[slot]);
        tensors.get(at).map(|(_, tensor)| tensor.to_vec()).unwrap_or_default()
    }
}
