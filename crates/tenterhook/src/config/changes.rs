//! Compares the configuration of a checkpoint with that of the run that resumes from it, and says which
//! changes are harmful.
//!
//! **Invariant.** A change is harmful unless it is declared harmless: an option by [`HARMLESS`] in its
//! schema, or a hook by its kind, since observers cannot change what is computed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tenterhook_core::HookKind;

use super::hook_keys::HookKeys;
use super::messages::free_name;
use super::schema::{Schema, schema_of};
use super::secrets::MASK;
use super::tree::USE;
use crate::registry::Registry;
use crate::settings::Settings;

#[cfg(doc)]
use super::schema::HARMLESS;

/// A key that differs between two configurations.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ConfigChange {
    /// The dotted key, such as `optimizer.lr`; of a hook, `hooks.<name>.patience`.
    pub key: String,
    /// The old value; `None` if unset.
    pub old: Option<Value>,
    /// The new value; `None` if unset.
    pub new: Option<Value>,
    /// The impact on a resumed run.
    pub impact: Impact,
}

/// The impact of a change on a resumed run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Impact {
    /// Harmless.
    None,
    /// The same computation, but results may differ in their last bits.
    Rounding,
    /// A different computation.
    Harmful,
}

impl std::fmt::Display for ConfigChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = |value: &Option<Value>| value.as_ref().map_or("unset".to_owned(), ToString::to_string);
        write!(f, "{}: {} -> {}", self.key, value(&self.old), value(&self.new))
    }
}

/// Compares configurations by the schemas of trainer, hooks and task.
///
/// ```
/// use serde_json::json;
/// use tenterhook::config::{ChangeRules, Impact};
///
/// let old = json!({ "optimizer": { "lr": 0.001 }, "trainer": { "max_epochs": 3 } });
/// let new = json!({ "optimizer": { "lr": 0.01 }, "trainer": { "max_epochs": 5 } });
/// let all = ChangeRules::default().changes(&old, &new);
/// assert_eq!(all[0].to_string(), "optimizer.lr: 0.001 -> 0.01");
/// assert_eq!((all[0].impact, all[1].impact), (Impact::Harmful, Impact::None));
/// ```
#[derive(Clone, Default)]
pub struct ChangeRules {
    registry: Registry,
    task: Value,
}

/// Keys, split at their dots, with their values.
type Flat = BTreeMap<Vec<String>, Value>;

impl ChangeRules {
    /// Rules for these hooks and for a task with this schema.
    pub(super) fn new(registry: &Registry, task: Value) -> ChangeRules {
        ChangeRules { registry: registry.clone(), task }
    }

    /// All keys that differ, sorted. Both configurations must be complete, as from
    /// [`Config::to_json`](super::Config::to_json); if one is null, there are no changes. Secrets are not
    /// compared. A hook that is in only one configuration counts as harmless here; the resume itself compares
    /// the registered hooks with those of the checkpoint.
    #[must_use]
    pub fn changes(&self, old: &Value, new: &Value) -> Vec<ConfigChange> {
        if old.is_null() || new.is_null() {
            return Vec::new();
        }
        let settings = schema_of::<Settings>();
        let impact = |key: &[String]| {
            let harmless = match key.split_first().map(|(table, rest)| (table.as_str(), rest)) {
                Some(("device", _)) => return Impact::Rounding,
                Some(("runs_dir", _)) => true,
                Some(("trainer", rest)) => Schema::new(&settings).is_harmless(rest),
                _ => Schema::new(&self.task).is_harmless(key),
            };
            if harmless { Impact::None } else { Impact::Harmful }
        };
        let mut all = compared(flat_without_hooks(old), flat_without_hooks(new), "", impact);
        let (old, new) = (named_hooks(old), named_hooks(new));
        all.extend(self.changed_order(&old, &new));
        let (old, new): (BTreeMap<_, _>, BTreeMap<_, _>) =
            (old.into_iter().collect(), new.into_iter().collect());
        for name in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
            let (old, new) = (old.get(name).copied(), new.get(name).copied());
            let flat =
                |hook: Option<&Value>| hook.map(|hook| flattened(Vec::new(), hook)).unwrap_or_default();
            let of_hook = compared(flat(old), flat(new), &format!("hooks.{name}."), |key| match (old, new) {
                (Some(old), Some(new)) => self.impact_in_hook(old, new, key),
                _ => Impact::None,
            });
            all.extend(of_hook);
        }
        all.sort_by(|a, b| a.key.cmp(&b.key));
        all
    }

    /// A different order of update hooks or of controllers. Each kind has its own order, because no event
    /// runs both. Hooks that only one side has are left out.
    fn changed_order(&self, old: &[(String, &Value)], new: &[(String, &Value)]) -> Option<ConfigChange> {
        let of_kind = |kind: HookKind, name: &str| {
            let table = new.iter().find(|(other, _)| other == name).map(|(_, table)| *table);
            let hook = table.and_then(|table| table.get(USE)).and_then(Value::as_str).unwrap_or_default();
            table.is_some_and(|table| self.registry.kind(hook, table).is_none_or(|known| known == kind))
        };
        [HookKind::Update, HookKind::Controller].into_iter().find_map(|kind| {
            let names = |hooks: &[(String, &Value)], others: &[(String, &Value)]| -> Vec<String> {
                let names = hooks.iter().map(|(name, _)| name);
                let shared = names.filter(|name| others.iter().any(|(other, _)| other == *name));
                shared.filter(|name| of_kind(kind, name)).cloned().collect()
            };
            let (old, new) = (names(old, new), names(new, old));
            (old != new).then(|| ConfigChange {
                key: "the order of the hooks".to_owned(),
                old: Some(old.into()),
                new: Some(new.into()),
                impact: Impact::Harmful,
            })
        })
    }

    /// The impact of a changed key of a hook. A hook of unknown kind counts as a controller.
    fn impact_in_hook(&self, old: &Value, new: &Value, key: &[String]) -> Impact {
        let harmless = |table: &Value| {
            let hook = table.get(USE).and_then(Value::as_str).unwrap_or_default();
            let observes = || self.registry.kind(hook, new) == Some(HookKind::Observer);
            let declared = || {
                let own = self.registry.hook_named(hook);
                own.is_some_and(|own| Schema::new(own.schema).is_harmless(key))
            };
            declared() || observes()
        };
        let common = schema_of::<HookKeys>();
        if Schema::new(&common).is_harmless(key) || (harmless(old) && harmless(new)) {
            Impact::None
        } else {
            Impact::Harmful
        }
    }
}

fn compared(
    mut old: Flat,
    new: Flat,
    prefix: &str,
    impact: impl Fn(&[String]) -> Impact,
) -> Vec<ConfigChange> {
    let mut pairs: BTreeMap<Vec<String>, (Option<Value>, Option<Value>)> = BTreeMap::new();
    for (key, new) in new {
        let old = old.remove(&key);
        if new == MASK {
            // Secrets are not recorded.
            continue;
        }
        if !old.as_ref().is_some_and(|old| same(old, &new)) {
            pairs.insert(key, (old, Some(new)));
        }
    }
    let gone = old.into_iter().filter(|(_, old)| old != MASK);
    pairs.extend(gone.map(|(key, old)| (key, (Some(old), None))));
    let change = |(key, (old, new)): (Vec<String>, _)| ConfigChange {
        impact: impact(&key),
        key: format!("{prefix}{}", key.join(".")),
        old,
        new,
    };
    pairs.into_iter().map(change).collect()
}

/// The error for a resume with harmful changes of configuration or data, if there are any.
#[must_use]
pub fn change_error(subject: &str, changes: &[ConfigChange]) -> Option<String> {
    let harmful = changes.iter().filter(|change| change.impact == Impact::Harmful);
    let lines: Vec<_> = harmful.map(|change| format!("\n  {change}")).collect();
    (!lines.is_empty()).then(|| {
        format!(
            "the {subject} differs from that of the checkpoint:{}\nrestore the old values, or accept the new ones \
             with `--force` (`Trainer::accepting_changes`)",
            lines.concat()
        )
    })
}

/// The notice of the changes that are not harmful, if there are any.
#[must_use]
pub fn change_notice(changes: &[ConfigChange]) -> Option<String> {
    let texts: Vec<_> = changes
        .iter()
        .filter_map(|change| match change.impact {
            Impact::Harmful => None,
            Impact::None => Some(change.to_string()),
            Impact::Rounding => Some(format!("{change} (results may differ in their last bits)")),
        })
        .collect();
    (!texts.is_empty()).then(|| format!("resumed with changed settings: {}", texts.join(", ")))
}

/// Equality of values, where `1` equals `1.0`.
#[allow(clippy::float_cmp)] // even a difference in the last bit counts
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) if a.is_f64() || b.is_f64() => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (a, b) => a == b,
    }
}

fn flat_without_hooks(config: &Value) -> Flat {
    let tables = config.as_object().into_iter().flatten().filter(|(key, _)| *key != "hooks");
    tables.flat_map(|(key, value)| flattened(vec![key.clone()], value)).collect()
}

/// All values below a key. Null and empty tables count as unset.
fn flattened(key: Vec<String>, value: &Value) -> Flat {
    let below = |part: String, value: &Value| flattened([key.as_slice(), &[part]].concat(), value);
    match value {
        Value::Null => Flat::new(),
        Value::Object(table) => table.iter().flat_map(|(part, value)| below(part.clone(), value)).collect(),
        Value::Array(list) if list.iter().all(Value::is_object) => {
            list.iter().enumerate().flat_map(|(index, value)| below(index.to_string(), value)).collect()
        }
        leaf => Flat::from([(key, leaf.clone())]),
    }
}

/// The hooks in order, with their names: `name`, or else `use`, numbered from the second hook with the same `use`.
fn named_hooks(config: &Value) -> Vec<(String, &Value)> {
    let mut hooks: Vec<(String, &Value)> = Vec::new();
    for hook in config.get("hooks").and_then(Value::as_array).into_iter().flatten() {
        let of = |key: &str| hook.get(key).and_then(Value::as_str);
        let name = of("name").or_else(|| of(USE)).unwrap_or("unnamed");
        hooks.push((free_name(name, |name| hooks.iter().all(|(taken, _)| taken != name)), hook));
    }
    hooks
}
