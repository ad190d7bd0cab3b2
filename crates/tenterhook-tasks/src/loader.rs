//! The `[loader]` table, which all tasks share.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook::data::Batches;
use tenterhook::memory::Estimate;
use tenterhook::task::Problem;

const MAX_THREADS: usize = 1024;

/// Batching and loading of samples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LoaderOptions {
    /// Samples per batch.
    pub batch_size: usize,
    /// Shuffles the training samples in every epoch. The order depends on the seed only.
    pub shuffle: bool,
    /// Drops the last training batch of an epoch if it is incomplete.
    pub drop_last: bool,
    /// Worker threads that load batches; 0 loads them in the training thread. The batches do not depend on
    /// this number.
    #[schemars(extend("x-harmless-change" = true))]
    pub threads: usize,
    /// Batches that the worker threads load in advance.
    #[schemars(extend("x-harmless-change" = true))]
    pub prefetch: usize,
}

impl Default for LoaderOptions {
    fn default() -> LoaderOptions {
        LoaderOptions { batch_size: 32, shuffle: true, drop_last: false, threads: 1, prefetch: 4 }
    }
}

impl LoaderOptions {
    /// All invalid options.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.batch_size == 0 {
            problems.push(Problem::new("loader.batch_size", "a batch needs at least 1 sample"));
        }
        if self.threads > 0 && self.prefetch == 0 {
            let fix = "raise it, or set `threads = 0`";
            problems.push(Problem::new("loader.prefetch", "threads must be at least 1 batch ahead").fix(fix));
        }
        if self.threads > MAX_THREADS {
            let message = format!("{} threads are more than a machine can use", self.threads);
            problems.push(Problem::new("loader.threads", message).fix(format!("set at most {MAX_THREADS}")));
        }
        problems
    }

    /// The size of the largest batch for this number of samples.
    pub(crate) fn largest_batch(&self, samples: usize) -> f64 {
        self.batch_size.min(samples) as f64
    }

    /// The key of the batch size, and the ratio of this size to the default, for [`Estimate::part_of`].
    pub(crate) fn batch_size_key(batch: f64) -> (&'static str, f64) {
        ("loader.batch_size", batch / LoaderOptions::default().batch_size as f64)
    }

    /// Adds the memory of the current batch and of the prefetched ones.
    pub(crate) fn with_batches(&self, estimate: Estimate, samples: usize, bytes_of_sample: f64) -> Estimate {
        let batch = self.batch_size.min(samples);
        let batches = samples.checked_div(batch).unwrap_or(0).saturating_add(1);
        let prefetched = if self.threads == 0 { 0 } else { self.prefetch.min(batches) };
        let prefetch = self.prefetch as f64 / LoaderOptions::default().prefetch as f64;
        let keys = [LoaderOptions::batch_size_key(batch as f64), ("loader.prefetch", prefetch)];
        let bytes = bytes_of_sample * batch as f64 * (prefetched as f64 + 1.0);
        estimate.part_of(&keys, "the batches that are loaded ahead", bytes)
    }

    /// The loader of the training set.
    pub(crate) fn training<B: Send + 'static>(&self, batches: Batches<B>, seed: u64) -> Batches<B> {
        let batches = if self.shuffle { batches.shuffled(seed) } else { batches };
        self.evaluating(if self.drop_last { batches.drop_last() } else { batches })
    }

    /// The loader of an evaluation: all samples in order.
    pub(crate) fn evaluating<B: Send + 'static>(&self, batches: Batches<B>) -> Batches<B> {
        batches.size(self.batch_size).threads(self.threads).prefetch(self.prefetch)
    }
}
