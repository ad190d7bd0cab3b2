//! Histograms of values.

use serde::{Deserialize, Serialize};

/// A histogram with bins of equal width from the smallest to the largest value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// The edges of the bins in ascending order, one more than there are bins.
    pub edges: Vec<f64>,
    /// The number of values in each bin. The last bin includes its upper edge.
    pub counts: Vec<u64>,
    /// The number of values that are NaN or infinite; they are in no bin.
    pub non_finite: u64,
}

impl Histogram {
    /// Computes the histogram of values. If all are equal, there is one bin.
    #[must_use]
    pub fn of(values: &[f32], bins: usize) -> Histogram {
        let finite = || values.iter().copied().filter(|value| value.is_finite()).map(f64::from);
        let (low, high) = finite()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        let count = finite().count();
        let non_finite = (values.len() - count) as u64;
        if count == 0 {
            return Histogram { edges: Vec::new(), counts: Vec::new(), non_finite };
        }
        if bins < 2 || low >= high {
            return Histogram { edges: vec![low, high], counts: vec![count as u64], non_finite };
        }
        let width = (high - low) / bins as f64;
        let mut counts = vec![0; bins];
        for value in finite() {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // between 0 and `bins`
            let bin = ((value - low) / width) as usize;
            counts[bin.min(bins - 1)] += 1;
        }
        let mut edges: Vec<f64> = (0..bins).map(|bin| low + width * bin as f64).collect();
        edges.push(high);
        Histogram { edges, counts, non_finite }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finite_value_lies_in_one_bin() {
        let histogram = Histogram::of(&[0.0, 1.0, 1.5, 2.0, 4.0, f32::NAN], 4);
        assert_eq!(histogram.edges, [0.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(histogram.counts, [1, 2, 1, 1]);
        assert_eq!(histogram.non_finite, 1);
    }

    #[test]
    fn equal_values_have_one_bin_and_no_values_have_none() {
        assert_eq!(Histogram::of(&[3.0, 3.0], 8).counts, [2]);
        assert_eq!(Histogram::of(&[3.0, 5.0], 1).edges, [3.0, 5.0]);
        assert!(Histogram::of(&[f32::INFINITY], 8).counts.is_empty());
    }
}
