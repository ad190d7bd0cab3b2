//! Saves and loads the state of optimizers and schedules, by parameter name. Missing state is an error.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tenterhook_core::{BoxError, DType};

use super::Engine;
use super::active::{ActiveGroup, ActiveOptimizer};
use super::set::OptimizerSet;
use crate::module::{ModuleResult, OptimizerState};
use crate::tensors::{Buffers, TensorBytes, TensorError, TensorMap};

/// The state of an algorithm for one parameter, by full name.
pub struct StateParts<T> {
    /// Its tensors.
    pub tensors: Vec<(String, T)>,
    /// Its scalars.
    pub scalars: Vec<(String, StateScalar)>,
}

impl<T> Default for StateParts<T> {
    fn default() -> StateParts<T> {
        StateParts { tensors: Vec::new(), scalars: Vec::new() }
    }
}

/// A tensor of an optimizer's state.
pub trait StateTensor {
    /// Its shape.
    fn shape(&self) -> Vec<usize>;
    /// The type of its elements.
    fn dtype(&self) -> DType;
    /// Its values, in row-major order.
    fn to_vec(&self) -> Vec<f32>;
    /// Its values for a checkpoint. Copies are made in these buffers.
    fn save(self, buffers: &Buffers) -> Result<TensorBytes, BoxError>;
}

impl StateTensor for TensorBytes {
    fn shape(&self) -> Vec<usize> {
        self.shape.clone()
    }
    fn dtype(&self) -> DType {
        self.dtype
    }
    fn to_vec(&self) -> Vec<f32> {
        self.to_f32().unwrap_or_default()
    }
    fn save(self, _: &Buffers) -> Result<TensorBytes, BoxError> {
        Ok(self)
    }
}

/// A scalar of an optimizer's state.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StateScalar {
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A floating-point number.
    Float(f64),
    /// A boolean.
    Bool(bool),
}

/// The part of the state that is not tensors.
#[derive(Serialize, Deserialize)]
struct SavedScalars {
    optimizers: Vec<SavedOptimizer>,
    schedules: Vec<SavedSchedule>,
}

#[derive(Default, Serialize, Deserialize)]
struct SavedOptimizer {
    /// The learning rate of each group, before schedules.
    base_lrs: Vec<f64>,
    /// The parameters with state.
    parameters: Vec<String>,
    /// The parameters without state. Older checkpoints do not have them.
    #[serde(default)]
    untouched: Option<Vec<String>>,
    /// The names of its tensors. Older checkpoints do not have them.
    #[serde(default)]
    tensors: Vec<String>,
    /// Its scalars by full name.
    scalars: BTreeMap<String, StateScalar>,
}

#[derive(Serialize, Deserialize)]
struct SavedSchedule {
    count: u64,
    factor: f64,
    state: serde_json::Value,
}

/// A snapshot of optimizers and schedules, with tensors shared with the engine.
pub struct OptimizerSnapshot<E: Engine> {
    engine: E,
    optimizers: Vec<SnapshotOfOptimizer<E>>,
    schedules: Vec<SavedSchedule>,
}

struct SnapshotOfOptimizer<E: Engine> {
    base_lrs: Vec<f64>,
    /// By parameter: its name, its algorithm, and its state, if it has one.
    slots: Vec<(String, E::Algorithm, Option<E::State>)>,
}

impl<E: Engine> OptimizerSnapshot<E> {
    pub(super) fn of(set: &OptimizerSet<E>) -> OptimizerSnapshot<E> {
        let optimizers =
            set.optimizers.iter().map(|ActiveOptimizer { groups, slots, .. }| SnapshotOfOptimizer {
                base_lrs: groups.iter().map(|group| group.base_lr).collect(),
                slots: slots
                    .iter()
                    .map(|slot| (slot.name.clone(), groups[slot.group].algorithm.clone(), slot.state.clone()))
                    .collect(),
            });
        let schedules = set.schedules.iter().map(|schedule| SavedSchedule {
            count: schedule.count,
            factor: schedule.factor,
            state: schedule.scheduler.state(),
        });
        OptimizerSnapshot {
            engine: set.engine.clone(),
            optimizers: optimizers.collect(),
            schedules: schedules.collect(),
        }
    }

    /// Copies the tensors one by one; each is released after its copy.
    pub fn read(self, buffers: &Buffers) -> ModuleResult<OptimizerState> {
        let OptimizerSnapshot { engine, optimizers, schedules } = self;
        let mut tensors = TensorMap::default();
        let optimizers =
            optimizers.into_iter().map(|optimizer| optimizer.read(&engine, &mut tensors, buffers));
        let scalars = SavedScalars { optimizers: optimizers.collect::<Result<_, _>>()?, schedules };
        Ok(OptimizerState { tensors, rest: serde_json::to_value(scalars)? })
    }
}

impl<E: Engine> SnapshotOfOptimizer<E> {
    fn read(self, engine: &E, tensors: &mut TensorMap, buffers: &Buffers) -> ModuleResult<SavedOptimizer> {
        let mut rest = SavedOptimizer { base_lrs: self.base_lrs, ..SavedOptimizer::default() };
        let mut untouched = Vec::new();
        for (name, algorithm, state) in self.slots {
            let Some(state) = state else {
                untouched.push(name);
                continue;
            };
            let parts = engine.parts(&algorithm, &name, &state);
            drop(state);
            rest.parameters.push(name);
            rest.scalars.extend(parts.scalars);
            for (name, tensor) in parts.tensors {
                rest.tensors.push(name.clone());
                tensors.insert(name, tensor.save(buffers)?);
            }
        }
        rest.untouched = Some(untouched);
        Ok(rest)
    }
}

/// The state of optimizers in a checkpoint, and which of its tensors have been used.
pub struct SavedState<'a> {
    tensors: &'a TensorMap,
    scalars: BTreeMap<String, StateScalar>,
    used: BTreeSet<String>,
}

impl<'a> SavedState<'a> {
    /// A tensor by its full name.
    pub fn tensor(&self, name: &str) -> Result<&'a TensorBytes, TensorError> {
        self.tensors.get(name)
    }

    /// Marks a tensor as used. Unused tensors are an error, because they belong to another algorithm.
    pub fn mark_used(&mut self, name: &str) {
        self.used.insert(name.to_owned());
    }

    /// The full names of a parameter's tensors.
    #[must_use]
    pub fn tensors_of(&self, parameter: &str) -> Vec<&'a str> {
        let below = |name: &&str| is_below(name, parameter);
        self.tensors.names().filter(below).collect()
    }

    /// A parameter's scalars by full name.
    pub fn scalars_of(&self, parameter: &str) -> impl Iterator<Item = (&str, StateScalar)> {
        let below = move |(name, _): &(&String, &StateScalar)| is_below(name, parameter);
        self.scalars.iter().filter(below).map(|(name, number)| (name.as_str(), *number))
    }

    /// Refuses state that would be lost.
    fn check_all_used(&self) -> ModuleResult {
        let left = self.tensors.names().filter(|name| !self.used.contains(*name));
        let left: Vec<_> = left.map(|name| format!("`{name}`")).collect();
        if left.is_empty() {
            return Ok(());
        }
        Err(format!(
            "the checkpoint has tensors of another algorithm, which no optimizer uses: {}",
            left.join(", ")
        )
        .into())
    }
}

fn is_below(name: &str, parameter: &str) -> bool {
    name.strip_prefix(parameter).is_some_and(|rest| rest.starts_with('.'))
}

impl<E: Engine> OptimizerSet<E> {
    /// Loads the state of optimizers and schedules from a checkpoint. Incomplete state is an error.
    pub fn load_state(&mut self, state: &OptimizerState) -> ModuleResult {
        let rest: SavedScalars = serde_json::from_value(state.rest.clone())?;
        let (saved, here) = (rest.optimizers.len(), self.optimizers.len());
        if saved != here || rest.schedules.len() != self.schedules.len() {
            return Err(format!(
                "the checkpoint has {saved} optimizers and {} schedules, the module {here} and {}",
                rest.schedules.len(),
                self.schedules.len()
            )
            .into());
        }
        for (optimizer, rest) in self.optimizers.iter().zip(&rest.optimizers) {
            optimizer.compare(rest, &state.tensors)?;
        }
        let scalars = rest.optimizers.iter().flat_map(|rest| rest.scalars.clone()).collect();
        let mut saved = SavedState { tensors: &state.tensors, scalars, used: BTreeSet::new() };
        for (optimizer, rest) in self.optimizers.iter_mut().zip(&rest.optimizers) {
            optimizer.load(rest, &mut saved)?;
        }
        saved.check_all_used()?;
        for (schedule, rest) in self.schedules.iter_mut().zip(rest.schedules) {
            (schedule.count, schedule.factor) = (rest.count, rest.factor);
            schedule.scheduler.load_state(&rest.state)?;
        }
        self.apply_schedules();
        Ok(())
    }
}

impl<E: Engine> ActiveOptimizer<E> {
    /// Checks that a checkpoint has the same parameters and is complete.
    fn compare(&self, rest: &SavedOptimizer, tensors: &TensorMap) -> ModuleResult {
        let optimizer = &self.name;
        if rest.base_lrs.len() != self.groups.len() {
            return Err(format!("optimizer `{optimizer}` has other groups in the checkpoint").into());
        }
        let here: BTreeSet<_> = self.slots.iter().map(|slot| slot.name.as_str()).collect();
        let saved = rest.parameters.iter().chain(rest.untouched.iter().flatten()).map(String::as_str);
        let saved: BTreeSet<_> = saved.collect();
        let unknown = saved.difference(&here).map(|name| {
            format!(
                "the checkpoint has a state of `{name}`, which is no parameter of optimizer `{optimizer}`"
            )
        });
        // An older checkpoint does not list parameters without state.
        let complete = rest.untouched.is_some();
        let new = here.difference(&saved).filter(|_| complete).map(|name| {
            format!(
                "the checkpoint has no state of `{name}`, which is a parameter of optimizer `{optimizer}`"
            )
        });
        let lost = rest.tensors.iter().filter(|name| tensors.get(name).is_err());
        let lost = lost.map(|name| format!("the tensor `{name}` of optimizer `{optimizer}` is missing"));
        let wrong: Vec<_> = unknown.chain(new).chain(lost).collect();
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ").into()) }
    }

    /// Loads the state of all parameters, or of none.
    fn load(&mut self, rest: &SavedOptimizer, saved: &mut SavedState<'_>) -> ModuleResult {
        for (ActiveGroup { base_lr, .. }, lr) in self.groups.iter_mut().zip(&rest.base_lrs) {
            *base_lr = *lr;
        }
        let known: BTreeSet<_> = rest.parameters.iter().collect();
        let states = self.slots.iter().map(|slot| {
            if !known.contains(&slot.name) {
                return Ok(None);
            }
            let (algorithm, name) = (&self.groups[slot.group].algorithm, &slot.name);
            let state = self.engine.load_state(algorithm, name, &slot.shape, saved)?;
            let incomplete = "is incomplete in the checkpoint, or of another algorithm";
            state.map(Some).ok_or_else(|| format!("the optimizer state of `{name}` {incomplete}").into())
        });
        let states = states.collect::<Result<_, BoxError>>()?;
        self.set_states(states);
        Ok(())
    }
}
