//! Read-only views of parameters, gradients, optimizer state and losses, independent of the engine.
//!
//! Nothing is computed until somebody asks; what was computed for one hook is kept for the others
//! that receive the same event.

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

/// A list of named tensors that an engine lets us read.
pub trait TensorSource {
    /// How many there are.
    fn count(&self) -> usize;
    /// The name of one, such as `blocks.3.mlp.fc1.weight`.
    fn name(&self, index: usize) -> &str;
    /// The shape of one.
    fn shape(&self, index: usize) -> &[usize];
    /// The element type of one.
    fn dtype(&self, _index: usize) -> DType {
        DType::F32
    }
    /// Whether one is trained. Buffers, such as the running statistics of a batch norm, and frozen parameters are not.
    fn is_trained(&self, _index: usize) -> bool {
        true
    }
    /// The values of one, in row-major order.
    fn read(&self, index: usize) -> Vec<f32>;
    /// Statistics of one; engines that can compute them on the device do so here.
    fn stats(&self, index: usize) -> TensorStats {
        TensorStats::of(&self.read(index))
    }
    /// The Euclidean norm of one, to the bit as its statistics have it, for a fraction of the work.
    fn norm(&self, index: usize) -> f64 {
        norm(&self.read(index))
    }
    /// How the next update will change one, where the engine can tell: it knows both sides then, without holding either.
    fn track_update(&self, _index: usize) -> Option<PendingUpdate> {
        None
    }
    /// A part of the values of one, in row-major order: a range for each dimension, all of them within its shape.
    /// Engines that can cut where the tensor lives do so here.
    fn slice(&self, index: usize, ranges: &[Range<usize>]) -> Vec<f32> {
        cut(&self.read(index), self.shape(index), ranges)
    }
    /// The engine's own tensor, where it has one to give away: sharing the values, apart from any graph. Engines
    /// put a typed method on top of it.
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

/// A part of these values of this shape.
fn cut(values: &[f32], shape: &[usize], ranges: &[Range<usize>]) -> Vec<f32> {
    let (Some((range, ranges)), Some((_, inner))) = (ranges.split_first(), shape.split_first()) else {
        return values.to_vec();
    };
    let stride: usize = inner.iter().product();
    let rows = range.clone().map(|row| &values[row * stride..(row + 1) * stride]);
    rows.flat_map(|row| cut(row, inner, ranges)).collect()
}

/// No tensors at all.
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

/// Named tensors as a hook sees them during one event.
pub struct Tensors<'a> {
    source: &'a dyn TensorSource,
    known: RefCell<Vec<Cached>>,
}

/// What somebody has asked for of a tensor.
#[derive(Clone, Default)]
struct Cached {
    norm: Option<f64>,
    stats: Option<TensorStats>,
}

impl<'a> Tensors<'a> {
    /// A view of these tensors for one event.
    #[must_use]
    pub fn new(source: &'a dyn TensorSource) -> Tensors<'a> {
        Tensors { source, known: RefCell::default() }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.source.count()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of them, in the module's order.
    pub fn iter(&self) -> impl Iterator<Item = Tensor<'_>> {
        (0..self.len()).map(|index| Tensor { list: self, index })
    }

    /// The first of them.
    ///
    /// # Panics
    ///
    /// When there are none and something is asked of it.
    #[must_use]
    pub fn first(&self) -> Tensor<'_> {
        Tensor { list: self, index: 0 }
    }

    /// The one of this name.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<Tensor<'_>> {
        self.iter().find(|tensor| tensor.name() == name)
    }

    /// The Euclidean norm of all of them together.
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

/// A tensor that somebody wants to see changed by its next update.
#[derive(Clone, Debug)]
pub enum TrackedUpdate {
    /// The engine tells.
    ByEngine(PendingUpdate),
    /// Its values before.
    Copied(Vec<f32>),
}

/// One named tensor as a hook sees it.
#[derive(Clone, Copy)]
pub struct Tensor<'a> {
    list: &'a Tensors<'a>,
    index: usize,
}

impl<'a> Tensor<'a> {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.list.source.name(self.index)
    }

    /// Its shape.
    #[must_use]
    pub fn shape(&self) -> &'a [usize] {
        self.list.source.shape(self.index)
    }

    /// Its element type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.list.source.dtype(self.index)
    }

    /// Whether it is trained; buffers and frozen parameters are not.
    #[must_use]
    pub fn is_trained(&self) -> bool {
        self.list.source.is_trained(self.index)
    }

    /// Its statistics, computed once per event for everybody who asks.
    #[must_use]
    pub fn stats(&self) -> TensorStats {
        let mut known = self.known();
        *known.stats.get_or_insert_with(|| {
            read_counter::count_tensor();
            self.list.source.stats(self.index)
        })
    }

    /// Its Euclidean norm, computed once per event for everybody who asks. Not finite when an element is not.
    #[must_use]
    pub fn norm(&self) -> f64 {
        let mut known = self.known();
        let Cached { norm, stats } = &mut *known;
        let of_stats = stats.map(|stats| stats.norm);
        *norm.get_or_insert_with(|| {
            of_stats.unwrap_or_else(|| {
                read_counter::count_tensor();
                self.list.source.norm(self.index)
            })
        })
    }

    fn known(&self) -> RefMut<'a, Cached> {
        let mut known = self.list.known.borrow_mut();
        if known.is_empty() {
            known.resize(self.list.len(), Cached::default());
        }
        RefMut::map(known, |known| &mut known[self.index])
    }

    /// A copy of its values, in row-major order.
    #[must_use]
    pub fn to_vec(&self) -> Vec<f32> {
        read_counter::count_tensor();
        self.list.source.read(self.index)
    }

    /// To ask after its next update [how it was changed](Tensor::update_norms). Without a copy where the engine can tell.
    #[must_use]
    pub fn track_update(&self) -> TrackedUpdate {
        match self.list.source.track_update(self.index) {
            Some(next) => TrackedUpdate::ByEngine(next),
            None => TrackedUpdate::Copied(self.to_vec()),
        }
    }

    /// How the update has changed it that came after it was followed. Where none came: `None`, or of engines that cannot
    /// tell, a change by nothing. What the engine did for it is charged to whoever asks.
    #[must_use]
    pub fn update_norms(&self, followed: &TrackedUpdate) -> Option<UpdateNorms> {
        match followed {
            TrackedUpdate::ByEngine(next) => {
                let (change, took) = next.get()?;
                read_counter::count_tensor();
                read_counter::add_engine_time(took);
                Some(change)
            }
            TrackedUpdate::Copied(before) => Some(UpdateNorms::between(before, &self.to_vec())),
        }
    }

    /// How its values are spread, over so many bins of equal width.
    #[must_use]
    pub fn histogram(&self, bins: usize) -> Histogram {
        Histogram::of(&self.to_vec(), bins)
    }

    /// A copy of a part of its values, in row-major order: a range for each of its first dimensions, and all of
    /// the others.
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

    /// The engine's own tensor, where it has one to give away; engines put a typed method on top of it. It shares
    /// the values and is apart from any graph. What is done with the engine itself from here on (drawing from its
    /// generator, above all) is no longer kept from disturbing training: `tenter verify-neutral` finds it.
    #[must_use]
    pub fn native(&self) -> Option<Box<dyn Any + Send>> {
        read_counter::count_tensor();
        self.list.source.native(self.index)
    }
}

/// A part of a tensor that it does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` has the shape {shape:?}, and no part {ranges:?}")]
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
    fn a_norm_is_computed_once_and_not_at_all_where_statistics_are_known() {
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
