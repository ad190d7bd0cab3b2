//! Who makes values materialise. An engine keeps numbers to itself until somebody reads them; whoever brings one
//! over notes it here, and the runner, which knows whose turn it was, files it.

use std::cell::Cell;
use std::time::Duration;

use crate::account::ReadCounts;

thread_local! {
    /// Scalars in the lower half, tensors in the upper: the runner compares it after every hook.
    static READ: Cell<u64> = const { Cell::new(0) };
    /// Nanoseconds that an engine has worked for what was read, and that nobody is charged for yet.
    static WORKED: Cell<u64> = const { Cell::new(0) };
}

const TENSOR: u64 = 1 << 32;

/// A single number was brought over from the engine.
#[inline]
pub fn count_scalar() {
    READ.set(READ.get().wrapping_add(1));
}

/// A tensor, or what it takes to describe it, was brought over from the engine.
#[inline]
pub fn count_tensor() {
    READ.set(READ.get().wrapping_add(TENSOR));
}

/// The engine has worked so long, before, for the tensor that is being read.
pub fn worked(before: Duration) {
    let nanos = u64::try_from(before.as_nanos()).unwrap_or(u64::MAX);
    WORKED.set(WORKED.get().saturating_add(nanos));
}

/// How long the engine has worked for what was read since the last time this was asked.
pub(crate) fn take_engine_nanos() -> u64 {
    WORKED.take()
}

/// What has been noted in this thread.
#[inline]
pub(crate) fn so_far() -> u64 {
    READ.get()
}

/// What was noted between two looks.
pub(crate) fn between(before: u64, now: u64) -> ReadCounts {
    let delta = now.wrapping_sub(before);
    ReadCounts { scalars: delta % TENSOR, tensors: delta / TENSOR }
}
