//! What an algorithm of Burn's remembers of a parameter, part by part.
//!
//! Burn itself only hands out copies, each in memory that is touched for the first time, which costs more than the copying. The
//! states of the algorithms that most people train with are open, so their tensors can be shared instead.

use std::any::Any;

use burn::optim::{
    Adam, AdamState, AdamW, AdamWState, AdaptiveMomentumState, DynOptimizer, DynState, Lion, LionState,
    StateSink,
};
use burn::tensor::TensorData;
use burn_pack::Scalar;
use tenterhook::tensors::{Buffers, TensorBytes};
use tenterhook::{BoxError, DType};

use crate::erased::{Erased, dtype, with_rank};
use crate::saved::bytes;

/// One of Burn's algorithms, of which it can be asked which.
pub(crate) trait AnyAlgorithm: DynOptimizer + Any {}

impl<A: DynOptimizer + Any> AnyAlgorithm for A {}

/// Tensors and numbers under their full names, as Burn names them.
#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) tensors: Vec<(String, Part)>,
    pub(crate) scalars: Vec<(String, Scalar)>,
}

#[allow(clippy::large_enum_variant)] // nearly all are shared, and a handful live at a time
pub(crate) enum Part {
    /// The algorithm's own tensor.
    Shared(Erased),
    /// What Burn made of it.
    Copied(TensorData),
}

impl Part {
    pub(crate) fn shape(&self) -> Vec<usize> {
        match self {
            Part::Shared(tensor) => tensor.shape(),
            Part::Copied(data) => data.shape().iter().copied().collect(),
        }
    }

    pub(crate) fn dtype(&self) -> DType {
        match self {
            Part::Shared(tensor) => tensor.dtype(),
            Part::Copied(data) => dtype(data.dtype()),
        }
    }

    pub(crate) fn to_vec(&self) -> Vec<f32> {
        match self {
            Part::Shared(tensor) => tensor.to_vec(),
            Part::Copied(data) => data.iter::<f32>().collect(),
        }
    }

    /// Its numbers as a checkpoint holds them.
    pub(crate) fn save(self, buffers: &Buffers) -> Result<TensorBytes, BoxError> {
        match self {
            Part::Shared(tensor) => tensor.save(buffers),
            Part::Copied(data) => bytes(data),
        }
    }
}

/// What a state of this algorithm consists of, under the name of its parameter.
pub(crate) fn parts(algorithm: &dyn AnyAlgorithm, parameter: &str, state: &DynState) -> Parts {
    let any: &dyn Any = algorithm;
    let mut parts = Parts::default();
    with_rank!(state.rank(), D => {
        if any.is::<AdamW>() {
            parts.take_moments(parameter, &state.downcast_ref::<AdamWState<D>>().momentum);
        } else if any.is::<Adam>() {
            parts.take_moments(parameter, &state.downcast_ref::<AdamState<D>>().momentum);
        } else if any.is::<Lion>() {
            let LionState { momentum } = state.downcast_ref::<LionState<D>>();
            parts.take(parameter, "momentum", Erased::new(momentum.clone()));
        } else {
            let mut sink = StateSink::default();
            algorithm.state_flatten(parameter, state, &mut sink);
            parts.scalars = sink.scalars;
            parts.tensors = sink.tensors.into_iter().map(|(name, data)| (name, Part::Copied(data))).collect();
        }
    });
    parts
}

impl Parts {
    fn take(&mut self, parameter: &str, leaf: &str, tensor: Erased) {
        self.tensors.push((format!("{parameter}.{leaf}"), Part::Shared(tensor)));
    }

    fn take_moments<const D: usize>(&mut self, parameter: &str, moments: &AdaptiveMomentumState<D>) {
        let AdaptiveMomentumState { time, moment_1, moment_2, max_moment_2 } = moments;
        self.scalars.push((format!("{parameter}.momentum.time"), Scalar::from(*time)));
        self.take(parameter, "momentum.moment_1", Erased::new(moment_1.clone()));
        self.take(parameter, "momentum.moment_2", Erased::new(moment_2.clone()));
        if let Some(max) = max_moment_2 {
            self.take(parameter, "momentum.max_moment_2", Erased::new(max.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::optim::{AdamConfig, AdamWConfig, LionConfig, SgdConfig, momentum::MomentumConfig};
    use burn::tensor::{Device, Tensor};

    use super::*;

    /// What two steps leave, as Burn flattens it and as it is taken apart here.
    #[track_caller]
    fn check(algorithm: &dyn AnyAlgorithm, shared: bool) {
        let device = Device::flex();
        let tensor = |from: f32| Tensor::<2>::from_data([[from, 2.0, 3.0], [4.0, 5.0, 6.0]], &device);
        let (weights, state) =
            algorithm.step_dyn(2, 0.1, tensor(1.0).into_bridge(), tensor(0.5).into_bridge(), None);
        let (_, state) = algorithm.step_dyn(2, 0.1, weights, tensor(-0.5).into_bridge(), state);
        let state = state.expect("it remembers something");
        let mut sink = StateSink::default();
        algorithm.state_flatten("layer.weight", &state, &mut sink);
        let Parts { tensors, scalars } = parts(algorithm, "layer.weight", &state);
        assert_eq!(format!("{scalars:?}"), format!("{:?}", sink.scalars));
        assert!(!tensors.is_empty(), "something is compared");
        assert!(tensors.iter().all(|(_, part)| matches!(part, Part::Shared(_)) == shared));
        let tensors = tensors.into_iter().map(|(name, part)| match part {
            Part::Shared(tensor) => (name, tensor.into_data()),
            Part::Copied(data) => (name, data),
        });
        assert_eq!(tensors.collect::<Vec<_>>(), sink.tensors);
    }

    #[test]
    fn what_is_taken_apart_here_is_what_burn_makes_of_it() {
        check(&AdamWConfig::new().build(), true);
        check(&AdamWConfig::new().with_amsgrad(true).build(), true);
        check(&AdamConfig::new().build(), true);
        check(&AdamConfig::new().with_amsgrad(true).build(), true);
        check(&LionConfig::new().build(), true);
        check(&SgdConfig::new().with_momentum(Some(MomentumConfig::new())).build(), false);
    }
}
