//! Lazy numbers, which an engine may not have computed yet.

use std::cell::Cell;

/// A lazy number of an engine.
pub trait ReadScalar {
    /// Reads the number, which may wait for the engine.
    fn read(&self) -> f64;

    /// The number, if it needs no engine to be read.
    fn known(&self) -> Option<f64> {
        None
    }

    /// Reads several numbers. Engines can transfer them together.
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

/// The lazy norm of several lazy norms.
pub struct NormOfParts<'a, S>(pub &'a [S]);

impl<S: ReadScalar> ReadScalar for NormOfParts<'_, S> {
    /// NaN if there are no parts.
    fn read(&self) -> f64 {
        if self.0.is_empty() {
            return f64::NAN;
        }
        self.0.iter().map(|part| part.read().powi(2)).sum::<f64>().sqrt()
    }
}

/// A lazy number as a hook sees it. It is read from the engine only once.
pub struct Scalar<'a> {
    source: &'a dyn ReadScalar,
    known: Cell<Option<f64>>,
}

impl<'a> Scalar<'a> {
    /// Makes a view of a number.
    #[must_use]
    pub fn new(source: &'a dyn ReadScalar) -> Scalar<'a> {
        Scalar { source, known: Cell::new(None) }
    }

    /// Reads the number.
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
    /// Shows the number if it has been read. Printing does not read it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Scalar").field(&self.known.get()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
