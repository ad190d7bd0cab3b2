//! Counts the values that are read from the engine, per thread. The code that reads a value calls this
//! module, and the runner charges the difference to the hook that it called.

use std::cell::Cell;
use std::time::Duration;

use crate::account::ReadCounts;

thread_local! {
    /// Scalars in the lower half, tensors in the upper half: one number, which the runner compares after
    /// every hook.
    static READ: Cell<u64> = const { Cell::new(0) };
    /// Nanoseconds of engine work for values that were read, not yet charged to any hook.
    static ENGINE_NANOS: Cell<u64> = const { Cell::new(0) };
}

const TENSOR: u64 = 1 << 32;

/// Counts a single number that was read from the engine.
#[inline]
pub fn count_scalar() {
    READ.set(READ.get().wrapping_add(1));
}

/// Counts a tensor, or statistics of one, that was read from the engine.
#[inline]
pub fn count_tensor() {
    READ.set(READ.get().wrapping_add(TENSOR));
}

/// Adds time that the engine spent earlier on the tensor that is being read.
pub fn add_engine_time(time: Duration) {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    ENGINE_NANOS.set(ENGINE_NANOS.get().saturating_add(nanos));
}

/// The engine time since the last call.
pub(crate) fn take_engine_nanos() -> u64 {
    ENGINE_NANOS.take()
}

/// The counter of this thread.
#[inline]
pub(crate) fn value() -> u64 {
    READ.get()
}

/// The reads between two values of the counter.
pub(crate) fn difference(before: u64, now: u64) -> ReadCounts {
    let delta = now.wrapping_sub(before);
    ReadCounts { scalars: delta % TENSOR, tensors: delta / TENSOR }
}
