//! Reusable memory for copies of tensors.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::Bytes;

/// Reusable memory for copies. When a copy is dropped, its memory is kept for the next one of the same
/// length, because touching new memory costs more than copying.
///
/// ```
/// use tenterhook::tensors::Buffers;
///
/// let buffers = Buffers::default();
/// let copy = buffers.copy_of(&[1, 2, 3]);
/// assert_eq!(copy[..], [1, 2, 3]);
/// let place = copy.as_ptr();
/// drop(copy);
/// assert_eq!(buffers.copy_of(&[4, 5, 6]).as_ptr(), place);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Buffers(Arc<Mutex<Free>>);

type Free = Vec<Vec<u8>>;

impl Buffers {
    /// Copies bytes.
    #[must_use]
    pub fn copy_of(&self, bytes: &[u8]) -> Bytes {
        let mut free = self.pool();
        let fitting = free.iter().position(|buffer| buffer.capacity() == bytes.len());
        let fitting = fitting.map(|at| free.swap_remove(at));
        drop(free);
        let mut buffer = fitting.unwrap_or_else(|| Vec::with_capacity(bytes.len()));
        buffer.clear();
        buffer.extend_from_slice(bytes);
        Bytes::owned_by(PooledBytes { buffer, pool: Arc::downgrade(&self.0) })
    }

    /// Frees unused memory.
    pub fn free_unused(&self) {
        self.pool().clear();
    }

    fn pool(&self) -> MutexGuard<'_, Free> {
        unpoisoned(&self.0)
    }
}

fn unpoisoned(free: &Mutex<Free>) -> MutexGuard<'_, Free> {
    free.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A copy that returns its memory to the pool when dropped.
struct PooledBytes {
    buffer: Vec<u8>,
    pool: Weak<Mutex<Free>>,
}

impl Deref for PooledBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for PooledBytes {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.upgrade() {
            unpoisoned(&pool).push(std::mem::take(&mut self.buffer));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_reuses_the_memory_of_a_dropped_one_only() {
        let buffers = Buffers::default();
        let (first, second) = (buffers.copy_of(&[1; 8]), buffers.copy_of(&[2; 16]));
        let place = first.as_ptr();
        let kept = first.clone();
        drop(first);
        let third = buffers.copy_of(&[3; 8]);
        assert_ne!(third.as_ptr(), place, "it is still in use");
        assert_eq!((&kept[..], &second[..], &third[..]), (&[1; 8][..], &[2; 16][..], &[3; 8][..]));
        drop(kept);
        assert_eq!(buffers.copy_of(&[4; 8]).as_ptr(), place);
        drop(buffers.copy_of(&[5; 8]));
        buffers.free_unused();
        assert!(buffers.pool().is_empty());
    }
}
