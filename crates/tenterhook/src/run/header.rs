//! The header of a run: what is needed to identify and to reproduce it, shown before its first step.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::record::RunRecord;
use super::{Git, Machine, RunDirectoryOptions, RunStart};

/// The header of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunHeader {
    /// The run's id.
    pub run: String,
    /// Where it resumes, unless it is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed: Option<Resumption>,
    /// The state of the source code.
    pub git: Git,
    /// The hash of the configuration.
    pub config_hash: String,
    /// The seed.
    pub seed: u64,
    /// The versions of program, compiler and engine.
    #[serde(default)]
    pub versions: BTreeMap<String, String>,
    /// The command line.
    #[serde(default)]
    pub command: Vec<String>,
    /// The machine.
    #[serde(default)]
    pub machine: Machine,
    /// The hooks, and whether each is enabled.
    pub hooks: Vec<RunHeaderHook>,
}

/// Where a resumed run continues, and how much of it is trained again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumption {
    /// The checkpoint, below the run directory if it is there; without one training begins from the start.
    pub checkpoint: Option<PathBuf>,
    /// It is the newest checkpoint of the run.
    pub is_newest: bool,
    /// Epochs done at the checkpoint.
    pub epochs: u64,
    /// Optimizer steps done at the checkpoint.
    pub steps: u64,
    /// Epochs after the checkpoint that are trained again, as far as the run's files show.
    pub epochs_again: u64,
    /// Optimizer steps after the checkpoint that are trained again, as far as the run's files show.
    pub steps_again: u64,
}

impl std::fmt::Display for Resumption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Resumption { checkpoint, is_newest, epochs, steps, epochs_again, steps_again } = self;
        let counted = |count: u64, unit: &str| match count {
            1 => format!("1 {unit}"),
            count => format!("{} {unit}s", grouped(count)),
        };
        let (done, again) = (counted(*steps, "step"), counted(*steps_again, "step"));
        match checkpoint {
            Some(from) => {
                write!(f, "resuming from {}: {}, {done} done", from.display(), counted(*epochs, "epoch"))?;
            }
            None => f.write_str("no whole checkpoint to resume from: training begins from the start")?,
        }
        match (epochs_again, steps_again) {
            (0, 0) => return Ok(()),
            (0, _) => write!(f, "; trained again: {again}")?,
            (epochs, _) => write!(f, "; trained again: {} ({again})", counted(*epochs, "epoch"))?,
        }
        if *is_newest { f.write_str(" because there is no later checkpoint") } else { Ok(()) }
    }
}

/// A number with separators between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group).into_owned());
    groups.collect::<Vec<_>>().join(",")
}

/// A hook in the header of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunHeaderHook {
    /// Its name.
    pub name: String,
    /// Whether it receives events.
    pub enabled: bool,
}

impl RunHeader {
    /// The header of a run without a directory.
    pub(crate) fn new(start: &RunStart<'_>) -> RunHeader {
        RunHeader::from(&RunRecord::new(&RunDirectoryOptions::in_dir(""), start))
    }
}

impl From<&RunRecord> for RunHeader {
    fn from(record: &RunRecord) -> RunHeader {
        let hooks =
            record.hooks.iter().map(|hook| RunHeaderHook { name: hook.name.clone(), enabled: hook.enabled });
        RunHeader {
            run: record.id.clone(),
            resumed: None,
            git: record.git.clone(),
            config_hash: record.config_hash.clone(),
            seed: record.seed,
            versions: record.versions.clone(),
            command: record.command.clone(),
            machine: record.machine.clone(),
            hooks: hooks.collect(),
        }
    }
}

impl std::fmt::Display for RunHeader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let RunHeader { run, resumed, git, config_hash, seed, versions, command, machine, hooks } = self;
        let Machine { os, arch, cpus, hostname } = machine;
        let dirty = if git.dirty == Some(true) { " (with changes)" } else { "" };
        let hooks = hooks.iter().map(|hook| {
            let off = if hook.enabled { "" } else { " (disabled)" };
            format!("{}{off}", hook.name)
        });
        let hooks: Vec<_> = hooks.collect();
        writeln!(f, "run {run}")?;
        if let Some(resumed) = resumed {
            writeln!(f, "  {resumed}")?;
        }
        writeln!(f, "  commit {}{dirty}, config {config_hash}, seed {seed}", git.commit)?;
        writeln!(f, "  {}; {os} {arch}, {cpus} cpus, {hostname}", named_versions(versions).join(", "))?;
        writeln!(f, "  command: {}", command_line(command))?;
        write!(f, "  hooks: {}", hooks.join(", "))
    }
}

/// Versions for display, each with its name.
#[must_use]
pub fn named_versions(versions: &BTreeMap<String, String>) -> Vec<String> {
    let named = versions.iter().map(|(name, version)| match version.split_once(' ') {
        // The version includes the name.
        Some(_) => version.clone(),
        None => format!("{name} {version}"),
    });
    named.collect()
}

/// A command line, quoted for a shell.
#[must_use]
pub fn command_line(command: &[String]) -> String {
    let safe = |sign: char| sign.is_alphanumeric() || "-_./=:,@%+~".contains(sign);
    let quoted = command.iter().map(|word| match word {
        word if !word.is_empty() && word.chars().all(safe) => word.clone(),
        word => format!("'{}'", word.replace('\'', r"'\''")),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_quoted_for_the_shell() {
        let command = ["tenter", "train", "--set", "a.b=c", "it's 1", ""].map(str::to_owned);
        assert_eq!(command_line(&command), r"tenter train --set a.b=c 'it'\''s 1' ''");
    }

    #[test]
    fn a_header_names_the_run_and_its_machine() {
        let text = |text: &str| text.to_owned();
        let header = RunHeader {
            run: text("r"),
            resumed: None,
            git: Git { commit: text("abc"), dirty: Some(true) },
            config_hash: text("blake3:00"),
            seed: 7,
            versions: [("engine", "burn 1.2"), ("tenterhook", "0.1.0")]
                .map(|(name, version)| (text(name), text(version)))
                .into(),
            command: vec![text("tenter"), text("a b")],
            machine: Machine { os: text("linux"), arch: text("x86_64"), cpus: 2, hostname: text("box") },
            hooks: vec![RunHeaderHook { name: text("h"), enabled: false }],
        };
        assert_eq!(
            header.to_string().lines().collect::<Vec<_>>(),
            [
                "run r",
                "  commit abc (with changes), config blake3:00, seed 7",
                "  burn 1.2, tenterhook 0.1.0; linux x86_64, 2 cpus, box",
                "  command: tenter 'a b'",
                "  hooks: h (disabled)",
            ]
        );
    }

    #[test]
    fn a_resumption_says_from_where_and_how_much_is_trained_again() {
        let resumption = Resumption {
            checkpoint: Some("checkpoints/best".into()),
            is_newest: true,
            epochs: 30,
            steps: 900,
            epochs_again: 745,
            steps_again: 22_350,
        };
        assert_eq!(
            resumption.to_string(),
            "resuming from checkpoints/best: 30 epochs, 900 steps done; trained again: 745 epochs \
             (22,350 steps) because there is no later checkpoint"
        );
        let older = Resumption { is_newest: false, epochs: 1, epochs_again: 0, ..resumption.clone() };
        assert_eq!(
            older.to_string(),
            "resuming from checkpoints/best: 1 epoch, 900 steps done; trained again: 22,350 steps"
        );
        let exact = Resumption { epochs_again: 0, steps_again: 0, ..resumption };
        assert_eq!(exact.to_string(), "resuming from checkpoints/best: 30 epochs, 900 steps done");
        let start = Resumption { checkpoint: None, is_newest: false, steps_again: 1, ..exact };
        assert_eq!(
            start.to_string(),
            "no whole checkpoint to resume from: training begins from the start; trained again: 1 step"
        );
    }

    #[test]
    fn records_of_an_older_version_are_read() {
        let old = r#"{"run":"r","git":{"commit":"c","dirty":null},"config_hash":"h","seed":1,"hooks":[]}"#;
        let read: RunHeader = serde_json::from_str(old).expect("it is read");
        assert!(read.versions.is_empty() && read.command.is_empty());
    }
}
