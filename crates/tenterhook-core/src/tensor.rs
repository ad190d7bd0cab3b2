//! Read-only views of parameters, gradients, optimizer state and losses, independent of the engine.
//!
//! Nothing is computed until somebody asks; what was computed for one hook is kept for the others
//! that receive the same event.

use std::cell::{Cell, RefCell};

/// Makes the element types, with what each is called and how many bytes it takes.
macro_rules! dtypes {
    ($($DType:ident $name:literal $size:literal $doc:literal;)*) => {
        /// The type of a tensor's elements.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum DType {
            $(#[doc = $doc] $DType,)*
        }

        impl DType {
            /// All of them.
            pub const ALL: &[DType] = &[$(DType::$DType),*];

            /// How many bytes an element takes.
            #[must_use]
            pub fn size(self) -> usize {
                match self {
                    $(DType::$DType => $size,)*
                }
            }

            /// As safetensors files call it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(DType::$DType => $name,)*
                }
            }
        }
    };
}

dtypes! {
    F64 "F64" 8 "64-bit float.";
    F32 "F32" 4 "32-bit float.";
    F16 "F16" 2 "16-bit float.";
    BF16 "BF16" 2 "16-bit brain float.";
    I64 "I64" 8 "64-bit integer.";
    I32 "I32" 4 "32-bit integer.";
    I16 "I16" 2 "16-bit integer.";
    I8 "I8" 1 "8-bit integer.";
    U64 "U64" 8 "64-bit unsigned integer.";
    U32 "U32" 4 "32-bit unsigned integer.";
    U16 "U16" 2 "16-bit unsigned integer.";
    U8 "U8" 1 "Byte.";
    Bool "BOOL" 1 "Truth value, in a byte.";
}

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
    /// The values of one, in row-major order.
    fn read(&self, index: usize) -> Vec<f32>;
    /// Statistics of one; engines that can compute them on the device do so here.
    fn stats(&self, index: usize) -> Stats {
        Stats::of(&self.read(index))
    }
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

/// Statistics of one tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// Number of elements.
    pub count: usize,
    /// Mean of the finite elements.
    pub mean: f64,
    /// Standard deviation of the finite elements (population).
    pub std: f64,
    /// Smallest finite element.
    pub min: f64,
    /// Largest finite element.
    pub max: f64,
    /// Euclidean norm, not finite when an element is not.
    pub norm: f64,
    /// How many elements are zero.
    pub zeros: usize,
    /// How many elements are NaN or infinite.
    pub non_finite: usize,
}

impl Stats {
    /// The statistics of these values, in one pass of sums and one of deviations.
    #[must_use]
    pub fn of(values: &[f32]) -> Stats {
        let mut stats =
            Stats { count: values.len(), min: f64::INFINITY, max: f64::NEG_INFINITY, ..Stats::default() };
        let (mut sum, mut squares) = (0.0, 0.0);
        for value in values.iter().map(|value| f64::from(*value)) {
            squares += value * value;
            if !value.is_finite() {
                stats.non_finite += 1;
                continue;
            }
            stats.zeros += usize::from(value == 0.0);
            stats.min = stats.min.min(value);
            stats.max = stats.max.max(value);
            sum += value;
        }
        stats.norm = squares.sqrt();
        let finite = stats.count - stats.non_finite;
        if finite == 0 {
            return Stats { min: f64::NAN, max: f64::NAN, mean: f64::NAN, std: f64::NAN, ..stats };
        }
        stats.mean = sum / finite as f64;
        let deviations = values.iter().map(|value| f64::from(*value)).filter(|value| value.is_finite());
        let variance = deviations.map(|value| (value - stats.mean).powi(2)).sum::<f64>() / finite as f64;
        stats.std = variance.sqrt();
        stats
    }
}

/// The Euclidean norm of these values, summed in their order, as [`Stats`] sums it.
pub fn norm<'a>(values: impl IntoIterator<Item = &'a f32>) -> f64 {
    values.into_iter().map(|value| f64::from(*value)).map(|value| value * value).sum::<f64>().sqrt()
}

/// Named tensors as a hook sees them during one event.
pub struct Tensors<'a> {
    source: &'a dyn TensorSource,
    stats: RefCell<Vec<Option<Stats>>>,
}

impl<'a> Tensors<'a> {
    /// A view of these tensors for one event.
    #[must_use]
    pub fn new(source: &'a dyn TensorSource) -> Tensors<'a> {
        Tensors { source, stats: RefCell::default() }
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

    /// The one of this name.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<Tensor<'_>> {
        self.iter().find(|tensor| tensor.name() == name)
    }

    /// The Euclidean norm of all of them together.
    #[must_use]
    pub fn norm(&self) -> f64 {
        self.iter().map(|tensor| tensor.stats().norm.powi(2)).sum::<f64>().sqrt()
    }
}

impl std::fmt::Debug for Tensors<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter().map(|tensor| tensor.name().to_owned())).finish()
    }
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

    /// Its statistics, computed once per event for everybody who asks.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut known = self.list.stats.borrow_mut();
        if known.is_empty() {
            known.resize(self.list.len(), None);
        }
        *known[self.index].get_or_insert_with(|| self.list.source.stats(self.index))
    }

    /// A copy of its values.
    #[must_use]
    pub fn to_vec(&self) -> Vec<f32> {
        self.list.source.read(self.index)
    }
}

/// The settings of one group of an optimizer's parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamGroup {
    /// The group's name.
    pub name: String,
    /// Its learning rate.
    pub lr: f64,
    /// Its momentum, where the optimizer has one.
    pub momentum: Option<f64>,
    /// Its weight decay, where the optimizer has one.
    pub weight_decay: Option<f64>,
}

/// The optimizers of a module, as far as hooks may see them.
pub trait OptimizerSource {
    /// How many there are.
    fn count(&self) -> usize;
    /// The name of one.
    fn name(&self, index: usize) -> &str;
    /// The parameter groups of one, with the learning rates in force.
    fn groups(&self, index: usize) -> Vec<ParamGroup>;
    /// The state tensors of one (moments and the like).
    fn state(&self, index: usize) -> &dyn TensorSource;
}

/// What a hook may see of a module at any time.
pub trait ModelView {
    /// The parameters.
    fn params(&self) -> &dyn TensorSource;
    /// The optimizers.
    fn optimizers(&self) -> &dyn OptimizerSource;
}

/// A number that the engine may not have computed yet.
pub trait ReadScalar {
    /// The number. Reading is what makes it materialise.
    fn read(&self) -> f64;

    /// Many numbers at once; an engine that can bring them over in one go does so here.
    fn read_all(scalars: &[&Self]) -> Vec<f64>
    where
        Self: Sized,
    {
        scalars.iter().map(|scalar| scalar.read()).collect()
    }
}

impl ReadScalar for f64 {
    fn read(&self) -> f64 {
        *self
    }
}

/// The norm of several parts, each of which may not be computed yet.
pub struct NormOfParts<'a, S>(pub &'a [S]);

impl<S: ReadScalar> ReadScalar for NormOfParts<'_, S> {
    fn read(&self) -> f64 {
        self.0.iter().map(|part| part.read().powi(2)).sum::<f64>().sqrt()
    }
}

/// A lazy number as a hook sees it; reading it twice costs once.
pub struct Scalar<'a> {
    source: &'a dyn ReadScalar,
    known: Cell<Option<f64>>,
}

impl<'a> Scalar<'a> {
    /// A view of this number.
    #[must_use]
    pub fn new(source: &'a dyn ReadScalar) -> Scalar<'a> {
        Scalar { source, known: Cell::new(None) }
    }

    /// The number.
    #[must_use]
    pub fn value(&self) -> f64 {
        self.known.get().unwrap_or_else(|| {
            let value = self.source.read();
            self.known.set(Some(value));
            value
        })
    }
}

impl std::fmt::Debug for Scalar<'_> {
    /// Says whether it was read; printing must not make it materialise.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Scalar").field(&self.known.get()).finish()
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn statistics_leave_out_what_is_not_finite_but_count_it() {
        let stats = Stats::of(&[1.0, f32::NAN, 3.0, f32::INFINITY, 0.0]);
        assert_eq!((stats.non_finite, stats.zeros), (2, 1));
        assert!((stats.mean - 4.0 / 3.0).abs() < 1e-12);
        assert!((stats.max - 3.0).abs() < f64::EPSILON);
        assert!(stats.norm.is_nan());
        assert!(Stats::of(&[]).mean.is_nan());
    }

    #[test]
    fn a_scalar_is_read_once_and_not_by_printing_it() {
        struct Once(Cell<usize>);
        impl ReadScalar for Once {
            fn read(&self) -> f64 {
                self.0.set(self.0.get() + 1);
                2.5
            }
        }
        let source = Once(Cell::new(0));
        let scalar = Scalar::new(&source);
        assert_eq!(format!("{scalar:?}"), "Scalar(None)");
        assert!((scalar.value() + scalar.value() - 5.0).abs() < f64::EPSILON);
        assert_eq!(source.0.get(), 1);
    }
}
