//! Measurements in alternating rounds, so other load on the machine affects all sides equally.

use std::error::Error;

use serde::{Deserialize, Serialize};

/// The result of a measurement.
pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The effort of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Only a few rounds.
    pub quick: bool,
}

impl Effort {
    /// The number of rounds.
    pub fn rounds(self, thorough: usize) -> usize {
        if self.quick { thorough.min(5) } else { thorough }
    }
}

/// A median with its 95 % confidence interval for any distribution, from the order statistics of a sign test. With fewer
/// than six rounds the interval is the range of the samples.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Measured {
    pub median: f64,
    pub low: f64,
    pub high: f64,
    pub rounds: usize,
}

impl Measured {
    pub fn of(mut samples: Vec<f64>) -> Result<Measured> {
        samples.sort_by(f64::total_cmp);
        if samples.iter().any(|sample| sample.is_nan()) {
            return Err("a training run ended before its steps were timed".into());
        }
        let [Some(first), Some(last)] = [samples.first(), samples.last()] else {
            return Err("no round was measured".into());
        };
        let out = outside(samples.len());
        let low = samples.get(out).unwrap_or(first);
        let high = samples.get(samples.len() - 1 - out).unwrap_or(last);
        let middle = |at: usize| samples.get(at).copied().unwrap_or(f64::NAN);
        let median = f64::midpoint(middle((samples.len() - 1) / 2), middle(samples.len() / 2));
        Ok(Measured { median, low: *low, high: *high, rounds: samples.len() })
    }

    /// A count, which is reproducible.
    pub fn counted(count: f64) -> Measured {
        Measured { median: count, low: count, high: count, rounds: 1 }
    }
}

/// The number of sorted samples outside of the interval on each side.
fn outside(samples: usize) -> usize {
    let mut probability = 0.5_f64.powi(i32::try_from(samples).unwrap_or(i32::MAX));
    let (mut below, mut out) = (0.0, 0);
    while out < samples / 2 {
        below += probability;
        if 2.0 * below > 0.05 {
            break;
        }
        out += 1;
        probability *= (samples - out + 1) as f64 / out as f64;
    }
    out
}

/// One of the compared sides: a measurement in seconds.
pub type Side<'a> = &'a mut dyn FnMut() -> Result<f64>;

/// Runs both sides alternately, after one warm-up round; `compare` makes a sample of each round.
pub fn alternate(
    rounds: usize,
    [ours, theirs]: [Side<'_>; 2],
    compare: impl Fn(f64, f64) -> f64,
) -> Result<Measured> {
    let mut samples = Vec::with_capacity(rounds);
    for round in 0..=rounds {
        // The order alternates as well.
        let (ours, theirs) = if round % 2 == 0 {
            let ours = ours()?;
            (ours, theirs()?)
        } else {
            let theirs = theirs()?;
            (ours()?, theirs)
        };
        if round > 0 {
            samples.push(compare(ours, theirs));
        }
    }
    Measured::of(samples)
}
