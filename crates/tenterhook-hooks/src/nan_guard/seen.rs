//! What was seen of the batch at hand: what is not finite, and the statistics of everything.

use serde::Serialize;
use tenterhook_core::{Tensor, TensorStats, Tensors};

/// Something that is not finite.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "in", rename_all = "snake_case")]
pub(super) enum Finding {
    Loss {
        #[serde(with = "tenterhook_core::number")]
        value: f64,
    },
    Activation(Share),
    Gradient(Share),
}

/// How many of a tensor's values are not finite.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Share {
    name: String,
    non_finite: usize,
    nan: usize,
    infinite: usize,
    count: usize,
}

impl Share {
    fn of(name: &str, tensor: &Tensor<'_>) -> Share {
        let TensorStats { non_finite, count, .. } = tensor.stats();
        let nan = nans(tensor);
        Share { name: name.to_owned(), non_finite, nan, infinite: non_finite - nan, count }
    }
}

/// How many values are NaN. They are read only where some are not finite.
fn nans(tensor: &Tensor<'_>) -> usize {
    let non_finite = tensor.stats().non_finite;
    if non_finite == 0 {
        return 0;
    }
    // An engine may compute with other numbers than it shows.
    tensor.to_vec().iter().filter(|value| value.is_nan()).count().min(non_finite)
}

/// A tensor by its statistics.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Described {
    name: String,
    shape: Vec<usize>,
    dtype: &'static str,
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

impl Described {
    fn new(name: &str, tensor: &Tensor<'_>) -> Described {
        let TensorStats { count, mean, std, min, max, norm, zeros, non_finite } = tensor.stats();
        let (name, shape, dtype) = (name.to_owned(), tensor.shape().to_vec(), tensor.dtype().name());
        let nan = nans(tensor);
        let infinite = non_finite - nan;
        Described { name, shape, dtype, count, non_finite, nan, infinite, zeros, mean, std, min, max, norm }
    }

    /// Describes the tensor here if it is this one again: step after step, the same points come.
    fn renew(&mut self, name: &str, tensor: &Tensor<'_>) -> bool {
        if self.name != name || self.shape != tensor.shape() {
            return false;
        }
        let TensorStats { count, mean, std, min, max, norm, zeros, non_finite } = tensor.stats();
        (self.count, self.non_finite, self.zeros) = (count, non_finite, zeros);
        self.nan = nans(tensor);
        self.infinite = non_finite - self.nan;
        (self.mean, self.std, self.min, self.max, self.norm) = (mean, std, min, max, norm);
        true
    }
}

/// Each tensor by its statistics.
pub(super) fn describe(tensors: &Tensors<'_>) -> Vec<Described> {
    tensors.iter().map(|tensor| Described::new(tensor.name(), &tensor)).collect()
}

/// What was seen of the batch at hand. Batch after batch it uses the same memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) found: Vec<Finding>,
    pub(super) loss: Option<f64>,
    pub(super) parameters: Vec<Described>,
    pub(super) gradients: Vec<Described>,
    activations: Vec<Described>,
    /// How many of the activations are of this batch.
    shown: usize,
}

impl Seen {
    /// A new batch begins.
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
            self.found.push(Finding::Activation(Share::of(point, tensor)));
        }
        let known = self.activations.get_mut(self.shown).is_some_and(|known| known.renew(point, tensor));
        if !known {
            // The module took another way than last time.
            self.activations.truncate(self.shown);
            self.activations.push(Described::new(point, tensor));
        }
        self.shown += 1;
    }

    pub(super) fn gradients(&mut self, gradients: &Tensors<'_>) {
        for gradient in gradients.iter() {
            if gradient.stats().non_finite > 0 {
                self.found.push(Finding::Gradient(Share::of(gradient.name(), &gradient)));
            }
        }
    }

    /// The activations of this batch.
    pub(super) fn activations(&self) -> &[Described] {
        &self.activations[..self.shown]
    }
}

/// How many names a sentence has; the report has them all.
const NAMED: usize = 5;

/// What was found, in words.
pub(super) fn in_words(found: &[Finding]) -> String {
    let (mut losses, mut activations, mut gradients) = (Vec::new(), Vec::new(), Vec::new());
    for finding in found {
        match finding {
            Finding::Loss { value } => losses.push(format!("the loss is {value}")),
            Finding::Activation(share) => activations.push(share),
            Finding::Gradient(share) => gradients.push(share),
        }
    }
    let listed = |what: &str, shares: &[&Share]| {
        let named = shares.iter().take(NAMED).map(|share| {
            let Share { name, non_finite, count, .. } = share;
            format!("`{name}` ({non_finite} of {count})")
        });
        let more = shares.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("values are not finite in {what} {}{more}", named.collect::<Vec<_>>().join(", "))
    };
    let mut parts = losses;
    for (what, shares) in [("activation", &activations), ("the gradient of", &gradients)] {
        if !shares.is_empty() {
            parts.push(listed(what, shares));
        }
    }
    parts.join("; ")
}
