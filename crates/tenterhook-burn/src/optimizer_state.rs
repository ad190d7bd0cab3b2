//! The optimizers' state, by parameter name, as checkpoints hold it.
//!
//! Burn keys an optimizer's state by random ids and begins anew, without a word, where an id is
//! missing. Here everything goes by name, and what does not arrive is an error.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use burn::optim::{DynOptimizer, DynState, StateSource};
use burn::tensor::Device;
use burn_pack::Scalar;
use serde::{Deserialize, Serialize};
use tenterhook::BoxError;
use tenterhook::module::{ModuleResult, OptimizerState};
use tenterhook::tensors::{Buffers, TensorMap};

use crate::algorithm::{AnyAlgorithm, parts};
use crate::engine::Burn;
use crate::module::BurnModule;
use crate::saved::data;
use crate::stepper::Stepper;

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

/// Burn's scalars, with their type: it refuses to read one as another.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Number {
    Int(i64),
    Uint(u64),
    Float(f64),
    Bool(bool),
}

impl From<Scalar> for Number {
    fn from(scalar: Scalar) -> Number {
        match scalar {
            Scalar::Int(value) => Number::Int(value),
            Scalar::UInt(value) => Number::Uint(value),
            Scalar::Float(value) => Number::Float(value),
            Scalar::Bool(value) => Number::Bool(value),
        }
    }
}

impl From<Number> for Scalar {
    fn from(number: Number) -> Scalar {
        match number {
            Number::Int(value) => Scalar::Int(value),
            Number::Uint(value) => Scalar::UInt(value),
            Number::Float(value) => Scalar::Float(value),
            Number::Bool(value) => Scalar::Bool(value),
        }
    }
}

/// What the optimizers remember, its tensors still the engine's.
pub(crate) struct HeldOptimizers {
    optimizers: Vec<HeldOptimizer>,
    schedules: Vec<RestOfSchedule>,
}

struct HeldOptimizer {
    base_lrs: Vec<f64>,
    slots: Vec<HeldSlot>,
}

/// What an algorithm remembers of one parameter, if it has come across it.
pub(crate) struct HeldSlot {
    pub(crate) name: String,
    pub(crate) algorithm: Arc<dyn AnyAlgorithm>,
    pub(crate) state: Option<DynState>,
}

/// The optimizers as they are now. Nothing is copied.
pub(crate) fn optimizers<M: BurnModule>(burn: &Burn<M>) -> ModuleResult<HeldOptimizers> {
    // With the model, the state of the parameter that was being updated is lost.
    burn.live.present()?;
    let optimizers = burn.optimizers.0.iter().map(|stepper| HeldOptimizer {
        base_lrs: stepper.groups.iter().map(|group| group.base_lr).collect(),
        slots: stepper.held().collect(),
    });
    let schedules = burn.schedules.iter().map(|schedule| RestOfSchedule {
        count: schedule.count,
        factor: schedule.factor,
        state: schedule.scheduler.state(),
    });
    Ok(HeldOptimizers { optimizers: optimizers.collect(), schedules: schedules.collect() })
}

impl HeldOptimizers {
    /// Their numbers; every tensor is copied once, and let go of.
    pub(crate) fn read(self, buffers: &Buffers) -> ModuleResult<OptimizerState> {
        let mut tensors = TensorMap::default();
        let optimizers = self.optimizers.into_iter().map(|held| held.read(&mut tensors, buffers));
        let optimizers = optimizers.collect::<Result<_, _>>()?;
        let rest = Rest { optimizers, schedules: self.schedules };
        Ok(OptimizerState { tensors, rest: serde_json::to_value(rest)? })
    }
}

impl HeldOptimizer {
    fn read(self, tensors: &mut TensorMap, buffers: &Buffers) -> ModuleResult<RestOfOptimizer> {
        let mut rest = RestOfOptimizer { base_lrs: self.base_lrs, ..RestOfOptimizer::default() };
        let mut untouched = Vec::new();
        for HeldSlot { name, algorithm, state } in self.slots {
            let Some(state) = state else {
                untouched.push(name);
                continue;
            };
            let parts = parts(&*algorithm, &name, &state);
            drop(state);
            rest.parameters.push(name);
            rest.scalars.extend(parts.scalars.into_iter().map(|(name, scalar)| (name, scalar.into())));
            for (name, part) in parts.tensors {
                rest.tensors.push(name.clone());
                tensors.insert(name, part.save(buffers)?);
            }
        }
        rest.untouched = Some(untouched);
        Ok(rest)
    }
}

/// Gives the optimizers back what they remembered: all of it, or it is an error.
pub(crate) fn load_optimizers<M: BurnModule>(burn: &mut Burn<M>, state: &OptimizerState) -> ModuleResult {
    let rest: Rest = serde_json::from_value(state.rest.clone())?;
    let (saved, here) = (rest.optimizers.len(), burn.optimizers.0.len());
    if saved != here || rest.schedules.len() != burn.schedules.len() {
        return Err(format!(
            "the checkpoint has {saved} optimizers and {} schedules, the module {here} and {}",
            rest.schedules.len(),
            burn.schedules.len()
        )
        .into());
    }
    for (stepper, rest) in burn.optimizers.0.iter().zip(&rest.optimizers) {
        compare(stepper, rest, &state.tensors)?;
    }
    let mut source = source(&rest, &state.tensors)?;
    let device = burn.device().clone().without_autodiff();
    let ranks: BTreeMap<_, _> =
        burn.live.facts.iter().map(|facts| (facts.name.clone(), facts.shape.len())).collect();
    for (stepper, rest) in burn.optimizers.0.iter_mut().zip(rest.optimizers) {
        for (group, lr) in stepper.groups.iter_mut().zip(&rest.base_lrs) {
            group.base_lr = *lr;
        }
        let known: BTreeSet<_> = rest.parameters.into_iter().collect();
        stepper.load_states(|name, algorithm| {
            if !known.contains(name) {
                return Ok(None);
            }
            let rank = ranks.get(name).copied().unwrap_or(1);
            one_state(name, algorithm, rank, &mut source, &device).map(Some)
        })?;
    }
    nothing_is_left(&mut source, &state.tensors)?;
    for (schedule, rest) in burn.schedules.iter_mut().zip(rest.schedules) {
        (schedule.count, schedule.factor) = (rest.count, rest.factor);
        schedule.scheduler.load_state(&rest.state)?;
    }
    burn.apply_all_schedules();
    Ok(())
}

/// Whether a checkpoint is of the same parameters, and has what it says it has.
fn compare(stepper: &Stepper, rest: &RestOfOptimizer, tensors: &TensorMap) -> ModuleResult {
    let optimizer = &stepper.name;
    if rest.base_lrs.len() != stepper.groups.len() {
        return Err(format!("optimizer `{optimizer}` has other groups in the checkpoint").into());
    }
    let here: BTreeSet<_> = stepper.parameters().collect();
    let saved = rest.parameters.iter().chain(rest.untouched.iter().flatten()).map(String::as_str);
    let saved: BTreeSet<_> = saved.collect();
    let unknown = saved.difference(&here).map(|name| {
        format!("the checkpoint has a state of `{name}`, which is no parameter of optimizer `{optimizer}`")
    });
    // An older checkpoint says nothing of parameters that there is no state of.
    let complete = rest.untouched.is_some();
    let new = here.difference(&saved).filter(|_| complete).map(|name| {
        format!("the checkpoint says nothing of `{name}`, which is a parameter of optimizer `{optimizer}`")
    });
    let lost = rest.tensors.iter().filter(|name| tensors.get(name).is_err());
    let lost = lost.map(|name| format!("the tensor `{name}` of optimizer `{optimizer}` is missing"));
    let wrong: Vec<_> = unknown.chain(new).chain(lost).collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ").into()) }
}

/// What all of them read from: a parameter belongs to one optimizer only.
fn source(rest: &Rest, tensors: &TensorMap) -> ModuleResult<StateSource> {
    let scalars = rest.optimizers.iter().flat_map(|rest| &rest.scalars);
    let mut source =
        StateSource::new(scalars.map(|(name, number)| (name.clone(), (*number).into())).collect());
    for (name, tensor) in tensors.iter() {
        source.insert_tensor(name.to_owned(), data(tensor)?);
    }
    Ok(source)
}

/// What nobody has asked for would be dropped without a word.
fn nothing_is_left(source: &mut StateSource, tensors: &TensorMap) -> ModuleResult {
    let left = tensors.names().filter(|name| source.take_tensor("", name).is_some());
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

fn one_state(
    name: &str,
    algorithm: &dyn DynOptimizer,
    rank: usize,
    source: &mut StateSource,
    device: &Device,
) -> Result<DynState, BoxError> {
    algorithm.state_unflatten(rank, name, source, device).ok_or_else(|| {
        format!("the optimizer state of `{name}` is incomplete in the checkpoint, or of another algorithm")
            .into()
    })
}
