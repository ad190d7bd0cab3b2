//! The gradients of an accumulation window, by optimizer and by parameter.

use std::any::Any;
use std::ops::Range;

use tenterhook_core::{DType, TensorSource, TensorStats};

use super::param_groups::Owners;
use super::{Engine, ParamInfo};

/// The gradients of all parameters of the optimizers.
pub(super) struct Gradients<G> {
    /// By optimizer.
    pub(super) parts: Vec<G>,
    /// By parameter of the model: its optimizer, and its index there.
    pub(super) places: Vec<Option<(usize, usize)>>,
    /// The places of all parameters that have an optimizer.
    owned: Vec<(usize, usize)>,
}

impl<G> Gradients<G> {
    pub(super) fn empty() -> Gradients<G> {
        Gradients { parts: Vec::new(), places: Vec::new(), owned: Vec::new() }
    }

    pub(super) fn new<E: Engine<Gradients = G>>(
        engine: &E,
        params: &[ParamInfo],
        owners: &Owners,
        optimizers: usize,
    ) -> Gradients<G> {
        let mut of_parts = vec![Vec::new(); optimizers];
        let mut places = Vec::with_capacity(params.len());
        for (param, owner) in params.iter().zip(owners) {
            places.push(owner.map(|(owner, _)| (owner, of_parts[owner].len())));
            if let Some((owner, _)) = owner {
                of_parts[*owner].push(param.clone());
            }
        }
        let owned = places.iter().flatten().copied().collect();
        let parts = of_parts.into_iter().map(|params| engine.gradients(params)).collect();
        Gradients { parts, places, owned }
    }
}

impl<G: TensorSource> TensorSource for Gradients<G> {
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
    fn stats(&self, index: usize) -> TensorStats {
        let (part, slot) = self.owned[index];
        self.parts[part].stats(slot)
    }
    fn norm(&self, index: usize) -> f64 {
        let (part, slot) = self.owned[index];
        self.parts[part].norm(slot)
    }
    fn slice(&self, index: usize, ranges: &[Range<usize>]) -> Vec<f32> {
        let (part, slot) = self.owned[index];
        self.parts[part].slice(slot, ranges)
    }
    fn native(&self, index: usize) -> Option<Box<dyn Any + Send>> {
        let (part, slot) = self.owned[index];
        self.parts[part].native(slot)
    }
}
