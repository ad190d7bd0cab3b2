//! Burn's optimizers and their state for each parameter.
//!
//! Burn keys the state by random ids and silently resets it if an id is missing; here the key is the
//! parameter's name. Burn flattens a state into copies in newly allocated memory, whose page faults cost more
//! than the copying. The state types of Adam, `AdamW` and Lion are public, so their tensors are shared
//! instead.

use std::any::Any;
use std::sync::Arc;

use burn::optim::{
    Adam, AdamState, AdamW, AdamWState, AdaptiveMomentumState, DynOptimizer, DynState, Lion, LionState,
    StateSink, StateSource,
};
use burn::tensor::{Device, TensorData};
use burn_pack::Scalar;
use tenterhook::optim::{
    BuiltInOptimizer, Engine, ParamInfo, SavedState, StateParts, StateScalar, StateTensor,
};
use tenterhook::tensors::{Buffers, TensorBytes};
use tenterhook::{BoxError, DType};

use crate::dyn_tensor::{DynTensor, with_rank};
use crate::gradients::GradientBuffer;
use crate::optimizers;
use crate::tensor_data::{bytes, data, shown_dtype};

/// A Burn optimizer that can be downcast.
trait AnyAlgorithm: DynOptimizer + Any {}

impl<A: DynOptimizer + Any> AnyAlgorithm for A {}

/// A Burn optimizer with its options, such as `AdamWConfig::new().build()`.
#[derive(Clone)]
pub struct Algorithm(Arc<dyn AnyAlgorithm>);

impl<A: DynOptimizer + 'static> From<A> for Algorithm {
    fn from(algorithm: A) -> Algorithm {
        Algorithm(Arc::new(algorithm))
    }
}

impl Algorithm {
    pub(crate) fn as_burn(&self) -> &dyn DynOptimizer {
        &*self.0
    }
}

/// Burn as the [`Engine`] of optimizers.
#[derive(Clone, Debug, PartialEq)]
pub struct BurnEngine {
    /// The device of gradients and states, without autodiff.
    device: Device,
}

impl BurnEngine {
    pub(crate) fn on(device: &Device) -> BurnEngine {
        BurnEngine { device: device.clone().without_autodiff() }
    }
}

impl Engine for BurnEngine {
    type Algorithm = Algorithm;
    type State = DynState;
    type Tensor = OptimizerTensor;
    type Gradients = GradientBuffer;

    fn optimizers() -> Vec<BuiltInOptimizer<BurnEngine>> {
        optimizers::built_in()
    }

    fn gradients(&self, params: Vec<ParamInfo>) -> GradientBuffer {
        GradientBuffer::new(params, self.device.clone())
    }

    fn parts(&self, algorithm: &Algorithm, parameter: &str, state: &DynState) -> StateParts<OptimizerTensor> {
        let any: &dyn Any = &*algorithm.0;
        let mut parts = StateParts::default();
        with_rank!(state.rank(), D => {
            if any.is::<AdamW>() {
                push_moments(&mut parts, parameter, &state.downcast_ref::<AdamWState<D>>().momentum);
            } else if any.is::<Adam>() {
                push_moments(&mut parts, parameter, &state.downcast_ref::<AdamState<D>>().momentum);
            } else if any.is::<Lion>() {
                let LionState { momentum } = state.downcast_ref::<LionState<D>>();
                push(&mut parts, parameter, "momentum", DynTensor::new(momentum.clone()));
            } else {
                let mut sink = StateSink::default();
                algorithm.as_burn().state_flatten(parameter, state, &mut sink);
                let StateSink { tensors, scalars } = sink;
                parts.scalars = scalars.into_iter().map(|(name, scalar)| (name, number(scalar))).collect();
                parts.tensors =
                    tensors.into_iter().map(|(name, data)| (name, OptimizerTensor::Copied(data))).collect();
            }
        });
        parts
    }

    fn load_state(
        &self,
        algorithm: &Algorithm,
        parameter: &str,
        shape: &[usize],
        saved: &mut SavedState<'_>,
    ) -> Result<Option<DynState>, BoxError> {
        let scalars = saved.scalars_of(parameter).map(|(name, number)| (name.to_owned(), scalar(number)));
        let mut source = StateSource::new(scalars.collect());
        let names = saved.tensors_of(parameter);
        for name in &names {
            source.insert_tensor((*name).to_owned(), data(saved.tensor(name)?)?);
        }
        let state = algorithm.as_burn().state_unflatten(shape.len(), parameter, &mut source, &self.device);
        names
            .into_iter()
            .filter(|name| source.take_tensor("", name).is_none())
            .for_each(|name| saved.mark_used(name));
        Ok(state)
    }
}

/// Keeps the type of the number, because Burn does not convert between number types.
fn number(scalar: Scalar) -> StateScalar {
    match scalar {
        Scalar::Int(value) => StateScalar::Int(value),
        Scalar::UInt(value) => StateScalar::Uint(value),
        Scalar::Float(value) => StateScalar::Float(value),
        Scalar::Bool(value) => StateScalar::Bool(value),
    }
}

fn scalar(number: StateScalar) -> Scalar {
    match number {
        StateScalar::Int(value) => Scalar::Int(value),
        StateScalar::Uint(value) => Scalar::UInt(value),
        StateScalar::Float(value) => Scalar::Float(value),
        StateScalar::Bool(value) => Scalar::Bool(value),
    }
}

/// A tensor of an optimizer's state.
#[allow(clippy::large_enum_variant)] // nearly all are shared, and few exist at a time
pub enum OptimizerTensor {
    /// Shared with the state.
    Shared(DynTensor),
    /// Copied by Burn.
    Copied(TensorData),
}

impl StateTensor for OptimizerTensor {
    fn shape(&self) -> Vec<usize> {
        match self {
            OptimizerTensor::Shared(tensor) => tensor.shape(),
            OptimizerTensor::Copied(data) => data.shape().iter().copied().collect(),
        }
    }

    fn dtype(&self) -> DType {
        match self {
            OptimizerTensor::Shared(tensor) => tensor.dtype(),
            OptimizerTensor::Copied(data) => shown_dtype(data.dtype()),
        }
    }

    fn to_vec(&self) -> Vec<f32> {
        match self {
            OptimizerTensor::Shared(tensor) => tensor.to_vec(),
            OptimizerTensor::Copied(data) => data.iter::<f32>().collect(),
        }
    }

    fn save(self, buffers: &Buffers) -> Result<TensorBytes, BoxError> {
        match self {
            OptimizerTensor::Shared(tensor) => tensor.save(buffers),
            OptimizerTensor::Copied(data) => bytes(data),
        }
    }
}

fn push(parts: &mut StateParts<OptimizerTensor>, parameter: &str, leaf: &str, tensor: DynTensor) {
    parts.tensors.push((format!("{parameter}.{leaf}"), OptimizerTensor::Shared(tensor)));
}

fn push_moments<const D: usize>(
    parts: &mut StateParts<OptimizerTensor>,
    parameter: &str,
    moments: &AdaptiveMomentumState<D>,
) {
    let AdaptiveMomentumState { time, moment_1, moment_2, max_moment_2 } = moments;
    parts.scalars.push((format!("{parameter}.momentum.time"), number(Scalar::from(*time))));
    push(parts, parameter, "momentum.moment_1", DynTensor::new(moment_1.clone()));
    push(parts, parameter, "momentum.moment_2", DynTensor::new(moment_2.clone()));
    if let Some(max) = max_moment_2 {
        push(parts, parameter, "momentum.max_moment_2", DynTensor::new(max.clone()));
    }
}

#[cfg(test)]
mod tests {
    use burn::optim::{AdamConfig, AdamWConfig, LionConfig, SgdConfig, momentum::MomentumConfig};
    use burn::tensor::{Device, Tensor};

    use super::*;

    /// Compares the state after two steps with Burn's flattened state.
    #[track_caller]
    fn check(algorithm: impl Into<Algorithm>, shared: bool) {
        let algorithm = algorithm.into();
        let burn = algorithm.as_burn();
        let device = Device::flex();
        let tensor = |from: f32| Tensor::<2>::from_data([[from, 2.0, 3.0], [4.0, 5.0, 6.0]], &device);
        let (weights, state) =
            burn.step_dyn(2, 0.1, tensor(1.0).into_bridge(), tensor(0.5).into_bridge(), None);
        let (_, state) = burn.step_dyn(2, 0.1, weights, tensor(-0.5).into_bridge(), state);
        let state = state.expect("the algorithm has state");
        let mut sink = StateSink::default();
        burn.state_flatten("layer.weight", &state, &mut sink);
        let StateParts { tensors, scalars } =
            BurnEngine::on(&device).parts(&algorithm, "layer.weight", &state);
        let of_burn = sink.scalars.into_iter().map(|(name, scalar)| (name, number(scalar)));
        assert_eq!(scalars, of_burn.collect::<Vec<_>>());
        assert!(!tensors.is_empty(), "there are tensors to compare");
        assert!(tensors.iter().all(|(_, part)| matches!(part, OptimizerTensor::Shared(_)) == shared));
        let tensors = tensors.into_iter().map(|(name, part)| match part {
            OptimizerTensor::Shared(tensor) => (name, tensor.into_data()),
            OptimizerTensor::Copied(data) => (name, data),
        });
        assert_eq!(tensors.collect::<Vec<_>>(), sink.tensors);
    }

    #[test]
    fn the_parts_of_a_state_equal_burns_flattened_state() {
        check(AdamWConfig::new().build(), true);
        check(AdamWConfig::new().with_amsgrad(true).build(), true);
        check(AdamConfig::new().build(), true);
        check(AdamConfig::new().with_amsgrad(true).build(), true);
        check(LionConfig::new().build(), true);
        check(SgdConfig::new().with_momentum(Some(MomentumConfig::new())).build(), false);
    }
}
