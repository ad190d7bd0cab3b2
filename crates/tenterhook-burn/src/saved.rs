//! Weights and optimizer state, by parameter name, as checkpoints hold them.
//!
//! Burn keys an optimizer's state by random ids and begins anew, without a word, where an id is
//! missing. Here everything goes by name, and what does not arrive is an error.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleMapper, Param};
use burn::optim::{DynOptimizer, DynState, StateSource};
use burn::tensor::{Device, Tensor, TensorData};
use burn_pack::Scalar;
use serde::{Deserialize, Serialize};
use tenterhook::BoxError;
use tenterhook::module::{ModuleResult, OptimizerState};
use tenterhook::tensors::{TensorBytes, TensorMap};

use crate::engine::Burn;
use crate::module::BurnModule;
use crate::params::{Live, each};

pub(crate) fn weights<M: Module>(live: &Live<M>) -> ModuleResult<TensorMap> {
    let mut weights = TensorMap::default();
    let mut refused = None;
    if let Some(model) = &live.model {
        each(model, |index, tensor| match bytes(&tensor.into_data()) {
            Ok(tensor) => {
                weights.insert(live.facts[index].name.clone(), tensor);
            }
            Err(error) => refused = Some(error),
        });
    }
    refused.map_or(Ok(weights), Err)
}

/// Sets every parameter by name. Nothing is changed unless all of them are there and fit.
pub(crate) fn load_weights<M: Module>(live: &mut Live<M>, weights: &TensorMap) -> ModuleResult {
    let mut wrong = Vec::new();
    for facts in &live.facts {
        match weights.get(&facts.name) {
            Err(_) => wrong.push(format!("`{}` is missing", facts.name)),
            Ok(tensor) if tensor.shape != facts.shape => wrong.push(format!(
                "`{}` has the shape {:?}, the model's {:?}",
                facts.name, tensor.shape, facts.shape
            )),
            Ok(_) => {}
        }
    }
    let known = |name: &str| live.facts.iter().any(|facts| facts.name == name);
    wrong.extend(
        weights.names().filter(|name| !known(name)).map(|name| format!("`{name}` is not in the model")),
    );
    if !wrong.is_empty() {
        return Err(format!("these weights are not of this model: {}", wrong.join(", ")).into());
    }
    let names: Vec<_> = live.facts.iter().map(|facts| facts.name.clone()).collect();
    live.model = live.model.take().map(|model| model.map(&mut Load { index: 0, names: &names, weights }));
    Ok(())
}

struct Load<'a> {
    index: usize,
    names: &'a [String],
    weights: &'a TensorMap,
}

impl ModuleMapper for Load<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let found = self.weights.get(&self.names[self.index]);
        self.index += 1;
        let Some(data) = found.ok().and_then(|tensor| data(tensor).ok()) else { return param };
        let (id, old, mapper) = param.consume();
        let (trained, strategy) = (old.is_require_grad(), old.gradient_checkpointing_strategy());
        let mut tensor = Tensor::<D>::from_data(data, (&old.device(), old.dtype()));
        if let Some(strategy) = strategy {
            tensor = tensor.with_gradient_checkpointing_strategy(strategy);
        }
        Param::from_mapped_value(id, tensor.set_require_grad(trained), mapper)
    }
}

/// What is not a tensor of the optimizers' state.
#[derive(Serialize, Deserialize)]
struct Rest {
    optimizers: Vec<RestOfOptimizer>,
    schedules: Vec<RestOfSchedule>,
}

#[derive(Serialize, Deserialize)]
struct RestOfOptimizer {
    /// The learning rate of each group, before schedules.
    base_lrs: Vec<f64>,
    /// The parameters that it remembers something of.
    parameters: Vec<String>,
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

pub(crate) fn optimizers<M: BurnModule>(burn: &Burn<M>) -> ModuleResult<OptimizerState> {
    let mut tensors = TensorMap::default();
    let mut optimizers = Vec::new();
    for stepper in &burn.optimizers.0 {
        let base_lrs = stepper.groups.iter().map(|group| group.base_lr).collect();
        let mut rest = RestOfOptimizer { base_lrs, parameters: Vec::new(), scalars: BTreeMap::new() };
        for (name, sink) in stepper.states() {
            rest.parameters.push(name.to_owned());
            rest.scalars.extend(sink.scalars.into_iter().map(|(name, scalar)| (name, scalar.into())));
            for (name, data) in sink.tensors {
                tensors.insert(name, bytes(&data)?);
            }
        }
        optimizers.push(rest);
    }
    let schedules = burn.schedules.iter().map(|schedule| RestOfSchedule {
        count: schedule.count,
        factor: schedule.factor,
        state: schedule.scheduler.state(),
    });
    let rest = Rest { optimizers, schedules: schedules.collect() };
    Ok(OptimizerState { tensors, rest: serde_json::to_value(rest)? })
}

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
    let device = burn.device().clone().without_autodiff();
    let ranks: BTreeMap<_, _> =
        burn.live.facts.iter().map(|facts| (facts.name.clone(), facts.shape.len())).collect();
    for (stepper, rest) in burn.optimizers.0.iter_mut().zip(rest.optimizers) {
        if rest.base_lrs.len() != stepper.groups.len() {
            return Err(format!("optimizer `{}` has other groups in the checkpoint", stepper.name).into());
        }
        for (group, lr) in stepper.groups.iter_mut().zip(&rest.base_lrs) {
            group.base_lr = *lr;
        }
        let scalars = rest.scalars.iter().map(|(name, number)| (name.clone(), (*number).into()));
        let mut source = StateSource::new(scalars.collect());
        for (name, tensor) in state.tensors.iter() {
            source.insert_tensor(name.to_owned(), data(tensor)?);
        }
        stepper.load_states(|name, algorithm| {
            if !rest.parameters.iter().any(|known| known == name) {
                return Ok(None);
            }
            let rank = ranks.get(name).copied().unwrap_or(1);
            one_state(name, algorithm, rank, &mut source, &device).map(Some)
        })?;
    }
    for (schedule, rest) in burn.schedules.iter_mut().zip(rest.schedules) {
        (schedule.count, schedule.factor) = (rest.count, rest.factor);
        schedule.scheduler.load_state(&rest.state)?;
    }
    burn.apply_all_schedules();
    Ok(())
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

/// A tensor as the disk holds it.
fn bytes(data: &TensorData) -> Result<TensorBytes, BoxError> {
    Ok(TensorBytes {
        dtype: dtypes::ours(data.dtype())?,
        shape: data.shape().iter().copied().collect(),
        bytes: data.as_bytes().to_vec(),
    })
}

/// A tensor as Burn holds it.
fn data(tensor: &TensorBytes) -> Result<TensorData, BoxError> {
    let bytes = burn::tensor::Bytes::from_bytes_vec(tensor.bytes.clone());
    Ok(TensorData::from_bytes(bytes, tensor.shape.clone(), dtypes::burns(tensor.dtype)?))
}

/// Both directions of the table of element types.
mod dtypes {
    use burn::tensor::{BoolStore, DType as Burn};
    use tenterhook::{BoxError, DType};

    macro_rules! table {
        ($($name:ident)*) => {
            pub(super) fn ours(dtype: Burn) -> Result<DType, BoxError> {
                Ok(match dtype {
                    $(Burn::$name => DType::$name,)*
                    Burn::Bool(BoolStore::Native) => DType::Bool,
                    other => return Err(format!("tensors of type {other:?} cannot be saved").into()),
                })
            }

            pub(super) fn burns(dtype: DType) -> Result<Burn, BoxError> {
                Ok(match dtype {
                    $(DType::$name => Burn::$name,)*
                    DType::Bool => Burn::Bool(BoolStore::Native),
                    other => return Err(format!("tensors of type {other:?} cannot be loaded").into()),
                })
            }
        };
    }

    table! { F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32 U16 U8 }
}
