//! What is handed to the worker, and what the worker makes of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use tenterhook_core::HookResult;
use tenterhook_core::metrics::Histogram;
use tenterhook_core::tensor::Tensor;

use super::event::{self, Summary};
use super::image::Layout;

/// So many bytes of values may wait to be counted. Beyond that the training thread counts them itself: a queue of
/// gradients must not fill the memory.
const MOST_HELD: usize = 256 << 20;

/// One event, before it is written.
pub(super) struct Entry {
    pub(super) wall_time: f64,
    pub(super) step: u64,
    pub(super) what: What,
}

pub(super) enum What {
    Line { metrics: BTreeMap<String, f64>, histograms: BTreeMap<String, Histogram> },
    Values { of: Vec<(String, Spread)>, bins: usize },
    Images { tag: String, layout: Layout, values: Vec<f32> },
    Config(Value),
}

/// The memory that all values take up together which wait.
#[derive(Clone, Debug, Default)]
pub(super) struct Held(Arc<AtomicUsize>);

/// Values, or how they are spread.
pub(super) enum Spread {
    Values(Counted),
    Histogram(Histogram),
}

/// Values that are counted among those that wait, for as long as they exist.
pub(super) struct Counted {
    values: Vec<f32>,
    held: Held,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.held.0.fetch_sub(size_of_val(self.values.as_slice()), Ordering::Relaxed);
    }
}

impl Held {
    /// A copy of a tensor's values, or what is made of them here if too much waits already.
    pub(super) fn spread(&self, tensor: &Tensor<'_>, bins: usize) -> Spread {
        self.spread_within(MOST_HELD, tensor.to_vec(), bins)
    }

    fn spread_within(&self, most: usize, values: Vec<f32>, bins: usize) -> Spread {
        let size = size_of_val(values.as_slice());
        if self.0.fetch_add(size, Ordering::Relaxed).saturating_add(size) <= most {
            return Spread::Values(Counted { values, held: self.clone() });
        }
        self.0.fetch_sub(size, Ordering::Relaxed);
        Spread::Histogram(Histogram::of(&values, bins))
    }
}

impl Spread {
    fn into_histogram(self, bins: usize) -> Histogram {
        match self {
            Spread::Values(counted) => Histogram::of(&counted.values, bins),
            Spread::Histogram(histogram) => histogram,
        }
    }
}

impl Entry {
    pub(super) fn into_event(self) -> HookResult<Vec<u8>> {
        let mut summary = Summary::new(self.wall_time, self.step);
        match self.what {
            What::Line { metrics, histograms } => {
                return Ok(event::logged(self.wall_time, self.step, &metrics, &histograms));
            }
            What::Values { of, bins } => {
                for (tag, spread) in of {
                    summary.histogram(&tag, &spread.into_histogram(bins));
                }
            }
            What::Images { tag, layout, values } => {
                summary.images(&tag, layout.size(), &layout.files(&values)?);
            }
            // By indentation, since a fence could stand in a text of the configuration.
            What::Config(config) => {
                let text = serde_json::to_string_pretty(&config)?;
                let lines: Vec<_> = text.lines().map(|line| format!("    {line}")).collect();
                summary.text("config", &lines.join("\n"));
            }
        }
        Ok(summary.into_event())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_wait_as_they_are_until_they_take_too_much_memory() {
        let held = Held::default();
        let values = || vec![1.0, 2.0, 3.0, 4.0];
        let first = held.spread_within(24, values(), 2);
        assert!(matches!(first, Spread::Values(_)));
        let second = held.spread_within(24, values(), 2);
        assert!(matches!(second, Spread::Histogram(_)));
        assert_eq!(first.into_histogram(2), second.into_histogram(2));
        assert!(matches!(held.spread_within(24, values(), 2), Spread::Values(_)), "there is room again");
        assert_eq!(held.0.load(Ordering::Relaxed), 0);
    }
}
