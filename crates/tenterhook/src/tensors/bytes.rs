//! The bytes of a tensor, owned by any type.

use std::ops::Deref;
use std::sync::Arc;

/// Immutable, shared bytes. They can have any owner, so that an engine can hand over a tensor's memory
/// without a copy.
///
/// ```
/// use tenterhook::tensors::Bytes;
///
/// let bytes = Bytes::from(vec![1, 2, 3]);
/// assert_eq!(bytes.clone().as_ptr(), bytes.as_ptr());
/// assert_eq!(bytes[1..], [2, 3]);
/// ```
#[derive(Clone)]
pub struct Bytes(Arc<dyn Owner>);

/// An owner of bytes.
trait Owner: Send + Sync {
    fn bytes(&self) -> &[u8];
}

impl<T: Deref<Target = [u8]> + Send + Sync> Owner for T {
    fn bytes(&self) -> &[u8] {
        self
    }
}

impl Bytes {
    /// The bytes of this owner, without a copy.
    pub fn owned_by(owner: impl Deref<Target = [u8]> + Send + Sync + 'static) -> Bytes {
        Bytes(Arc::new(owner))
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Bytes {
        Bytes::owned_by(bytes)
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Bytes) -> bool {
        **self == **other
    }
}

impl Eq for Bytes {}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}
