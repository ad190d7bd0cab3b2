//! Read-only views of parameters, gradients, optimizer state and losses, independent of the engine.
//!
//! Values are computed when they are read, once per event for all hooks.

mod dtype;
mod model;
mod scalar;
mod stats;

use std::any::Any;
use std::cell::{RefCell, RefMut};
use std::ops::Range;

use crate::metrics::Histogram;
use crate::read_counter;

pub use dtype::DType;
pub use model::{ModelView, OptimizerSource, ParamGroup};
pub use scalar::{NormOfParts, ReadScalar, Scalar};
pub use stats::{PendingUpdate, TensorStats, UpdateNorms, norm};

/// A read-only list of named tensors of an engine.
pub trait TensorSource {
    /// The number of tensors.
    fn count(&self) -> usize;
    /// The name of a tensor, such as `blocks.3.mlp.fc1.weight`.
    fn name(&self, index: usize) -> &str;
    /// The shape of a tensor.
    fn shape(&self, index: usize) -> &[usize];
    /// The element type of a tensor.
    fn dtype(&self, _index: usize) -> DType {
        DType::F32
    }
    /// Whether a tensor is trained. Frozen parameters and buffers, such as the running statistics of a batch
    /// norm, are not.
    fn is_trained(&self, _index: usize) -> bool {
        true
    }
    /// The values of a tensor, in row-major order.
    fn read(&self, index: usize) -> Vec<f32>;
    /// Statistics of a tensor. Engines can compute them on the device.
    fn stats(&self, index: usize) -> TensorStats {
        TensorStats::of(&self.read(index))
    }
    /// The Euclidean norm of a tensor, equal to that of its statistics to the bit, for a fraction of the
    /// work.
    fn norm(&self, index: usize) -> f64 {
        norm(&self.read(index))
    }
    /// Tracks how the next optimizer step changes a tensor, if the engine supports it. The engine has both
    /// values during the update, so no copy is needed.
    fn track_update(&self, _index: usize) -> Option<PendingUpdate> {
        None
    }
    /// A slice of a tensor, in row-major order: a range for each dimension, within the shape. Engines can
    /// slice on the device.
    fn slice(&self, index: usize, ranges: &[Range<usize>]) -> Vec<f32> {
        slice_of(&self.read(index), self.shape(index), ranges)
    }
    /// The engine's own tensor, detached and sharing the values, if the engine offers it. Engines offer a
    /// typed method that calls this one.
    fn native(&self, _index: usize) -> Option<Box<dyn Any + Send>> {
        None
    }
}

impl<S: TensorSource + ?Sized> TensorSource for &S {
    fn count(&self) -> usize {
        (**self).count()
    }
    fn name(&self, index: usize) -> &str {
        (**self).name(index)
    }
    fn shape(&self, index: usize) -> &[usize] {
        (**self).shape(index)
    }
    fn dtype(&self, index: usize) -> DType {
        (**self).dtype(index)
    }
    fn is_trained(&self, index: usize) -> bool {
        (**self).is_trained(index)
    }
    fn read(&self, index: usize) -> Vec<f32> {
        (**self).read(index)
    }
    fn stats(&self, index: usize) -> TensorStats {
        (**self).stats(index)
    }
    fn norm(&self, index: usize) -> f64 {
        (**self).norm(index)
    }
    fn track_update(&self, index: usize) -> Option<PendingUpdate> {
        (**self).track_update(index)
    }
    fn slice(&self, index: usize, ranges: &[Range<usize>]) -> Vec<f32> {
        (**self).slice(index, ranges)
    }
    fn native(&self, index: usize) -> Option<Box<dyn Any + Send>> {
        (**self).native(index)
    }
}

/// A slice of values of this shape.
fn slice_of(values: &[f32], shape: &[usize], ranges: &[Range<usize>]) -> Vec<f32> {
    let (Some((range, ranges)), Some((_, inner))) = (ranges.split_first(), shape.split_first()) else {
        return values.to_vec();
    };
    let stride: usize = inner.iter().product();
    let rows = range.clone().map(|row| &values[row * stride..(row + 1) * stride]);
    rows.flat_map(|row| slice_of(row, inner, ranges)).collect()
}

/// An empty list of tensors.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTensors;

impl TensorSource for NoTensors {
    fn count(&self) -> usize {
        0
    }
    fn name(&self, _: usize) -> &'static str {
        ""
    }
    fn shape(&self, _: usize) -> &[usize] {
        &[]
    }
    fn read(&self, _: usize) -> Vec<f32> {
        Vec::new()
    }
}

/// Named tensors as hooks see them during one event.
pub struct Tensors<'a> {
    source: &'a dyn TensorSource,
    cached: RefCell<Vec<Cached>>,
}

/// Results computed for a tensor during the event.
#[derive(Clone, Default)]
struct Cached {
    norm: Option<f64>,
    stats: Option<TensorStats>,
}

impl<'a> Tensors<'a> {
    /// Makes a view for one event.
    #[must_use]
    pub fn new(source: &'a dyn TensorSource) -> Tensors<'a> {
        Tensors { source, cached: RefCell::default() }
    }

    /// The number of tensors.
    #[must_use]
    pub fn len(&self) -> usize {
        self.source.count()
    }

    /// Whether there are no tensors.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All tensors, in the module's order.
    pub fn iter(&self) -> impl Iterator<Item = Tensor<'_>> {
        (0..self.len()).map(|index| Tensor { list: self, index })
    }

    /// The first tensor.
    ///
    /// # Panics
    ///
    /// The methods of the tensor panic if there is none.
    #[must_use]
    pub fn first(&self) -> Tensor<'_> {
        Tensor { list: self, index: 0 }
    }

    /// The tensor of this name.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<Tensor<'_>> {
        self.iter().find(|tensor| tensor.name() == name)
    }

    /// The Euclidean norm of all tensors together.
    #[must_use]
    pub fn norm(&self) -> f64 {
        self.iter().map(|tensor| tensor.norm().powi(2)).sum::<f64>().sqrt()
    }
}

impl std::fmt::Debug for Tensors<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter().map(|tensor| tensor.name().to_owned())).finish()
    }
}

/// A tensor whose next update is tracked.
#[derive(Clone, Debug)]
pub enum TrackedUpdate {
    /// The engine compares the values.
    ByEngine(PendingUpdate),
    /// A copy of the values before the update.
    Copied(Vec<f32>),
}

/// One named tensor as a hook sees it.
#[derive(Clone, Copy)]
pub struct Tensor<'a> {
    list: &'a Tensors<'a>,
    index: usize,
}

impl<'a> Tensor<'a> {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.list.source.name(self.index)
    }

    /// The shape.
    #[must_use]
    pub fn shape(&self) -> &'a [usize] {
        self.list.source.shape(self.index)
    }

    /// The element type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.list.source.dtype(self.index)
    }

    /// Whether the tensor is trained; buffers and frozen parameters are not.
    #[must_use]
    pub fn is_trained(&self) -> bool {
        self.list.source.is_trained(self.index)
    }

    /// Statistics of the values, computed once per event for all hooks.
    #[must_use]
    pub fn stats(&self) -> TensorStats {
        let mut cached = self.cached();
        *cached.stats.get_or_insert_with(|| {
            read_counter::count_tensor();
            self.list.source.stats(self.index)
        })
    }

    /// The Euclidean norm, computed once per event for all hooks. Not finite if an element is not.
    #[must_use]
    pub fn norm(&self) -> f64 {
        let mut cached = self.cached();
        let Cached { norm, stats } = &mut *cached;
        let of_stats = stats.map(|stats| stats.norm);
        *norm.get_or_insert_with(|| {
            of_stats.unwrap_or_else(|| {
                read_counter::count_tensor();
                self.list.source.norm(self.index)
            })
        })
    }

    fn cached(&self) -> RefMut<'a, Cached> {
        let mut cached = self.list.cached.borrow_mut();
        if cached.is_empty() {
            cached.resize(self.list.len(), Cached::default());
        }
        RefMut::map(cached, |cached| &mut cached[self.index])
    }

    /// A copy of the values, in row-major order.
    #[must_use]
    pub fn to_vec(&self) -> Vec<f32> {
        read_counter::count_tensor();
        self.list.source.read(self.index)
    }

    /// Tracks the next update of the tensor, for [`update_norms`](Tensor::update_norms). Copies the values
    /// only if the engine cannot compare them itself.
    #[must_use]
    pub fn track_update(&self) -> TrackedUpdate {
        match self.list.source.track_update(self.index) {
            Some(pending) => TrackedUpdate::ByEngine(pending),
            None => TrackedUpdate::Copied(self.to_vec()),
        }
    }

    /// The norms of the update that followed `track_update`. Without an update: `None`, or an update of norm
    /// 0 if the values were copied. The engine's work is charged to the current hook.
    #[must_use]
    pub fn update_norms(&self, tracked: &TrackedUpdate) -> Option<UpdateNorms> {
        match tracked {
            TrackedUpdate::ByEngine(pending) => {
                let (norms, took) = pending.get()?;
                read_counter::count_tensor();
                read_counter::add_engine_time(took);
                Some(norms)
            }
            TrackedUpdate::Copied(before) => Some(UpdateNorms::between(before, &self.to_vec())),
        }
    }

    /// A histogram of the values with this number of bins of equal width.
    #[must_use]
    pub fn histogram(&self, bins: usize) -> Histogram {
        Histogram::of(&self.to_vec(), bins)
    }

    /// A copy of a slice of the values, in row-major order: a range for each of the first dimensions, and all
    /// of the others.
    ///
    /// ```
    /// use tenterhook_core::{NamedTensors, Tensors};
    ///
    /// let values = NamedTensors::default().with("x", [2, 3], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    /// let x = Tensors::new(&values);
    /// assert_eq!(x.first().slice(&[1..2])?, [3.0, 4.0, 5.0]);
    /// assert_eq!(x.first().slice(&[0..2, 1..2])?, [1.0, 4.0]);
    /// assert!(x.first().slice(&[0..3]).is_err());
    /// # Ok::<(), tenterhook_core::tensor::SliceError>(())
    /// ```
    pub fn slice(&self, ranges: &[Range<usize>]) -> Result<Vec<f32>, SliceError> {
        let shape = self.shape();
        let fits = |(range, size): (&Range<usize>, &usize)| range.start <= range.end && range.end <= *size;
        if ranges.len() > shape.len() || !ranges.iter().zip(shape).all(fits) {
            let (name, ranges) = (self.name().to_owned(), ranges.to_vec());
            return Err(SliceError { name, shape: shape.to_vec(), ranges });
        }
        let rest = shape[ranges.len()..].iter().map(|size| 0..*size);
        let ranges: Vec<_> = ranges.iter().cloned().chain(rest).collect();
        read_counter::count_tensor();
        Ok(self.list.source.slice(self.index, &ranges))
    }

    /// The engine's own tensor, detached and sharing the values, if the engine offers it. Engines offer a
    /// typed method that calls this one. Nothing prevents operations on it from affecting training, such as
    /// drawing from the engine's random generator; `tenter verify-neutral` detects that.
    #[must_use]
    pub fn native(&self) -> Option<Box<dyn Any + Send>> {
        read_counter::count_tensor();
        self.list.source.native(self.index)
    }
}

/// The error for a slice outside of a tensor's shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` has the shape {shape:?}, and no slice {ranges:?}")]
pub struct SliceError {
    name: String,
    shape: Vec<usize>,
    ranges: Vec<Range<usize>>,
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    struct Counting {
        reads: Cell<usize>,
    }

    impl TensorSource for Counting {
        fn count(&self) -> usize {
            1
        }
        fn name(&self, _: usize) -> &'static str {
            "w"
        }
        fn shape(&self, _: usize) -> &[usize] {
            &[3]
        }
        fn read(&self, _: usize) -> Vec<f32> {
            self.reads.set(self.reads.get() + 1);
            vec![3.0, 0.0, 4.0]
        }
    }

    #[test]
    fn a_norm_is_computed_once_and_not_at_all_if_statistics_are_known() {
        let source = Counting { reads: Cell::new(0) };
        let view = Tensors::new(&source);
        assert!((view.norm() - 5.0).abs() < 1e-12 && (view.first().norm() - 5.0).abs() < 1e-12);
        assert_eq!(source.reads.take(), 1);
        let view = Tensors::new(&source);
        assert_eq!(view.first().stats().count, 3);
        assert!((view.norm() - 5.0).abs() < 1e-12);
        assert_eq!(source.reads.take(), 1);
    }

    #[test]
    fn statistics_are_computed_once_per_event() {
        let source = Counting { reads: Cell::new(0) };
        let view = Tensors::new(&source);
        for _ in 0..3 {
            let tensor = view.by_name("w").expect("it is there");
            assert!((tensor.stats().norm - 5.0).abs() < 1e-12);
        }
        assert!((view.norm() - 5.0).abs() < 1e-12);
        assert_eq!(source.reads.get(), 1);
        assert!(view.by_name("v").is_none());
    }
}
