//! Saving and loading weights, by parameter name.

use std::collections::BTreeSet;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::Tensor;
use tenterhook::module::{LoadReport, ModuleResult};
use tenterhook::tensors::{Buffers, TensorMap};

use crate::dyn_tensor::DynTensor;
use crate::params::{ModelParams, tensors};
use crate::tensor_data::{data, loaded_dtype};

/// Tensors by name, shared with the model: nothing is copied until [`read`](SharedTensors::read). Training
/// replaces a shared tensor instead of changing it.
pub(crate) struct SharedTensors(pub(crate) Vec<(String, DynTensor)>);

impl SharedTensors {
    /// Copies the values, and drops each tensor immediately afterwards.
    pub(crate) fn read(self, buffers: &Buffers) -> ModuleResult<TensorMap> {
        self.0.into_iter().map(|(name, tensor)| Ok((name, tensor.save(buffers)?))).collect()
    }
}

/// The parameters of the model.
pub(crate) fn weights<M: Module>(params: &ModelParams<M>) -> ModuleResult<SharedTensors> {
    let names = params.facts.iter().map(|facts| facts.name.clone());
    Ok(SharedTensors(names.zip(tensors(params.present()?)).collect()))
}

/// Sets every parameter by name. Nothing is changed unless all of them are given and fit.
pub(crate) fn load_weights<M: Module>(params: &mut ModelParams<M>, weights: &TensorMap) -> ModuleResult {
    params.present()?;
    let report = report(params, weights);
    let missing = report.missing.iter().map(|name| format!("`{name}` is missing"));
    let unexpected = report.unexpected.iter().map(|name| format!("`{name}` is not in the model"));
    let wrong: Vec<_> = missing.chain(report.mismatched.clone()).chain(unexpected).collect();
    if !wrong.is_empty() {
        return Err(format!("these weights do not fit this model: {}", wrong.join(", ")).into());
    }
    set(params, weights, &report)
}

/// Sets the parameters that the weights contain under the same name and shape.
pub(crate) fn load_matching<M: Module>(
    params: &mut ModelParams<M>,
    weights: &TensorMap,
) -> ModuleResult<LoadReport> {
    let report = report(params, weights);
    set(params, weights, &report)?;
    Ok(report)
}

fn report<M>(params: &ModelParams<M>, weights: &TensorMap) -> LoadReport {
    let shapes = params.facts.iter().map(|facts| (facts.name.as_str(), facts.shape.as_slice()));
    let mut report = LoadReport::of(shapes, weights);
    for (name, tensor) in weights.iter() {
        // The model's element type may differ, as long as Burn can read this one.
        if let (Err(error), Some(at)) =
            (loaded_dtype(tensor.dtype), report.loaded.iter().position(|loaded| loaded == name))
        {
            report.mismatched.push(format!("`{name}`: {error}"));
            report.loaded.remove(at);
        }
    }
    report
}

/// Sets the parameters that the report lists as loaded.
fn set<M: Module>(params: &mut ModelParams<M>, weights: &TensorMap, report: &LoadReport) -> ModuleResult {
    let model = params.take()?;
    let names: Vec<_> = params.facts.iter().map(|facts| facts.name.clone()).collect();
    let loaded = report.loaded.iter().map(String::as_str).collect();
    *params.changing() = Some(model.map(&mut Load { names: names.iter(), loaded, weights }));
    Ok(())
}

struct Load<'a> {
    names: std::slice::Iter<'a, String>,
    loaded: BTreeSet<&'a str>,
    weights: &'a TensorMap,
}

impl ModuleMapper for Load<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let name = self.names.next().filter(|name| self.loaded.contains(name.as_str()));
        let tensor = name.and_then(|name| self.weights.get(name).ok());
        let Some(data) = tensor.and_then(|tensor| data(tensor).ok()) else { return param };
        let (id, old, mapper) = param.consume();
        let (trained, strategy) = (old.is_require_grad(), old.gradient_checkpointing_strategy());
        let mut tensor = Tensor::<D>::from_data(data, (&old.device(), old.dtype()));
        if let Some(strategy) = strategy {
            tensor = tensor.with_gradient_checkpointing_strategy(strategy);
        }
        Param::from_mapped_value(id, tensor.set_require_grad(trained), mapper)
    }
}
