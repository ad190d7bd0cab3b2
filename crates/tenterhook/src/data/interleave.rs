//! How several training loaders are interleaved, in code and in configuration.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the batches of several training loaders are interleaved.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Interleave {
    /// One batch of each loader in turn. Exhausted loaders are skipped.
    #[default]
    RoundRobin,
    /// All batches of the first loader, then all of the next.
    Sequential,
    /// Each batch comes from a random loader that is not exhausted, with a probability proportional to its
    /// weight. One weight per loader. The draw is a function of the run's seed, the epoch and the position.
    Weighted(Vec<f64>),
    /// A repeated pattern: the number of batches per turn of each loader; empty means one each. The epoch
    /// ends when the loader of the current turn is exhausted.
    Alternating(Vec<u64>),
}

/// The name of an [`Interleave`] in configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum InterleaveMode {
    /// One batch of each loader in turn. Exhausted loaders are skipped.
    #[default]
    RoundRobin,
    /// All batches of the first loader, then all of the next.
    Sequential,
    /// A random loader per batch, by `weights`.
    Weighted,
    /// The repeated `pattern`.
    Alternating,
}

/// How several training loaders are interleaved, in configuration:
///
/// ```toml
/// interleave = "weighted"        # or "round_robin" (the default), "sequential", "alternating"
/// weights = [3.0, 1.0]      # with "weighted": one per loader
/// # pattern = [2, 1]        # with "alternating": batches per turn, default one each
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InterleaveOptions {
    /// How several training loaders are interleaved: `round_robin`, `sequential`, `weighted` or
    /// `alternating`.
    pub interleave: InterleaveMode,
    /// With `weighted`: the relative probability of each loader.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<Vec<f64>>,
    /// With `alternating`: the number of batches per turn of each loader. Default: one each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<Vec<u64>>,
}

/// An error in an [`Interleave`] or its options.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InterleaveError {
    /// Weights are missing.
    #[error("`interleave = \"weighted\"` needs `weights`, one per loader")]
    NoWeights,
    /// An option has no effect.
    #[error("`{key}` has no effect without `interleave = \"{interleave}\"`; set that, or remove `{key}`")]
    Unused {
        /// The option.
        key: &'static str,
        /// The value of `interleave` that it needs.
        interleave: &'static str,
    },
    /// The list does not have one value per loader.
    #[error("`{key}` holds {given}, but there are {loaders} training loaders; give one for each")]
    Count {
        /// The list.
        key: &'static str,
        /// Its length.
        given: usize,
        /// The number of loaders.
        loaders: usize,
    },
    /// A weight is not positive and finite.
    #[error("weight {0} is not a positive, finite number; remove the loader to use none of its batches")]
    Weight(f64),
    /// A turn without a batch.
    #[error("`pattern` holds a 0; remove the loader to use none of its batches")]
    EmptyTurn,
}

impl InterleaveError {
    /// The option.
    #[must_use]
    pub fn key(&self) -> &'static str {
        match self {
            InterleaveError::NoWeights | InterleaveError::Weight(_) => "weights",
            InterleaveError::EmptyTurn => "pattern",
            InterleaveError::Unused { key, .. } | InterleaveError::Count { key, .. } => key,
        }
    }
}

impl InterleaveOptions {
    /// Builds the [`Interleave`] for this number of loaders.
    pub fn interleave(&self, loaders: usize) -> Result<Interleave, InterleaveError> {
        if self.weights.is_some() && self.interleave != InterleaveMode::Weighted {
            return Err(InterleaveError::Unused { key: "weights", interleave: "weighted" });
        }
        if self.pattern.is_some() && self.interleave != InterleaveMode::Alternating {
            return Err(InterleaveError::Unused { key: "pattern", interleave: "alternating" });
        }
        let interleave = match self.interleave {
            InterleaveMode::RoundRobin => Interleave::RoundRobin,
            InterleaveMode::Sequential => Interleave::Sequential,
            InterleaveMode::Weighted => {
                Interleave::Weighted(self.weights.clone().ok_or(InterleaveError::NoWeights)?)
            }
            InterleaveMode::Alternating => Interleave::Alternating(self.pattern.clone().unwrap_or_default()),
        };
        interleave.check(loaders)?;
        Ok(interleave)
    }
}

impl Interleave {
    /// Checks the weights or the pattern for this number of loaders.
    pub fn check(&self, loaders: usize) -> Result<(), InterleaveError> {
        let count = |key, given| {
            if given == loaders { Ok(()) } else { Err(InterleaveError::Count { key, given, loaders }) }
        };
        match self {
            Interleave::RoundRobin | Interleave::Sequential => Ok(()),
            Interleave::Weighted(weights) => {
                count("weights", weights.len())?;
                let wrong = weights.iter().find(|weight| !weight.is_finite() || **weight <= 0.0);
                wrong.map_or(Ok(()), |weight| Err(InterleaveError::Weight(*weight)))
            }
            Interleave::Alternating(pattern) if pattern.is_empty() => Ok(()),
            Interleave::Alternating(pattern) => {
                count("pattern", pattern.len())?;
                if pattern.contains(&0) { Err(InterleaveError::EmptyTurn) } else { Ok(()) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str, loaders: usize) -> Result<Interleave, String> {
        let options: InterleaveOptions = toml::from_str(text).map_err(|error| error.to_string())?;
        options.interleave(loaders).map_err(|error| format!("{}: {error}", error.key()))
    }

    #[test]
    fn each_way_has_a_name_in_configuration() {
        assert_eq!(parsed("", 2), Ok(Interleave::RoundRobin));
        assert_eq!(parsed("interleave = 'round_robin'", 2), Ok(Interleave::RoundRobin));
        assert_eq!(parsed("interleave = 'sequential'", 2), Ok(Interleave::Sequential));
        assert_eq!(
            parsed("interleave = 'weighted'\nweights = [3, 1.5]", 2),
            Ok(Interleave::Weighted(vec![3.0, 1.5]))
        );
        assert_eq!(parsed("interleave = 'alternating'", 2), Ok(Interleave::Alternating(vec![])));
        let alternating = parsed("interleave = 'alternating'\npattern = [2, 1]", 2);
        assert_eq!(alternating, Ok(Interleave::Alternating(vec![2, 1])));
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_key_and_fix() {
        let refused = |text, key: &str, part: &str| {
            let error = parsed(text, 2).unwrap_err();
            assert!(error.starts_with(key) && error.contains(part), "{error}");
        };
        refused("interleave = 'weighted'", "weights", "one per loader");
        refused("interleave = 'weighted'\nweights = [1.0]", "weights", "holds 1, but there are 2");
        refused("interleave = 'weighted'\nweights = [1.0, 0.0]", "weights", "weight 0 is not");
        refused("interleave = 'weighted'\nweights = [1.0, -2.0]", "weights", "weight -2 is not");
        refused("interleave = 'weighted'\nweights = [inf, 1.0]", "weights", "weight inf is not");
        refused("interleave = 'weighted'\nweights = [nan, 1.0]", "weights", "weight NaN is not");
        refused("weights = [1.0, 1.0]", "weights", "no effect without `interleave = \"weighted\"`");
        refused("pattern = [1, 1]", "pattern", "no effect without `interleave = \"alternating\"`");
        refused("interleave = 'alternating'\npattern = [1, 1, 1]", "pattern", "holds 3");
        refused("interleave = 'alternating'\npattern = [1, 0]", "pattern", "holds a 0");
        assert!(parsed("interleave = 'shuffled'", 2).unwrap_err().contains("round_robin"));
    }
}
