//! `[[hooks]]`: what every hook has, and the hook's own options.

use serde::{Deserialize, Serialize};
use tenterhook_core::{AnyHook, HookRunner, Registration, RosterError};
use toml::{Table, Value};

use super::check::read_all;
use super::keys::{HOOK_KEYS, HookKeys};
use super::read::read;
use super::schema::{Schema, schema_of};
use super::tree::USE;
use super::words::{Place, free_name};
use crate::problems::Problem;
use crate::registry::Registry;
use crate::trainer::Trainer;

/// One `[[hooks]]` table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HookTable {
    /// What every hook has.
    #[serde(flatten)]
    pub common: HookKeys,
    /// The hook's own options.
    #[serde(flatten)]
    pub options: Table,
}

/// Where a hook was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// The dotted key of its table.
    pub(crate) key: String,
    /// The dotted key of what says which hook it is.
    pub(crate) which: String,
}

impl Written {
    /// In the `[[hooks]]` table of this number.
    pub(crate) fn in_hooks(index: usize) -> Written {
        Written { key: format!("hooks.{index}"), which: format!("hooks.{index}.{USE}") }
    }

    /// The keys that every hook has and that can stand in this table.
    fn common_keys(&self) -> Vec<&'static str> {
        let in_hooks = self.key.starts_with("hooks.");
        let of_a_class = self.which.contains(".hook_classes.");
        let stands = |key: &str| in_hooks || !(key == USE || key == "enabled" && !of_a_class);
        HOOK_KEYS.iter().copied().filter(|key| stands(key)).collect()
    }

    /// A problem of the hook's table as one of the whole configuration.
    pub(crate) fn problem(&self, problem: Problem) -> Problem {
        if problem.key == USE {
            Problem { key: self.which.clone(), ..problem }
        } else {
            problem.below(&self.key)
        }
    }
}

impl HookTable {
    /// Makes the hook and registers it. A second one of a kind is numbered.
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

    /// The name under which the hook is registered beside others with these names.
    pub(crate) fn registered_name(&self, hook: &AnyHook, taken: &[String]) -> String {
        // A second one of a kind needs a name of its own, and the order in the file is a stable one.
        let own = || free_name(hook.name(), |name| !taken.iter().any(|taken| taken == name));
        self.common.name.clone().unwrap_or_else(own)
    }

    /// Reads the table of a hook and tries it out: its keys, the hook's options, its name among the others.
    pub(crate) fn read(
        written: &Written,
        table: &Table,
        registry: &Registry,
        others: &mut HookRunner,
        found: &mut Vec<Problem>,
    ) -> Option<HookTable> {
        let (mut common, options): (Table, Table) =
            table.clone().into_iter().partition(|(key, _)| HOOK_KEYS.contains(&key.as_str()));
        let called = table.get(USE).and_then(Value::as_str);
        if let Some(registered) = called.and_then(|name| registry.hook_named(name)) {
            common.insert(USE.to_owned(), Value::String(registered.name.to_owned()));
        }
        let called = called.map_or_else(|| "[[hooks]]".to_owned(), |name| format!("hook `{name}`"));
        let listed = table.get(USE).and_then(Value::as_str).and_then(|name| registry.hook_named(name));
        let (keys, also) = (schema_of::<HookKeys>(), written.common_keys());
        let own = Schema::new(listed.map_or(&keys, |listed| listed.schema));
        let place = Place { key: &written.key, called, also: &also, schema: own };
        let schema = Schema::new(&keys);
        let of_keys = Place { called: place.called.clone(), schema, ..place };
        let before = found.len();
        let (common, misfits) = read_all(Value::Table(common), schema, &Table::new(), &read::<HookKeys>);
        found.extend(misfits.iter().map(|misfit| of_keys.problem(misfit)));
        let (common, says_which) = (common?, table.get(USE).is_some_and(Value::is_str));
        if !says_which {
            return None;
        }
        let maker = match registry.hook_maker(&common.use_) {
            Ok(maker) => maker,
            Err(problem) => {
                found.push(written.problem(problem.below(USE)));
                return None;
            }
        };
        let (hook, misfits) = maker.try_out(options.clone());
        found.extend(misfits.iter().map(|misfit| place.problem(misfit)));
        let hook = hook?;
        found.extend(common.problems(&hook).into_iter().map(|problem| written.problem(problem)));
        if found.len() > before {
            return None;
        }
        let table = HookTable { common, options };
        let how = table.registration(&hook, &names(others.list()));
        match others.register(hook, how) {
            Ok(()) => Some(table),
            Err(error) => {
                found.push(written.problem(taken(&error)));
                None
            }
        }
    }
}

fn names(hooks: Vec<tenterhook_core::HookInfo>) -> Vec<String> {
    hooks.into_iter().map(|hook| hook.name).collect()
}

fn taken(error: &RosterError) -> Problem {
    Problem::new("name", error.what()).fixed(error.fix())
}
