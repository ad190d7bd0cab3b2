//! A hook's own state, as a checkpoint holds it.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::named::NamedTensors;

/// The state of one hook, with the version of its schema.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Raise it when the meaning of the data changes.
    pub version: u32,
    /// The data.
    pub data: Value,
    /// Tensors, which a checkpoint holds beside the data and not within it.
    #[serde(default, skip_serializing_if = "NamedTensors::is_empty")]
    pub tensors: NamedTensors,
}

/// The keys under which a wrapper keeps its own state and that of the hook it wraps.
const GATE: &str = "$gate";
const INNER: &str = "$inner";

/// The free entry of a checkpoint in which a hook leaves its name when its tensors are to be evaluated
/// instead of the module's weights, under the parameters' names: an average of them, for example.
pub const EVALUATE_WITH: &str = "evaluate_with";

/// A value as JSON, refusing what JSON would turn into `null`.
pub(crate) fn to_json<T: Serialize>(value: &T) -> Result<Value, StateError> {
    let exact =
        ciborium::Value::serialized(value).map_err(|error| serde::ser::Error::custom(error.to_string()));
    let exact: ciborium::Value = exact.map_err(StateError::Json)?;
    if has_non_finite(&exact) {
        return Err(StateError::NotFinite);
    }
    Ok(serde_json::to_value(value)?)
}

fn has_non_finite(value: &ciborium::Value) -> bool {
    match value {
        ciborium::Value::Float(number) => !number.is_finite(),
        ciborium::Value::Array(values) => values.iter().any(has_non_finite),
        ciborium::Value::Map(entries) => {
            entries.iter().any(|(key, value)| has_non_finite(key) || has_non_finite(value))
        }
        ciborium::Value::Tag(_, value) => has_non_finite(value),
        _ => false,
    }
}

/// Why a state could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The value has no JSON form, or the data is not what the type expects.
    #[error("state does not fit its type: {0}")]
    Json(#[from] serde_json::Error),
    /// An entry of the data is not what the type expects.
    #[error("state does not fit its type: {entry}: {source}")]
    Entry {
        /// Which entry, such as `read_counter[0].path`.
        entry: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// JSON has no NaN and no infinity, and would lose them silently.
    #[error(
        "a number of the state is not finite, which JSON cannot hold; use an `Option`, or `#[serde(with = \"tenterhook::number\")]`"
    )]
    NotFinite,
    /// The checkpoint holds a state of another version.
    #[error("state has version {found}, this program reads version {known}")]
    Version {
        /// In the checkpoint.
        found: u32,
        /// In this program.
        known: u32,
    },
}

impl State {
    /// No state.
    #[must_use]
    pub fn empty() -> State {
        State { version: 0, data: Value::Null, tensors: NamedTensors::default() }
    }

    /// The state that this value is, under this version of its schema.
    pub fn of<T: Serialize>(version: u32, value: &T) -> Result<State, StateError> {
        Ok(State { version, data: to_json(value)?, tensors: NamedTensors::default() })
    }

    /// The same with these tensors.
    #[must_use]
    pub fn with_tensors(self, tensors: NamedTensors) -> State {
        State { tensors, ..self }
    }

    /// Whether there is nothing to restore.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.version == 0 && self.data.is_null()
    }

    /// This state behind a wrapper, with the wrapper's own.
    #[must_use]
    pub fn wrapped(mut self, gate: &Value) -> State {
        let tensors = std::mem::take(&mut self.tensors);
        State { version: 1, data: json!({ GATE: gate, INNER: self }), tensors }
    }

    /// The wrapper's own state and the hook's. A hook that was saved without a wrapper has only its own.
    pub fn unwrapped(&self) -> Result<(Option<Value>, State), StateError> {
        let (Some(gate), Some(inner)) = (self.data.get(GATE), self.data.get(INNER)) else {
            return Ok((None, self.clone()));
        };
        let inner: State = serde_json::from_value(inner.clone())?;
        Ok((Some(gate.clone()), inner.with_tensors(self.tensors.clone())))
    }

    /// The value, if the state has the version that this program knows.
    /// What was saved behind a wrapper is read without it.
    pub fn read<T: DeserializeOwned>(&self, known: u32) -> Result<T, StateError> {
        if let (Some(_), inner) = self.unwrapped()? {
            return inner.read(known);
        }
        if self.version != known {
            return Err(StateError::Version { found: self.version, known });
        }
        serde_path_to_error::deserialize(&self.data).map_err(|error| StateError::Entry {
            entry: error.path().to_string(),
            source: error.into_inner(),
        })
    }

    /// Whether the state can be read as a value of this one's type.
    pub fn check<T: DeserializeOwned>(&self, known: u32, _like: &T) -> Result<(), StateError> {
        self.read::<T>(known).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_comes_back_to_the_bit_and_only_under_its_version() {
        let value = (0.1f64 + 0.2, vec![1u64, 2]);
        let state = State::of(2, &value).expect("it serialises");
        assert_eq!(state.read::<(f64, Vec<u64>)>(2).expect("same version"), value);
        let error = state.read::<(f64, Vec<u64>)>(3).expect_err("other version");
        assert_eq!(error.to_string(), "state has version 2, this program reads version 3");
    }

    #[test]
    fn what_json_would_lose_is_refused_and_number_keeps_it() {
        #[derive(Serialize, Deserialize)]
        struct Best(#[serde(with = "crate::number")] f64);

        for value in [f64::INFINITY, f64::NAN] {
            assert!(matches!(State::of(1, &vec![Some(value)]), Err(StateError::NotFinite)));
            let kept: Best = State::of(1, &Best(value)).expect("it serialises").read(1).expect("it reads");
            assert_eq!(kept.0.to_bits(), value.to_bits());
        }
    }

    #[test]
    fn nothing_to_say_is_not_the_same_as_no_state() {
        assert!(State::empty().is_empty());
        assert!(!State::of(1, &None::<f64>).expect("it serialises").is_empty());
    }

    #[test]
    fn a_wrapper_can_come_and_go_between_saving_and_loading() {
        let bare = State::of(3, &7).expect("it serialises");
        let bare = bare.with_tensors(NamedTensors::from([("w", [1.0])]));
        let wrapped = bare.clone().wrapped(&json!(1)).wrapped(&json!(2));
        assert_eq!(wrapped.read::<i32>(3).expect("read without the wrappers"), 7);
        assert_eq!(
            wrapped.unwrapped().expect("it is one"),
            (Some(json!(2)), bare.clone().wrapped(&json!(1)))
        );
        assert_eq!(bare.unwrapped().expect("it is none"), (None, bare.clone()));
    }
}
