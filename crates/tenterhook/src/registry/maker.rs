//! Makes one kind of thing from options.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use tenterhook_core::{AnyHook, FromOptions};
use toml::Value;

use super::{Listed, RegistryError};
use crate::config::Problem;
use crate::config::read::{Misread, read_shaped};
use crate::config::schema::{aliases, schema_of};
use crate::config::words::Place;

/// A name, what it is for, and how it is made.
pub(crate) struct Maker<T> {
    pub(super) name: String,
    pub(super) purpose: String,
    /// The cargo feature of `tenterhook` that it needs.
    pub(super) feature: Option<&'static str>,
    /// Options that work, in TOML.
    pub(super) example: Option<&'static str>,
    pub(super) schema: serde_json::Value,
    pub(super) make: Box<dyn Fn(Value) -> Result<T, Unmade> + Send + Sync>,
}

/// The purpose of what its author has not described.
const UNDESCRIBED: &str = "no description (add a doc comment to its options)";

/// Why something was not made.
#[derive(Debug)]
pub(crate) enum Unmade {
    /// There is none of that name.
    Unknown(Problem),
    /// The options do not read.
    Misread(Misread),
    /// They read, and it refuses them.
    Refused(String),
}

impl<T: 'static> Maker<T> {
    pub(super) fn new<O: DeserializeOwned + JsonSchema, E: ToString>(
        name: String,
        make: impl Fn(O) -> Result<T, E> + Send + Sync + 'static,
    ) -> Maker<T> {
        let schema = schema_of::<O>();
        let described = schema.get("description").and_then(serde_json::Value::as_str).unwrap_or_default();
        let purpose = described.lines().next().unwrap_or(UNDESCRIBED).to_owned();
        let shape = schema.clone();
        let make = move |options: Value| {
            let options = read_shaped(options.clone(), &shape).map_err(|misread| {
                let twice = two_names(&misread, &shape["properties"], &options);
                twice.map_or(Unmade::Misread(misread), Unmade::Refused)
            })?;
            make(options).map_err(|error| Unmade::Refused(error.to_string()))
        };
        Maker { name, purpose, feature: None, example: None, schema, make: Box::new(make) }
    }
}

/// What to say when an option is set under two of its names.
fn two_names(misread: &Misread, properties: &serde_json::Value, options: &Value) -> Option<String> {
    let option = misread.message.strip_prefix("duplicate field `")?.split('`').next()?;
    let names = std::iter::once(option).chain(aliases(properties.get(option)?));
    let set: Vec<_> = names.filter(|name| options.get(*name).is_some()).collect();
    Some(format!("`{}` are names of one option; leave all but one of them out", set.join("` and `")))
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
        let options = self.example.unwrap_or_default().parse::<toml::Table>().ok()?;
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

    pub(super) fn make(&self, options: Value) -> Result<T, Unmade> {
        (self.make)(options)
    }

    pub(super) fn listed(&self) -> Listed<'_> {
        Listed { name: &self.name, purpose: &self.purpose, example: self.example, schema: &self.schema }
    }
}

impl Unmade {
    /// As a problem of these options.
    pub(super) fn problem(self, name: &str, options: &Value) -> Problem {
        match self {
            Unmade::Unknown(problem) => problem,
            Unmade::Misread(misread) => {
                let place = Place {
                    key: "",
                    called: format!("`{name}`"),
                    also: &[],
                    known: &|_| Vec::new(),
                    schema: None,
                };
                place.found(&misread).problem
            }
            Unmade::Refused(message) => {
                let mut words = message.split('`').skip(1).step_by(2);
                let key = words.find(|word| options.get(*word).is_some()).unwrap_or_default();
                Problem::new(key, message.clone())
            }
        }
    }
}
