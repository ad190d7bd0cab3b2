//! Descriptions of registered hooks and their options.

use serde::Serialize;
use serde_json::Value;
use tenterhook_core::{AnyHook, HookKind, OnError, Tier};

use super::factory::Factory;
use super::{HOOK, Registry, RegistryError, find};
use crate::config::HookKeys;
use crate::config::hooks_config::flags_of;
use crate::config::schema::{Schema, aliases, schema_of};

/// The description of a registered hook and its options.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HookDescription {
    /// Its name in `use`.
    pub name: String,
    /// Its purpose, in one line.
    pub purpose: String,
    /// The cargo feature of `tenterhook` that it needs, if any.
    pub feature: Option<&'static str>,
    /// Properties of the hook; `None` if it needs options and has no example.
    pub properties: Option<HookProperties>,
    /// Its keys in `[hooks_config]`: the flag, and the table of its options.
    pub flags: Vec<&'static str>,
    /// Its own options.
    pub options: Vec<OptionHelp>,
    /// A valid table, in TOML.
    pub example: Option<String>,
}

/// Properties of a hook, as built from its example.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HookProperties {
    /// Its default name.
    pub registered_as: String,
    /// Its kind.
    pub kind: HookKind,
    /// Its place in the order of hooks.
    pub tier: Tier,
    /// Its default action on errors.
    pub on_error: OnError,
    /// The events it receives; none for an update hook.
    pub events: Vec<&'static str>,
    /// When an update hook is called, in words.
    pub called: Option<&'static str>,
}

/// The description of an option.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OptionHelp {
    /// Its key.
    pub key: String,
    /// Its aliases.
    pub aliases: Vec<String>,
    /// The kind of its values, in words.
    pub kind: String,
    /// Its default in TOML, if it has one.
    pub default: Option<String>,
    /// Whether it must be set.
    pub required: bool,
    /// An example in TOML, if it has no default.
    pub example: Option<String>,
    /// Its meaning.
    pub about: String,
}

impl Registry {
    /// Describes the hook of this name.
    pub fn describe(&self, name: &str) -> Result<HookDescription, RegistryError> {
        find(&self.hooks, HOOK, name).map(describe).map_err(RegistryError::Unknown)
    }

    /// The options that all `[[hooks]]` tables have.
    #[must_use]
    pub fn common_options() -> Vec<OptionHelp> {
        options(&schema_of::<HookKeys>())
    }
}

fn describe(factory: &Factory<AnyHook>) -> HookDescription {
    let example = factory.example.unwrap_or_default().trim();
    let hook = factory.build_example();
    let example = (factory.example.is_some() || hook.is_some())
        .then(|| format!("[[hooks]]\nuse = \"{}\"\n{example}", factory.name).trim_end().to_owned());
    HookDescription {
        name: factory.name.clone(),
        purpose: factory.purpose.clone(),
        feature: factory.feature,
        properties: hook.as_ref().map(properties),
        flags: flags_of(&factory.name),
        options: options(&factory.schema),
        example,
    }
}

fn properties(hook: &AnyHook) -> HookProperties {
    let called = match hook.kind() {
        HookKind::Update if hook.spec().changes_gradients => {
            Some("after on_before_optimizer_step and before clipping, for each optimizer")
        }
        HookKind::Update => Some("never: it changes nothing"),
        _ => None,
    };
    HookProperties {
        registered_as: hook.name().to_owned(),
        kind: hook.kind(),
        tier: hook.spec().tier,
        on_error: hook.spec().policy.on_error,
        events: hook.spec().events.iter().map(tenterhook_core::Event::handler).collect(),
        called,
    }
}

impl HookProperties {
    /// Its place in the order of hooks, in words.
    #[must_use]
    pub fn place(&self) -> &'static str {
        match self.kind {
            HookKind::Update => "among the update hooks, in registration order",
            _ => self.tier.reason(),
        }
    }
}

fn options(schema: &Value) -> Vec<OptionHelp> {
    let required = |key: &str| {
        let keys = schema.get("required").and_then(Value::as_array);
        keys.is_some_and(|keys| keys.iter().any(|required| required == key))
    };
    let keys = Schema::new(schema).keys(None).into_iter();
    keys.map(|(key, own)| {
        let default = own.default();
        OptionHelp {
            key: key.to_owned(),
            aliases: aliases(own.json()).map(str::to_owned).collect(),
            kind: own.kind_in_words(),
            required: required(key) && default.is_none(),
            example: own.example().filter(|_| default.is_none()).map(|value| value.to_string()),
            default: default.map(|value| value.to_string()),
            about: own.description().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" "),
        }
    })
    .collect()
}
