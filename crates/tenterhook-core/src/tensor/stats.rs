//! Statistics of a tensor's values.

/// How many values are worked on at once, so that the compiler can use wide instructions.
const LANES: usize = 16;

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
    /// The statistics of these values.
    #[must_use]
    pub fn of(values: &[f32]) -> Stats {
        let sums = Sums::of(values);
        // A value that is not finite makes the sum of squares so; no finite ones do, in 64 bits.
        if values.is_empty() || !sums.squares.is_finite() {
            return Stats::of_any(values);
        }
        let count = values.len();
        let mean = sums.sum / count as f64;
        let variance = sums.squares / count as f64 - mean * mean;
        // Where nearly all of the squares is the mean's, their difference is mostly rounding.
        let variance = if variance < 1e-6 * mean * mean { deviation(values, mean) } else { variance };
        Stats {
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

    /// The same for values some of which may not be finite.
    #[cold]
    fn of_any(values: &[f32]) -> Stats {
        let finite: Vec<f32> = values.iter().copied().filter(|value| value.is_finite()).collect();
        let non_finite = values.len() - finite.len();
        let norm = if non_finite == 0 { 0.0 } else { norm(values) };
        if finite.is_empty() {
            let nan = f64::NAN;
            let count = values.len();
            return Stats { count, mean: nan, std: nan, min: nan, max: nan, norm, zeros: 0, non_finite };
        }
        Stats { count: values.len(), norm, non_finite, ..Stats::of(&finite) }
    }

    /// The share of the elements that are zero.
    #[must_use]
    pub fn zero_share(&self) -> f64 {
        self.share(self.zeros)
    }

    /// The share of the elements that are NaN or infinite.
    #[must_use]
    pub fn non_finite_share(&self) -> f64 {
        self.share(self.non_finite)
    }

    fn share(&self, of: usize) -> f64 {
        if self.count == 0 { 0.0 } else { of as f64 / self.count as f64 }
    }
}

/// The mean square of the distances from the mean.
fn deviation(values: &[f32], mean: f64) -> f64 {
    let squares = values.iter().map(|value| (f64::from(*value) - mean).powi(2));
    squares.sum::<f64>() / values.len() as f64
}

/// The sum of the squares, added up in the order in which [`Sums`] adds them.
fn squares(values: &[f32]) -> f64 {
    let (blocks, rest) = values.as_chunks::<LANES>();
    let mut squares = [0.0_f64; LANES];
    for block in blocks {
        for lane in 0..LANES {
            let wide = f64::from(block[lane]);
            squares[lane] += wide * wide;
        }
    }
    let blocks: f64 = squares.iter().sum();
    rest.iter().map(|value| f64::from(*value)).fold(blocks, |sum, value| sum + value * value)
}

/// What one pass over the values yields.
struct Sums {
    sum: f64,
    squares: f64,
    min: f32,
    max: f32,
    zeros: usize,
}

impl Sums {
    fn of(values: &[f32]) -> Sums {
        let (blocks, rest) = values.as_chunks::<LANES>();
        let (mut sum, mut squares) = ([0.0_f64; LANES], [0.0_f64; LANES]);
        let (mut min, mut max) = ([f32::INFINITY; LANES], [f32::NEG_INFINITY; LANES]);
        let mut zeros = 0;
        // The zeros of each lane are counted in 32 bits, like the values.
        for blocks in blocks.chunks(u32::MAX as usize) {
            let mut zeros_of = [0_u32; LANES];
            for block in blocks {
                for lane in 0..LANES {
                    let value = block[lane];
                    let wide = f64::from(value);
                    sum[lane] += wide;
                    squares[lane] += wide * wide;
                    min[lane] = if value < min[lane] { value } else { min[lane] };
                    max[lane] = if value > max[lane] { value } else { max[lane] };
                    zeros_of[lane] += u32::from(value == 0.0);
                }
            }
            zeros += zeros_of.iter().map(|zeros| *zeros as usize).sum::<usize>();
        }
        let mut sums = Sums {
            sum: sum.iter().sum(),
            squares: squares.iter().sum(),
            min: min.into_iter().fold(f32::INFINITY, f32::min),
            max: max.into_iter().fold(f32::NEG_INFINITY, f32::max),
            zeros,
        };
        for value in rest {
            let wide = f64::from(*value);
            sums.sum += wide;
            sums.squares += wide * wide;
            sums.min = sums.min.min(*value);
            sums.max = sums.max.max(*value);
            sums.zeros += usize::from(*value == 0.0);
        }
        sums
    }
}

/// The Euclidean norm of these values, to the bit as [`Stats`] has it.
#[must_use]
pub fn norm(values: &[f32]) -> f64 {
    squares(values).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn the_quick_way_says_what_the_plain_formulas_say() {
        for length in [1_u16, 15, 16, 17, 100, 1000] {
            let values: Vec<f32> =
                (0..length).map(|i| f32::from(i.wrapping_mul(7919) % 31) * 0.25 - 3.5).collect();
            let stats = Stats::of(&values);
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
    fn what_does_not_vary_has_no_deviation_and_large_values_have_a_norm() {
        assert!(Stats::of(&[0.1; 1000]).std < 1e-12);
        assert!((Stats::of(&[3e38; 4]).norm / 6e38 - 1.0).abs() < 1e-6);
        let apart = Stats::of(&[1e6, 1e6 + 1.0, 1e6 + 2.0]);
        assert!((apart.std - (2.0_f64 / 3.0).sqrt()).abs() < 1e-6, "{}", apart.std);
    }

    #[test]
    fn shares_are_of_all_elements() {
        let stats = Stats::of(&[0.0, f32::NAN, 1.0, 0.0]);
        assert!((stats.zero_share() - 0.5).abs() < f64::EPSILON);
        assert!((stats.non_finite_share() - 0.25).abs() < f64::EPSILON);
        assert!(Stats::of(&[]).zero_share() < f64::EPSILON);
    }
}
