//! `run.json`: the record of a run and of its outcome.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize};
use tenterhook_core::{HookInfo, Outcome, Stage};
use tenterhook_files::{RelPath, write_durably};

use super::files::relative_to;
use super::machine::{Git, Machine, versions};
use super::ownership::add_signatures;
use super::{CallEnd, HookCosts, Identity, RunDirectoryOptions, RunStart, SinkDeliveries};
use crate::checkpoint::WEIGHTS;
use crate::config::hash::{hash_bytes, hash_json};
use crate::journal::{FailureKind, Failures};

/// The version of the format of `run.json`, `metrics.jsonl` and `events.jsonl`.
pub const FORMAT: u32 = 1;

/// The status of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunStatus {
    /// Running. In a file it can also mean that the run was killed.
    #[default]
    Running,
    /// Killed: the file says `running`, but no process holds the lock. Determined when a run is read, and never
    /// written.
    Killed,
    /// Completed: it reached its limit.
    Completed,
    /// Stopped on request.
    Stopped {
        /// The hook, or the module.
        #[serde(default)]
        by: String,
        /// The reason.
        #[serde(default)]
        reason: String,
    },
    /// Ended by a signal.
    Interrupted {
        /// The signal.
        #[serde(default)]
        signal: String,
    },
    /// Failed.
    Failed {
        /// The error.
        #[serde(default)]
        error: String,
    },
    /// Unknown: missing, or written by a newer version.
    #[serde(other)]
    Unknown,
}

impl RunStatus {
    /// Whether the run is completed or was stopped on request.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        matches!(self, RunStatus::Completed | RunStatus::Stopped { .. })
    }

    /// The status in one word, as in `run.json`.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            RunStatus::Running => "running",
            RunStatus::Killed => "killed",
            RunStatus::Completed => "completed",
            RunStatus::Stopped { .. } => "stopped",
            RunStatus::Interrupted { .. } => "interrupted",
            RunStatus::Failed { .. } => "failed",
            RunStatus::Unknown => "unknown",
        }
    }
}

impl From<&Outcome> for RunStatus {
    fn from(outcome: &Outcome) -> RunStatus {
        match outcome.clone() {
            Outcome::Stopped { by, reason } => RunStatus::Stopped { by, reason },
            Outcome::Interrupted { signal } => RunStatus::Interrupted { signal },
            Outcome::Failed { error } => RunStatus::Failed { error },
            _ => RunStatus::Completed,
        }
    }
}

/// A part of a run: its first start, or a resume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RunPart {
    /// The time of the start.
    pub started: String,
    /// Completed optimizer steps at that moment.
    pub step: u64,
    /// The checkpoint that it resumed from, relative to the run directory if it is below it. `None`: it began from
    /// the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<PathBuf>,
    /// The command line.
    pub command: Vec<String>,
}

/// The content of `run.json`. Missing fields are empty.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunRecord {
    /// The version of the format.
    pub format: u32,
    /// The run's id.
    pub id: String,
    /// The status.
    #[serde(flatten, deserialize_with = "status")]
    pub status: RunStatus,
    /// The outcome of its training, until the test that follows has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trained: Option<RunStatus>,
    /// The weights for that test, relative to the run directory: the best checkpoint, or else the final weights.
    /// Unset if they are outside of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights_to_test: Option<RelPath>,
    /// The time of its first start.
    pub created: String,
    /// The time of its end.
    pub ended: Option<String>,
    /// The duration of all parts together, in seconds.
    pub seconds: Option<f64>,
    /// The name of the task.
    pub task: Option<String>,
    /// The device.
    pub device: String,
    /// The seed.
    pub seed: u64,
    /// The number of parameters of the model.
    pub parameters: u64,
    /// The checkpoint of its last resume, relative to the run directory if it is below it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumed_from: Option<PathBuf>,
    /// Its parts: the first start and every resume.
    pub parts: Vec<RunPart>,
    /// Completed optimizer steps.
    pub steps: u64,
    /// Epochs whose batches are done.
    pub epochs: u64,
    /// Samples seen in training.
    pub samples: u64,
    /// Tokens seen in training.
    pub tokens: u64,
    /// The latest value of every metric.
    #[serde(with = "tenterhook_core::number::map")]
    pub metrics: BTreeMap<String, f64>,
    /// The hooks.
    pub hooks: Vec<HookInfo>,
    /// The failures since its last start, by kind; `events.jsonl` has each.
    pub failures: Vec<FailureKind>,
    /// The number of failures of other kinds.
    pub failures_left_out: u64,
    /// The cost of the hooks; empty until the run ends, and if it was not measured.
    pub hook_costs: HookCosts,
    /// The deliveries of the hooks' worker threads in the last process.
    pub sinks: Vec<SinkDeliveries>,
    /// The command line.
    pub command: Vec<String>,
    /// The state of the source code.
    pub git: Git,
    /// The hash of the configuration.
    pub config_hash: String,
    /// The signatures of `config.toml` and of its earlier versions, newest first. They identify the user's own runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub config_signatures: Vec<String>,
    /// The versions of program, compiler and engine.
    pub versions: BTreeMap<String, String>,
    /// The machine.
    pub machine: Machine,
    /// The fingerprints of data, program and processor at its last start.
    pub identity: Identity,
}

impl RunRecord {
    /// Whether its last training has ended, also by a failure, and was not killed.
    pub(super) fn training_ended(&self) -> bool {
        self.trained.is_some()
            || !matches!(self.status, RunStatus::Running | RunStatus::Killed | RunStatus::Unknown)
    }

    pub(super) fn new(options: &RunDirectoryOptions, start: &RunStart<'_>) -> RunRecord {
        let RunStart { run, progress, .. } = start;
        let (started, resumed_from) = (now(), start.resumed_from.map(Path::to_owned));
        let part = RunPart {
            started: started.clone(),
            step: progress.step,
            checkpoint: resumed_from.clone(),
            command: options.command.clone(),
        };
        RunRecord {
            format: FORMAT,
            id: run.id.clone(),
            status: RunStatus::Running,
            created: started,
            task: options.task.clone(),
            device: run.device.clone(),
            seed: start.seed,
            parameters: run.parameters,
            resumed_from,
            parts: vec![part],
            steps: progress.step,
            epochs: progress.epochs_done,
            samples: progress.samples,
            tokens: progress.tokens,
            hooks: start.hooks.clone(),
            command: options.command.clone(),
            git: Git::current(),
            config_hash: match &options.config_hash {
                Some(hash) => hash.clone(),
                // A trainer that was set up in code has settings but no file.
                None if options.config.is_empty() => hash_json(&run.config),
                None => hash_bytes(options.config.as_bytes()),
            },
            config_signatures: options.signer.signature(&options.config).into_iter().collect(),
            versions: versions(start.engine.as_deref()),
            machine: Machine::current(),
            identity: start.identity.clone(),
            ..RunRecord::default()
        }
    }

    /// The record of a resumed run.
    pub(super) fn resumed(
        options: &RunDirectoryOptions,
        start: &RunStart<'_>,
        earlier: Option<RunRecord>,
        directory: &Path,
    ) -> RunRecord {
        let mut record = RunRecord::new(options, start);
        record.resumed_from = record.resumed_from.map(|from| relative_to(directory, &from));
        for part in &mut record.parts {
            part.checkpoint.clone_from(&record.resumed_from);
        }
        let Some(mut earlier) = earlier else { return record };
        if earlier.parts.is_empty() {
            // An older version wrote it without parts.
            let (started, command) = (earlier.created.clone(), earlier.command);
            earlier.parts.push(RunPart { started, command, ..RunPart::default() });
        }
        earlier.parts.append(&mut record.parts);
        add_signatures(&mut record.config_signatures, earlier.config_signatures);
        RunRecord { created: earlier.created, parts: earlier.parts, ..record }
    }

    /// Marks the run as failed if the test after the training did not begin. Returns whether it is.
    pub(super) fn note_missing_test(&mut self) -> bool {
        let missing = self.status == RunStatus::Running && self.trained.is_some();
        if missing {
            self.status = RunStatus::Failed { error: "the test after the training did not begin".to_owned() };
        }
        missing
    }

    /// Records the end of a call. After training that is followed by a test, the status stays `running`, so that a
    /// run that is killed in its test does not count as finished. A successful evaluation after training does not
    /// change the status.
    pub(super) fn note_end(&mut self, end: &CallEnd<'_>, directory: &Path, is_main: bool, then_test: bool) {
        let status = RunStatus::from(end.outcome);
        if then_test && end.stage == Stage::Fit && status.is_finished() {
            self.trained = Some(status);
            let weights = end.best.clone().unwrap_or_else(|| directory.join(WEIGHTS));
            self.weights_to_test = RelPath::of(&weights, directory);
        } else if is_main || status != RunStatus::Completed {
            self.status = status;
        } else if end.stage == Stage::Test
            && let Some(trained) = self.trained.take()
        {
            (self.status, self.weights_to_test) = (trained, None);
        }
        if is_main {
            self.hook_costs.clone_from(&end.hook_costs);
            self.sinks.clone_from(&end.sinks);
            let progress = &end.progress;
            (self.steps, self.epochs) = (progress.step, progress.epochs_done);
            (self.samples, self.tokens) = (progress.samples, progress.tokens);
            self.seconds = Some(end.time);
            self.metrics.clone_from(end.metrics);
            self.hooks.clone_from(&end.hooks);
        } else {
            // Add to what the training recorded, perhaps in another process.
            SinkDeliveries::add_all(&mut self.sinks, &end.sinks);
            self.seconds = Some(self.seconds.map_or(end.time, |seconds| seconds.max(end.time)));
            self.metrics.extend(end.metrics.clone());
            for hook in &mut self.hooks {
                if let Some(now) = end.hooks.iter().find(|now| now.name == hook.name) {
                    hook.clone_from(now);
                }
            }
        }
        self.ended = Some(now());
        // A test after the training adds its own data.
        self.identity.data.extend(end.identity.data.clone());
        let mut failures =
            Failures { kinds: std::mem::take(&mut self.failures), left_out: self.failures_left_out };
        failures.extend(end.failures);
        (self.failures, self.failures_left_out) = (failures.kinds, failures.left_out);
    }

    pub(super) fn write(&self, path: &Path) -> std::io::Result<()> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        write_durably(path, |file| file.write_all(&text))
    }
}

/// Reads a missing status as unknown.
fn status<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RunStatus, D::Error> {
    Ok(Option::<RunStatus>::deserialize(deserializer)?.unwrap_or(RunStatus::Unknown))
}

/// The current time in UTC, with milliseconds.
pub(super) fn now() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_are_in_utc_with_milliseconds() {
        let now = super::now();
        assert!(now.ends_with('Z') && now.len() == "2026-01-01T00:00:00.000Z".len(), "{now}");
    }
}
