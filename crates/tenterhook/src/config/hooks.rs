//! `[[hooks]]`: what every hook has, and the hook's own options.

use serde::{Deserialize, Serialize};
use tenterhook_core::plan::nearest;
use tenterhook_core::{AnyHook, HookRunner, Registration, RosterError};
use toml::{Table, Value};

use super::keys::{HOOK_KEYS, HookKeys};
use super::problem::Problem;
use super::render::Found;
use super::repair::read_repairing;
use super::schema::{Schema, schema_of};
use super::tree::USE;
use super::words::Place;
use crate::registry::{Registry, Unmade};
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

    /// The name under which the hook is registered beside others with these names.
    pub(crate) fn registered_name(&self, hook: &AnyHook, taken: &[String]) -> String {
        if let Some(name) = &self.common.name {
            return name.clone();
        }
        // A second one of a kind needs a name of its own, and the order in the file is a stable one.
        let own = hook.name();
        let mut name = own.to_owned();
        for number in 2.. {
            if !taken.contains(&name) {
                break;
            }
            name = format!("{own}_{number}");
        }
        name
    }

    /// Reads the table of a hook and tries it out: its keys, the hook's options, its name among the others.
    pub(crate) fn read(
        written: &Written,
        table: &Table,
        registry: &Registry,
        others: &mut HookRunner,
        found: &mut Vec<Found>,
    ) -> Option<HookTable> {
        let (mut common, options): (Table, Table) =
            table.clone().into_iter().partition(|(key, _)| HOOK_KEYS.contains(&key.as_str()));
        let called = table.get(USE).and_then(Value::as_str);
        if let Some(registered) = called.and_then(|name| registry.hook_named(name)) {
            common.insert(USE.to_owned(), Value::String(registered.name.to_owned()));
        }
        let called = called.map_or_else(|| "[[hooks]]".to_owned(), |name| format!("hook `{name}`"));
        let schema = called_schema(table, registry);
        let known = |_: &[String]| {
            let keys = schema.map(|schema| Schema::new(schema).keys(None)).unwrap_or_default();
            keys.into_iter().map(|(key, _)| key.to_owned()).collect()
        };
        let also = written.common_keys();
        let own = schema.map(Schema::new);
        let place = Place { key: &written.key, called, also: &also, known: &known, schema: own };
        let keys = schema_of::<HookKeys>();
        let of_keys = Place { called: place.called.clone(), schema: Some(Schema::new(&keys)), ..place };
        let before = found.len();
        let (common, misread) = read_repairing(Value::Table(common), &super::read::read::<HookKeys>);
        found.extend(misread.iter().map(|misread| of_keys.found(misread)));
        let (common, says_which) = (common?, table.get(USE).is_some_and(Value::is_str));
        if !says_which {
            return None;
        }
        let hook = make(&common.use_, &options, registry, written, &place, found)?;
        found.extend(common.problems(&hook).into_iter().map(|problem| written.problem(problem).into()));
        if found.len() > before {
            return None;
        }
        let table = HookTable { common, options };
        let how = table.registration(&hook, &names(others.list()));
        match others.register(hook, how) {
            Ok(()) => Some(table),
            Err(error) => {
                found.push(written.problem(taken(&error)).into());
                None
            }
        }
    }
}

fn called_schema<'a>(table: &Table, registry: &'a Registry) -> Option<&'a serde_json::Value> {
    let name = table.get(USE).and_then(Value::as_str)?;
    registry.hook_named(name).map(|listed| listed.schema)
}

/// Makes the hook and notes everything that is wrong with its options. A wrong option is replaced by that of the hook's
/// example, or left out, so that the next problem shows.
fn make(
    name: &str,
    options: &Table,
    registry: &Registry,
    written: &Written,
    place: &Place<'_>,
    found: &mut Vec<Found>,
) -> Option<AnyHook> {
    let try_out = |options: Value| match registry.try_hook(name, options) {
        Err(Unmade::Misread(misread)) => Err(misread),
        other => Ok(other),
    };
    let example = registry.hook_named(name).and_then(|listed| listed.example?.parse::<Table>().ok());
    let example = example.unwrap_or_default();
    let (mut options, known) = (options.clone(), (place.known)(&[]));
    // The options that were replaced. A message about one of them may be about our change, so it is left out.
    let mut replaced: Vec<String> = Vec::new();
    let replace = |options: &mut Table, key: &str| match example.get(key) {
        Some(value) => options.insert(key.to_owned(), value.clone()),
        None => options.remove(key),
    };
    loop {
        let (made, misread) = read_repairing(Value::Table(options.clone()), &try_out);
        let mut news = false;
        for misread in &misread {
            let key = misread.path.first().cloned().unwrap_or_default();
            if replaced.contains(&key) {
                continue;
            }
            found.push(place.found(misread));
            replace(&mut options, &key);
            // A misspelt key stands for the one that was meant.
            replaced.extend(nearest(&key, known.iter().map(String::as_str)).map(str::to_owned));
            replaced.push(key);
            news = true;
        }
        if news {
            continue;
        }
        let message = match made? {
            Ok(hook) => return Some(hook),
            Err(Unmade::Unknown(problem)) => {
                found.push(written.problem(problem.below(USE)).into());
                return None;
            }
            Err(Unmade::Refused(message)) => message,
            Err(Unmade::Misread(_)) => return None,
        };
        let mut keys = message.split('`').skip(1).step_by(2);
        if keys.clone().any(|key| replaced.iter().any(|replaced| replaced == key)) {
            return None;
        }
        // The key it is about is the first one it names.
        let named = keys.find(|key| options.contains_key(*key)).unwrap_or_default().to_owned();
        found.push(written.problem(Problem::new(&named, &message)).into());
        if named.is_empty() {
            return None;
        }
        replace(&mut options, &named);
        replaced.push(named);
    }
}

fn names(hooks: Vec<tenterhook_core::HookInfo>) -> Vec<String> {
    hooks.into_iter().map(|hook| hook.name).collect()
}

fn taken(error: &RosterError) -> Problem {
    let text = error.to_string();
    let (message, fix) = text.split_once("; ").unwrap_or((&text, ""));
    let problem = Problem::new("name", message);
    if fix.is_empty() { problem } else { problem.fix(fix) }
}
