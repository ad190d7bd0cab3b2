//! Configuration: layers of TOML, every value with its origin, and everything that is wrong said at once.
//!
//! The layers, each over the one before: built-in defaults, what the task sets, the file, environment
//! variables such as `TENTER__TRAINER__MAX_EPOCHS=3`, and `--set trainer.max_epochs=3`. Tables merge by
//! key; lists and simple values replace. The keys `task`, `device`, `runs_dir`, `[trainer]`, `[[hooks]]` and
//! `[hooks_config]` are common to all tasks, everything else is the task's own.
//!
//! Options are serde structs that derive `JsonSchema`; their doc comments are what `--print-config` prints. Each layer becomes a
//! tree whose leaves know where they were written (`tree.rs`). A table that names another `use` replaces the lower one, so that
//! the options of one optimizer do not leak into another. `[hooks_config]` becomes the same tables as `[[hooks]]`.
//!
//! `check.rs` compares the tree with the JSON schema of its type in one pass, which finds unknown and missing keys, wrong types and
//! unknown words at once. Each mistake is mended (removed, or replaced by an example), and serde reads the rest; what only a type
//! knows, such as how a time is written, comes from serde as a typed `Fault` with its path (`read.rs`). A problem that exists only
//! because something was mended is not reported.
//!
//! Hooks are tables under `[[hooks]]` ([`HookKeys`] are the keys that each of them has), or flags and tables
//! in `[hooks_config]`, or both. A file that has either has all its hooks: the task's own are left out.
//!
//! ```
//! use tenterhook::config::Sources;
//! use tenterhook::registry::Registry;
//! use tenterhook::task::{AnyTask, Program};
//! use tenterhook::toy::ToyTask;
//!
//! let (tasks, registry): (Vec<Box<dyn AnyTask>>, _) = (vec![Box::new(ToyTask)], Registry::default());
//! let sources = Sources { sets: vec!["trainer.max_epochs=2".into()], ..Sources::default() };
//! let resolved = sources.resolve(&tasks, &registry)?;
//! let mut trainer = resolved.trainer(&registry)?;
//! # // A test leaves no run here, and no key in the home of who runs it.
//! # let mut trainer = resolved.bare_trainer(&registry)?;
//! let report = resolved.program(&tasks, &registry)?.fit(&mut trainer)?;
//! assert_eq!(report.progress.epochs_done, 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub(crate) mod check;
mod class_paths;
mod differences;
pub(crate) mod hash;
mod hooks;
pub(crate) mod hooks_config;
pub(crate) mod keys;
mod layers;
mod located;
mod print;
pub(crate) mod read;
mod resolve;
mod resolved;
pub(crate) mod schema;
pub(crate) mod secrets;
pub(crate) mod tree;
mod whole_schema;
pub(crate) mod words;

pub use crate::problems::{ConfigError, Problem};
pub use differences::{ChangeRules, Difference, Harm, refusal, remark};
pub use hooks::HookTable;
pub use keys::HookKeys;
pub use read::Misfit;
pub use resolve::Sources;
pub use resolved::Resolved;
pub use whole_schema::schema_of_all;

/// A configuration that has been read and works.
pub type Config = Resolved;

/// The top-level keys that every task has.
pub(crate) const COMMON_KEYS: &[&str] = &["task", "device", "runs_dir", "trainer", "hooks", "hooks_config"];

#[cfg(test)]
mod tests;
