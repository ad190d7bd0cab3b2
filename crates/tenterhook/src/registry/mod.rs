//! Hooks, schedules and optimizers by name: the one list of built-ins, what users add, and how a configuration
//! makes them.

mod built_in;
mod describe;
mod maker;

use std::any::Any;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tenterhook_core::plan::nearest;
use tenterhook_core::{AnyHook, BoxError, FromOptions, HookKind};
use toml::Value;

use crate::config::Problem;
use crate::config::keys::HOOK_KEYS;
use crate::config::schema::{Schema, in_toml};
use crate::config::words::{Place, suggestion};
use crate::optim::{Engine, NamedOptimizer, OptimizerMaker, OptimizerOptions, allow_everywhere};
use crate::schedule::Scheduler;
use crate::settings::lightning;
use crate::task::AnyTask;
pub use describe::{Description, Made, OptionHelp};
pub(crate) use maker::Maker;

/// What a hook is called in messages.
const HOOK: &str = "hook";

/// What an optimizer is called.
const OPTIMIZER: &str = "optimizer";

/// The keys that every optimizer has.
const OPTIMIZER_KEYS: [&str; 4] = ["use", "lr", "weight_decay", "groups"];

/// The hooks, schedules and optimizers that a configuration can name.
///
/// ```
/// use tenterhook::prelude::*;
/// use tenterhook::registry::Registry;
///
/// /// Says hello so often.
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// #[serde(deny_unknown_fields)]
/// struct GreetOptions {
///     /// How often.
///     times: u32,
/// }
///
/// struct Greet(u32);
///
/// #[hook]
/// impl Observer for Greet {
///     fn on_train_start(&mut self, cx: &TrainStart) -> HookResult {
///         (0..self.0).for_each(|_| cx.say("hello"));
///         Ok(())
///     }
/// }
///
/// let mut registry = Registry::default();
/// registry.add_hook("my_crate::Greet", |options: GreetOptions| Ok::<_, String>(Greet(options.times)))?;
/// let hook = registry.hook("my_crate::Greet", serde_json::json!({ "times": 2 }))?;
/// assert_eq!(hook.name(), "greet");
/// # Ok::<(), tenterhook::registry::RegistryError>(())
/// ```
#[derive(Clone)]
pub struct Registry {
    hooks: Vec<Arc<Maker<AnyHook>>>,
    schedulers: Vec<Arc<Maker<Box<dyn Scheduler>>>>,
    /// Beside those that an engine brings.
    optimizers: Vec<Arc<OptimizerMaker>>,
}

/// Something that a configuration can name.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Listed<'a> {
    /// What stands behind `use`.
    pub name: &'a str,
    /// What it is for, in one line.
    pub purpose: &'a str,
    /// Options that work, in TOML, where its author gave some.
    pub example: Option<&'static str>,
    /// The JSON schema of its options.
    pub schema: &'a serde_json::Value,
}

impl<'a> Listed<'a> {
    /// The names of its options, in the order in which they are declared.
    #[must_use]
    pub fn options(&self) -> Vec<&'a str> {
        Schema::new(self.schema).all_keys()
    }
}

/// Why something cannot be registered or made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// A hook or optimizer whose option could never be set, because each of them has a key of that name.
    #[error(
        "{kind} `{name}` has an option `{key}`, but `{key}` is a key of every {kind} and would never reach it; give the option another name"
    )]
    Reserved {
        /// A hook or an optimizer.
        kind: &'static str,
        /// Its name.
        name: String,
        /// The option.
        key: String,
    },
    /// Two of one name.
    #[error(
        "there is {} {kind} named `{name}` already; register one of them under another name",
        article(kind)
    )]
    Taken {
        /// A hook, a scheduler or an optimizer.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// None of that name.
    #[error("{0}")]
    Unknown(Problem),
    /// Options that do not fit; the key is one of theirs.
    #[error("`{name}`: {problem}")]
    Options {
        /// Whose options.
        name: String,
        /// What is wrong with them.
        problem: Problem,
    },
}

fn article(kind: &str) -> &'static str {
    if kind == OPTIMIZER { "an" } else { "a" }
}

impl RegistryError {
    /// The same as a problem of a configuration, for the table at this dotted key.
    #[must_use]
    pub fn at(self, key: &str) -> Problem {
        let problem = match self {
            RegistryError::Taken { .. } | RegistryError::Reserved { .. } => {
                Problem::new("", self.to_string())
            }
            RegistryError::Unknown(problem) => problem.below("use"),
            RegistryError::Options { problem, .. } => problem,
        };
        if key.is_empty() { problem } else { problem.below(key) }
    }
}

impl Default for Registry {
    /// The built-in hooks and schedules.
    fn default() -> Registry {
        built_in::registry()
    }
}

impl Registry {
    /// Lets configurations use a hook under a name such as `my_crate::MyHook`. The first line of the options' doc
    /// comment is its purpose. Its options must not have the
    /// name of a [key that every hook has](crate::config::HookKeys).
    pub fn add_hook<O, H, E>(
        &mut self,
        name: impl Into<String>,
        make: impl Fn(O) -> Result<H, E> + Send + Sync + 'static,
    ) -> Result<(), RegistryError>
    where
        O: DeserializeOwned + JsonSchema,
        H: Into<AnyHook>,
        E: Into<BoxError>,
    {
        let make = move |options| make(options).map(Into::into);
        self.join_hook(Maker::new(name.into(), make))
    }

    /// Lets configurations use hooks of this type, under its path, such as `my_crate::hooks::MyHook`.
    pub fn add_hook_type<H: FromOptions>(&mut self) -> Result<(), RegistryError> {
        self.join_hook(Maker::of_type::<H>(std::any::type_name::<H>().to_owned()))
    }

    fn join_hook(&mut self, maker: Maker<AnyHook>) -> Result<(), RegistryError> {
        let reserved = maker.listed().options().into_iter().find(|key| HOOK_KEYS.contains(key));
        if built_in::missing_feature(&maker.name).is_some() {
            return Err(RegistryError::Taken { kind: HOOK, name: maker.name });
        }
        match reserved.map(str::to_owned) {
            Some(key) => Err(RegistryError::Reserved { kind: HOOK, name: maker.name, key }),
            None => maker.join(&mut self.hooks, HOOK),
        }
    }

    /// Lets configurations use a schedule under a name.
    pub fn add_scheduler<O, S, E>(
        &mut self,
        name: impl Into<String>,
        make: impl Fn(O) -> Result<S, E> + Send + Sync + 'static,
    ) -> Result<(), RegistryError>
    where
        O: DeserializeOwned + JsonSchema,
        S: Scheduler,
        E: Into<BoxError>,
    {
        let make = move |options| make(options).map(|made| Box::new(made) as Box<dyn Scheduler>);
        Maker::new(name.into(), make).join(&mut self.schedulers, "scheduler")
    }

    /// Lets configurations use an optimizer of this engine under a name, with these options.
    pub fn add_optimizer<E, O>(&mut self, name: &str) -> Result<(), RegistryError>
    where
        E: Engine,
        O: OptimizerOptions<E> + DeserializeOwned + JsonSchema,
    {
        let NamedOptimizer { maker, .. } = NamedOptimizer::<E>::new::<O>(name);
        let taken = |known: &Arc<OptimizerMaker>| known.name == name;
        if self.optimizer_makers::<E>().iter().any(taken) {
            return Err(RegistryError::Taken { kind: OPTIMIZER, name: name.to_owned() });
        }
        let reserved = maker.listed().options().into_iter().find(|key| OPTIMIZER_KEYS.contains(key));
        if let Some(key) = reserved.map(str::to_owned) {
            return Err(RegistryError::Reserved { kind: OPTIMIZER, name: name.to_owned(), key });
        }
        self.optimizers.push(maker);
        Ok(())
    }

    /// Makes the hook of this name from its options.
    pub fn hook(&self, name: &str, options: impl Serialize) -> Result<AnyHook, RegistryError> {
        made(self.hook_maker(name), name, options)
    }

    /// Makes the schedule of this name from its options.
    pub fn scheduler(
        &self,
        name: &str,
        options: impl Serialize,
    ) -> Result<Box<dyn Scheduler>, RegistryError> {
        made(find(&self.schedulers, "scheduler", name), name, options)
    }

    /// The optimizer of this name with its own options, or everything that is wrong with them.
    pub(crate) fn optimizer<E: Engine>(
        &self,
        name: &str,
        options: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<Box<dyn OptimizerOptions<E>>, Vec<Problem>> {
        let makers = self.optimizer_makers::<E>();
        let maker = find(&makers, OPTIMIZER, name).map_err(|problem| vec![problem.below("use")])?;
        let (mut own, mut problems) = (toml::Table::new(), Vec::new());
        for (key, value) in options {
            let has = |maker: &&Arc<OptimizerMaker>| maker.listed().options().contains(&key.as_str());
            let owners: Vec<_> = makers.iter().filter(has).map(|maker| maker.name.as_str()).collect();
            if owners.is_empty() || owners.contains(&name) {
                own.extend(in_toml(value).map(|value| (key.clone(), value)));
            } else {
                let message = format!("`{name}` has no such option; it is one of {}", owners.join(", "));
                problems.push(Problem::new(key, message));
            }
        }
        let (made, misfits) = maker.try_out(own);
        let schema = Schema::new(maker.listed().schema);
        let place = Place { key: "", called: format!("`{name}`"), also: &[], schema };
        problems.extend(misfits.iter().map(|misfit| place.problem(misfit)));
        match made.map(<Box<dyn Any>>::downcast::<Box<dyn OptimizerOptions<E>>>) {
            Some(Ok(made)) if problems.is_empty() => return Ok(*made),
            Some(Err(_)) => {
                problems.push(Problem::new("use", format!("optimizer `{name}` is for another engine")));
            }
            _ => {}
        }
        Err(problems)
    }

    /// The optimizers of an engine: those that it brings, then those that were added.
    fn optimizer_makers<E: Engine>(&self) -> Vec<Arc<OptimizerMaker>> {
        let brought = E::optimizers().into_iter().map(|optimizer| optimizer.maker);
        brought.chain(self.optimizers.iter().cloned()).collect()
    }

    /// The JSON schema of a task's options, with the optimizers that were added.
    pub(crate) fn schema_of(&self, task: &dyn AnyTask) -> serde_json::Value {
        let mut schema = task.schema();
        allow_everywhere(&mut schema, &self.optimizers().collect::<Vec<_>>());
        schema
    }

    pub(crate) fn hook_maker(&self, name: &str) -> Result<&Maker<AnyHook>, Problem> {
        find(&self.hooks, HOOK, self.hook_named(name).map_or(name, |listed| listed.name))
    }

    /// The kind of the hook of this name: of its example, or else of what these options make. Unknown where neither
    /// makes one.
    pub(crate) fn kind(&self, name: &str, options: &serde_json::Value) -> Option<HookKind> {
        let maker = self.hook_maker(name).ok()?;
        let from_options = || {
            let Some(Value::Table(mut table)) = in_toml(options) else { return None };
            table.retain(|key, _| !HOOK_KEYS.contains(&key));
            maker.make(table.into()).ok()
        };
        maker.make_example().or_else(from_options).map(|hook| hook.kind())
    }

    /// The hook of this name. A path may also be written with dots: `my_crate.MyHook`.
    #[must_use]
    pub fn hook_named(&self, name: &str) -> Option<Listed<'_>> {
        let by = |name: &str| self.hooks().find(|listed| listed.name == name);
        by(name).or_else(|| by(&name.replace('.', "::")))
    }

    /// The hooks there are: the built-in ones, then the others in the order in which they were added.
    pub fn hooks(&self) -> impl Iterator<Item = Listed<'_>> {
        self.hooks.iter().map(|maker| maker.listed())
    }

    /// The schedules there are, in the same order.
    pub fn schedulers(&self) -> impl Iterator<Item = Listed<'_>> {
        self.schedulers.iter().map(|maker| maker.listed())
    }

    /// The optimizers that were added, in order; each engine brings others.
    pub fn optimizers(&self) -> impl Iterator<Item = Listed<'_>> {
        self.optimizers.iter().map(|maker| maker.listed())
    }
}

fn find<'a, T>(makers: &'a [Arc<Maker<T>>], kind: &str, name: &str) -> Result<&'a Maker<T>, Problem> {
    makers.iter().map(AsRef::as_ref).find(|maker| maker.name == name).ok_or_else(|| {
        if let Some(problem) = (kind == HOOK).then(|| without_feature(name)).flatten() {
            return problem;
        }
        let known: Vec<_> = makers.iter().map(|maker| maker.name.as_str()).collect();
        let problem = Problem::new("", format!("there is no {kind} named `{name}` to use"));
        let fix = if kind == HOOK {
            unknown_hook(name, &known)
        } else {
            lightning::scheduler_elsewhere(name).or_else(|| suggestion(name, &known))
        };
        problem.fixed(fix)
    })
}

/// What is wrong with a built-in hook that this program is built without.
fn without_feature(name: &str) -> Option<Problem> {
    let feature = built_in::missing_feature(name)?;
    let message = format!("hook `{name}` needs the cargo feature `{feature}` of `tenterhook`");
    let fix = format!("build this program with it: `cargo add tenterhook --features {feature}`");
    Some(Problem::new("", message).fix(fix))
}

/// What to use instead of a hook that does not exist.
fn unknown_hook(name: &str, known: &[&str]) -> Option<String> {
    let last = lightning::plain(name.rsplit(['.', ':']).next().unwrap_or(name));
    let is_path = name.contains("::") || name.contains('.');
    let built_in = known.iter().find(|known| lightning::plain(known) == last);
    let built_in = built_in.map(|known| format!("did you mean `{known}`?"));
    let own = || {
        "a hook of your own is part of your program: register its type there with `App::hook_type`, or \
         `Registry::add_hook_type` without the command line; `tenter new` makes such a program"
    };
    let near = nearest(name, known.iter().copied().filter(|known| !is_path || known.contains("::")));
    let near = near.map(|near| format!("did you mean `{near}`?"));
    built_in
        .or_else(|| lightning::hook_elsewhere(name))
        .or(near)
        .or_else(|| is_path.then(|| own().to_owned()))
        .or_else(|| suggestion(name, known))
}

fn made<T>(
    maker: Result<&Maker<T>, Problem>,
    name: &str,
    options: impl Serialize,
) -> Result<T, RegistryError> {
    let maker = maker.map_err(RegistryError::Unknown)?;
    let wrong = |problem| RegistryError::Options { name: name.to_owned(), problem };
    let options = Value::try_from(options).map_err(|error| wrong(Problem::new("", error.to_string())))?;
    maker.make(options).map_err(|misfit| {
        let schema = Schema::new(maker.listed().schema);
        wrong(Place { key: "", called: format!("`{name}`"), also: &[], schema }.problem(&misfit))
    })
}

#[cfg(test)]
mod tests;
