//! The options of optimizers, for configurations.

use std::any::Any;
use std::marker::PhantomData;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tenterhook_core::BoxError;

use super::Engine;
use crate::config::schema::{expand, visit_objects};
use crate::registry::{Factory, RegistryEntry};

/// The options of an optimizer in a configuration. Learning rate, weight decay and groups are not among them,
/// because all optimizers have them.
pub trait OptimizerOptions<E: Engine>: Send + 'static {
    /// Builds the algorithm with this weight decay. Invalid options are an error.
    fn algorithm(&self, weight_decay: f64) -> Result<E::Algorithm, BoxError>;

    /// The momentum, as hooks see it.
    fn momentum(&self) -> Option<f64> {
        None
    }
}

/// An optimizer of an engine, by name.
pub struct BuiltInOptimizer<E> {
    pub(crate) factory: AnyOptimizerFactory,
    engine: PhantomData<E>,
}

/// Builds the options of any engine, as `Box<Box<dyn OptimizerOptions<E>>>`.
pub(crate) type AnyOptimizerFactory = Factory<Box<dyn Any>>;

impl<E: Engine> BuiltInOptimizer<E> {
    /// An optimizer with this name and these options. The first line of their doc comment is its purpose.
    #[must_use]
    pub fn new<O: OptimizerOptions<E> + DeserializeOwned + JsonSchema>(name: &str) -> BuiltInOptimizer<E> {
        let build = |options: O| {
            // Invalid options are rejected with the configuration, before step 1.
            options.algorithm(0.0)?;
            let options: Box<dyn OptimizerOptions<E>> = Box::new(options);
            Ok::<Box<dyn Any>, BoxError>(Box::new(options))
        };
        BuiltInOptimizer { factory: Factory::new(name.to_owned(), build), engine: PhantomData }
    }
}

/// Adds an optimizer and its options to the schema of an `[optimizer]` table.
pub(super) fn add_to_schema(table: &mut Map<String, Value>, optimizer: &RegistryEntry<'_>) {
    table.insert("additionalProperties".to_owned(), json!(false));
    let Some(Value::Object(keys)) = table.get_mut("properties") else { return };
    if let Some(Value::Object(name)) = keys.get_mut("use") {
        name.remove("type");
        let choice = json!({ "description": optimizer.purpose, "type": "string", "const": optimizer.name });
        if let Value::Array(choices) = name.entry("oneOf").or_insert_with(|| json!([])) {
            choices.push(choice);
        }
    }
    let options = optimizer.schema.get("properties").and_then(Value::as_object);
    for (key, own) in options.into_iter().flatten() {
        let mut own = own.clone();
        expand(&mut own, optimizer.schema);
        keys.entry(key).or_insert(own);
    }
}

/// Adds optimizers to all `[optimizer]` tables of a schema.
pub(crate) fn add_to_all_tables(schema: &mut Value, optimizers: &[RegistryEntry<'_>]) {
    visit_objects(schema, &mut |parts| {
        if parts.contains_key("x-optimizers") {
            for optimizer in optimizers {
                add_to_schema(parts, optimizer);
            }
        }
    });
}
