//! Burn's algorithms, and what they remember of a parameter, part by part.
//!
//! Burn keys an optimizer's state by random ids and begins anew, without a word, where an id is missing; here it goes by
//! name. Burn itself only hands out copies, each in memory that is touched for the first time, which costs more than the copying. The
//! states of the algorithms that most people train with are open, so their tensors can be shared instead.

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

use crate::erased::{Erased, dtype, with_rank};
use crate::gradients::Part as GradientPart;
use crate::optimizers;
use crate::saved::{bytes, data};

/// One of Burn's algorithms, of which it can be asked which.
trait AnyAlgorithm: DynOptimizer + Any {}

impl<A: DynOptimizer + Any> AnyAlgorithm for A {}

/// An algorithm of Burn's with its options, such as `AdamWConfig::new().build()`.
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

/// Burn, as far as optimization needs it.
#[derive(Clone, Debug, PartialEq)]
pub struct BurnEngine {
    /// Where gradients and states live: without autodiff.
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
    type Tensor = StatePart;
    type Gradients = GradientPart;

    fn optimizers() -> Vec<BuiltInOptimizer<BurnEngine>> {
        optimizers::built_in()
    }

    fn gradients(&self, params: Vec<ParamInfo>) -> GradientPart {
        GradientPart::new(params, self.device.clone())
    }

    fn parts(&self, algorithm: &Algorithm, parameter: &str, state: &DynState) -> StateParts<StatePart> {
        parts(algorithm, parameter, state)
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

/// A number with its type: Burn refuses to read one as another.
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

/// A tensor of a state.
#[allow(clippy::large_enum_variant)] // nearly all are shared, and a handful live at a time
pub enum StatePart {
    /// The algorithm's own tensor.
    Shared(Erased),
    /// What Burn made of it.
    Copied(TensorData),
}

impl StateTensor for StatePart {
    fn shape(&self) -> Vec<usize> {
        match self {
            StatePart::Shared(tensor) => tensor.shape(),
            StatePart::Copied(data) => data.shape().iter().copied().collect(),
        }
    }

    fn dtype(&self) -> DType {
        match self {
            StatePart::Shared(tensor) => tensor.dtype(),
            StatePart::Copied(data) => dtype(data.dtype()),
        }
    }

    fn to_vec(&self) -> Vec<f32> {
        match self {
            StatePart::Shared(tensor) => tensor.to_vec(),
            StatePart::Copied(data) => data.iter::<f32>().collect(),
        }
    }

    fn save(self, buffers: &Buffers) -> Result<TensorBytes, BoxError> {
        match self {
            StatePart::Shared(tensor) => tensor.save(buffers),
            StatePart::Copied(data) => bytes(data),
        }
    }
}

/// What a state of this algorithm consists of, under the name of its parameter.
fn parts(algorithm: &Algorithm, parameter: &str, state: &DynState) -> StateParts<StatePart> {
    let any: &dyn Any = &*algorithm.0;
    let mut parts = StateParts::default();
    with_rank!(state.rank(), D => {
        if any.is::<AdamW>() {
            take_moments(&mut parts, parameter, &state.downcast_ref::<AdamWState<D>>().momentum);
        } else if any.is::<Adam>() {
            take_moments(&mut parts, parameter, &state.downcast_ref::<AdamState<D>>().momentum);
        } else if any.is::<Lion>() {
            let LionState { momentum } = state.downcast_ref::<LionState<D>>();
            take(&mut parts, parameter, "momentum", Erased::new(momentum.clone()));
        } else {
            let mut sink = StateSink::default();
            algorithm.as_burn().state_flatten(parameter, state, &mut sink);
            let StateSink { tensors, scalars } = sink;
            parts.scalars = scalars.into_iter().map(|(name, scalar)| (name, number(scalar))).collect();
            parts.tensors = tensors.into_iter().map(|(name, data)| (name, StatePart::Copied(data))).collect();
        }
    });
    parts
}

fn take(parts: &mut StateParts<StatePart>, parameter: &str, leaf: &str, tensor: Erased) {
    parts.tensors.push((format!("{parameter}.{leaf}"), StatePart::Shared(tensor)));
}

fn take_moments<const D: usize>(
    parts: &mut StateParts<StatePart>,
    parameter: &str,
    moments: &AdaptiveMomentumState<D>,
) {
    let AdaptiveMomentumState { time, moment_1, moment_2, max_moment_2 } = moments;
    parts.scalars.push((format!("{parameter}.momentum.time"), number(Scalar::from(*time))));
    take(parts, parameter, "momentum.moment_1", Erased::new(moment_1.clone()));
    take(parts, parameter, "momentum.moment_2", Erased::new(moment_2.clone()));
    if let Some(max) = max_moment_2 {
        take(parts, parameter, "momentum.max_moment_2", Erased::new(max.clone()));
    }
}

#[cfg(test)]
mod tests {
    use burn::optim::{AdamConfig, AdamWConfig, LionConfig, SgdConfig, momentum::MomentumConfig};
    use burn::tensor::{Device, Tensor};

    use super::*;

    /// What two steps leave, as Burn flattens it and as it is taken apart here.
    #[track_caller]
    fn check(algorithm: impl Into<Algorithm>, shared: bool) {
        let algorithm = algorithm.into();
        let burn = algorithm.as_burn();
        let device = Device::flex();
        let tensor = |from: f32| Tensor::<2>::from_data([[from, 2.0, 3.0], [4.0, 5.0, 6.0]], &device);
        let (weights, state) =
            burn.step_dyn(2, 0.1, tensor(1.0).into_bridge(), tensor(0.5).into_bridge(), None);
        let (_, state) = burn.step_dyn(2, 0.1, weights, tensor(-0.5).into_bridge(), state);
        let state = state.expect("it remembers something");
        let mut sink = StateSink::default();
        burn.state_flatten("layer.weight", &state, &mut sink);
        let StateParts { tensors, scalars } = parts(&algorithm, "layer.weight", &state);
        let of_burn = sink.scalars.into_iter().map(|(name, scalar)| (name, number(scalar)));
        assert_eq!(scalars, of_burn.collect::<Vec<_>>());
        assert!(!tensors.is_empty(), "something is compared");
        assert!(tensors.iter().all(|(_, part)| matches!(part, StatePart::Shared(_)) == shared));
        let tensors = tensors.into_iter().map(|(name, part)| match part {
            StatePart::Shared(tensor) => (name, tensor.into_data()),
            StatePart::Copied(data) => (name, data),
        });
        assert_eq!(tensors.collect::<Vec<_>>(), sink.tensors);
    }

    #[test]
    fn what_is_taken_apart_here_is_what_burn_makes_of_it() {
        check(AdamWConfig::new().build(), true);
        check(AdamWConfig::new().with_amsgrad(true).build(), true);
        check(AdamConfig::new().build(), true);
        check(AdamConfig::new().with_amsgrad(true).build(), true);
        check(LionConfig::new().build(), true);
        check(SgdConfig::new().with_momentum(Some(MomentumConfig::new())).build(), false);
    }
}
