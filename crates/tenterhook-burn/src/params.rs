//! The parameters of a Burn model by name, in the order of its visitors.

use std::any::Any;
use std::cell::{OnceCell, RefCell};
use std::ops::Range;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;
use tenterhook::optim::ParamInfo;
use tenterhook::tensor::PendingUpdate;
use tenterhook::{BoxError, DType, TensorSource, TensorStats};

use crate::dyn_tensor::DynTensor;
use crate::tensor_data::shown_dtype;

/// Name, shape and element type of all float parameters of a model. The visit also initialises them in the model's order:
/// Burn initialises at first use, so the random values would depend on the first reader.
pub(crate) fn facts<M: Module>(model: &M) -> Vec<ParamInfo> {
    struct Collect {
        path: Vec<String>,
        facts: Vec<ParamInfo>,
    }
    impl ModuleVisitor for Collect {
        fn enter_module(&mut self, name: &str, _: &str) {
            self.path.push(name.to_owned());
        }
        fn exit_module(&mut self, _: &str, _: &str) {
            self.path.pop();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let tensor = param.val();
            self.facts.push(ParamInfo {
                name: self.path.join("."),
                shape: tensor.dims().to_vec(),
                dtype: shown_dtype(tensor.dtype()),
                trained: param.is_require_grad(),
            });
        }
    }
    let mut collect = Collect { path: Vec::new(), facts: Vec::new() };
    model.visit(&mut collect);
    collect.facts
}

/// All float parameters of a model, shared and without autodiff.
pub(crate) fn tensors<M: Module>(model: &M) -> Vec<DynTensor> {
    struct Collect(Vec<DynTensor>);
    impl ModuleVisitor for Collect {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.push(DynTensor::new(param.val().inner()));
        }
    }
    let mut collect = Collect(Vec::new());
    model.visit(&mut collect);
    collect.0
}

/// A model whose parameters can be read by name.
pub(crate) struct ModelParams<M> {
    /// `None` during an optimizer step, and permanently after a step that panicked.
    pub(crate) model: Option<M>,
    pub(crate) facts: Vec<ParamInfo>,
    /// The shared parameters, cached at the first read, because each lookup would visit the whole model.
    /// Dropped before every change, so the cache is never stale and an update finds no second owner.
    cached: OnceCell<Vec<DynTensor>>,
    /// The tracked next update of each parameter, by index.
    pub(crate) tracked: RefCell<Vec<Option<PendingUpdate>>>,
}

const LOST: &str = "the model was lost when a step of its optimizer panicked; resume from a checkpoint";

impl<M> ModelParams<M> {
    pub(crate) fn new(model: M, facts: Vec<ParamInfo>) -> ModelParams<M> {
        ModelParams { model: Some(model), facts, cached: OnceCell::new(), tracked: RefCell::default() }
    }

    /// The model for a change; clears the cache.
    pub(crate) fn changing(&mut self) -> &mut Option<M> {
        self.cached.take();
        &mut self.model
    }

    /// The model, or an error if it was lost, in which case nothing may be saved.
    pub(crate) fn present(&self) -> Result<&M, BoxError> {
        self.model.as_ref().ok_or_else(|| LOST.into())
    }

    /// Takes the model out; the caller puts it back.
    pub(crate) fn take(&mut self) -> Result<M, BoxError> {
        self.changing().take().ok_or_else(|| LOST.into())
    }
}

impl<M: Module> ModelParams<M> {
    fn tensor(&self, index: usize) -> Option<&DynTensor> {
        let model = self.model.as_ref()?;
        self.cached.get_or_init(|| tensors(model)).get(index)
    }
}

impl<M: Module> TensorSource for ModelParams<M> {
    fn count(&self) -> usize {
        self.facts.len()
    }
    fn name(&self, index: usize) -> &str {
        &self.facts[index].name
    }
    fn shape(&self, index: usize) -> &[usize] {
        &self.facts[index].shape
    }
    fn dtype(&self, index: usize) -> DType {
        self.facts[index].dtype
    }
    fn is_trained(&self, index: usize) -> bool {
        self.facts[index].trained
    }
    fn read(&self, index: usize) -> Vec<f32> {
        self.tensor(index).map(DynTensor::to_vec).unwrap_or_default()
    }
    fn slice(&self, index: usize, ranges: &[Range<usize>]) -> Vec<f32> {
        self.tensor(index).map(|tensor| tensor.slice(ranges)).unwrap_or_default()
    }
    fn norm(&self, index: usize) -> f64 {
        self.tensor(index).map(DynTensor::norm).unwrap_or_default()
    }
    fn stats(&self, index: usize) -> TensorStats {
        self.tensor(index).map(DynTensor::stats).unwrap_or_default()
    }
    fn track_update(&self, index: usize) -> Option<PendingUpdate> {
        let mut tracked = self.tracked.borrow_mut();
        tracked.resize(self.facts.len(), None);
        // All hooks that track the next update share one entry.
        Some(tracked.get_mut(index)?.get_or_insert_default().clone())
    }
    fn native(&self, index: usize) -> Option<Box<dyn Any + Send>> {
        let tensor = self.tensor(index)?.clone();
        Some(Box::new(tensor))
    }
}
