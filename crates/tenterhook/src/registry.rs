//! Hooks by name: the one list of built-ins, and how a configuration makes them.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tenterhook_core::plan::nearest;
use tenterhook_core::{AnyHook, Hook};
use tenterhook_hooks::{Checkpoint, EarlyStopping};

/// A hook that a configuration can name.
pub struct BuiltIn {
    /// What stands behind `use`.
    pub name: &'static str,
    /// What it is for, in one line.
    pub purpose: &'static str,
    make: fn(Value) -> Result<AnyHook, String>,
}

/// Every built-in hook. This list is the only place that knows them all.
pub const BUILT_INS: &[BuiltIn] = &[
    BuiltIn {
        name: "early_stopping",
        purpose: "stops training when a metric stops improving",
        make: |options| make(options, |options| Ok::<_, String>(EarlyStopping::new(options))),
    },
    BuiltIn {
        name: "checkpoint",
        purpose: "saves checkpoints",
        make: |options| make(options, Checkpoint::new),
    },
];

fn make<O: DeserializeOwned, H: Hook, E: ToString>(
    options: Value,
    new: impl FnOnce(O) -> Result<H, E>,
) -> Result<AnyHook, String> {
    let options = serde_json::from_value(options).map_err(|error| error.to_string())?;
    new(options).map(AnyHook::new).map_err(|error| error.to_string())
}

/// Makes the hook of this name from its options.
pub fn hook(name: &str, options: impl Serialize) -> Result<AnyHook, String> {
    let Some(built_in) = BUILT_INS.iter().find(|built_in| built_in.name == name) else {
        let names = BUILT_INS.iter().map(|built_in| built_in.name);
        let hint = nearest(name, names.clone()).map_or_else(
            || format!("there are: {}", names.collect::<Vec<_>>().join(", ")),
            |near| format!("did you mean `{near}`?"),
        );
        return Err(format!("there is no hook named `{name}` to use; {hint}"));
    };
    let options = serde_json::to_value(options).map_err(|error| error.to_string())?;
    (built_in.make)(options).map_err(|error| format!("`{name}`: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_is_made_by_name_from_its_options() {
        let made = hook("early_stopping", serde_json::json!({ "monitor": "val/loss" })).expect("it is made");
        assert_eq!(made.name(), "early_stopping");
    }

    #[test]
    fn what_cannot_be_made_says_why() {
        for (name, options, hint) in [
            ("early_stoping", serde_json::json!({}), "did you mean `early_stopping`?"),
            ("early_stopping", serde_json::json!({}), "missing field `monitor`"),
            ("checkpoint", serde_json::json!({ "save_topk": 1 }), "save_top_k"),
            ("checkpoint", serde_json::json!({ "save_top_k": 3 }), "needs a `monitor`"),
        ] {
            let error = hook(name, options).map(|hook| hook.name()).expect_err(name);
            assert!(error.contains(hint), "{error}");
        }
    }
}
