//! Logged metrics: their latest values, and their aggregation over an epoch.

mod aggregate;
mod histogram;
mod ranks;
mod since;
mod state;
mod values;
mod view;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use aggregate::{Epoch, Epochs};
pub use aggregate::{LogOptions, Reduce};
pub use histogram::Histogram;
pub use ranks::Aggregates;
pub use since::LogPosition;
pub use state::MetricsState;
use values::{Latest, Values};
pub use view::MetricsView;

/// The metrics of a run: their latest values, and the aggregates of the current epoch and evaluation.
#[derive(Default)]
pub struct Metrics {
    values: RefCell<Values>,
    epochs: RefCell<Epochs>,
    batch_size: Cell<usize>,
    /// The metrics that the module logged for the current evaluation batch, if a hook wants them.
    evaluation_batch: RefCell<Option<BTreeMap<String, f64>>>,
    /// The latest histogram logged under each name since the last `take_histograms`.
    histograms: RefCell<BTreeMap<String, Histogram>>,
    /// Names that hooks cannot log, and whether a hook has tried to.
    reserved: RefCell<BTreeMap<String, bool>>,
}

/// A hook logged under a name that the module or the trainer logs.
pub(crate) struct ReservedName {
    /// Whether it is the first attempt under this name.
    pub(crate) first: bool,
}

impl Metrics {
    /// The latest value of a metric.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<f64> {
        self.values.borrow().latest.get(name).map(|latest| latest.value)
    }

    /// The optimizer step that the metric's latest value belongs to.
    #[must_use]
    pub fn step_of(&self, name: &str) -> Option<u64> {
        self.values.borrow().latest.get(name).map(|latest| latest.step)
    }

    /// The names of all metrics, sorted.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.values.borrow().latest.keys().cloned().collect()
    }

    /// The latest values of all metrics.
    #[must_use]
    pub fn to_map(&self) -> BTreeMap<String, f64> {
        self.values.borrow().latest.iter().map(|(name, latest)| (name.clone(), latest.value)).collect()
    }

    /// Logs a metric.
    pub fn log(&self, name: &str, value: f64, options: LogOptions) {
        let mut values = self.values.borrow_mut();
        if let Some(batch) = self.evaluation_batch.borrow_mut().as_mut().filter(|_| !values.entry.by_hook) {
            batch.insert(name.to_owned(), value);
        }
        if options.on_epoch {
            let weight = options.weight.unwrap_or_else(|| self.batch_size.get().max(1) as f64);
            self.epochs.borrow_mut().add(name, (value, weight), options, &mut values);
        } else {
            values.show(name, value);
        }
    }

    /// Logs a metric of a hook, unless the name is reserved.
    pub(crate) fn log_as_hook(
        &self,
        name: &str,
        value: f64,
        options: LogOptions,
    ) -> Result<(), ReservedName> {
        if let Some(attempted) = self.reserved.borrow_mut().get_mut(name) {
            return Err(ReservedName { first: !std::mem::replace(attempted, true) });
        }
        self.values.borrow_mut().entry.by_hook = true;
        self.log(name, value, options);
        self.values.borrow_mut().entry.by_hook = false;
        Ok(())
    }

    /// Sets a value that only observers see until the metric is logged again. A value read because an observer
    /// asked for it must not influence a controller.
    pub fn log_for_observers(&self, name: &str, value: f64) {
        let mut values = self.values.borrow_mut();
        let latest = values.newest(value);
        values.observed.insert(name.to_owned(), latest);
    }
}

/// Methods for the loop, which hooks cannot call.
impl Metrics {
    /// Reserves the names of metrics that the module and the trainer log. Hooks cannot log them.
    pub fn reserve(&self, names: impl IntoIterator<Item = String>) {
        *self.reserved.borrow_mut() = names.into_iter().map(|name| (name, false)).collect();
    }

    /// Sets the size of the next batch.
    pub fn set_batch_size(&self, size: usize) {
        self.batch_size.set(size);
    }

    /// Begins a call of `fit`. Steps count from 0; values logged before it get step 0.
    pub fn begin_fit(&self) {
        let mut values = self.values.borrow_mut();
        values.step = 0;
        values.latest.values_mut().for_each(|latest| latest.step = 0);
        values.observed.clear();
    }

    /// Sets the optimizer step of the metrics that are logged next.
    #[inline]
    pub fn set_step(&self, step: u64) {
        self.values.borrow_mut().step = step;
    }

    /// Logs a histogram. Only the latest one of a name is kept until it is taken.
    pub fn log_histogram(&self, name: &str, histogram: Histogram) {
        self.histograms.borrow_mut().insert(name.to_owned(), histogram);
    }

    /// Whether there are histograms to take.
    #[inline]
    #[must_use]
    pub fn has_histograms(&self) -> bool {
        !self.histograms.borrow().is_empty()
    }

    /// The histograms since the last call.
    #[must_use]
    pub fn take_histograms(&self) -> BTreeMap<String, Histogram> {
        self.histograms.take()
    }

    /// Begins an epoch of training.
    pub fn begin_epoch(&self) {
        self.epochs.borrow_mut().train = Epoch::default();
    }

    /// Begins an evaluation. The aggregates of training are suspended.
    pub fn begin_evaluation(&self) {
        self.epochs.borrow_mut().evaluate = Some(Epoch::default());
    }

    /// Sets the loader of the current evaluation batches, if there are several loaders.
    pub fn set_loader(&self, loader: Option<&str>) {
        let current = &mut self.epochs.borrow_mut().loader;
        if current.as_deref() != loader {
            *current = loader.map(str::to_owned);
        }
    }

    /// Completes the aggregates of the current epoch or evaluation after its last batch.
    pub fn finish_aggregates(&self) {
        self.epochs.borrow_mut().finish(&mut self.values.borrow_mut());
    }

    /// Begins an evaluation batch. If `wanted`, the metrics that the module logs for it are also recorded
    /// separately.
    pub fn begin_evaluation_batch(&self, wanted: bool) {
        *self.evaluation_batch.borrow_mut() = wanted.then(BTreeMap::new);
    }

    /// The metrics that the module logged for the batch.
    #[must_use]
    pub fn take_evaluation_batch_metrics(&self) -> BTreeMap<String, f64> {
        self.evaluation_batch.take().unwrap_or_default()
    }

    /// Ends an evaluation. Training continues.
    pub fn end_evaluation(&self) {
        self.evaluation_batch.take();
        self.set_loader(None);
        self.epochs.borrow_mut().evaluate = None;
    }

    /// The metrics that were logged since the last call. If there are none, this costs only a branch.
    #[inline]
    pub fn take_changes(&self) -> Option<BTreeMap<String, f64>> {
        let mut values = self.values.borrow_mut();
        values.changed.then(|| values.take_changes())
    }
}

/// Formats the latest values as a map.
impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.to_map().fmt(f)
    }
}

#[cfg(test)]
mod tests;
