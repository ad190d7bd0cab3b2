//! How several training loaders take turns, in code and in configuration.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How several training loaders take turns.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Turns {
    /// One batch of each in turn, those that still have some.
    #[default]
    RoundRobin,
    /// All of one, then all of the next.
    Sequential,
    /// Each batch comes from a loader that still has some, drawn with a probability in proportion to its
    /// weight: one weight per loader. Who is drawn is a function of the run's seed, the epoch and the position.
    Weighted(Vec<f64>),
    /// So many batches of the first, then so many of the second, …, and again; nothing means one each. The
    /// epoch ends when the loader whose turn it is has none left, so the pattern is never broken.
    Alternating(Vec<u64>),
}

/// The name of a [`Turns`], as configuration has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TurnsName {
    /// One batch of each in turn, those that still have some.
    #[default]
    RoundRobin,
    /// All of one, then all of the next.
    Sequential,
    /// Drawn by `weights`.
    Weighted,
    /// By `pattern`.
    Alternating,
}

/// How several training loaders take turns, as configuration has it:
///
/// ```toml
/// turns = "weighted"        # or "round_robin" (the default), "sequential", "alternating"
/// weights = [3.0, 1.0]      # with "weighted": one per loader
/// # pattern = [2, 1]        # with "alternating": batches per turn, one each if left out
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TurnsOptions {
    /// How several training loaders take turns: `round_robin`, `sequential`, `weighted` or `alternating`.
    pub turns: TurnsName,
    /// With `weighted`: how likely each loader is to be next, in proportion; one per loader.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<Vec<f64>>,
    /// With `alternating`: how many batches each loader gives per turn; one each if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<Vec<u64>>,
}

/// Why loaders cannot take turns like this.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TurnsError {
    /// Weights are missing.
    #[error("`turns = \"weighted\"` needs `weights`, one per loader")]
    NoWeights,
    /// Something is given that nobody would read.
    #[error("`{key}` has no effect without `turns = \"{turns}\"`; set that, or remove `{key}`")]
    Unused {
        /// What is given.
        key: &'static str,
        /// What would read it.
        turns: &'static str,
    },
    /// Another number of them than there are loaders.
    #[error("`{key}` holds {given}, but there are {loaders} training loaders; give one for each")]
    Count {
        /// Which list.
        key: &'static str,
        /// Its length.
        given: usize,
        /// How many loaders there are.
        loaders: usize,
    },
    /// A weight with which nothing can be drawn.
    #[error("weight {0} is not a positive, finite number; leave a loader out to take nothing of it")]
    Weight(f64),
    /// A turn without a batch.
    #[error("`pattern` holds a 0; leave a loader out to take nothing of it")]
    EmptyTurn,
}

impl TurnsError {
    /// Which option it is about.
    #[must_use]
    pub fn key(&self) -> &'static str {
        match self {
            TurnsError::NoWeights | TurnsError::Weight(_) => "weights",
            TurnsError::EmptyTurn => "pattern",
            TurnsError::Unused { key, .. } | TurnsError::Count { key, .. } => key,
        }
    }
}

impl TurnsOptions {
    /// What these options come to for so many loaders.
    pub fn turns(&self, loaders: usize) -> Result<Turns, TurnsError> {
        if self.weights.is_some() && self.turns != TurnsName::Weighted {
            return Err(TurnsError::Unused { key: "weights", turns: "weighted" });
        }
        if self.pattern.is_some() && self.turns != TurnsName::Alternating {
            return Err(TurnsError::Unused { key: "pattern", turns: "alternating" });
        }
        let turns = match self.turns {
            TurnsName::RoundRobin => Turns::RoundRobin,
            TurnsName::Sequential => Turns::Sequential,
            TurnsName::Weighted => Turns::Weighted(self.weights.clone().ok_or(TurnsError::NoWeights)?),
            TurnsName::Alternating => Turns::Alternating(self.pattern.clone().unwrap_or_default()),
        };
        turns.check(loaders)?;
        Ok(turns)
    }
}

impl Turns {
    /// Whether so many loaders can take turns like this.
    pub fn check(&self, loaders: usize) -> Result<(), TurnsError> {
        let count = |key, given| {
            if given == loaders { Ok(()) } else { Err(TurnsError::Count { key, given, loaders }) }
        };
        match self {
            Turns::RoundRobin | Turns::Sequential => Ok(()),
            Turns::Weighted(weights) => {
                count("weights", weights.len())?;
                let wrong = weights.iter().find(|weight| !weight.is_finite() || **weight <= 0.0);
                wrong.map_or(Ok(()), |weight| Err(TurnsError::Weight(*weight)))
            }
            Turns::Alternating(pattern) if pattern.is_empty() => Ok(()),
            Turns::Alternating(pattern) => {
                count("pattern", pattern.len())?;
                if pattern.contains(&0) { Err(TurnsError::EmptyTurn) } else { Ok(()) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str, loaders: usize) -> Result<Turns, String> {
        let options: TurnsOptions = toml::from_str(text).map_err(|error| error.to_string())?;
        options.turns(loaders).map_err(|error| format!("{}: {error}", error.key()))
    }

    #[test]
    fn each_way_has_a_name_in_configuration() {
        assert_eq!(parsed("", 2), Ok(Turns::RoundRobin));
        assert_eq!(parsed("turns = 'round_robin'", 2), Ok(Turns::RoundRobin));
        assert_eq!(parsed("turns = 'sequential'", 2), Ok(Turns::Sequential));
        assert_eq!(parsed("turns = 'weighted'\nweights = [3, 1.5]", 2), Ok(Turns::Weighted(vec![3.0, 1.5])));
        assert_eq!(parsed("turns = 'alternating'", 2), Ok(Turns::Alternating(vec![])));
        let alternating = parsed("turns = 'alternating'\npattern = [2, 1]", 2);
        assert_eq!(alternating, Ok(Turns::Alternating(vec![2, 1])));
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_key_and_fix() {
        let refused = |text, key: &str, part: &str| {
            let error = parsed(text, 2).unwrap_err();
            assert!(error.starts_with(key) && error.contains(part), "{error}");
        };
        refused("turns = 'weighted'", "weights", "one per loader");
        refused("turns = 'weighted'\nweights = [1.0]", "weights", "holds 1, but there are 2");
        refused("turns = 'weighted'\nweights = [1.0, 0.0]", "weights", "weight 0 is not");
        refused("turns = 'weighted'\nweights = [1.0, -2.0]", "weights", "weight -2 is not");
        refused("turns = 'weighted'\nweights = [inf, 1.0]", "weights", "weight inf is not");
        refused("turns = 'weighted'\nweights = [nan, 1.0]", "weights", "weight NaN is not");
        refused("weights = [1.0, 1.0]", "weights", "no effect without `turns = \"weighted\"`");
        refused("pattern = [1, 1]", "pattern", "no effect without `turns = \"alternating\"`");
        refused("turns = 'alternating'\npattern = [1, 1, 1]", "pattern", "holds 3");
        refused("turns = 'alternating'\npattern = [1, 0]", "pattern", "holds a 0");
        assert!(parsed("turns = 'shuffled'", 2).unwrap_err().contains("round_robin"));
    }
}
