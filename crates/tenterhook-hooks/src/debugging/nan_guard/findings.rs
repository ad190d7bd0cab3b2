//! Findings and statistics of the current batch.

use serde::Serialize;
use tenterhook_core::{Tensor, TensorStats, Tensors};

/// A non-finite loss or tensor.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "in", rename_all = "snake_case")]
pub(super) enum Finding {
    Loss {
        #[serde(with = "tenterhook_core::number")]
        value: f64,
    },
    Activation(ValueCounts),
    Gradient(ValueCounts),
}

/// The number of a tensor's non-finite values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct ValueCounts {
    name: String,
    non_finite: usize,
    nan: usize,
    infinite: usize,
    count: usize,
}

impl ValueCounts {
    fn of(name: &str, tensor: &Tensor<'_>) -> ValueCounts {
        let TensorStats { non_finite, count, .. } = tensor.stats();
        let nan = count_nan(tensor);
        ValueCounts { name: name.to_owned(), non_finite, nan, infinite: non_finite - nan, count }
    }
}

/// The number of NaN values. The values are read only if some are not finite.
fn count_nan(tensor: &Tensor<'_>) -> usize {
    let non_finite = tensor.stats().non_finite;
    if non_finite == 0 {
        return 0;
    }
    // An engine may count in a precision other than that of the values it returns.
    tensor.to_vec().iter().filter(|value| value.is_nan()).count().min(non_finite)
}

/// A tensor's name, shape and statistics.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Described {
    name: String,
    shape: Vec<usize>,
    dtype: &'static str,
    #[serde(flatten)]
    stats: Statistics,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Statistics {
    count: usize,
    non_finite: usize,
    nan: usize,
    infinite: usize,
    zeros: usize,
    #[serde(with = "tenterhook_core::number")]
    mean: f64,
    #[serde(with = "tenterhook_core::number")]
    std: f64,
    #[serde(with = "tenterhook_core::number")]
    min: f64,
    #[serde(with = "tenterhook_core::number")]
    max: f64,
    #[serde(with = "tenterhook_core::number")]
    norm: f64,
}

impl Statistics {
    fn of(tensor: &Tensor<'_>) -> Statistics {
        let TensorStats { count, mean, std, min, max, norm, zeros, non_finite } = tensor.stats();
        let nan = count_nan(tensor);
        let infinite = non_finite - nan;
        Statistics { count, non_finite, nan, infinite, zeros, mean, std, min, max, norm }
    }
}

impl Described {
    fn new(name: &str, tensor: &Tensor<'_>) -> Described {
        let (name, shape, dtype) = (name.to_owned(), tensor.shape().to_vec(), tensor.dtype().name());
        Described { name, shape, dtype, stats: Statistics::of(tensor) }
    }

    /// Updates the statistics if the tensor has this name and shape, which is usual: each step has the same points.
    fn update(&mut self, name: &str, tensor: &Tensor<'_>) -> bool {
        let is_same = self.name == name && self.shape == tensor.shape();
        if is_same {
            self.stats = Statistics::of(tensor);
        }
        is_same
    }
}

/// The statistics of each tensor.
pub(super) fn describe(tensors: &Tensors<'_>) -> Vec<Described> {
    tensors.iter().map(|tensor| Described::new(tensor.name(), &tensor)).collect()
}

/// The record of the current batch. Its memory is reused.
#[derive(Clone, Debug, Default)]
pub(super) struct BatchRecord {
    pub(super) found: Vec<Finding>,
    pub(super) loss: Option<f64>,
    pub(super) parameters: Vec<Described>,
    pub(super) gradients: Vec<Described>,
    activations: Vec<Described>,
    /// The number of activations of this batch.
    shown: usize,
}

impl BatchRecord {
    /// Clears the record for a new batch.
    pub(super) fn clear(&mut self) {
        (self.loss, self.shown) = (None, 0);
        self.found.clear();
        self.parameters.clear();
        self.gradients.clear();
    }

    pub(super) fn loss(&mut self, value: f64) {
        self.loss = Some(value);
        if !value.is_finite() {
            self.found.push(Finding::Loss { value });
        }
    }

    pub(super) fn activation(&mut self, point: &str, tensor: &Tensor<'_>) {
        if tensor.stats().non_finite > 0 {
            self.found.push(Finding::Activation(ValueCounts::of(point, tensor)));
        }
        let known = self.activations.get_mut(self.shown).is_some_and(|known| known.update(point, tensor));
        if !known {
            // The module exposed other points in the last batch.
            self.activations.truncate(self.shown);
            self.activations.push(Described::new(point, tensor));
        }
        self.shown += 1;
    }

    pub(super) fn gradients(&mut self, gradients: &Tensors<'_>) {
        for gradient in gradients.iter() {
            if gradient.stats().non_finite > 0 {
                self.found.push(Finding::Gradient(ValueCounts::of(gradient.name(), &gradient)));
            }
        }
    }

    /// The activations of this batch.
    pub(super) fn activations(&self) -> &[Described] {
        &self.activations[..self.shown]
    }
}

/// The maximum number of names in a message; the report has all.
const MAX_NAMED: usize = 5;

/// The findings as a message.
pub(super) fn summary(found: &[Finding]) -> String {
    let (mut losses, mut activations, mut gradients) = (Vec::new(), Vec::new(), Vec::new());
    for finding in found {
        match finding {
            Finding::Loss { value } => losses.push(format!("the loss is {value}")),
            Finding::Activation(tensor) => activations.push(tensor),
            Finding::Gradient(tensor) => gradients.push(tensor),
        }
    }
    let list = |what: &str, tensors: &[&ValueCounts]| {
        let named = tensors.iter().take(MAX_NAMED).map(|tensor| {
            let ValueCounts { name, non_finite, count, .. } = tensor;
            format!("`{name}` ({non_finite} of {count})")
        });
        let more = tensors.len().saturating_sub(MAX_NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("values are not finite in {what} {}{more}", named.collect::<Vec<_>>().join(", "))
    };
    let mut parts = losses;
    for (what, tensors) in [("activation", &activations), ("the gradient of", &gradients)] {
        if !tensors.is_empty() {
            parts.push(list(what, tensors));
        }
    }
    parts.join("; ")
}
