//! `[[hooks]]` tables.

use serde::{Deserialize, Serialize};
use tenterhook_core::{AnyHook, HookRunner, Registration, RosterError};
use toml::{Table, Value};

use super::decode::read;
use super::hook_keys::{HOOK_KEYS, HookKeys};
use super::messages::{TableContext, free_name};
use super::schema::{Schema, schema_of};
use super::tree::USE;
use crate::problems::Problem;
use crate::registry::Registry;
use crate::trainer::Trainer;

/// A `[[hooks]]` table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HookTable {
    /// The keys that all hooks have.
    #[serde(flatten)]
    pub common: HookKeys,
    /// The hook's own options.
    #[serde(flatten)]
    pub options: Table,
}

/// The location of a hook in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HookLocation {
    /// The dotted key of its table.
    pub(crate) key: String,
    /// The dotted key of the value that names the hook.
    pub(crate) name_key: String,
}

impl HookLocation {
    /// The `[[hooks]]` table at this index.
    pub(crate) fn in_hooks(index: usize) -> HookLocation {
        HookLocation { key: format!("hooks.{index}"), name_key: format!("hooks.{index}.{USE}") }
    }

    /// The common hook keys that are allowed in this table.
    fn common_keys(&self) -> Vec<&'static str> {
        // `[[hooks]]` allows both `use` and `enabled`. In `[hooks_config]` the class or the flag names the hook, and
        // a flag also enables it: the table of a class allows `enabled`, the table of a flag neither.
        let is_in_hooks = self.key.starts_with("hooks.");
        let is_of_class = self.name_key.contains(".hook_classes.");
        let is_allowed = |key: &str| is_in_hooks || !(key == USE || key == "enabled" && !is_of_class);
        HOOK_KEYS.iter().copied().filter(|key| is_allowed(key)).collect()
    }

    /// Turns a key of the hook's table into a key of the whole configuration.
    pub(crate) fn locate(&self, problem: Problem) -> Problem {
        if problem.key == USE {
            Problem { key: self.name_key.clone(), ..problem }
        } else {
            problem.below(&self.key)
        }
    }
}

impl HookTable {
    /// Builds the hook and registers it. If several hooks have the same `use`, the second and later ones get
    /// numbered names.
    pub fn register(&self, trainer: &mut Trainer, registry: &Registry) -> Result<(), Problem> {
        let hook = registry.hook(&self.common.use_, &self.options).map_err(|error| error.at(""))?;
        if let Some(problem) = self.common.problems(&hook).into_iter().next() {
            return Err(problem);
        }
        let how = self.registration(&hook, &names(trainer.list_hooks()));
        trainer.register(self.common.gate(hook), how).map_err(|error| taken(&error))
    }

    fn registration(&self, hook: &AnyHook, taken: &[String]) -> Registration {
        let keys = &self.common;
        let name = Some(self.registered_name(hook, taken));
        let (policy, disabled) = (keys.policy(hook), !keys.enabled);
        Registration { name, policy, disabled, budget: keys.budget(), ..Registration::default() }
    }

    /// Whether this key is set.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.common.has(key) || self.options.contains_key(key)
    }

    /// The name under which the hook is registered, given the names that are taken.
    pub(crate) fn registered_name(&self, hook: &AnyHook, taken: &[String]) -> String {
        // Numbering is stable, because it follows the order in the file.
        let own = || free_name(hook.name(), |name| !taken.iter().any(|taken| taken == name));
        self.common.name.clone().unwrap_or_else(own)
    }

    /// Reads the table of a hook and checks its keys, its options and its name. `others` holds the hooks before
    /// it; this hook is added to them.
    pub(crate) fn read(
        location: &HookLocation,
        table: &Table,
        registry: &Registry,
        others: &mut HookRunner,
        found: &mut Vec<Problem>,
    ) -> Option<HookTable> {
        let (mut common, options): (Table, Table) =
            table.clone().into_iter().partition(|(key, _)| HOOK_KEYS.contains(&key.as_str()));
        let name = table.get(USE).and_then(Value::as_str);
        let entry = name.and_then(|name| registry.hook_named(name));
        if let Some(entry) = entry {
            common.insert(USE.to_owned(), Value::String(entry.name.to_owned()));
        }
        let called = name.map_or_else(|| "[[hooks]]".to_owned(), |name| format!("hook `{name}`"));
        let (keys, also) = (schema_of::<HookKeys>(), location.common_keys());
        let schema = Schema::new(&keys);
        let of_keys = TableContext { key: &location.key, called, also: &also, schema };
        let own = entry.map_or(schema, |entry| Schema::new(entry.schema));
        let of_options = TableContext { called: of_keys.called.clone(), schema: own, ..of_keys };
        let before = found.len();
        let common = of_keys.read(Value::Table(common), &read::<HookKeys>, found)?;
        // A `use` that is not a string has been reported already.
        name?;
        let factory = match registry.hook_factory(&common.use_) {
            Ok(factory) => factory,
            Err(problem) => {
                found.push(location.locate(problem.below(USE)));
                return None;
            }
        };
        let (hook, errors) = factory.try_build(options.clone());
        found.extend(errors.iter().map(|error| of_options.problem(error)));
        let hook = hook?;
        found.extend(common.problems(&hook).into_iter().map(|problem| location.locate(problem)));
        if found.len() > before {
            return None;
        }
        let table = HookTable { common, options };
        let how = table.registration(&hook, &names(others.list()));
        let registered = others.register(hook, how);
        registered.map_err(|error| found.push(location.locate(taken(&error)))).ok()?;
        Some(table)
    }
}

fn names(hooks: Vec<tenterhook_core::HookInfo>) -> Vec<String> {
    hooks.into_iter().map(|hook| hook.name).collect()
}

fn taken(error: &RosterError) -> Problem {
    Problem::new("name", error.what()).with_fix(error.fix())
}
