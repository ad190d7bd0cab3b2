//! What is said of a run before its first step, so that it can be told from others and made again.

use serde::{Deserialize, Serialize};

use super::Git;
use super::record::RunRecord;

/// A run, before its first step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Introduction {
    /// The run's id.
    pub run: String,
    /// The state of the source.
    pub git: Git,
    /// The hash of the configuration.
    pub config_hash: String,
    /// The seed.
    pub seed: u64,
    /// The hooks, and whether each is enabled.
    pub hooks: Vec<IntroducedHook>,
}

/// A hook, before the first step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntroducedHook {
    /// Its name.
    pub name: String,
    /// Whether it receives events.
    pub enabled: bool,
}

impl From<&RunRecord> for Introduction {
    fn from(record: &RunRecord) -> Introduction {
        let hooks =
            record.hooks.iter().map(|hook| IntroducedHook { name: hook.name.clone(), enabled: hook.enabled });
        Introduction {
            run: record.id.clone(),
            git: record.git.clone(),
            config_hash: record.config_hash.clone(),
            seed: record.seed,
            hooks: hooks.collect(),
        }
    }
}

impl std::fmt::Display for Introduction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Introduction { run, git, config_hash, seed, hooks } = self;
        let dirty = if git.dirty == Some(true) { " (with changes)" } else { "" };
        let hooks = hooks.iter().map(|hook| {
            let off = if hook.enabled { "" } else { " (disabled)" };
            format!("{}{off}", hook.name)
        });
        let hooks: Vec<_> = hooks.collect();
        writeln!(f, "run {run}")?;
        writeln!(f, "  commit {}{dirty}, config {config_hash}, seed {seed}", git.commit)?;
        write!(f, "  hooks: {}", hooks.join(", "))
    }
}
