//! `run.json`: what a run was and how it ended.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize};
use tenterhook_core::{HookInfo, Outcome, Stage};
use tenterhook_files::{RelPath, write_durably};

use super::machine::{Git, Machine, versions};
use super::open::below;
use super::ownership::remember;
use super::{Beginning, Ending, HookCosts, Identity, RunDirectoryPlan, SentByHook};
use crate::checkpoint::WEIGHTS;
use crate::config::hash::{hash_bytes, hash_json};
use crate::journal::{FailureKind, Failures};

/// The version of the format of `run.json`, `metrics.jsonl` and `events.jsonl`.
pub const FORMAT: u32 = 1;

/// How a run is doing, or how it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunStatus {
    /// Under way. In a file it can also mean that the run was killed.
    #[default]
    Running,
    /// It wrote no end, and no process writes to its directory any more. No file says so; it is found when a run is
    /// read.
    Killed,
    /// It reached its limit.
    Completed,
    /// Somebody asked to stop.
    Stopped {
        /// Who.
        #[serde(default)]
        by: String,
        /// Why.
        #[serde(default)]
        reason: String,
    },
    /// A signal ended it.
    Interrupted {
        /// Which.
        #[serde(default)]
        signal: String,
    },
    /// It failed.
    Failed {
        /// Why.
        #[serde(default)]
        error: String,
    },
    /// Not known: it is missing, or was written by a newer version.
    #[serde(other)]
    Unknown,
}

impl RunStatus {
    /// Whether it came to its own end.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        matches!(self, RunStatus::Completed | RunStatus::Stopped { .. })
    }

    /// In one word, as it stands in `run.json`.
    #[must_use]
    pub fn word(&self) -> &'static str {
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

/// A start of a run: its first, or one that went on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RunPart {
    /// When it began.
    pub started: String,
    /// Completed optimizer steps at that moment.
    pub step: u64,
    /// The checkpoint that it went on from, below the run directory if it is there. Without one it began from the
    /// start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<PathBuf>,
    /// The command line.
    pub command: Vec<String>,
}

/// Everything that `run.json` holds. What a file lacks is empty.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunRecord {
    /// The version of the format.
    pub format: u32,
    /// The run's id.
    pub id: String,
    /// How it is doing, or how it ended.
    #[serde(flatten, deserialize_with = "status")]
    pub status: RunStatus,
    /// How its training ended, while the test that is to come after it has not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trained: Option<RunStatus>,
    /// The weights of that test, below the run directory: the best checkpoint, or else the final weights. Unset if
    /// they are elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights_to_test: Option<RelPath>,
    /// When it began.
    pub created: String,
    /// When it ended.
    pub ended: Option<String>,
    /// How long it took, in seconds, all parts of a resumed run together.
    pub seconds: Option<f64>,
    /// The task, if it has a name.
    pub task: Option<String>,
    /// The device.
    pub device: String,
    /// The seed.
    pub seed: u64,
    /// The number of parameters of the model.
    pub parameters: u64,
    /// The checkpoint that it went on from the last time, below the run directory if it is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumed_from: Option<PathBuf>,
    /// Its starts: the first, and every one that went on.
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
    /// What has failed since it began or last went on, by kind; `events.jsonl` has each.
    pub failures: Vec<FailureKind>,
    /// How many failures there were of other kinds.
    pub failures_left_out: u64,
    /// What they cost; empty until the run ends, and where no account was kept.
    pub hook_costs: HookCosts,
    /// What became of what hooks handed to worker threads, of the process that wrote it.
    pub sinks: Vec<SentByHook>,
    /// The command line.
    pub command: Vec<String>,
    /// The source.
    pub git: Git,
    /// The hash of the configuration.
    pub config_hash: String,
    /// The keyed hash of `config.toml` that says whose run it is, and those of earlier parts of the run; the newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub config_signatures: Vec<String>,
    /// The versions of what it ran with.
    pub versions: BTreeMap<String, String>,
    /// What it ran on.
    pub machine: Machine,
    /// Its data, program and processor, of its last start.
    pub identity: Identity,
}

impl RunRecord {
    /// Whether its last training came to an end, be it by a failure: it was not killed.
    pub(super) fn training_ended(&self) -> bool {
        self.trained.is_some()
            || !matches!(self.status, RunStatus::Running | RunStatus::Killed | RunStatus::Unknown)
    }

    pub(super) fn new(plan: &RunDirectoryPlan, beginning: &Beginning<'_>) -> RunRecord {
        let Beginning { run, progress, .. } = beginning;
        let (started, resumed_from) = (now(), beginning.resumed_from.map(Path::to_owned));
        let part = RunPart {
            started: started.clone(),
            step: progress.step,
            checkpoint: resumed_from.clone(),
            command: plan.command.clone(),
        };
        RunRecord {
            format: FORMAT,
            id: run.id.clone(),
            status: RunStatus::Running,
            trained: None,
            weights_to_test: None,
            created: started,
            ended: None,
            seconds: None,
            task: plan.task.clone(),
            device: run.device.clone(),
            seed: beginning.seed,
            parameters: run.parameters,
            resumed_from,
            parts: vec![part],
            steps: progress.step,
            epochs: progress.epochs_done,
            samples: progress.samples,
            tokens: progress.tokens,
            metrics: BTreeMap::new(),
            hooks: beginning.hooks.clone(),
            failures: Vec::new(),
            failures_left_out: 0,
            hook_costs: HookCosts::default(),
            sinks: Vec::new(),
            command: plan.command.clone(),
            git: Git::here(),
            config_hash: match &plan.config_hash {
                Some(hash) => hash.clone(),
                // From code there is no file; the trainer knows how it was set up.
                None if plan.config.is_empty() => hash_json(&run.config),
                None => hash_bytes(plan.config.as_bytes()),
            },
            config_signatures: plan.signer.signature(&plan.config).into_iter().collect(),
            versions: versions(beginning.engine.as_deref()),
            machine: Machine::this(),
            identity: beginning.identity.clone(),
        }
    }

    /// The record of a run that goes on in its directory.
    pub(super) fn again(
        plan: &RunDirectoryPlan,
        beginning: &Beginning<'_>,
        earlier: Option<RunRecord>,
        directory: &Path,
    ) -> RunRecord {
        let mut record = RunRecord::new(plan, beginning);
        record.resumed_from = record.resumed_from.map(|from| below(directory, &from));
        for part in &mut record.parts {
            part.checkpoint.clone_from(&record.resumed_from);
        }
        let Some(mut earlier) = earlier else { return record };
        if earlier.parts.is_empty() {
            // It was written before there were parts.
            let (started, command) = (earlier.created.clone(), earlier.command);
            earlier.parts.push(RunPart { started, command, ..RunPart::default() });
        }
        earlier.parts.append(&mut record.parts);
        remember(&mut record.config_signatures, earlier.config_signatures);
        RunRecord { created: earlier.created, parts: earlier.parts, ..record }
    }

    /// Notes that the test after the training did not begin. Returns whether one was missing.
    pub(super) fn note_missing_test(&mut self) -> bool {
        let missing = self.status == RunStatus::Running && self.trained.is_some();
        if missing {
            self.status = RunStatus::Failed { error: "the test after the training did not begin".to_owned() };
        }
        missing
    }

    /// Notes how a call ended. A training that came to its own end is under way all the same while a test is to come, so
    /// that one that is killed in its test is not taken for finished. An evaluation after training leaves the training's
    /// outcome, unless it went wrong.
    pub(super) fn note(&mut self, ending: &Ending<'_>, directory: &Path, is_the_run: bool, then_test: bool) {
        let status = RunStatus::from(ending.outcome);
        if then_test && ending.stage == Stage::Fit && status.is_finished() {
            self.trained = Some(status);
            let weights = ending.best.clone().unwrap_or_else(|| directory.join(WEIGHTS));
            self.weights_to_test = RelPath::of(&weights, directory);
        } else if is_the_run || status != RunStatus::Completed {
            self.status = status;
        } else if ending.stage == Stage::Test
            && let Some(trained) = self.trained.take()
        {
            (self.status, self.weights_to_test) = (trained, None);
        }
        if is_the_run {
            self.hook_costs.clone_from(&ending.hook_costs);
            self.sinks.clone_from(&ending.sinks);
            let progress = &ending.progress;
            (self.steps, self.epochs) = (progress.step, progress.epochs_done);
            (self.samples, self.tokens) = (progress.samples, progress.tokens);
            self.seconds = Some(ending.time);
            self.metrics.clone_from(ending.metrics);
            self.hooks.clone_from(&ending.hooks);
        } else {
            // Perhaps in another process than the training, which knows nothing of it.
            SentByHook::add_all(&mut self.sinks, &ending.sinks);
            self.seconds = Some(self.seconds.map_or(ending.time, |seconds| seconds.max(ending.time)));
            self.metrics.extend(ending.metrics.clone());
            for hook in &mut self.hooks {
                if let Some(now) = ending.hooks.iter().find(|now| now.name == hook.name) {
                    hook.clone_from(now);
                }
            }
        }
        self.ended = Some(now());
        // A test after training adds its data.
        self.identity.data.extend(ending.identity.data.clone());
        let mut failures =
            Failures { kinds: std::mem::take(&mut self.failures), left_out: self.failures_left_out };
        failures.extend(ending.failures);
        (self.failures, self.failures_left_out) = (failures.kinds, failures.left_out);
    }

    pub(super) fn write(&self, path: &Path) -> std::io::Result<()> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        write_durably(path, |file| file.write_all(&text))
    }
}

/// A status that cannot be read does not hide the rest of a run.
fn status<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RunStatus, D::Error> {
    Ok(Option::<RunStatus>::deserialize(deserializer)?.unwrap_or(RunStatus::Unknown))
}

/// The time, in UTC, to the millisecond.
pub(super) fn now() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_are_written_as_everybody_reads_them() {
        let now = super::now();
        assert!(now.ends_with('Z') && now.len() == "2026-01-01T00:00:00.000Z".len(), "{now}");
    }
}
