//! Aggregates of an epoch or an evaluation over all ranks of a distributed run.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::Metrics;
use super::aggregate::{Reduce, Running};

/// The aggregates of one rank so far, by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Aggregates(BTreeMap<String, Running>);

impl Aggregates {
    /// Combines the aggregates of all ranks. `sum` adds numbers over all ranks. With [`Reduce::Last`] the
    /// value of the first rank that has one counts.
    pub fn over_ranks<E>(
        all: &[Aggregates],
        rank: usize,
        sum: impl FnOnce(&mut [f64]) -> Result<(), E>,
    ) -> Result<Aggregates, E> {
        let names: BTreeSet<_> = all.iter().flat_map(|aggregates| aggregates.0.keys()).collect();
        let own = |name: &String| all.get(rank).and_then(|aggregates| aggregates.0.get(name));
        let numbers = |name: &String| own(name).map_or([0.0; 2], |running| [running.value, running.weight]);
        let mut sums: Vec<f64> = names.iter().flat_map(|name| numbers(name)).collect();
        sum(&mut sums)?;
        let mut together = BTreeMap::new();
        for (name, sums) in names.into_iter().zip(sums.chunks(2)) {
            let mut of_ranks = all.iter().filter_map(|aggregates| aggregates.0.get(name));
            let Some(mut running) = of_ranks.next().cloned() else { continue };
            match running.reduce {
                Reduce::Mean | Reduce::Sum => running.value = sums[0],
                Reduce::Min | Reduce::Max => of_ranks.for_each(|other| running.add(other.value, 0.0)),
                Reduce::Last => {}
            }
            running.weight = sums[1];
            together.insert(name.clone(), running);
        }
        Ok(Aggregates(together))
    }
}

impl Metrics {
    /// The aggregates of the current epoch or evaluation on this rank.
    #[must_use]
    pub fn aggregates(&self) -> Aggregates {
        Aggregates(self.epochs.borrow_mut().current().running.clone())
    }

    /// Replaces the aggregates of the current epoch or evaluation.
    pub fn set_aggregates(&self, aggregates: Aggregates) {
        self.epochs.borrow_mut().current().running = aggregates.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::LogOptions;

    #[test]
    fn ranks_aggregate_as_one_process_would() {
        for (reduce, expected) in [
            (Reduce::Mean, (1.0 * 3.0 + 5.0) / 4.0),
            (Reduce::Sum, 6.0),
            (Reduce::Min, 1.0),
            (Reduce::Max, 5.0),
            (Reduce::Last, 1.0),
        ] {
            let ranks = [(1.0, 3), (5.0, 1)].map(|(value, size)| {
                let metrics = Metrics::default();
                metrics.begin_evaluation();
                metrics.set_batch_size(size);
                metrics.log("x", value, LogOptions::EPOCH.reduce(reduce));
                metrics
            });
            let all = ranks.each_ref().map(Metrics::aggregates);
            let sums = all.each_ref().map(|aggregates| aggregates.0["x"].clone());
            for (rank, metrics) in ranks.iter().enumerate() {
                let sum = |values: &mut [f64]| -> Result<(), ()> {
                    values[0] = sums[0].value + sums[1].value;
                    values[1] = sums[0].weight + sums[1].weight;
                    Ok(())
                };
                metrics.set_aggregates(Aggregates::over_ranks(&all, rank, sum).expect("it adds up"));
                metrics.finish_aggregates();
                assert_eq!(metrics.get("x"), Some(expected), "{reduce:?} on rank {rank}");
            }
        }
    }
}
