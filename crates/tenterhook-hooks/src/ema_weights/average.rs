//! The average itself, by parameter name.

use std::sync::Arc;

use tenterhook_core::{HookResult, NamedTensors, Tensor, Tensors};

/// An average of weights, and how often weights were taken into it.
#[derive(Clone, Debug, Default)]
pub(super) struct Average {
    /// Shared with the loop while it swaps them in.
    pub(super) weights: Arc<NamedTensors>,
    pub(super) updates: u64,
}

impl Average {
    /// Takes these weights in: the first are the average, of all others a share of `1 - decay`.
    pub(super) fn take_in(&mut self, params: &Tensors<'_>, decay: f64) -> HookResult {
        if self.updates == 0 {
            self.weights = Arc::new(NamedTensors::copied(params));
            self.updates = 1;
            return Ok(());
        }
        self.bring_in_order(params)?;
        #[allow(clippy::cast_possible_truncation)] // weights are averaged as what they are shown as
        let share = (1.0 - decay) as f32;
        for ((_, averages), param) in Arc::make_mut(&mut self.weights).iter_mut().zip(params.iter()) {
            // One parameter at a time, so that no second copy of all of them is made.
            for (average, value) in averages.iter_mut().zip(param.to_vec()) {
                *average += share * (value - *average);
            }
        }
        self.updates = self.updates.saturating_add(1);
        Ok(())
    }

    /// Puts the average into the module's order. A checkpoint has it in the order of its names.
    fn bring_in_order(&mut self, params: &Tensors<'_>) -> HookResult {
        let same = self.weights.iter().zip(params.iter()).all(|(known, param)| is_of(known, &param));
        let as_many = self.weights.iter().count() == params.len();
        if same && as_many {
            return Ok(());
        }
        let mut ordered = NamedTensors::default();
        for param in params.iter() {
            if let Some((name, shape, values)) = self.weights.iter().find(|known| is_of(*known, &param)) {
                ordered = ordered.with(name, shape, values);
            }
        }
        if !as_many || ordered.iter().count() < params.len() {
            return Err("the average is of other parameters than the module has; begin a new run, or leave \
                        this hook out of the resumed one"
                .into());
        }
        self.weights = Arc::new(ordered);
        Ok(())
    }
}

fn is_of((name, shape, _): (&str, &[usize], &[f32]), param: &Tensor<'_>) -> bool {
    name == param.name() && shape == param.shape()
}
