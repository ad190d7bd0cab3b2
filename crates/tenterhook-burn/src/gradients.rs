//! The gradients of an accumulation window, by optimizer and by parameter.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Gradients as BurnGradients, Tensor};
use tenterhook::{ClipRule, DType, GradientsMut, TensorSource};

use crate::erased::Erased;
use crate::params::ParamFacts;
use crate::scalar::Loss;

/// What a norm is raised by before one divides by it, as `PyTorch` does.
const TINY: f64 = 1e-6;

/// The gradients of one optimizer's parameters.
pub(crate) struct Part {
    /// The facts about its parameters.
    pub(crate) facts: Vec<ParamFacts>,
    /// `None` where no gradient has arrived.
    values: Vec<Option<Erased>>,
}

impl Part {
    fn new(facts: Vec<ParamFacts>) -> Part {
        let values = vec![None; facts.len()];
        Part { facts, values }
    }

    pub(crate) fn clear(&mut self) {
        self.values.fill(None);
    }

    /// The gradient of one parameter; it stays only when it is to be kept.
    pub(crate) fn take(&mut self, slot: usize, keep: bool) -> Option<Erased> {
        if keep { self.values[slot].clone() } else { self.values[slot].take() }
    }

    /// The names of the parameters that no gradient has arrived for.
    pub(crate) fn missing(&self) -> Vec<String> {
        let all = self.facts.iter().zip(&self.values);
        all.filter(|(_, value)| value.is_none()).map(|(facts, _)| facts.name.clone()).collect()
    }

    /// The norm of all of them together, still on the device.
    pub(crate) fn norm(&self) -> Loss {
        let squares: Vec<_> = self.values.iter().flatten().map(Erased::square_sum).collect();
        match squares.len() {
            0 => Loss::known(0.0),
            _ => Loss::new(Tensor::cat(squares, 0).sum().sqrt()),
        }
    }

    pub(crate) fn clip(&mut self, rule: ClipRule) {
        let factor = match rule {
            ClipRule::Value(_) => None,
            // Without reading the norm: where it is below the limit the factor is 1.
            ClipRule::Norm(limit) => {
                self.norm().into_tensor().map(|norm| ((norm + TINY).recip() * limit).clamp_max(1.0))
            }
        };
        for value in &mut self.values {
            let Some(gradient) = value.take() else { continue };
            *value = Some(match (rule, &factor) {
                (ClipRule::Value(limit), _) => gradient.clamp(limit),
                (ClipRule::Norm(_), Some(factor)) => gradient.times(factor.clone()),
                (ClipRule::Norm(_), None) => gradient,
            });
        }
    }
}

impl TensorSource for Part {
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
    /// What has no gradient is shown as zeros, which is what the optimizer makes of it.
    fn read(&self, index: usize) -> Vec<f32> {
        let zeros = || vec![0.0; self.facts[index].shape.iter().product()];
        self.values[index].as_ref().map_or_else(zeros, Erased::to_vec)
    }
}

impl GradientsMut for Part {
    fn view(&self) -> &dyn TensorSource {
        self
    }
    fn edit(&mut self, index: usize, change: &mut dyn FnMut(&mut [f32])) {
        if let Some(gradient) = self.values[index].take() {
            self.values[index] = Some(gradient.edit(change));
        }
    }
}

/// The gradients of all optimizers.
pub(crate) struct Gradients {
    pub(crate) parts: Vec<Part>,
    /// By parameter of the model: which optimizer has it, and at which place. `None` is nobody's.
    places: Vec<Option<(usize, usize)>>,
    /// The places of those that have one, in the model's order.
    owned: Vec<(usize, usize)>,
}

impl Gradients {
    /// `owners`: by parameter of the model, the optimizer it belongs to.
    pub(crate) fn new(facts: &[ParamFacts], owners: &[Option<usize>], optimizers: usize) -> Gradients {
        let mut of_parts = vec![Vec::new(); optimizers];
        let mut places = Vec::with_capacity(facts.len());
        for (facts, owner) in facts.iter().zip(owners) {
            places.push(owner.map(|owner| (owner, of_parts[owner].len())));
            if let Some(owner) = owner {
                of_parts[*owner].push(facts.clone());
            }
        }
        let owned = places.iter().flatten().copied().collect();
        Gradients { parts: of_parts.into_iter().map(Part::new).collect(), places, owned }
    }

    /// Where the gradient of a parameter of the model stands.
    pub(crate) fn place(&self, parameter: usize) -> Option<(usize, usize)> {
        self.places[parameter]
    }

    /// Adds what a backward pass yielded.
    pub(crate) fn add<M: Module>(&mut self, model: &M, gradients: &mut BurnGradients) {
        model.visit(&mut Add { index: 0, from: gradients, to: self });
    }
}

struct Add<'a> {
    index: usize,
    from: &'a mut BurnGradients,
    to: &'a mut Gradients,
}

impl ModuleVisitor for Add<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let place = self.to.places[self.index];
        self.index += 1;
        let Some((part, slot)) = place else { return };
        // Asking a tensor without autodiff for its gradient panics.
        if !param.is_require_grad() {
            return;
        }
        let Some(gradient) = param.val().grad_remove(self.from) else { return };
        let value = &mut self.to.parts[part].values[slot];
        let gradient = Erased::new(gradient);
        *value = Some(match value.take() {
            Some(so_far) => so_far.plus(gradient),
            None => gradient,
        });
    }
}

impl TensorSource for Gradients {
    fn count(&self) -> usize {
        self.owned.len()
    }
    fn name(&self, index: usize) -> &str {
        let (part, slot) = self.owned[index];
        self.parts[part].name(slot)
    }
    fn shape(&self, index: usize) -> &[usize] {
        let (part, slot) = self.owned[index];
        self.parts[part].shape(slot)
    }
    fn dtype(&self, index: usize) -> DType {
        let (part, slot) = self.owned[index];
        self.parts[part].dtype(slot)
    }
    fn read(&self, index: usize) -> Vec<f32> {
        let (part, slot) = self.owned[index];
        self.parts[part].read(slot)
    }
}
