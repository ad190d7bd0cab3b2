//! Losses: kept as lazy scalars of the engine, and read in bulk.

use std::cell::Cell;

use serde::{Deserialize, Serialize};
use tenterhook_core::read_counter;
use tenterhook_core::run_context::LossHistory;
use tenterhook_core::tensor::ReadScalar;

/// A scalar of the engine that is read at most once, and cached.
pub(crate) struct LazyScalar<S> {
    pub(crate) scalar: S,
    known: Cell<Option<f64>>,
}

impl<S> LazyScalar<S> {
    pub(crate) fn new(scalar: S) -> LazyScalar<S> {
        LazyScalar { scalar, known: Cell::new(None) }
    }

    /// Sets the value, instead of reading it.
    pub(crate) fn known_as(self, value: f64) -> LazyScalar<S> {
        LazyScalar { known: Cell::new(Some(value)), ..self }
    }

    /// Converts the scalar, and keeps the cached value.
    pub(crate) fn map(self, change: impl FnOnce(S) -> S) -> LazyScalar<S> {
        LazyScalar { scalar: change(self.scalar), known: self.known }
    }
}

impl<S: ReadScalar> ReadScalar for LazyScalar<S> {
    fn read(&self) -> f64 {
        self.known.get().unwrap_or_else(|| {
            read_counter::count_scalar();
            let value = self.scalar.read();
            self.known.set(Some(value));
            value
        })
    }
}

/// The losses of an epoch: those not read yet, and the sum of the others.
pub(crate) struct Losses<S> {
    pending: Vec<LazyScalar<S>>,
    sum: f64,
    count: u64,
    latest: Option<f64>,
}

/// The losses of an epoch in a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LossesState {
    /// The sum so far.
    #[serde(with = "tenterhook_core::number")]
    sum: f64,
    /// The number of losses so far.
    count: u64,
    /// The last loss, possibly of an earlier epoch.
    #[serde(with = "tenterhook_core::number::option")]
    latest: Option<f64>,
}

impl LossesState {
    pub(crate) fn latest(&self) -> Option<f64> {
        self.latest
    }
}

impl<S: ReadScalar> Losses<S> {
    /// The largest number of unread losses.
    const MOST: u64 = 4096;

    pub(crate) fn new() -> Losses<S> {
        Losses { pending: Vec::new(), sum: 0.0, count: 0, latest: None }
    }

    /// The number of losses so far.
    pub(crate) fn len(&self) -> u64 {
        self.count + self.pending.len() as u64
    }

    /// The number of unread losses.
    pub(crate) fn unread(&self) -> u64 {
        self.pending.iter().filter(|loss| loss.known.get().is_none()).count() as u64
    }

    pub(crate) fn push(&mut self, loss: LazyScalar<S>) {
        if self.pending.len() as u64 >= Self::MOST {
            self.read();
        }
        // Only the last loss is read by itself; known values are summed up.
        if let [last] = self.pending.as_slice()
            && let Some(value) = last.known.get().or_else(|| last.scalar.known())
        {
            self.sum += value;
            self.count += 1;
            self.pending.clear();
        }
        self.pending.push(loss);
    }

    /// The last loss, lazily.
    pub(crate) fn current(&self) -> &dyn ReadScalar {
        match self.pending.last() {
            Some(loss) => loss,
            None => &f64::NAN,
        }
    }

    /// Reads all pending losses, and returns the last, which stays pending as the current loss.
    pub(crate) fn read(&mut self) -> Option<f64> {
        self.read_pending();
        let Some(last) = self.pending.pop() else { return self.latest };
        for loss in self.pending.drain(..) {
            self.sum += loss.read();
            self.count += 1;
        }
        let value = last.read();
        self.pending.push(last);
        Some(value)
    }

    /// Reads all unread losses in one transfer.
    fn read_pending(&self) {
        let mut unread = Vec::with_capacity(self.pending.len());
        unread.extend(self.pending.iter().filter(|loss| loss.known.get().is_none()));
        let scalars: Vec<_> = unread.iter().map(|loss| &loss.scalar).collect();
        for (loss, value) in unread.iter().zip(S::read_all(&scalars)) {
            read_counter::count_scalar();
            loss.known.set(Some(value));
        }
    }

    /// The sum, in order, so that it does not depend on when the losses were read.
    fn sum(&self) -> f64 {
        self.read_pending();
        self.pending.iter().fold(self.sum, |sum, loss| sum + loss.read())
    }

    /// The state for a checkpoint. Reads all losses.
    pub(crate) fn state(&self) -> LossesState {
        LossesState { sum: self.sum(), count: self.len(), latest: self.latest() }
    }

    /// Restores the state of a checkpoint.
    pub(crate) fn restore(&mut self, state: LossesState) {
        self.pending.clear();
        (self.sum, self.count, self.latest) = (state.sum, state.count, state.latest);
    }

    /// Starts an epoch. The last loss remains the latest.
    pub(crate) fn begin_epoch(&mut self) {
        self.latest = self.latest();
        self.pending.clear();
        (self.sum, self.count) = (0.0, 0);
    }
}

impl<S: ReadScalar> LossHistory for Losses<S> {
    fn latest(&self) -> Option<f64> {
        self.pending.last().map(ReadScalar::read).or(self.latest)
    }

    fn average(&self) -> Option<f64> {
        let count = self.len();
        (count > 0).then(|| self.sum() / count as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_has_its_average_and_keeps_its_last() {
        let mut losses = Losses::new();
        for loss in [1.0, 2.0, 6.0] {
            losses.push(LazyScalar::new(loss));
        }
        assert_eq!((losses.latest(), losses.average()), (Some(6.0), Some(3.0)));
        assert_eq!(losses.read(), Some(6.0));
        assert_eq!((losses.latest(), losses.average()), (Some(6.0), Some(3.0)));
        losses.begin_epoch();
        assert_eq!((losses.latest(), losses.average()), (Some(6.0), None));
    }

    #[test]
    fn an_average_is_the_same_whenever_losses_were_read_or_restored() {
        let values = [0.1, 0.7, 1e-9, 3.3, 0.2, 0.01];
        let average = |read_after: &[usize], restore_after: usize| {
            let mut losses = Losses::new();
            for (index, loss) in values.into_iter().enumerate() {
                losses.push(LazyScalar::new(loss));
                if read_after.contains(&index) {
                    losses.read();
                }
                if restore_after == index {
                    let state = losses.state();
                    losses = Losses::new();
                    losses.restore(state);
                }
            }
            losses.average().map(f64::to_bits)
        };
        let never = values.len();
        assert_eq!(average(&[1, 4], never), average(&[], never));
        assert_eq!(average(&[0, 1, 2, 3, 4, 5], 3), average(&[], never));
        assert_eq!(average(&[], 0), average(&[], never));
    }

    #[test]
    fn unread_losses_are_read_in_one_transfer() {
        use std::cell::RefCell;
        use std::rc::Rc;

        #[derive(Clone)]
        struct Counted(f64, Rc<RefCell<Vec<usize>>>);
        impl ReadScalar for Counted {
            fn read(&self) -> f64 {
                self.1.borrow_mut().push(1);
                self.0
            }
            fn read_all(scalars: &[&Counted]) -> Vec<f64> {
                if let Some(first) = scalars.first() {
                    first.1.borrow_mut().push(scalars.len());
                }
                scalars.iter().map(|scalar| scalar.0).collect()
            }
        }
        let reads = Rc::new(RefCell::new(Vec::new()));
        let mut losses = Losses::new();
        for value in [1.0, 2.0, 3.0, 6.0] {
            losses.push(LazyScalar::new(Counted(value, reads.clone())));
        }
        assert_eq!(losses.latest(), Some(6.0));
        assert_eq!(losses.read(), Some(6.0));
        assert_eq!(losses.average(), Some(3.0));
        assert_eq!(*reads.borrow(), [1, 3], "one by a hook, the others together, none twice");
    }
}
