//! Hooks, schedules and optimizers by name, for configurations.

mod built_in;
mod describe;
mod factory;

use std::any::Any;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tenterhook_core::plan::nearest;
use tenterhook_core::{AnyHook, BoxError, FromOptions, HookKind};
use toml::Value;

use crate::config::Problem;
use crate::config::hook_keys::HOOK_KEYS;
use crate::config::messages::{TableContext, suggestion};
use crate::config::schema::{Schema, in_toml};
use crate::optim::{AnyOptimizerFactory, BuiltInOptimizer, Engine, OptimizerOptions, add_to_all_tables};
use crate::schedule::Scheduler;
use crate::settings::lightning;
use crate::task::AnyTask;
pub use describe::{HookDescription, HookProperties, OptionHelp};
pub(crate) use factory::Factory;

/// The kind of hooks in messages.
const HOOK: &str = "hook";

/// The kind of schedules in messages.
const SCHEDULER: &str = "scheduler";

/// The kind of optimizers in messages.
const OPTIMIZER: &str = "optimizer";

/// The keys that all optimizers have.
const OPTIMIZER_KEYS: [&str; 4] = ["use", "lr", "weight_decay", "groups"];

/// The hooks, schedules and optimizers that a configuration can name.
///
/// ```
/// use tenterhook::prelude::*;
/// use tenterhook::registry::Registry;
///
/// /// Says hello.
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// #[serde(deny_unknown_fields)]
/// struct GreetOptions {
///     /// Number of times.
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
    hooks: Vec<Arc<Factory<AnyHook>>>,
    schedulers: Vec<Arc<Factory<Box<dyn Scheduler>>>>,
    /// The optimizers that were added to the built-in ones of an engine.
    optimizers: Vec<Arc<AnyOptimizerFactory>>,
}

/// A registered hook, schedule or optimizer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RegistryEntry<'a> {
    /// Its name in `use`.
    pub name: &'a str,
    /// Its purpose, in one line.
    pub purpose: &'a str,
    /// Valid options, in TOML, if its author gave an example.
    pub example: Option<&'static str>,
    /// The JSON schema of its options.
    pub schema: &'a serde_json::Value,
}

impl<'a> RegistryEntry<'a> {
    /// The names of its options, in declaration order.
    #[must_use]
    pub fn options(&self) -> Vec<&'a str> {
        Schema::new(self.schema).all_keys()
    }
}

/// An error of the registry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// An option that could never be set, because all hooks or optimizers have a key of that name.
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
    /// The name is taken.
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
    /// The name is unknown.
    #[error("{0}")]
    Unknown(Problem),
    /// Invalid options. The key of the problem is the wrong option.
    #[error("`{name}`: {problem}")]
    Options {
        /// The name of the hook, schedule or optimizer.
        name: String,
        /// The problem.
        problem: Problem,
    },
}

fn article(kind: &str) -> &'static str {
    if kind == OPTIMIZER { "an" } else { "a" }
}

impl RegistryError {
    /// Converts it to a problem of the table at this dotted key.
    #[must_use]
    pub fn at(self, key: &str) -> Problem {
        let problem = match self {
            RegistryError::Taken { .. } | RegistryError::Reserved { .. } => {
                Problem::new("", self.to_string())
            }
            RegistryError::Unknown(problem) => problem.below("use"),
            RegistryError::Options { problem, .. } => problem,
        };
        problem.below(key)
    }
}

impl Default for Registry {
    /// The built-in hooks and schedules.
    fn default() -> Registry {
        built_in::registry()
    }
}

impl Registry {
    /// Registers a hook under a name such as `my_crate::MyHook`. The first line of the options' doc comment
    /// is its purpose. No option may have the name of a [key that all hooks have](crate::config::HookKeys).
    pub fn add_hook<O, H, E>(
        &mut self,
        name: impl Into<String>,
        build: impl Fn(O) -> Result<H, E> + Send + Sync + 'static,
    ) -> Result<(), RegistryError>
    where
        O: DeserializeOwned + JsonSchema,
        H: Into<AnyHook>,
        E: Into<BoxError>,
    {
        let build = move |options| build(options).map(Into::into);
        self.add_hook_factory(Factory::new(name.into(), build))
    }

    /// Registers a hook type under its path, such as `my_crate::hooks::MyHook`.
    pub fn add_hook_type<H: FromOptions>(&mut self) -> Result<(), RegistryError> {
        self.add_hook_factory(Factory::of_type::<H>(std::any::type_name::<H>().to_owned()))
    }

    fn add_hook_factory(&mut self, factory: Factory<AnyHook>) -> Result<(), RegistryError> {
        if built_in::missing_feature(&factory.name).is_some() {
            return Err(RegistryError::Taken { kind: HOOK, name: factory.name });
        }
        factory.check_keys(HOOK, HOOK_KEYS)?;
        factory.add_to(&mut self.hooks, HOOK)
    }

    /// Registers a schedule under a name.
    pub fn add_scheduler<O, S, E>(
        &mut self,
        name: impl Into<String>,
        build: impl Fn(O) -> Result<S, E> + Send + Sync + 'static,
    ) -> Result<(), RegistryError>
    where
        O: DeserializeOwned + JsonSchema,
        S: Scheduler,
        E: Into<BoxError>,
    {
        let build = move |options| build(options).map(|schedule| Box::new(schedule) as Box<dyn Scheduler>);
        Factory::new(name.into(), build).add_to(&mut self.schedulers, SCHEDULER)
    }

    /// Registers an optimizer of an engine under a name.
    pub fn add_optimizer<E, O>(&mut self, name: &str) -> Result<(), RegistryError>
    where
        E: Engine,
        O: OptimizerOptions<E> + DeserializeOwned + JsonSchema,
    {
        let factory = BuiltInOptimizer::<E>::new::<O>(name).factory;
        factory.check_keys(OPTIMIZER, &OPTIMIZER_KEYS)?;
        if E::optimizers().iter().any(|known| known.factory.name == name) {
            return Err(RegistryError::Taken { kind: OPTIMIZER, name: name.to_owned() });
        }
        factory.add_to(&mut self.optimizers, OPTIMIZER)
    }

    /// Builds the hook of this name.
    pub fn hook(&self, name: &str, options: impl Serialize) -> Result<AnyHook, RegistryError> {
        build(self.hook_factory(name), name, options)
    }

    /// Builds the schedule of this name.
    pub fn scheduler(
        &self,
        name: &str,
        options: impl Serialize,
    ) -> Result<Box<dyn Scheduler>, RegistryError> {
        build(find(&self.schedulers, SCHEDULER, name), name, options)
    }

    /// The options of the optimizer of this name, or all problems of them.
    pub(crate) fn optimizer<E: Engine>(
        &self,
        name: &str,
        options: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<Box<dyn OptimizerOptions<E>>, Vec<Problem>> {
        let factories = self.optimizer_factories::<E>();
        let factory = find(&factories, OPTIMIZER, name).map_err(|problem| vec![problem.below("use")])?;
        let (mut own, mut problems) = (toml::Table::new(), Vec::new());
        for (key, value) in options {
            let has = |factory: &&Arc<AnyOptimizerFactory>| factory.entry().options().contains(&key.as_str());
            let owners: Vec<_> = factories.iter().filter(has).map(|factory| factory.name.as_str()).collect();
            if owners.is_empty() || owners.contains(&name) {
                own.extend(in_toml(value).map(|value| (key.clone(), value)));
            } else {
                let message = format!("`{name}` has no such option; it is one of {}", owners.join(", "));
                problems.push(Problem::new(key, message));
            }
        }
        let (built, errors) = factory.try_build(own);
        let schema = Schema::new(factory.entry().schema);
        let context = TableContext { key: "", called: format!("`{name}`"), also: &[], schema };
        problems.extend(errors.iter().map(|error| context.problem(error)));
        match built.map(<Box<dyn Any>>::downcast::<Box<dyn OptimizerOptions<E>>>) {
            Some(Ok(built)) if problems.is_empty() => return Ok(*built),
            Some(Err(_)) => {
                problems.push(Problem::new("use", format!("optimizer `{name}` is for another engine")));
            }
            _ => {}
        }
        Err(problems)
    }

    /// The built-in optimizers of an engine, then those that were added.
    fn optimizer_factories<E: Engine>(&self) -> Vec<Arc<AnyOptimizerFactory>> {
        let built_in = E::optimizers().into_iter().map(|optimizer| Arc::new(optimizer.factory));
        built_in.chain(self.optimizers.iter().cloned()).collect()
    }

    /// The JSON schema of a task's options, including added optimizers.
    pub(crate) fn schema_of(&self, task: &dyn AnyTask) -> serde_json::Value {
        let mut schema = task.schema();
        add_to_all_tables(&mut schema, &self.optimizers().collect::<Vec<_>>());
        schema
    }

    pub(crate) fn hook_factory(&self, name: &str) -> Result<&Factory<AnyHook>, Problem> {
        find(&self.hooks, HOOK, self.hook_named(name).map_or(name, |entry| entry.name))
    }

    /// The kind of the hook of this name, built from its example or else from these options; `None` if
    /// neither works.
    pub(crate) fn kind(&self, name: &str, options: &serde_json::Value) -> Option<HookKind> {
        let factory = self.hook_factory(name).ok()?;
        let from_options = || {
            let Some(Value::Table(mut table)) = in_toml(options) else { return None };
            table.retain(|key, _| !HOOK_KEYS.contains(&key));
            factory.build(table.into()).ok()
        };
        factory.build_example().or_else(from_options).map(|hook| hook.kind())
    }

    /// The hook of this name. A path may be written with dots: `my_crate.MyHook`.
    #[must_use]
    pub fn hook_named(&self, name: &str) -> Option<RegistryEntry<'_>> {
        let by = |name: &str| self.hooks().find(|entry| entry.name == name);
        by(name).or_else(|| by(&name.replace('.', "::")))
    }

    /// All hooks: the built-in ones, then the others in the order in which they were added.
    pub fn hooks(&self) -> impl Iterator<Item = RegistryEntry<'_>> {
        self.hooks.iter().map(|factory| factory.entry())
    }

    /// All schedules, in the same order.
    pub fn schedulers(&self) -> impl Iterator<Item = RegistryEntry<'_>> {
        self.schedulers.iter().map(|factory| factory.entry())
    }

    /// The optimizers that were added, in order, without the built-in ones of an engine.
    pub fn optimizers(&self) -> impl Iterator<Item = RegistryEntry<'_>> {
        self.optimizers.iter().map(|factory| factory.entry())
    }
}

fn find<'a, T>(factories: &'a [Arc<Factory<T>>], kind: &str, name: &str) -> Result<&'a Factory<T>, Problem> {
    factories.iter().map(AsRef::as_ref).find(|factory| factory.name == name).ok_or_else(|| {
        if let Some(problem) = (kind == HOOK).then(|| feature_problem(name)).flatten() {
            return problem;
        }
        let known: Vec<_> = factories.iter().map(|factory| factory.name.as_str()).collect();
        let problem = Problem::new("", format!("there is no {kind} named `{name}` to use"));
        let fix = if kind == HOOK {
            hook_fix(name, &known)
        } else {
            lightning::scheduler_elsewhere(name).or_else(|| suggestion(name, &known))
        };
        problem.with_fix(fix)
    })
}

/// The problem of a built-in hook whose feature is missing.
fn feature_problem(name: &str) -> Option<Problem> {
    let feature = built_in::missing_feature(name)?;
    let message = format!("hook `{name}` needs the cargo feature `{feature}` of `tenterhook`");
    let fix = format!("build this program with it: `cargo add tenterhook --features {feature}`");
    Some(Problem::new("", message).fix(fix))
}

/// The fix for an unknown hook.
fn hook_fix(name: &str, known: &[&str]) -> Option<String> {
    let last = lightning::normalized(name.rsplit(['.', ':']).next().unwrap_or(name));
    let is_path = name.contains("::") || name.contains('.');
    let built_in = known.iter().find(|known| lightning::normalized(known) == last);
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

fn build<T>(
    factory: Result<&Factory<T>, Problem>,
    name: &str,
    options: impl Serialize,
) -> Result<T, RegistryError> {
    let factory = factory.map_err(RegistryError::Unknown)?;
    let wrong = |problem| RegistryError::Options { name: name.to_owned(), problem };
    let options = Value::try_from(options).map_err(|error| wrong(Problem::new("", error.to_string())))?;
    factory.build(options).map_err(|error| {
        let schema = Schema::new(factory.entry().schema);
        wrong(TableContext { key: "", called: format!("`{name}`"), also: &[], schema }.problem(&error))
    })
}

#[cfg(test)]
mod tests;
