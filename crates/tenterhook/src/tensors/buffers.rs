//! Memory for copies of tensors, used again.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::Bytes;

/// Memory that copies lie in. What a copy took is kept here when the copy goes, for one of the same length: memory that is
/// touched for the first time costs more than the copying.
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
    /// These bytes once more.
    #[must_use]
    pub fn copy_of(&self, bytes: &[u8]) -> Bytes {
        let mut free = self.free();
        let fitting = free.iter().position(|buffer| buffer.capacity() == bytes.len());
        let fitting = fitting.map(|at| free.swap_remove(at));
        drop(free);
        let mut buffer = fitting.unwrap_or_else(|| Vec::with_capacity(bytes.len()));
        buffer.clear();
        buffer.extend_from_slice(bytes);
        Bytes::owned_by(Lent { buffer, home: Arc::downgrade(&self.0) })
    }

    /// Gives back what no copy lies in.
    pub fn give_back(&self) {
        self.free().clear();
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        unpoisoned(&self.0)
    }
}

fn unpoisoned(free: &Mutex<Free>) -> MutexGuard<'_, Free> {
    free.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A copy that leaves its memory behind, where that is still wanted.
struct Lent {
    buffer: Vec<u8>,
    home: Weak<Mutex<Free>>,
}

impl Deref for Lent {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(home) = self.home.upgrade() {
            unpoisoned(&home).push(std::mem::take(&mut self.buffer));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_takes_the_memory_of_one_that_is_gone_and_of_no_other() {
        let buffers = Buffers::default();
        let (first, second) = (buffers.copy_of(&[1; 8]), buffers.copy_of(&[2; 16]));
        let place = first.as_ptr();
        let kept = first.clone();
        drop(first);
        let third = buffers.copy_of(&[3; 8]);
        assert_ne!(third.as_ptr(), place, "somebody still has it");
        assert_eq!((&kept[..], &second[..], &third[..]), (&[1; 8][..], &[2; 16][..], &[3; 8][..]));
        drop(kept);
        assert_eq!(buffers.copy_of(&[4; 8]).as_ptr(), place);
        drop(buffers.copy_of(&[5; 8]));
        buffers.give_back();
        assert!(buffers.free().is_empty());
    }
}
