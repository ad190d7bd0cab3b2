//! Weights and gradients, by parameter name, as checkpoints hold them.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Tensor, TensorData};
use tenterhook::BoxError;
use tenterhook::module::{LoadReport, ModuleResult};
use tenterhook::tensors::{Buffers, Bytes, TensorBytes, TensorMap};

use crate::erased::Erased;
use crate::params::{Live, each};

/// Tensors by name that are still the engine's. Holding them copies nothing: whoever changes one that is held makes
/// a new one.
pub(crate) struct Held(Vec<(String, Erased)>);

impl Held {
    pub(crate) fn of(tensors: impl IntoIterator<Item = (String, Erased)>) -> Held {
        Held(tensors.into_iter().collect())
    }

    /// Their numbers, copied; each tensor is let go of right after.
    pub(crate) fn read(self, buffers: &Buffers) -> ModuleResult<TensorMap> {
        self.0.into_iter().map(|(name, tensor)| Ok((name, tensor.save(buffers)?))).collect()
    }
}

/// The parameters of the model.
pub(crate) fn weights<M: Module>(live: &Live<M>) -> ModuleResult<Held> {
    let mut weights = Vec::with_capacity(live.facts.len());
    each(live.present()?, |index, tensor| weights.push((live.facts[index].name.clone(), tensor)));
    Ok(Held(weights))
}

/// Sets every parameter by name. Nothing is changed unless all of them are there and fit.
pub(crate) fn load_weights<M: Module>(live: &mut Live<M>, weights: &TensorMap) -> ModuleResult {
    live.present()?;
    let report = report(live, weights);
    let missing = report.missing.iter().map(|name| format!("`{name}` is missing"));
    let unexpected = report.unexpected.iter().map(|name| format!("`{name}` is not in the model"));
    let wrong: Vec<_> = missing.chain(report.unfit).chain(unexpected).collect();
    if !wrong.is_empty() {
        return Err(format!("these weights are not of this model: {}", wrong.join(", ")).into());
    }
    let model = live.take()?;
    put(live, weights, model);
    Ok(())
}

/// Sets every parameter that the weights have under its name and in its shape.
pub(crate) fn load_matching<M: Module>(live: &mut Live<M>, weights: &TensorMap) -> ModuleResult<LoadReport> {
    let report = report(live, weights);
    let fitting = weights.iter().filter(|(name, _)| report.loaded.iter().any(|loaded| loaded == name));
    let fitting = fitting.map(|(name, tensor)| (name.to_owned(), tensor.clone())).collect();
    let model = live.take()?;
    put(live, &fitting, model);
    Ok(report)
}

fn report<M>(live: &Live<M>, weights: &TensorMap) -> LoadReport {
    let shapes = live.facts.iter().map(|facts| (facts.name.as_str(), facts.shape.as_slice()));
    let mut report = LoadReport::of(shapes, weights);
    for (name, tensor) in weights.iter() {
        // The model's own type may be another, as long as Burn can read this one.
        if let (Err(error), Some(at)) =
            (dtypes::burns(tensor.dtype), report.loaded.iter().position(|loaded| loaded == name))
        {
            report.unfit.push(format!("`{name}`: {error}"));
            report.loaded.remove(at);
        }
    }
    report
}

/// Sets every parameter that there are weights for.
fn put<M: Module>(live: &mut Live<M>, weights: &TensorMap, model: M) {
    let names: Vec<_> = live.facts.iter().map(|facts| facts.name.clone()).collect();
    *live.changing() = Some(model.map(&mut Load { index: 0, names: &names, weights }));
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

/// A tensor as the disk holds it: the same memory.
pub(crate) fn bytes(data: TensorData) -> Result<TensorBytes, BoxError> {
    let dtype = dtypes::ours(data.dtype())?;
    let (bytes, shape, _) = data.into_parts();
    Ok(TensorBytes { dtype, shape: shape.iter().copied().collect(), bytes: Bytes::owned_by(bytes) })
}

/// A tensor as Burn holds it.
pub(crate) fn data(tensor: &TensorBytes) -> Result<TensorData, BoxError> {
    let bytes = burn::tensor::Bytes::from_bytes_vec(tensor.bytes.to_vec());
    Ok(TensorData::from_bytes(bytes, tensor.shape.clone(), dtypes::burns(tensor.dtype)?))
}

/// Both directions of the table of element types.
pub(crate) mod dtypes {
    use burn::tensor::{BoolStore, DType as Burn};
    use tenterhook::{BoxError, DType};

    macro_rules! table {
        ($($name:ident)*) => {
            pub(crate) fn ours(dtype: Burn) -> Result<DType, BoxError> {
                Ok(match dtype {
                    $(Burn::$name => DType::$name,)*
                    Burn::Bool(BoolStore::Native) => DType::Bool,
                    other => return Err(format!("tensors of type {other:?} cannot be saved").into()),
                })
            }

            pub(crate) fn burns(dtype: DType) -> Result<Burn, BoxError> {
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
