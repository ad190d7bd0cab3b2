//! Configuration files: `[trainer]` and `[[hooks]]`.

use std::path::Path;

use serde::Deserialize;
use tenterhook_core::{OnError, Policy, Registration};

use crate::registry;
use crate::settings::Settings;
use crate::trainer::{RunError, Trainer};

/// A configuration, as it is written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The trainer's settings.
    pub trainer: Settings,
    /// The hooks, in the order in which they are registered.
    pub hooks: Vec<HookTable>,
}

/// One `[[hooks]]` table: what every hook has, and the hook's own options.
#[derive(Clone, Debug, Deserialize)]
pub struct HookTable {
    /// Which hook.
    #[serde(rename = "use")]
    pub use_: String,
    /// Another name for it.
    pub name: Option<String>,
    /// Whether it receives events.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// What its errors do.
    pub on_error: Option<OnError>,
    /// After how many failures `disable` disables.
    pub max_failures: Option<u32>,
    /// The hook's own options.
    #[serde(flatten)]
    pub options: serde_json::Map<String, serde_json::Value>,
}

fn yes() -> bool {
    true
}

/// Why a configuration cannot be used.
#[derive(thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {error}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        error: std::io::Error,
    },
    /// It is not what a configuration looks like.
    #[error("{path}: {error}")]
    Parse {
        /// The file.
        path: String,
        /// Where and why.
        error: Box<toml::de::Error>,
    },
    /// It reads well and cannot work; all reasons at once.
    #[error("{}", .0.join("\n"))]
    Wrong(Vec<String>),
}

/// The same text as for people: it is what `main` prints when it returns an error.
impl std::fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl Config {
    /// Reads a TOML file.
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::Read { path: shown.clone(), error })?;
        toml::from_str(&text).map_err(|error| ConfigError::Parse { path: shown, error: Box::new(error) })
    }

    /// A trainer with these settings and hooks.
    pub fn trainer(&self) -> Result<Trainer, ConfigError> {
        let mut problems = Vec::new();
        let mut trainer = match Trainer::new(self.trainer.clone()) {
            Ok(trainer) => Some(trainer),
            Err(RunError::Settings(wrong)) => {
                problems.extend(wrong.into_iter().map(|problem| format!("[trainer] {problem}")));
                None
            }
            Err(error) => return Err(ConfigError::Wrong(vec![error.to_string()])),
        };
        for (index, table) in self.hooks.iter().enumerate() {
            let registered = match &mut trainer {
                Some(trainer) => table.register(trainer),
                None => registry::hook(&table.use_, &table.options).map(|_| ()),
            };
            problems
                .extend(registered.err().map(|problem| format!("[[hooks]] number {}: {problem}", index + 1)));
        }
        match trainer {
            Some(trainer) if problems.is_empty() => Ok(trainer),
            _ => Err(ConfigError::Wrong(problems)),
        }
    }
}

impl HookTable {
    /// Makes the hook and registers it.
    pub fn register(&self, trainer: &mut Trainer) -> Result<(), String> {
        let hook = registry::hook(&self.use_, &self.options)?;
        let mut how = self.registration();
        if how.name.is_none() {
            // A second one of a kind needs a name of its own, and the order in the file is a stable one.
            let taken: Vec<_> = trainer.list_hooks().into_iter().map(|hook| hook.name).collect();
            let numbered = (2..).map(|number| format!("{}_{number}", self.use_));
            how.name = std::iter::once(hook.name()).chain(numbered).find(|name| !taken.contains(name));
        }
        trainer.register(hook, how).map_err(|error| error.to_string())
    }

    fn registration(&self) -> Registration {
        let policy = self.on_error.map(|on_error| Policy {
            on_error,
            max_failures: self.max_failures.unwrap_or(Policy::DISABLE.max_failures),
        });
        Registration { name: self.name.clone(), policy, disabled: !self.enabled }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_are_made_and_registered_as_written() {
        let config: Config = toml::from_str(
            "[trainer]\nmax_epochs = 2\n\
             [[hooks]]\nuse = \"checkpoint\"\nsave_top_k = -1\n\
             [[hooks]]\nuse = \"early_stopping\"\nname = \"stop\"\nenabled = false\non_error = \"warn\"\nmonitor = \"val/loss\"",
        )
        .expect("it reads");
        let trainer = config.trainer().expect("it works");
        let hooks = trainer.list_hooks();
        let shown: Vec<_> =
            hooks.iter().map(|hook| (hook.name.as_str(), hook.enabled, hook.on_error)).collect();
        assert_eq!(
            shown,
            [
                ("checkpoint", true, OnError::Abort),
                ("stop", false, OnError::Warn),
                ("identity", true, OnError::Abort)
            ]
        );
    }

    #[test]
    fn a_second_hook_of_a_kind_is_numbered_and_a_given_name_must_be_free() {
        let twice = |second: &str| {
            let text = format!("[[hooks]]\nuse = \"checkpoint\"\n[[hooks]]\nuse = \"checkpoint\"\n{second}");
            toml::from_str::<Config>(&text).expect("it reads").trainer()
        };
        let names: Vec<_> =
            twice("").expect("it works").list_hooks().into_iter().map(|hook| hook.name).collect();
        assert_eq!(names, ["checkpoint", "checkpoint_2", "identity"]);
        let error = twice("name = \"checkpoint\"").map(|_| ()).expect_err("taken").to_string();
        assert!(error.contains("there is a hook named `checkpoint` already"), "{error}");
    }

    #[test]
    fn all_that_is_wrong_is_said_at_once() {
        let config: Config = toml::from_str(
            "[trainer]\nmax_epochs = -3\n[[hooks]]\nuse = \"checkpoin\"\n[[hooks]]\nuse = \"early_stopping\"\npatienc = 1\nmonitor = \"x\"",
        )
        .expect("it reads");
        let error = config.trainer().map(|_| ()).expect_err("it cannot work").to_string();
        assert_eq!(error.lines().count(), 3, "{error}");
        for hint in ["`max_epochs`", "did you mean `checkpoint`?", "unknown field `patienc`"] {
            assert!(error.contains(hint), "{error}");
        }
    }

    #[test]
    fn a_wrong_key_is_shown_with_its_line() {
        let error =
            toml::from_str::<Config>("[trainer]\nmax_epoch = 2").expect_err("unknown key").to_string();
        assert!(error.contains("line 2") && error.contains("max_epochs"), "{error}");
    }
}
