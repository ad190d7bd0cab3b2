//! The state of optimizers and schedules, by parameter name, as checkpoints hold it.
//!
//! Everything goes by name, and what does not arrive is an error.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tenterhook_core::{BoxError, DType};

use super::Engine;
use super::set::{Live, LiveGroup, OptimizerSet};
use crate::module::{ModuleResult, OptimizerState};
use crate::tensors::{Buffers, TensorBytes, TensorError, TensorMap};

/// What an algorithm remembers of a parameter, each under its full name.
pub struct StateParts<T> {
    /// What is a tensor.
    pub tensors: Vec<(String, T)>,
    /// What is a number.
    pub scalars: Vec<(String, Number)>,
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
    /// Its values as a checkpoint holds them, copied into one of these buffers where they must be copied.
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

/// A number of an optimizer's state, with its type.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Number {
    /// A whole number.
    Int(i64),
    /// A whole number of 0 or more.
    Uint(u64),
    /// A floating-point number.
    Float(f64),
    /// Yes or no.
    Bool(bool),
}

/// What is not a tensor of the optimizers' state.
#[derive(Serialize, Deserialize)]
struct Rest {
    optimizers: Vec<RestOfOptimizer>,
    schedules: Vec<RestOfSchedule>,
}

#[derive(Default, Serialize, Deserialize)]
struct RestOfOptimizer {
    /// The learning rate of each group, before schedules.
    base_lrs: Vec<f64>,
    /// The parameters that it remembers something of.
    parameters: Vec<String>,
    /// Those that it remembers nothing of. Older checkpoints do not say.
    #[serde(default)]
    untouched: Option<Vec<String>>,
    /// The tensors that it remembers. Older checkpoints do not say.
    #[serde(default)]
    tensors: Vec<String>,
    /// What it counts, by parameter.
    scalars: BTreeMap<String, Number>,
}

#[derive(Serialize, Deserialize)]
struct RestOfSchedule {
    count: u64,
    factor: f64,
    state: serde_json::Value,
}

/// The state of optimizers and schedules, its tensors still the engine's.
pub struct Held<E: Engine> {
    engine: E,
    optimizers: Vec<HeldOptimizer<E>>,
    schedules: Vec<RestOfSchedule>,
}

struct HeldOptimizer<E: Engine> {
    base_lrs: Vec<f64>,
    /// By parameter: its name, its algorithm, and what that remembers, if it has come across it.
    slots: Vec<(String, E::Algorithm, Option<E::State>)>,
}

impl<E: Engine> Held<E> {
    pub(super) fn of(set: &OptimizerSet<E>) -> Held<E> {
        let optimizers = set.optimizers.iter().map(|Live { groups, slots, .. }| HeldOptimizer {
            base_lrs: groups.iter().map(|group| group.base_lr).collect(),
            slots: slots
                .iter()
                .map(|slot| (slot.name.clone(), groups[slot.group].algorithm.clone(), slot.state.clone()))
                .collect(),
        });
        let schedules = set.schedules.iter().map(|schedule| RestOfSchedule {
            count: schedule.count,
            factor: schedule.factor,
            state: schedule.scheduler.state(),
        });
        Held { engine: set.engine.clone(), optimizers: optimizers.collect(), schedules: schedules.collect() }
    }

    /// Its numbers; every tensor is copied once, and let go of.
    pub fn read(self, buffers: &Buffers) -> ModuleResult<OptimizerState> {
        let Held { engine, optimizers, schedules } = self;
        let mut tensors = TensorMap::default();
        let optimizers = optimizers.into_iter().map(|held| held.read(&engine, &mut tensors, buffers));
        let rest = Rest { optimizers: optimizers.collect::<Result<_, _>>()?, schedules };
        Ok(OptimizerState { tensors, rest: serde_json::to_value(rest)? })
    }
}

impl<E: Engine> HeldOptimizer<E> {
    fn read(self, engine: &E, tensors: &mut TensorMap, buffers: &Buffers) -> ModuleResult<RestOfOptimizer> {
        let mut rest = RestOfOptimizer { base_lrs: self.base_lrs, ..RestOfOptimizer::default() };
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

/// What a checkpoint holds of the optimizers, and what of it is used.
pub struct SavedState<'a> {
    tensors: &'a TensorMap,
    scalars: BTreeMap<String, Number>,
    used: BTreeSet<String>,
}

impl<'a> SavedState<'a> {
    /// A tensor.
    pub fn tensor(&self, name: &str) -> Result<&'a TensorBytes, TensorError> {
        self.tensors.get(name)
    }

    /// Notes that this tensor is used: what nobody uses is of another algorithm.
    pub fn used(&mut self, name: &str) {
        self.used.insert(name.to_owned());
    }

    /// The names of the tensors below a parameter's.
    #[must_use]
    pub fn tensors_of(&self, parameter: &str) -> Vec<&'a str> {
        let below = |name: &&str| is_below(name, parameter);
        self.tensors.names().filter(below).collect()
    }

    /// The numbers below a parameter's name.
    pub fn scalars_of(&self, parameter: &str) -> impl Iterator<Item = (&str, Number)> {
        let below = move |(name, _): &(&String, &Number)| is_below(name, parameter);
        self.scalars.iter().filter(below).map(|(name, number)| (name.as_str(), *number))
    }

    /// What is not used would be dropped without a word.
    fn nothing_is_left(&self) -> ModuleResult {
        let left = self.tensors.names().filter(|name| !self.used.contains(*name));
        let left: Vec<_> = left.map(|name| format!("`{name}`")).collect();
        if left.is_empty() {
            return Ok(());
        }
        Err(format!(
            "the optimizers have no use for these tensors of the checkpoint: {}; they are of another algorithm",
            left.join(", ")
        )
        .into())
    }
}

fn is_below(name: &str, parameter: &str) -> bool {
    name.strip_prefix(parameter).is_some_and(|rest| rest.starts_with('.'))
}

impl<E: Engine> OptimizerSet<E> {
    /// The state of optimizers and schedules, from a checkpoint: all of it, or it is an error.
    pub fn load_state(&mut self, state: &OptimizerState) -> ModuleResult {
        let rest: Rest = serde_json::from_value(state.rest.clone())?;
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
        saved.nothing_is_left()?;
        for (schedule, rest) in self.schedules.iter_mut().zip(rest.schedules) {
            (schedule.count, schedule.factor) = (rest.count, rest.factor);
            schedule.scheduler.load_state(&rest.state)?;
        }
        self.apply_schedules();
        Ok(())
    }
}

impl<E: Engine> Live<E> {
    /// Whether a checkpoint is of the same parameters, and has what it says it has.
    fn compare(&self, rest: &RestOfOptimizer, tensors: &TensorMap) -> ModuleResult {
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
        // An older checkpoint says nothing of parameters that there is no state of.
        let complete = rest.untouched.is_some();
        let new = here.difference(&saved).filter(|_| complete).map(|name| {
            format!(
                "the checkpoint says nothing of `{name}`, which is a parameter of optimizer `{optimizer}`"
            )
        });
        let lost = rest.tensors.iter().filter(|name| tensors.get(name).is_err());
        let lost = lost.map(|name| format!("the tensor `{name}` of optimizer `{optimizer}` is missing"));
        let wrong: Vec<_> = unknown.chain(new).chain(lost).collect();
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ").into()) }
    }

    /// Gives every parameter back what its algorithm remembered. All of them, or none.
    fn load(&mut self, rest: &RestOfOptimizer, saved: &mut SavedState<'_>) -> ModuleResult {
        for (LiveGroup { base_lr, .. }, lr) in self.groups.iter_mut().zip(&rest.base_lrs) {
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
