//! The `[loader]` table, the same for every task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook::data::Batches;
use tenterhook::task::Problem;

/// More threads than this are a mistake.
const MOST_THREADS: usize = 1024;

/// How samples become batches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LoaderOptions {
    /// Samples in a batch.
    pub batch_size: usize,
    /// Whether the training samples come in another order in every epoch, as the seed says.
    pub shuffle: bool,
    /// Whether a last batch that is not full is left out of training.
    pub drop_last: bool,
    /// Threads that load ahead of training; 0 loads in between. The batches are the same for any number.
    #[schemars(extend("x-harmless-change" = true))]
    pub threads: usize,
    /// How many batches they are ahead at most.
    #[schemars(extend("x-harmless-change" = true))]
    pub prefetch: usize,
}

impl Default for LoaderOptions {
    fn default() -> LoaderOptions {
        LoaderOptions { batch_size: 32, shuffle: true, drop_last: false, threads: 1, prefetch: 4 }
    }
}

impl LoaderOptions {
    /// Everything that is wrong with them.
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
        if self.threads > MOST_THREADS {
            let message = format!("{} threads are more than a machine can use", self.threads);
            problems.push(Problem::new("loader.threads", message).fix(format!("set at most {MOST_THREADS}")));
        }
        problems
    }

    /// How many samples a batch has at most, of this many samples, and how many batches are in memory at once.
    pub(crate) fn largest_batch(&self, samples: usize) -> (f64, f64) {
        let size = self.batch_size.min(samples);
        let batches = samples.checked_div(size).unwrap_or(0).saturating_add(1);
        let ahead = if self.threads == 0 { 0 } else { self.prefetch.min(batches) };
        (size as f64, ahead as f64 + 1.0)
    }

    /// A batch of this many samples, in usual batches, for [`Estimate::part_of`](tenterhook::memory::Estimate::part_of).
    pub(crate) fn batch_size(batch: f64) -> (&'static str, f64) {
        ("loader.batch_size", batch / LoaderOptions::default().batch_size as f64)
    }

    /// The keys that the batches loaded ahead depend on, where a batch has this many samples.
    pub(crate) fn sizes_ahead(&self, batch: f64) -> [(&'static str, f64); 2] {
        let usual = LoaderOptions::default().prefetch as f64;
        [LoaderOptions::batch_size(batch), ("loader.prefetch", self.prefetch as f64 / usual)]
    }

    /// A loader to train on.
    pub(crate) fn training<B: Send + 'static>(&self, batches: Batches<B>, seed: u64) -> Batches<B> {
        let batches = if self.shuffle { batches.shuffled(seed) } else { batches };
        self.evaluating(if self.drop_last { batches.drop_last() } else { batches })
    }

    /// A loader to evaluate on: in order, and all of it.
    pub(crate) fn evaluating<B: Send + 'static>(&self, batches: Batches<B>) -> Batches<B> {
        batches.size(self.batch_size).threads(self.threads).prefetch(self.prefetch)
    }
}
