//! Logged numbers: their latest values, and their aggregation over an epoch.

mod aggregate;
mod histogram;
mod logged;
mod ranks;
mod since;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use aggregate::{Epoch, Running};
pub use aggregate::{LogOptions, Reduce};
pub use histogram::Histogram;
pub use logged::Logged;
pub use ranks::Aggregates;
pub use since::Mark;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Scope {
    #[default]
    Train,
    Evaluate,
}

/// The latest value of a metric, and whether it was logged since it was last asked what was.
#[derive(Clone, Copy, Debug)]
struct Latest {
    value: f64,
    changed: bool,
    /// The step that it belongs to.
    step: u64,
    place: Place,
}

/// Where a metric's latest value stands among everything that was logged, and whose it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Place {
    number: u64,
    by_hook: bool,
}

/// The numbers of a run: latest values by name, and what is being aggregated.
#[derive(Default)]
pub struct Metrics {
    latest: RefCell<BTreeMap<String, Latest>>,
    /// What is newer and only observers see, because only they asked for it.
    observed: RefCell<BTreeMap<String, Latest>>,
    /// Something was logged since it was last asked what.
    changed: Cell<bool>,
    /// How often anything was logged, and whether a hook is logging now.
    place: Cell<Place>,
    train: RefCell<Epoch>,
    evaluate: RefCell<Epoch>,
    scope: Cell<Scope>,
    batch_size: Cell<usize>,
    loader: RefCell<Option<String>>,
    /// What the module has logged for the batch that is evaluated, while somebody wants to know.
    batch: RefCell<Option<BTreeMap<String, f64>>>,
    /// The optimizer step that is being worked on, or that was completed last.
    step: Cell<u64>,
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

/// What only observers see, as a checkpoint holds it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Observed {
    #[serde(with = "crate::number")]
    value: f64,
    step: u64,
    place: Place,
}

/// The metrics of a run as a checkpoint holds them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MetricsState {
    #[serde(with = "crate::number::map")]
    latest: BTreeMap<String, f64>,
    /// The step that each belongs to; what an older checkpoint lacks counts as logged at 0.
    #[serde(default)]
    steps: BTreeMap<String, u64>,
    /// What only observers see, and the step that it belongs to.
    #[serde(default)]
    observed: BTreeMap<String, Observed>,
    #[serde(default)]
    places: BTreeMap<String, Place>,
    #[serde(default)]
    place: Place,
    train: Epoch,
    /// What an evaluation is aggregating, while there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    evaluate: Option<Epoch>,
    /// What was logged and not yet taken by whoever writes it down.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    changed: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    histograms: BTreeMap<String, Histogram>,
    /// The step that what is logged next belongs to.
    #[serde(default)]
    step: u64,
    #[serde(default)]
    batch_size: usize,
}

impl MetricsState {
    /// All latest values, in order of name.
    #[must_use]
    pub fn latest(&self) -> &BTreeMap<String, f64> {
        &self.latest
    }

    /// The optimizer step that each of the latest values belongs to.
    #[must_use]
    pub fn steps(&self) -> &BTreeMap<String, u64> {
        &self.steps
    }
}

impl Metrics {
    /// The latest value of a metric.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<f64> {
        self.latest.borrow().get(name).map(|latest| latest.value)
    }

    /// The optimizer step that the metric's latest value belongs to.
    #[must_use]
    pub fn step_of(&self, name: &str) -> Option<u64> {
        self.latest.borrow().get(name).map(|latest| latest.step)
    }

    /// The names there are, in order.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.latest.borrow().keys().cloned().collect()
    }

    /// All latest values, in order of name.
    #[must_use]
    pub fn to_map(&self) -> BTreeMap<String, f64> {
        self.latest.borrow().iter().map(|(name, latest)| (name.clone(), latest.value)).collect()
    }

    /// Logs a number.
    pub fn log(&self, name: &str, value: f64, options: LogOptions) {
        if let Some(batch) = self.batch.borrow_mut().as_mut().filter(|_| !self.place.get().by_hook) {
            batch.insert(name.to_owned(), value);
        }
        if !options.on_epoch {
            return self.show(name, value);
        }
        let loader = self.loader.borrow();
        let of_loader = loader.as_ref().map(|loader| format!("{name}/{loader}"));
        let full = of_loader.as_deref().unwrap_or(name);
        if options.on_step {
            self.show(full, value);
            self.show(&format!("{full}_step"), value);
        }
        let weight = options.weight.unwrap_or_else(|| self.batch_size.get().max(1) as f64);
        let mut epoch = self.epoch().borrow_mut();
        if !epoch.running.contains_key(full) {
            let running = Running {
                reduce: options.reduce,
                value: Running::start(options.reduce),
                weight: 0.0,
                also_on_step: options.on_step,
                mean_of: loader.is_some().then(|| name.to_owned()),
            };
            epoch.running.insert(full.to_owned(), running);
        }
        if let Some(running) = epoch.running.get_mut(full) {
            running.add(value, weight);
        }
        if epoch.closed
            && let Some(running) = epoch.running.get(full)
        {
            self.publish_one(full, running);
        }
    }

    /// Logs a hook's number, unless the name is somebody else's.
    pub(crate) fn log_as_hook(&self, name: &str, value: f64, options: LogOptions) -> Result<(), Told> {
        if let Some(told) = self.reserved.borrow_mut().get_mut(name) {
            return Err(if std::mem::replace(told, true) { Told::Before } else { Told::Now });
        }
        self.place.set(Place { by_hook: true, ..self.place.get() });
        self.log(name, value, options);
        self.place.set(Place { by_hook: false, ..self.place.get() });
        Ok(())
    }

    /// Shows a number to observers alone, until it is logged for everybody again: what an observer wants to read
    /// must not become a number that a controller decides by.
    pub fn log_for_observers(&self, name: &str, value: f64) {
        let latest = self.newest(value);
        self.observed.borrow_mut().insert(name.to_owned(), latest);
    }

    fn newest(&self, value: f64) -> Latest {
        let Place { number, by_hook } = self.place.get();
        let place = Place { number: number + 1, by_hook };
        self.place.set(place);
        Latest { value, changed: true, step: self.step.get(), place }
    }

    fn show(&self, name: &str, value: f64) {
        let latest = self.newest(value);
        self.observed.borrow_mut().remove(name);
        let mut all = self.latest.borrow_mut();
        if let Some(known) = all.get_mut(name) {
            *known = latest;
        } else {
            all.insert(name.to_owned(), latest);
        }
        self.changed.set(true);
    }

    fn epoch(&self) -> &RefCell<Epoch> {
        match self.scope.get() {
            Scope::Train => &self.train,
            Scope::Evaluate => &self.evaluate,
        }
    }

    /// Makes the aggregates visible; with several loaders also their mean under the plain name.
    fn publish(&self, epoch: &Epoch) {
        let mut means: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        for (name, running) in &epoch.running {
            let result = self.publish_one(name, running);
            if let Some(plain) = &running.mean_of {
                let (sum, loaders) = means.entry(plain).or_default();
                *sum += result;
                *loaders += 1.0;
            }
        }
        for (plain, (sum, loaders)) in means {
            self.show(plain, sum / loaders);
        }
    }

    /// Makes one aggregate visible. It is the epoch's or the evaluation's, also where a hook has logged for it.
    fn publish_one(&self, name: &str, running: &Running) -> f64 {
        let by_hook = self.place.get().by_hook;
        self.place.set(Place { by_hook: false, ..self.place.get() });
        let result = running.result();
        self.show(name, result);
        if running.also_on_step {
            self.show(&format!("{name}_epoch"), result);
        }
        self.place.set(Place { by_hook, ..self.place.get() });
        result
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
        self.step.set(0);
        self.latest.borrow_mut().values_mut().for_each(|latest| latest.step = 0);
        self.observed.take();
    }

    /// What is logged from here on belongs to this optimizer step.
    #[inline]
    pub fn set_step(&self, step: u64) {
        self.step.set(step);
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
        *self.train.borrow_mut() = Epoch::default();
    }

    /// An evaluation begins; what training aggregates waits.
    pub fn begin_evaluation(&self) {
        *self.evaluate.borrow_mut() = Epoch::default();
        self.scope.set(Scope::Evaluate);
    }

    /// The loader that evaluation batches come from now, when there are several.
    pub fn set_loader(&self, loader: Option<&str>) {
        let mut current = self.loader.borrow_mut();
        if current.as_deref() != loader {
            *current = loader.map(str::to_owned);
        }
    }

    /// The epoch, or the evaluation, has seen its last batch.
    pub fn close(&self) {
        let mut epoch = self.epoch().borrow_mut();
        epoch.closed = true;
        self.publish(&epoch);
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
        self.scope.set(Scope::Train);
    }

    /// What was logged since the last call, in order of name. When nothing was, it costs a branch.
    #[inline]
    pub fn take_changes(&self) -> Option<BTreeMap<String, f64>> {
        if !self.changed.get() {
            return None;
        }
        self.changed.set(false);
        let mut latest = self.latest.borrow_mut();
        let changed = latest.iter_mut().filter_map(|(name, latest)| {
            std::mem::take(&mut latest.changed).then(|| (name.clone(), latest.value))
        });
        Some(changed.collect())
    }

    /// As a checkpoint holds them.
    #[must_use]
    pub fn state(&self) -> MetricsState {
        let (latest, place) = (self.latest.borrow(), self.place.get());
        let steps = latest.iter().map(|(name, latest)| (name.clone(), latest.step)).collect();
        let places = latest.iter().map(|(name, latest)| (name.clone(), latest.place)).collect();
        let observed = self.observed.borrow();
        let observed = observed.iter().map(|(name, Latest { value, step, place, .. })| {
            (name.clone(), Observed { value: *value, step: *step, place: *place })
        });
        MetricsState {
            latest: self.to_map(),
            steps,
            observed: observed.collect(),
            places,
            place,
            train: self.train.borrow().clone(),
            evaluate: (self.scope.get() == Scope::Evaluate).then(|| self.evaluate.borrow().clone()),
            changed: latest
                .iter()
                .filter(|(_, latest)| latest.changed)
                .map(|(name, _)| name.clone())
                .collect(),
            histograms: self.histograms.borrow().clone(),
            step: self.step.get(),
            batch_size: self.batch_size.get(),
        }
    }

    /// As they were when this state was taken.
    pub fn restore(&self, state: MetricsState) {
        let MetricsState { latest, steps, places, changed, .. } = &state;
        let as_it_was = |(name, value): (&String, &f64)| {
            let step = steps.get(name).copied().unwrap_or(0);
            let place = places.get(name).copied().unwrap_or_default();
            (name.clone(), Latest { value: *value, changed: changed.contains(name), step, place })
        };
        *self.latest.borrow_mut() = latest.iter().map(as_it_was).collect();
        self.changed.set(!changed.is_empty());
        let observed = state.observed.into_iter().map(|(name, Observed { value, step, place })| {
            (name, Latest { value, changed: false, step, place })
        });
        *self.observed.borrow_mut() = observed.collect();
        self.place.set(state.place);
        *self.train.borrow_mut() = state.train;
        self.scope.set(if state.evaluate.is_some() { Scope::Evaluate } else { Scope::Train });
        *self.evaluate.borrow_mut() = state.evaluate.unwrap_or_default();
        *self.histograms.borrow_mut() = state.histograms;
        self.step.set(state.step);
        self.batch_size.set(state.batch_size);
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
