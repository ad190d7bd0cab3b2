//! Factories of hooks, schedules and optimizers.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use tenterhook_core::{AnyHook, BoxError, FromOptions};
use toml::{Table, Value};

use super::{RegistryEntry, RegistryError};
use crate::config::DecodeError;
use crate::config::check::{errors, read_all};
use crate::config::decode::read;
use crate::config::schema::{Schema, schema_of};

/// Builds hooks, schedules or optimizers of one name from their options.
pub(crate) struct Factory<T> {
    pub(super) name: String,
    pub(super) purpose: String,
    /// The cargo feature of `tenterhook` that is needed.
    pub(super) feature: Option<&'static str>,
    /// Valid options, in TOML.
    pub(super) example: Option<&'static str>,
    pub(super) schema: serde_json::Value,
    pub(super) build: Box<dyn Fn(Value) -> Result<T, DecodeError> + Send + Sync>,
}

/// The purpose of options without a doc comment.
const UNDESCRIBED: &str = "no description (add a doc comment to its options)";

impl<T: 'static> Factory<T> {
    pub(crate) fn new<O: DeserializeOwned + JsonSchema, E: Into<BoxError>>(
        name: String,
        build: impl Fn(O) -> Result<T, E> + Send + Sync + 'static,
    ) -> Factory<T> {
        let schema = schema_of::<O>();
        let described = schema.get("description").and_then(serde_json::Value::as_str).unwrap_or_default();
        let purpose = described.lines().next().unwrap_or(UNDESCRIBED).to_owned();
        let build = move |given: Value| {
            build(read(given.clone())?).map_err(|error| DecodeError::rejected(error.into(), &given))
        };
        Factory { name, purpose, feature: None, example: None, schema, build: Box::new(build) }
    }
}

impl Factory<AnyHook> {
    /// The factory of a hook type.
    pub(super) fn of_type<H: FromOptions>(name: String) -> Factory<AnyHook> {
        let build = |options| H::from_options(options).map(Into::into);
        let factory = Factory::new::<H::Options, _>(name, build);
        Factory { purpose: H::PURPOSE.to_owned(), example: Some(H::EXAMPLE), ..factory }
    }

    /// Builds the hook of its example, or without options if it has no example.
    pub(super) fn build_example(&self) -> Option<AnyHook> {
        let options = self.example.unwrap_or_default().parse::<Table>().ok()?;
        self.build(options.into()).ok()
    }
}

impl<T> Factory<T> {
    /// Refuses options with the name of a key that all hooks or optimizers have.
    pub(super) fn check_keys(&self, kind: &'static str, reserved: &[&str]) -> Result<(), RegistryError> {
        match self.entry().options().into_iter().find(|key| reserved.contains(key)) {
            Some(key) => Err(RegistryError::Reserved { kind, name: self.name.clone(), key: key.to_owned() }),
            None => Ok(()),
        }
    }

    /// Adds the factory to a list, unless its name is taken.
    pub(super) fn add_to(
        self,
        factories: &mut Vec<Arc<Factory<T>>>,
        kind: &'static str,
    ) -> Result<(), RegistryError> {
        if factories.iter().any(|factory| factory.name == self.name) {
            return Err(RegistryError::Taken { kind, name: self.name });
        }
        factories.push(Arc::new(self));
        Ok(())
    }

    pub(super) fn build(&self, options: Value) -> Result<T, DecodeError> {
        match errors(&options, Schema::new(&self.schema)).into_iter().next() {
            Some(error) => Err(error),
            None => (self.build)(options),
        }
    }

    /// Builds a value and finds all errors in its options. A wrong option is replaced by that of the example,
    /// or left out, so that the next error is found.
    pub(crate) fn try_build(&self, options: Table) -> (Option<T>, Vec<DecodeError>) {
        let example = self.example.and_then(|example| example.parse().ok()).unwrap_or_default();
        read_all(options.into(), Schema::new(&self.schema), &example, &self.build)
    }

    pub(crate) fn entry(&self) -> RegistryEntry<'_> {
        RegistryEntry {
            name: &self.name,
            purpose: &self.purpose,
            example: self.example,
            schema: &self.schema,
        }
    }
}
