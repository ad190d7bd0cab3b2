//! The state of a hook in a checkpoint.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::named::NamedTensors;

/// The state of a hook in a checkpoint, with the version of its schema.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Version of the schema. Increase it when the meaning of the data changes.
    pub version: u32,
    /// The data as JSON.
    pub data: Value,
    /// Tensors, which a checkpoint stores in binary form beside the data.
    #[serde(default, skip_serializing_if = "NamedTensors::is_empty")]
    pub tensors: NamedTensors,
}

/// The keys under which a wrapper stores its own state and that of the wrapped hook.
const GATE: &str = "$gate";
const INNER: &str = "$inner";

/// The entry of a checkpoint with the name of the hook whose tensors evaluations use instead of the module's
/// weights. The tensors have the parameters' names; they are for example an average of the weights.
pub const EVALUATE_WITH: &str = "evaluate_with";

/// Converts a value into JSON. Refuses numbers that JSON would turn into `null`.
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

/// The error for a state that cannot be saved or loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The value has no JSON form, or the data does not fit the type.
    #[error("state does not fit its type: {0}")]
    Json(#[from] serde_json::Error),
    /// An entry of the data does not fit the type.
    #[error("state does not fit its type: {entry}: {source}")]
    Entry {
        /// The entry, such as `read_counter[0].path`.
        entry: String,
        /// The error.
        source: serde_json::Error,
    },
    /// The value contains NaN or an infinity, which JSON cannot represent.
    #[error(
        "a number of the state is not finite, which JSON cannot hold; use an `Option`, or `#[serde(with = \"tenterhook::number\")]`"
    )]
    NotFinite,
    /// The state in the checkpoint has another version.
    #[error("state has version {found}, this program reads version {known}")]
    Version {
        /// The version in the checkpoint.
        found: u32,
        /// The version that this program reads.
        known: u32,
    },
}

impl State {
    /// The empty state.
    #[must_use]
    pub fn empty() -> State {
        State { version: 0, data: Value::Null, tensors: NamedTensors::default() }
    }

    /// Makes a state from a value, with the version of its schema.
    pub fn of<T: Serialize>(version: u32, value: &T) -> Result<State, StateError> {
        Ok(State { version, data: to_json(value)?, tensors: NamedTensors::default() })
    }

    /// Sets the tensors.
    #[must_use]
    pub fn with_tensors(self, tensors: NamedTensors) -> State {
        State { tensors, ..self }
    }

    /// Whether there is nothing to restore.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.version == 0 && self.data.is_null()
    }

    /// Wraps this state together with a wrapper's own state.
    #[must_use]
    pub fn wrapped(mut self, gate: &Value) -> State {
        let tensors = std::mem::take(&mut self.tensors);
        State { version: 1, data: json!({ GATE: gate, INNER: self }), tensors }
    }

    /// The wrapper's own state, if the hook was saved behind one, and the hook's state.
    pub fn unwrapped(&self) -> Result<(Option<Value>, State), StateError> {
        let (Some(gate), Some(inner)) = (self.data.get(GATE), self.data.get(INNER)) else {
            return Ok((None, self.clone()));
        };
        let inner: State = serde_json::from_value(inner.clone())?;
        Ok((Some(gate.clone()), inner.with_tensors(self.tensors.clone())))
    }

    /// Reads the value, if the state has this version. The state of a wrapper is skipped.
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

    /// Checks whether the state can be read as a value of the same type as `_like`.
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
    fn numbers_that_json_cannot_represent_are_refused_unless_serialized_with_number() {
        #[derive(Serialize, Deserialize)]
        struct Best(#[serde(with = "crate::number")] f64);

        for value in [f64::INFINITY, f64::NAN] {
            assert!(matches!(State::of(1, &vec![Some(value)]), Err(StateError::NotFinite)));
            let kept: Best = State::of(1, &Best(value)).expect("it serialises").read(1).expect("it reads");
            assert_eq!(kept.0.to_bits(), value.to_bits());
        }
    }

    #[test]
    fn a_null_state_is_not_an_empty_state() {
        assert!(State::empty().is_empty());
        assert!(!State::of(1, &None::<f64>).expect("it serialises").is_empty());
    }

    #[test]
    fn a_wrapper_can_be_added_or_removed_between_saving_and_loading() {
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
