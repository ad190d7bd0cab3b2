//! The parameters of a Burn model by name, in the order in which the model visits them.

use std::any::Any;
use std::cell::{OnceCell, RefCell};
use std::ops::Range;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;
use tenterhook::optim::ParamInfo;
use tenterhook::tensor::NextChange;
use tenterhook::{BoxError, DType, Stats, TensorSource};

use crate::erased::{Erased, dtype};

/// The facts about all float parameters of a model. Visiting also initialises them, in order: Burn
/// does so at first use, which would make their random values depend on who looks first.
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
                dtype: dtype(tensor.dtype()),
                trained: param.is_require_grad(),
            });
        }
    }
    let mut collect = Collect { path: Vec::new(), facts: Vec::new() };
    model.visit(&mut collect);
    collect.facts
}

/// Calls back for every float parameter, with its index.
pub(crate) fn each<M: Module>(model: &M, visit: impl FnMut(usize, Erased)) {
    struct Each<F> {
        index: usize,
        visit: F,
    }
    impl<F: FnMut(usize, Erased)> ModuleVisitor for Each<F> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            (self.visit)(self.index, Erased::new(param.val().inner()));
            self.index += 1;
        }
    }
    model.visit(&mut Each { index: 0, visit });
}

/// A model, readable by parameter name.
pub(crate) struct Live<M> {
    /// `None` while the optimizer has it, and for good when its step panicked.
    pub(crate) model: Option<M>,
    pub(crate) facts: Vec<ParamInfo>,
    /// Its parameters, shared, once somebody has looked at one: Burn visits the whole model to find it. Given up before
    /// anything may change, so that nothing stale is shown, and nothing copied because it is shared.
    shown: OnceCell<Vec<Erased>>,
    /// Whoever waits for the next update of a parameter, by its index.
    pub(crate) followed: RefCell<Vec<Option<NextChange>>>,
}

/// Said of a model that an optimizer had when it panicked.
const LOST: &str = "the model was lost when a step of its optimizer panicked; go on from a checkpoint";

impl<M> Live<M> {
    pub(crate) fn new(model: M, facts: Vec<ParamInfo>) -> Live<M> {
        Live { model: Some(model), facts, shown: OnceCell::new(), followed: RefCell::default() }
    }

    /// The model may be changed from here on.
    pub(crate) fn changing(&mut self) -> &mut Option<M> {
        self.shown.take();
        &mut self.model
    }

    /// The model. Without it there is nothing to save, and nothing must look as if it were saved.
    pub(crate) fn present(&self) -> Result<&M, BoxError> {
        self.model.as_ref().ok_or_else(|| LOST.into())
    }

    /// The model, to be put back.
    pub(crate) fn take(&mut self) -> Result<M, BoxError> {
        self.changing().take().ok_or_else(|| LOST.into())
    }
}

impl<M: Module> Live<M> {
    fn one(&self, index: usize) -> Option<&Erased> {
        let model = self.model.as_ref()?;
        let shown = self.shown.get_or_init(|| {
            let mut all = Vec::with_capacity(self.facts.len());
            each(model, |_, tensor| all.push(tensor));
            all
        });
        shown.get(index)
    }
}

impl<M: Module> TensorSource for Live<M> {
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
        self.one(index).map(Erased::to_vec).unwrap_or_default()
    }
    fn slice(&self, index: usize, ranges: &[Range<usize>]) -> Vec<f32> {
        self.one(index).map(|tensor| tensor.slice(ranges)).unwrap_or_default()
    }
    fn norm(&self, index: usize) -> f64 {
        self.one(index).map(Erased::norm).unwrap_or_default()
    }
    fn stats(&self, index: usize) -> Stats {
        self.one(index).map(Erased::stats).unwrap_or_default()
    }
    fn follow(&self, index: usize) -> Option<NextChange> {
        let mut followed = self.followed.borrow_mut();
        followed.resize(self.facts.len(), None);
        // Everybody who follows it until then waits for the same.
        Some(followed.get_mut(index)?.get_or_insert_default().clone())
    }
    fn native(&self, index: usize) -> Option<Box<dyn Any + Send>> {
        let tensor = self.one(index)?.clone();
        Some(Box::new(tensor))
    }
}
