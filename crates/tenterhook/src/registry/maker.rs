//! Makes one kind of thing from options.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use tenterhook_core::{AnyHook, BoxError, FromOptions};
use toml::{Table, Value};

use super::{Listed, RegistryError};
use crate::config::Misfit;
use crate::config::check::{misfits, read_all};
use crate::config::read::read;
use crate::config::schema::{Schema, schema_of};

/// A name, what it is for, and how it is made.
pub(crate) struct Maker<T> {
    pub(super) name: String,
    pub(super) purpose: String,
    /// The cargo feature of `tenterhook` that it needs.
    pub(super) feature: Option<&'static str>,
    /// Options that work, in TOML.
    pub(super) example: Option<&'static str>,
    pub(super) schema: serde_json::Value,
    pub(super) make: Box<dyn Fn(Value) -> Result<T, Misfit> + Send + Sync>,
}

/// The purpose of what its author has not described.
const UNDESCRIBED: &str = "no description (add a doc comment to its options)";

impl<T: 'static> Maker<T> {
    pub(crate) fn new<O: DeserializeOwned + JsonSchema, E: Into<BoxError>>(
        name: String,
        make: impl Fn(O) -> Result<T, E> + Send + Sync + 'static,
    ) -> Maker<T> {
        let schema = schema_of::<O>();
        let described = schema.get("description").and_then(serde_json::Value::as_str).unwrap_or_default();
        let purpose = described.lines().next().unwrap_or(UNDESCRIBED).to_owned();
        let make = move |given: Value| {
            make(read(given.clone())?).map_err(|error| Misfit::refused(error.into(), &given))
        };
        Maker { name, purpose, feature: None, example: None, schema, make: Box::new(make) }
    }
}

impl Maker<AnyHook> {
    /// Makes hooks of this type.
    pub(super) fn of_type<H: FromOptions>(name: String) -> Maker<AnyHook> {
        let make = |options| H::from_options(options).map(Into::into);
        let maker = Maker::new::<H::Options, _>(name, make);
        Maker { purpose: H::PURPOSE.to_owned(), example: Some(H::EXAMPLE), ..maker }
    }

    /// The hook of its example, or without options if it has no example.
    pub(super) fn make_example(&self) -> Option<AnyHook> {
        let options = self.example.unwrap_or_default().parse::<Table>().ok()?;
        self.make(options.into()).ok()
    }
}

impl<T> Maker<T> {
    pub(super) fn join(
        self,
        makers: &mut Vec<Arc<Maker<T>>>,
        kind: &'static str,
    ) -> Result<(), RegistryError> {
        if makers.iter().any(|maker| maker.name == self.name) {
            return Err(RegistryError::Taken { kind, name: self.name });
        }
        makers.push(Arc::new(self));
        Ok(())
    }

    pub(super) fn make(&self, options: Value) -> Result<T, Misfit> {
        match misfits(&options, Schema::new(&self.schema)).into_iter().next() {
            Some(misfit) => Err(misfit),
            None => (self.make)(options),
        }
    }

    /// Makes one and finds everything that is wrong with its options. A wrong option is replaced by that of the
    /// example, or left out, so that the next problem shows.
    pub(crate) fn try_out(&self, options: Table) -> (Option<T>, Vec<Misfit>) {
        let example = self.example.and_then(|example| example.parse().ok()).unwrap_or_default();
        read_all(options.into(), Schema::new(&self.schema), &example, &self.make)
    }

    pub(crate) fn listed(&self) -> Listed<'_> {
        Listed { name: &self.name, purpose: &self.purpose, example: self.example, schema: &self.schema }
    }
}
