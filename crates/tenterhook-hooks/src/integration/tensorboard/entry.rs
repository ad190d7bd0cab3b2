//! The items of the worker's queue, and their conversion to events.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use tenterhook_core::HookResult;
use tenterhook_core::metrics::Histogram;
use tenterhook_core::tensor::Tensor;

use super::event::{self, Summary};
use super::image::ImageLayout;

/// The maximum size in bytes of values that wait for the worker. Beyond it, the training thread bins them itself, so that a
/// queue of gradients does not fill the memory.
const MAX_QUEUED: usize = 256 << 20;

/// An event before it is encoded.
pub(super) struct Entry {
    pub(super) wall_time: f64,
    pub(super) step: u64,
    pub(super) content: Content,
}

pub(super) enum Content {
    Line { metrics: BTreeMap<String, f64>, histograms: BTreeMap<String, Histogram> },
    Values { by_tag: Vec<(String, Values)>, bins: usize },
    Images { tag: String, layout: ImageLayout, values: Vec<f32> },
    Config(Value),
}

/// The size in bytes of all values that wait for the worker.
#[derive(Clone, Debug, Default)]
pub(super) struct QueuedMemory(Arc<AtomicUsize>);

/// Values of a tensor, or their histogram.
pub(super) enum Values {
    Raw(QueuedValues),
    Binned(Histogram),
}

/// Values whose size is counted until they are dropped.
pub(super) struct QueuedValues {
    values: Vec<f32>,
    queued: QueuedMemory,
}

impl Drop for QueuedValues {
    fn drop(&mut self) {
        self.queued.0.fetch_sub(size_of_val(self.values.as_slice()), Ordering::Relaxed);
    }
}

impl QueuedMemory {
    /// A copy of a tensor's values, or their histogram if too many values wait.
    pub(super) fn values(&self, tensor: &Tensor<'_>, bins: usize) -> Values {
        self.values_within(MAX_QUEUED, tensor.to_vec(), bins)
    }

    fn values_within(&self, max: usize, values: Vec<f32>, bins: usize) -> Values {
        let size = size_of_val(values.as_slice());
        if self.0.fetch_add(size, Ordering::Relaxed).saturating_add(size) <= max {
            return Values::Raw(QueuedValues { values, queued: self.clone() });
        }
        self.0.fetch_sub(size, Ordering::Relaxed);
        Values::Binned(Histogram::of(&values, bins))
    }
}

impl Values {
    fn into_histogram(self, bins: usize) -> Histogram {
        match self {
            Values::Raw(raw) => Histogram::of(&raw.values, bins),
            Values::Binned(histogram) => histogram,
        }
    }
}

impl Entry {
    pub(super) fn into_event(self) -> HookResult<Vec<u8>> {
        let mut summary = Summary::new(self.wall_time, self.step);
        match self.content {
            Content::Line { metrics, histograms } => {
                return Ok(event::logged(self.wall_time, self.step, &metrics, &histograms));
            }
            Content::Values { by_tag, bins } => {
                for (tag, values) in by_tag {
                    summary.histogram(&tag, &values.into_histogram(bins));
                }
            }
            Content::Images { tag, layout, values } => {
                summary.images(&tag, layout.size(), &layout.files(&values)?);
            }
            // Indented, because a text of the configuration may contain a code fence.
            Content::Config(config) => {
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
    fn values_are_binned_at_once_while_too_many_wait() {
        let queued = QueuedMemory::default();
        let values = || vec![1.0, 2.0, 3.0, 4.0];
        let first = queued.values_within(24, values(), 2);
        assert!(matches!(first, Values::Raw(_)));
        let second = queued.values_within(24, values(), 2);
        assert!(matches!(second, Values::Binned(_)));
        assert_eq!(first.into_histogram(2), second.into_histogram(2));
        assert!(matches!(queued.values_within(24, values(), 2), Values::Raw(_)), "there is room again");
        assert_eq!(queued.0.load(Ordering::Relaxed), 0);
    }
}
