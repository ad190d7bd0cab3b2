//! What can be said of a hook that a configuration can name: enough to configure it.

use serde::Serialize;
use serde_json::Value;
use tenterhook_core::{AnyHook, HookKind, OnError, Tier};

use super::maker::Maker;
use super::{HOOK, Registry, RegistryError, find};
use crate::config::HookKeys;
use crate::config::hooks_config::flags_of;
use crate::config::schema::{Schema, aliases, schema_of};

/// A hook that a configuration can name, with everything that can be set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Description {
    /// What stands behind `use`.
    pub name: String,
    /// What it is for, in one line.
    pub purpose: String,
    /// The cargo feature of `tenterhook` that it needs, where it is not in every program.
    pub feature: Option<&'static str>,
    /// What is known of the hook itself; unknown where it needs options that nobody gave an example of.
    pub made: Option<Made>,
    /// The keys of `[hooks_config]` that stand for it: its flag, and the table of its options.
    pub flags: Vec<&'static str>,
    /// Its own options.
    pub options: Vec<OptionHelp>,
    /// A table of a configuration that works, in TOML.
    pub example: Option<String>,
}

/// A hook that was made from its example.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Made {
    /// The name it gives itself.
    pub registered_as: String,
    /// Its kind.
    pub kind: HookKind,
    /// Where it stands among the others.
    pub tier: Tier,
    /// What its errors do to the run.
    pub on_error: OnError,
    /// The events it receives; none where it is an update hook.
    pub events: Vec<&'static str>,
    /// When an update hook is called, in words.
    pub called: Option<&'static str>,
}

/// One option.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OptionHelp {
    /// Its key.
    pub key: String,
    /// Other keys that mean the same.
    pub aliases: Vec<String>,
    /// What kind of value it takes, in words.
    pub kind: String,
    /// What it is when nobody sets it, in TOML; nothing where it is unset then, or must be set.
    pub default: Option<String>,
    /// It must be set.
    pub required: bool,
    /// A value that it could have, in TOML, where it has no default.
    pub example: Option<String>,
    /// What it means.
    pub about: String,
}

impl Registry {
    /// Everything that can be said of the hook of this name.
    pub fn describe(&self, name: &str) -> Result<Description, RegistryError> {
        find(&self.hooks, HOOK, name).map(describe).map_err(RegistryError::Unknown)
    }

    /// The keys that every `[[hooks]]` table has.
    #[must_use]
    pub fn common_options() -> Vec<OptionHelp> {
        options(&schema_of::<HookKeys>())
    }
}

fn describe(maker: &Maker<AnyHook>) -> Description {
    let example = maker.example.unwrap_or_default().trim();
    let made = maker.make_example();
    let example = (maker.example.is_some() || made.is_some())
        .then(|| format!("[[hooks]]\nuse = \"{}\"\n{example}", maker.name).trim_end().to_owned());
    Description {
        name: maker.name.clone(),
        purpose: maker.purpose.clone(),
        feature: maker.feature,
        made: made.as_ref().map(made_from),
        flags: flags_of(&maker.name),
        options: options(&maker.schema),
        example,
    }
}

fn made_from(hook: &AnyHook) -> Made {
    let called = match hook.kind() {
        HookKind::Update if hook.spec().changes_gradients => {
            Some("after on_before_optimizer_step and before clipping, for each optimizer")
        }
        HookKind::Update => Some("never: it changes nothing"),
        _ => None,
    };
    Made {
        registered_as: hook.name().to_owned(),
        kind: hook.kind(),
        tier: hook.spec().tier,
        on_error: hook.spec().policy.on_error,
        events: hook.spec().events.iter().map(tenterhook_core::Event::handler).collect(),
        called,
    }
}

impl Made {
    /// Where it stands among the other hooks, in words.
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
