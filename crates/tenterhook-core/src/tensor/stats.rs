//! Statistics of a tensor's values.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The number of values processed together; it lets the compiler use SIMD instructions.
const LANES: usize = 8;

/// The number of values per block; a block stays in the L1 cache during several passes.
const NEAR: usize = 4096;

/// Statistics of one tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TensorStats {
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
    /// Euclidean norm; not finite if an element is not.
    pub norm: f64,
    /// Number of elements that are zero.
    pub zeros: usize,
    /// Number of elements that are NaN or infinite.
    pub non_finite: usize,
}

impl TensorStats {
    /// Computes the statistics of values.
    #[must_use]
    pub fn of(values: &[f32]) -> TensorStats {
        let sums = Sums::of(values);
        // The sum of squares in 64 bits is finite exactly if all 32-bit values are.
        if values.is_empty() || !sums.squares.is_finite() {
            return TensorStats::of_any(values);
        }
        let count = values.len();
        let mean = sums.sum / count as f64;
        let variance = sums.squares / count as f64 - mean * mean;
        // If the mean dominates the squares, their difference is mostly rounding error.
        let variance =
            if variance < 1e-6 * mean * mean { mean_squared_deviation(values, mean) } else { variance };
        TensorStats {
            count,
            mean,
            std: variance.sqrt(),
            min: f64::from(sums.min),
            max: f64::from(sums.max),
            norm: sums.squares.sqrt(),
            zeros: sums.zeros,
            non_finite: 0,
        }
    }

    /// Computes the statistics of values that may not be finite.
    #[cold]
    fn of_any(values: &[f32]) -> TensorStats {
        let finite: Vec<f32> = values.iter().copied().filter(|value| value.is_finite()).collect();
        let non_finite = values.len() - finite.len();
        let norm = if non_finite == 0 { 0.0 } else { norm(values) };
        if finite.is_empty() {
            let nan = f64::NAN;
            let count = values.len();
            return TensorStats {
                count,
                mean: nan,
                std: nan,
                min: nan,
                max: nan,
                norm,
                zeros: 0,
                non_finite,
            };
        }
        TensorStats { count: values.len(), norm, non_finite, ..TensorStats::of(&finite) }
    }

    /// The fraction of the elements that are zero.
    #[must_use]
    pub fn zero_fraction(&self) -> f64 {
        self.fraction(self.zeros)
    }

    /// The fraction of the elements that are NaN or infinite.
    #[must_use]
    pub fn non_finite_fraction(&self) -> f64 {
        self.fraction(self.non_finite)
    }

    fn fraction(&self, count: usize) -> f64 {
        if self.count == 0 { 0.0 } else { count as f64 / self.count as f64 }
    }
}

/// The mean squared deviation from the mean.
fn mean_squared_deviation(values: &[f32], mean: f64) -> f64 {
    let squares = values.iter().map(|value| (f64::from(*value) - mean).powi(2));
    squares.sum::<f64>() / values.len() as f64
}

/// Sums over the values. Each is a separate plain loop, which the compiler vectorizes; a single loop for all
/// is not vectorized.
struct Sums {
    sum: f64,
    squares: f64,
    min: f32,
    max: f32,
    zeros: usize,
}

impl Sums {
    fn of(values: &[f32]) -> Sums {
        let mut sums = Sums { sum: 0.0, squares: 0.0, min: f32::INFINITY, max: f32::NEG_INFINITY, zeros: 0 };
        for near in values.chunks(NEAR) {
            sums.sum += lanes(near, 0.0, |sum, value| sum + f64::from(value), |one, other| one + other);
            sums.squares += squares(near);
            let min = lanes(near, f32::INFINITY, smaller, smaller);
            let max = lanes(near, f32::NEG_INFINITY, larger, larger);
            (sums.min, sums.max) = (smaller(sums.min, min), larger(sums.max, max));
            if min <= 0.0 && max >= 0.0 {
                let count = |zeros: u32, value: f32| zeros + u32::from(value == 0.0);
                sums.zeros += lanes(near, 0, count, |one, other| one + other) as usize;
            }
        }
        sums
    }
}

fn smaller(one: f32, other: f32) -> f32 {
    if other < one { other } else { one }
}

fn larger(one: f32, other: f32) -> f32 {
    if other > one { other } else { one }
}

/// Folds the values in lanes, then the lanes, then the remaining values.
#[inline]
fn lanes<T: Copy>(
    values: &[f32],
    start: T,
    mut add: impl FnMut(T, f32) -> T,
    join: impl FnMut(T, T) -> T,
) -> T {
    let (blocks, rest) = values.as_chunks::<LANES>();
    let mut of = [start; LANES];
    for block in blocks {
        for lane in 0..LANES {
            of[lane] = add(of[lane], block[lane]);
        }
    }
    let of_blocks = of.into_iter().reduce(join).unwrap_or(start);
    rest.iter().fold(of_blocks, |so_far, value| add(so_far, *value))
}

/// The sum of the squares of values.
fn squares(near: &[f32]) -> f64 {
    let add = |sum: f64, value: f32| {
        let wide = f64::from(value);
        sum + wide * wide
    };
    lanes(near, 0.0, add, |one, other| one + other)
}

/// The Euclidean norm of values, equal to that of [`TensorStats`] to the bit.
#[must_use]
pub fn norm(values: &[f32]) -> f64 {
    values.chunks(NEAR).map(squares).sum::<f64>().sqrt()
}

/// The norms of a tensor and of its update.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UpdateNorms {
    /// The norm of the tensor before the update.
    pub before: f64,
    /// The norm of the update, which is the difference.
    pub update: f64,
}

/// An update that the engine has not made yet. The hook holds one clone and the engine the other.
#[derive(Clone, Debug, Default)]
pub struct PendingUpdate(Arc<OnceLock<(UpdateNorms, Duration)>>);

impl PendingUpdate {
    /// Whether a hook still waits for the update.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Sets the norms, and the time that the engine needed to compute them. Only the first call counts.
    pub fn resolve(self, norms: UpdateNorms, took: Duration) {
        let _ = self.0.set((norms, took));
    }

    /// The norms once the update was made, and the time that the engine needed to compute them.
    #[must_use]
    pub fn get(&self) -> Option<(UpdateNorms, Duration)> {
        self.0.get().copied()
    }
}

impl UpdateNorms {
    /// Computes the norms from the values before and after an update. If one slice is longer, its rest is
    /// ignored.
    #[must_use]
    pub fn between(before: &[f32], after: &[f32]) -> UpdateNorms {
        let (mut from, mut by) = (0.0, 0.0);
        for (before, after) in before.chunks(SHORT).zip(after.chunks(SHORT)) {
            let (of_before, of_difference) = narrow_squares(before, after);
            from += f64::from(of_before);
            by += f64::from(of_difference);
        }
        let norms = UpdateNorms { before: f64::sqrt(from), update: f64::sqrt(by) };
        // Squares overflow and underflow 32 bits long before the values do.
        let is_sure = |norm: f64| norm.is_finite() && norm > 1e-12;
        if is_sure(norms.before) && is_sure(norms.update) { norms } else { UpdateNorms::wide(before, after) }
    }

    /// Computes the norms in 64 bits.
    #[cold]
    fn wide(before: &[f32], after: &[f32]) -> UpdateNorms {
        let difference: Vec<f32> = before.iter().zip(after).map(|(before, after)| after - before).collect();
        UpdateNorms { before: norm(before), update: norm(&difference) }
    }
}

/// The number of values summed in 32 bits before the sum is added to a 64-bit one; it keeps five digits
/// exact.
const SHORT: usize = 1024;

/// In 32 bits twice as many values are processed together.
const NARROW_LANES: usize = 2 * LANES;

/// The sums of the squares of the values before and of the difference. A single loop for both would take
/// twice as long.
fn narrow_squares(before: &[f32], after: &[f32]) -> (f32, f32) {
    let (before, rest) = before.as_chunks::<NARROW_LANES>();
    let (after, rest_after) = after.as_chunks::<NARROW_LANES>();
    let (mut of_before, mut of_difference) = ([0.0; NARROW_LANES], [0.0; NARROW_LANES]);
    for before in before {
        for lane in 0..NARROW_LANES {
            of_before[lane] += before[lane] * before[lane];
        }
    }
    for (before, after) in before.iter().zip(after) {
        for lane in 0..NARROW_LANES {
            let difference = after[lane] - before[lane];
            of_difference[lane] += difference * difference;
        }
    }
    for (lane, (before, after)) in rest.iter().zip(rest_after).enumerate() {
        of_before[lane] += before * before;
        of_difference[lane] += (after - before).powi(2);
    }
    (of_before.iter().sum(), of_difference.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_leave_out_what_is_not_finite_but_count_it() {
        let stats = TensorStats::of(&[1.0, f32::NAN, 3.0, f32::INFINITY, 0.0]);
        assert_eq!((stats.non_finite, stats.zeros), (2, 1));
        assert!((stats.mean - 4.0 / 3.0).abs() < 1e-12);
        assert!((stats.max - 3.0).abs() < f64::EPSILON);
        assert!(stats.norm.is_nan());
        assert!(TensorStats::of(&[]).mean.is_nan());
    }

    #[test]
    fn the_fast_statistics_equal_the_plain_formulas() {
        for length in [1_u16, 15, 16, 17, 100, 1000, 4097, 9000] {
            let values: Vec<f32> =
                (0..length).map(|i| f32::from(i.wrapping_mul(7919) % 31) * 0.25 - 3.5).collect();
            let stats = TensorStats::of(&values);
            let wide: Vec<f64> = values.iter().map(|value| f64::from(*value)).collect();
            let mean = wide.iter().sum::<f64>() / f64::from(length);
            let std =
                (wide.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / f64::from(length)).sqrt();
            assert!((stats.mean - mean).abs() < 1e-9, "{length}");
            assert!((stats.std - std).abs() < 1e-9, "{length}");
            assert!((stats.norm - norm(&values)).abs() < f64::MIN_POSITIVE, "{length}");
            assert!((stats.min - wide.iter().copied().fold(f64::MAX, f64::min)).abs() < f64::EPSILON);
            assert!((stats.max - wide.iter().copied().fold(f64::MIN, f64::max)).abs() < f64::EPSILON);
            assert_eq!(stats.zeros, values.iter().filter(|value| **value == 0.0).count());
        }
    }

    #[test]
    fn update_norms_are_those_of_the_values_before_and_of_the_difference() {
        let before: Vec<f32> = (0..9000_u16).map(|i| f32::from(i % 17) - 8.0).collect();
        let after: Vec<f32> = before.iter().map(|value| value * 1.5 + 0.25).collect();
        let difference: Vec<f32> = before.iter().zip(&after).map(|(before, after)| after - before).collect();
        let wide = UpdateNorms { before: norm(&before), update: norm(&difference) };
        let is_near = |one: f64, other: f64| (one - other).abs() <= 1e-5 * other;
        let norms = UpdateNorms::between(&before, &after);
        assert!(
            is_near(norms.before, wide.before) && is_near(norms.update, wide.update),
            "{norms:?}, {wide:?}"
        );
        for length in [1, 7, 8, 9, 255, 257] {
            let norms = UpdateNorms::between(&before[..length], &after[..length]);
            assert!(is_near(norms.before, norm(&before[..length])), "{length}: {norms:?}");
            assert!(is_near(norms.update, norm(&difference[..length])), "{length}: {norms:?}");
        }
        assert_eq!(UpdateNorms::between(&[], &[]), UpdateNorms::default());
    }

    #[test]
    fn a_change_of_very_large_and_very_small_values_is_measured_too() {
        for size in [1e25_f32, 1e-25] {
            let norms = UpdateNorms::between(&[3.0 * size, 4.0 * size], &[3.0 * size, 5.0 * size]);
            let [from, by] = [norms.before, norms.update].map(|norm| norm / f64::from(size));
            assert!((from - 5.0).abs() < 1e-5 && (by - 1.0).abs() < 1e-5, "{norms:?}");
        }
        assert!(UpdateNorms::between(&[f32::NAN], &[1.0]).update.is_nan());
        let nothing = UpdateNorms::between(&[2.0], &[2.0]);
        assert_eq!(nothing, UpdateNorms { before: 2.0, update: 0.0 });
    }

    #[test]
    fn constant_values_have_no_deviation_and_large_values_have_a_norm() {
        assert!(TensorStats::of(&[0.1; 1000]).std < 1e-12);
        assert!((TensorStats::of(&[3e38; 4]).norm / 6e38 - 1.0).abs() < 1e-6);
        let apart = TensorStats::of(&[1e6, 1e6 + 1.0, 1e6 + 2.0]);
        assert!((apart.std - (2.0_f64 / 3.0).sqrt()).abs() < 1e-6, "{}", apart.std);
    }

    #[test]
    fn shares_are_of_all_elements() {
        let stats = TensorStats::of(&[0.0, f32::NAN, 1.0, 0.0]);
        assert!((stats.zero_fraction() - 0.5).abs() < f64::EPSILON);
        assert!((stats.non_finite_fraction() - 0.25).abs() < f64::EPSILON);
        assert!(TensorStats::of(&[]).zero_fraction() < f64::EPSILON);
    }
}
