//! The average of the weights, by parameter name.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tenterhook_core::{HookResult, NamedTensors, Tensor, Tensors};

/// The moving average and the number of its updates.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Average {
    /// Shared with the loop while swapped in. Saved as tensors, not here.
    #[serde(skip)]
    pub(super) weights: Arc<NamedTensors>,
    pub(super) updates: u64,
}

impl Average {
    /// Updates the average: `average += (1 - decay) * (weights - average)`; the first weights are copied.
    pub(super) fn update(&mut self, params: &Tensors<'_>, decay: f64) -> HookResult {
        if self.updates == 0 {
            self.weights = Arc::new(NamedTensors::copied(params));
            self.updates = 1;
            return Ok(());
        }
        self.reorder(params)?;
        #[allow(clippy::cast_possible_truncation)] // weights are shown as 32-bit floats
        let fraction = (1.0 - decay) as f32;
        for ((_, averages), param) in Arc::make_mut(&mut self.weights).iter_mut().zip(params.iter()) {
            // One parameter at a time: no second copy of all.
            for (average, value) in averages.iter_mut().zip(param.to_vec()) {
                *average += fraction * (value - *average);
            }
        }
        self.updates = self.updates.saturating_add(1);
        Ok(())
    }

    /// Sorts the average into the module's order. A checkpoint has it in the order of names.
    fn reorder(&mut self, params: &Tensors<'_>) -> HookResult {
        let same = self.weights.iter().zip(params.iter()).all(|(known, param)| is_same(known, &param));
        let as_many = self.weights.iter().count() == params.len();
        if same && as_many {
            return Ok(());
        }
        let mut ordered = NamedTensors::default();
        for param in params.iter() {
            if let Some((name, shape, values)) = self.weights.iter().find(|known| is_same(*known, &param)) {
                ordered = ordered.with(name, shape, values);
            }
        }
        if !as_many || ordered.iter().count() < params.len() {
            return Err("the average has other parameters than the module; start a new run, or resume \
                        without this hook"
                .into());
        }
        self.weights = Arc::new(ordered);
        Ok(())
    }
}

fn is_same((name, shape, _): (&str, &[usize], &[f32]), param: &Tensor<'_>) -> bool {
    name == param.name() && shape == param.shape()
}
