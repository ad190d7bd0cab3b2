//! Optimizers that a configuration can name.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tenterhook_core::BoxError;

use super::Engine;
use crate::config::schema::expand;
use crate::registry::{Listed, Maker};

/// The options of an optimizer that a configuration can name. Learning rate, weight decay and groups are keys of every
/// optimizer and not among them.
pub trait OptimizerOptions<E: Engine>: Send + 'static {
    /// The algorithm with this weight decay, or what is wrong with the options.
    fn algorithm(&self, weight_decay: f64) -> Result<E::Algorithm, BoxError>;

    /// The momentum that hooks are shown.
    fn momentum(&self) -> Option<f64> {
        None
    }
}

/// An optimizer that a configuration can name.
pub struct NamedOptimizer<E> {
    pub(crate) maker: Arc<OptimizerMaker>,
    engine: PhantomData<E>,
}

/// Makes options of some engine, in the form `Box<dyn OptimizerOptions<E>>`.
pub(crate) type OptimizerMaker = Maker<Box<dyn Any>>;

impl<E: Engine> NamedOptimizer<E> {
    /// An optimizer under this name, with these options. The first line of their doc comment is its purpose.
    #[must_use]
    pub fn new<O: OptimizerOptions<E> + DeserializeOwned + JsonSchema>(name: &str) -> NamedOptimizer<E> {
        let make = |options: O| {
            // Options that cannot work are refused with the configuration, not at step 1.
            options.algorithm(0.0)?;
            let options: Box<dyn OptimizerOptions<E>> = Box::new(options);
            Ok::<Box<dyn Any>, BoxError>(Box::new(options))
        };
        NamedOptimizer { maker: Arc::new(Maker::new(name.to_owned(), make)), engine: PhantomData }
    }

    pub(super) fn name(&self) -> &str {
        self.maker.listed().name
    }

    pub(super) fn listed(&self) -> Listed<'_> {
        self.maker.listed()
    }
}

/// Lets the schema of an `[optimizer]` table have this optimizer and its options.
pub(crate) fn allow(table: &mut Map<String, Value>, listed: &Listed<'_>) {
    table.insert("additionalProperties".to_owned(), json!(false));
    let Some(Value::Object(keys)) = table.get_mut("properties") else { return };
    if let Some(Value::Object(name)) = keys.get_mut("use") {
        name.remove("type");
        let choice = json!({ "description": listed.purpose, "type": "string", "const": listed.name });
        if let Value::Array(choices) = name.entry("oneOf").or_insert_with(|| json!([])) {
            choices.push(choice);
        }
    }
    let options = listed.schema.get("properties").and_then(Value::as_object);
    for (key, own) in options.into_iter().flatten() {
        let mut own = own.clone();
        expand(&mut own, listed.schema);
        keys.entry(key).or_insert(own);
    }
}

/// Lets every `[optimizer]` table of a schema have these optimizers, too.
pub(crate) fn allow_everywhere(schema: &mut Value, more: &[Listed<'_>]) {
    match schema {
        Value::Object(parts) => {
            if parts.contains_key("x-optimizers") {
                for listed in more {
                    allow(parts, listed);
                }
            }
            parts.values_mut().for_each(|part| allow_everywhere(part, more));
        }
        Value::Array(parts) => parts.iter_mut().for_each(|part| allow_everywhere(part, more)),
        _ => {}
    }
}
