//! Logged numbers: their latest values, and their aggregation over an epoch.

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
pub use since::Mark;
pub use state::MetricsState;
use values::{Latest, Values};
pub use view::Logged;

/// The numbers of a run: latest values by name, and what is being aggregated.
#[derive(Default)]
pub struct Metrics {
    values: RefCell<Values>,
    epochs: RefCell<Epochs>,
    batch_size: Cell<usize>,
    /// What the module has logged for the batch that is evaluated, while somebody wants to know.
    batch: RefCell<Option<BTreeMap<String, f64>>>,
    /// The histograms that were logged since somebody took them, each name's latest.
    histograms: RefCell<BTreeMap<String, Histogram>>,
    /// Names that are not the hooks' to log, and whether a hook that tried has been told.
    reserved: RefCell<BTreeMap<String, bool>>,
}

/// Whether a hook that logs a name that is not its own has been told.
pub(crate) enum Told {
    Now,
    Before,
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

    /// The names there are, in order.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.values.borrow().latest.keys().cloned().collect()
    }

    /// All latest values, in order of name.
    #[must_use]
    pub fn to_map(&self) -> BTreeMap<String, f64> {
        self.values.borrow().latest.iter().map(|(name, latest)| (name.clone(), latest.value)).collect()
    }

    /// Logs a number.
    pub fn log(&self, name: &str, value: f64, options: LogOptions) {
        let mut values = self.values.borrow_mut();
        if let Some(batch) = self.batch.borrow_mut().as_mut().filter(|_| !values.place.by_hook) {
            batch.insert(name.to_owned(), value);
        }
        if options.on_epoch {
            let weight = options.weight.unwrap_or_else(|| self.batch_size.get().max(1) as f64);
            self.epochs.borrow_mut().add(name, (value, weight), options, &mut values);
        } else {
            values.show(name, value);
        }
    }

    /// Logs a hook's number, unless the name is somebody else's.
    pub(crate) fn log_as_hook(&self, name: &str, value: f64, options: LogOptions) -> Result<(), Told> {
        if let Some(told) = self.reserved.borrow_mut().get_mut(name) {
            return Err(if std::mem::replace(told, true) { Told::Before } else { Told::Now });
        }
        self.values.borrow_mut().place.by_hook = true;
        self.log(name, value, options);
        self.values.borrow_mut().place.by_hook = false;
        Ok(())
    }

    /// Shows a number to observers alone, until it is logged for everybody again: what an observer wants to read
    /// must not become a number that a controller decides by.
    pub fn log_for_observers(&self, name: &str, value: f64) {
        let mut values = self.values.borrow_mut();
        let latest = values.newest(value);
        values.observed.insert(name.to_owned(), latest);
    }
}

/// What the loop does with the metrics; hooks cannot.
impl Metrics {
    /// These names are the module's and the trainer's; what hooks log under them is left out.
    pub fn reserve(&self, names: impl IntoIterator<Item = String>) {
        *self.reserved.borrow_mut() = names.into_iter().map(|name| (name, false)).collect();
    }

    /// A batch of this size comes next.
    pub fn set_batch_size(&self, size: usize) {
        self.batch_size.set(size);
    }

    /// A fit begins, which counts its steps anew: what was logged before belongs to none of them.
    pub fn begin_fit(&self) {
        let mut values = self.values.borrow_mut();
        values.step = 0;
        values.latest.values_mut().for_each(|latest| latest.step = 0);
        values.observed.clear();
    }

    /// What is logged from here on belongs to this optimizer step.
    #[inline]
    pub fn set_step(&self, step: u64) {
        self.values.borrow_mut().step = step;
    }

    /// Logs a histogram; only the latest of a name waits to be taken.
    pub fn log_histogram(&self, name: &str, histogram: Histogram) {
        self.histograms.borrow_mut().insert(name.to_owned(), histogram);
    }

    /// Whether histograms wait to be taken.
    #[inline]
    #[must_use]
    pub fn has_histograms(&self) -> bool {
        !self.histograms.borrow().is_empty()
    }

    /// The histograms that were logged since the last call, in order of name.
    #[must_use]
    pub fn take_histograms(&self) -> BTreeMap<String, Histogram> {
        self.histograms.take()
    }

    /// An epoch of training begins.
    pub fn begin_epoch(&self) {
        self.epochs.borrow_mut().train = Epoch::default();
    }

    /// An evaluation begins; what training aggregates waits.
    pub fn begin_evaluation(&self) {
        self.epochs.borrow_mut().evaluate = Some(Epoch::default());
    }

    /// The loader that evaluation batches come from now, when there are several.
    pub fn set_loader(&self, loader: Option<&str>) {
        let current = &mut self.epochs.borrow_mut().loader;
        if current.as_deref() != loader {
            *current = loader.map(str::to_owned);
        }
    }

    /// The epoch, or the evaluation, has seen its last batch.
    pub fn close(&self) {
        self.epochs.borrow_mut().close(&mut self.values.borrow_mut());
    }

    /// The module's step for a batch of an evaluation comes next; what it logs is kept apart where a hook wants it.
    pub fn begin_batch(&self, wanted: bool) {
        *self.batch.borrow_mut() = wanted.then(BTreeMap::new);
    }

    /// What the module has logged for that batch.
    #[must_use]
    pub fn take_batch(&self) -> BTreeMap<String, f64> {
        self.batch.take().unwrap_or_default()
    }

    /// The evaluation is over; training goes on.
    pub fn end_evaluation(&self) {
        self.batch.take();
        self.set_loader(None);
        self.epochs.borrow_mut().evaluate = None;
    }

    /// What was logged since the last call, in order of name. When nothing was, it costs a branch.
    #[inline]
    pub fn take_changes(&self) -> Option<BTreeMap<String, f64>> {
        let mut values = self.values.borrow_mut();
        values.changed.then(|| values.take_changes())
    }
}

/// The latest values, as a map.
impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.to_map().fmt(f)
    }
}

#[cfg(test)]
mod tests;
