//! Shuffling without a stored permutation.

use tenterhook_core::random::seed_at;

/// Domain separator of the seeds of an order.
const PURPOSE: u64 = 0x5a;
/// Rounds, each over rows or over columns: enough that no pattern is visible; see the tests.
const ROUNDS: usize = 8;

/// The smallest side of the grid. A smaller grid has too few orders and shows patterns.
const SIDE: u64 = 16;

/// A permutation of the numbers below `len`. It is a pure function of seed and epoch and is evaluated in
/// constant time and space, so any position of any epoch can be reached directly.
///
/// It is a Feistel network with cycle walking. The numbers are the cells of a `rows × columns` grid. Rounds
/// alternate: one rotates every row by an offset drawn for the row, the next every column by an offset drawn
/// for the column. A number that lands outside `len` goes through the network again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    len: u64,
    rows: u64,
    columns: u64,
    keys: Option<[u64; ROUNDS]>,
}

impl Order {
    /// The permutation of an epoch.
    #[must_use]
    pub fn shuffled(len: u64, seed: u64, epoch: u64) -> Order {
        let of_epoch = seed_at(seed, PURPOSE, epoch);
        let keys = std::array::from_fn(|round| seed_at(of_epoch, PURPOSE, round as u64 + 1));
        let rows = len.isqrt().max(SIDE);
        Order { len, rows, columns: len.div_ceil(rows).max(SIDE), keys: Some(keys) }
    }

    /// The identity.
    #[must_use]
    pub fn natural(len: u64) -> Order {
        Order { len, rows: 1, columns: 1, keys: None }
    }

    /// The number at this position; `None` after the last.
    #[must_use]
    pub fn at(&self, position: u64) -> Option<u64> {
        if position >= self.len {
            return None;
        }
        let Some(keys) = &self.keys else { return Some(position) };
        let mut cell = self.permuted(keys, position);
        while cell >= self.len {
            cell = self.permuted(keys, cell);
        }
        Some(cell)
    }

    fn permuted(&self, keys: &[u64; ROUNDS], cell: u64) -> u64 {
        let (mut row, mut column) = (cell / self.columns, cell % self.columns);
        for pair in keys.chunks_exact(2) {
            column = (column + seed_at(pair[0], PURPOSE, row) % self.columns) % self.columns;
            row = (row + seed_at(pair[1], PURPOSE, column) % self.rows) % self.rows;
        }
        row * self.columns + column
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn all(order: &Order) -> Vec<u64> {
        (0..order.len).filter_map(|position| order.at(position)).collect()
    }

    proptest! {
        #[test]
        fn every_number_occurs_exactly_once(len in 0u64..3000, seed: u64, epoch in 0u64..50) {
            let order = Order::shuffled(len, seed, epoch);
            let seen: BTreeSet<u64> = all(&order).into_iter().collect();
            prop_assert_eq!(seen.len() as u64, len);
            prop_assert!(seen.iter().all(|number| *number < len));
            prop_assert_eq!(order.at(len), None);
        }
    }

    #[test]
    fn epochs_and_seeds_have_different_orders() {
        let order = |seed, epoch| all(&Order::shuffled(100, seed, epoch));
        assert_eq!(order(1, 1), order(1, 1));
        assert_ne!(order(1, 1), order(1, 2));
        assert_ne!(order(1, 1), order(2, 1));
        assert_ne!(order(1, 1), all(&Order::natural(100)));
        assert_eq!(all(&Order::natural(3)), [0, 1, 2]);
    }

    /// Chi-squared tests over the positions of the numbers, and over the differences of consecutive numbers,
    /// in many orders: each must be within five standard deviations of a uniform distribution.
    #[test]
    fn positions_and_differences_are_uniform() {
        for len in [3usize, 5, 8, 15, 37, 300] {
            let orders = 4000;
            let mut places = vec![0.0; len * len];
            let mut steps = vec![0.0; len - 1];
            for epoch in 0..orders {
                let order: Vec<usize> = all(&Order::shuffled(len as u64, 7, epoch))
                    .into_iter()
                    .filter_map(|number| usize::try_from(number).ok())
                    .collect();
                for (place, number) in order.iter().enumerate() {
                    places[place * len + number] += 1.0;
                }
                for pair in order.windows(2) {
                    steps[(pair[1] + len - pair[0]) % len - 1] += 1.0;
                }
            }
            let freedom = ((len - 1) * (len - 1)) as f64;
            assert!(deviation(&places, freedom) < 5.0, "{len}: places {}", deviation(&places, freedom));
            let freedom = (len - 2) as f64;
            assert!(deviation(&steps, freedom) < 5.0, "{len}: steps {}", deviation(&steps, freedom));
        }
    }

    /// The deviation of chi-squared from its mean, in standard deviations.
    fn deviation(counts: &[f64], freedom: f64) -> f64 {
        let expected = counts.iter().sum::<f64>() / counts.len() as f64;
        let chi: f64 = counts.iter().map(|count| (count - expected).powi(2) / expected).sum();
        (chi - freedom) / (2.0 * freedom).sqrt()
    }

    #[test]
    fn a_large_order_is_there_at_once() {
        let order = Order::shuffled(u64::MAX / 4, 3, 0);
        let some: BTreeSet<_> = (0..1000).filter_map(|position| order.at(position)).collect();
        assert_eq!(some.len(), 1000);
    }
}
