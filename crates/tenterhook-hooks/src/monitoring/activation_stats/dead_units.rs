//! Finds dead units of an activation: those with only zeros.

use tenterhook_core::{Tensor, TensorStats};

/// Finds dead units. Its memory is reused for every activation.
#[derive(Clone, Debug, Default)]
pub(super) struct DeadUnits {
    /// The units with only zeros so far.
    candidates: Vec<usize>,
}

/// The memory layout of the units: each of `blocks` blocks holds `inner` values per unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    axis: usize,
    blocks: usize,
    units: usize,
    inner: usize,
}

impl Layout {
    /// The layout for this shape and unit dimension (negative: from the end); `None` if there is no such dimension.
    pub(super) fn of(shape: &[usize], axis: Option<i64>) -> Option<Layout> {
        let dims = shape.len();
        let axis = match axis {
            // A scalar is one unit.
            None if dims == 0 => return Some(Layout { axis: 0, blocks: 1, units: 1, inner: 1 }),
            None if dims <= 3 => dims - 1,
            None => 1,
            Some(axis) if axis >= 0 => usize::try_from(axis).ok()?,
            Some(axis) => dims.checked_sub(usize::try_from(axis.unsigned_abs()).ok()?)?,
        };
        let units = *shape.get(axis)?;
        let (blocks, inner) = (shape[..axis].iter().product(), shape[axis + 1..].iter().product());
        Some(Layout { axis, blocks, units, inner })
    }
}

impl DeadUnits {
    /// The fraction of dead units. The values are read only if there are enough zeros for one, and beyond the first sample
    /// only if candidates are left.
    pub(super) fn fraction(
        &mut self,
        tensor: &Tensor<'_>,
        stats: &TensorStats,
        layout: Layout,
        values: Option<&[f32]>,
    ) -> f64 {
        let Layout { axis, blocks, units, inner } = layout;
        if units == 0 || stats.zeros < blocks * inner {
            return 0.0;
        }
        self.candidates.clear();
        self.candidates.extend(0..units);
        if let Some(values) = values {
            self.narrow(values, layout);
        } else {
            let samples = tensor.shape().first().copied().unwrap_or(1);
            let first = (axis > 0 && samples > 1).then(|| tensor.slice(std::slice::from_ref(&(0..1))));
            if let Some(Ok(first)) = first {
                self.narrow(&first, layout);
            }
            if !self.candidates.is_empty() {
                self.narrow(&tensor.to_vec(), layout);
            }
        }
        self.candidates.len() as f64 / units as f64
    }

    /// Removes the candidates with a non-zero value. A unit is read up to its first such value.
    fn narrow(&mut self, values: &[f32], layout: Layout) {
        let Layout { units, inner, .. } = layout;
        for block in values.chunks_exact(units * inner) {
            let of = |unit: usize| &block[unit * inner..(unit + 1) * inner];
            self.candidates.retain(|unit| of(*unit).iter().all(|value| *value == 0.0));
            if self.candidates.is_empty() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_counted_along_the_last_dimension_or_the_channels() {
        let of = |shape: &[usize], axis: Option<i64>| {
            Layout::of(shape, axis).map(|layout| (layout.blocks, layout.units, layout.inner))
        };
        assert_eq!(of(&[], None), Some((1, 1, 1)));
        assert_eq!(of(&[5], None), Some((1, 5, 1)));
        assert_eq!(of(&[4, 5], None), Some((4, 5, 1)));
        assert_eq!(of(&[3, 4, 5], None), Some((12, 5, 1)));
        assert_eq!(of(&[2, 3, 4, 5], None), Some((2, 3, 20)));
        assert_eq!(of(&[2, 3, 4, 5, 6], None), Some((2, 3, 120)));
        assert_eq!(of(&[3, 4, 5], Some(0)), Some((1, 3, 20)));
        assert_eq!(of(&[3, 4, 5], Some(-2)), Some((3, 4, 5)));
        for (shape, axis) in [(&[3, 4][..], 2), (&[3, 4], -3), (&[], 0), (&[], -1), (&[3], i64::MIN)] {
            assert_eq!(of(shape, Some(axis)), None, "{shape:?} {axis}");
        }
    }
}
