//! What is given: setters for everything that a context can show.

use std::any::Any;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use tenterhook_core::context::ClipRule;
use tenterhook_core::moment::FixedClock;
use tenterhook_core::random::Streams;
use tenterhook_core::{
    Failure, LogOptions, Outcome, ParamGroup, Phase, Progress, RunInfo, Stage, Status, Validation,
};

use crate::model::{Optimizer, group};
use crate::rig::Rig;
use tenterhook_core::NamedTensors;

/// Where the run stands.
impl<H> Rig<H> {
    /// The epoch, from 0.
    pub fn epoch(&mut self, epoch: u64) -> &mut Rig<H> {
        self.world.progress.epoch = epoch;
        self
    }

    /// The completed optimizer steps.
    pub fn step(&mut self, step: u64) -> &mut Rig<H> {
        self.world.progress.step = step;
        self
    }

    /// All counters at once.
    pub fn progress(&mut self, progress: Progress) -> &mut Rig<H> {
        self.world.progress = progress;
        self
    }

    /// The time since the run began.
    pub fn elapsed(&mut self, elapsed: Duration) -> &mut Rig<H> {
        let before = self.world.shared.elapsed_before;
        self.world.shared.clock = Box::new(FixedClock(elapsed.saturating_sub(before)));
        self
    }

    /// Which of the trainer's calls is running; not given, the event says what is usual.
    pub fn stage(&mut self, stage: Stage) -> &mut Rig<H> {
        self.world.stage = Some(stage);
        self
    }

    /// Which loop is running; not given, the event says what is usual.
    pub fn phase(&mut self, phase: Phase) -> &mut Rig<H> {
        self.world.phase = Some(phase);
        self
    }

    /// How the run is doing; not given, the event says what is usual.
    pub fn status(&mut self, status: Status) -> &mut Rig<H> {
        self.world.status = Some(status);
        self
    }

    /// How the run ended, for the events at its end.
    pub fn outcome(&mut self, outcome: Outcome) -> &mut Rig<H> {
        self.world.outcome = outcome;
        self
    }

    /// What failed, for `on_exception`.
    pub fn failure(&mut self, failure: Failure) -> &mut Rig<H> {
        self.world.failure = failure;
        self
    }
}

/// What does not change during a run.
impl<H> Rig<H> {
    /// The run's seed; all random streams begin anew.
    pub fn seed(&mut self, seed: u64) -> &mut Rig<H> {
        self.world.shared.streams.replace(Streams::new(seed));
        self
    }

    /// The full configuration.
    pub fn config(&mut self, config: Value) -> &mut Rig<H> {
        self.world.shared.run.config = config;
        self
    }

    /// Whether it is a dry run over a few batches.
    pub fn fast_dev_run(&mut self, on: bool) -> &mut Rig<H> {
        self.world.shared.run.fast_dev_run = on;
        self
    }

    /// When `fit` validates.
    pub fn validation(&mut self, validation: Validation) -> &mut Rig<H> {
        self.world.shared.run.validation = validation;
        self
    }

    /// Everything about the run at once: id, directory, device, number of parameters, ….
    pub fn run(&mut self, run: RunInfo) -> &mut Rig<H> {
        self.world.shared.run = run;
        self
    }
}

/// The batch and what was computed from it.
impl<H> Rig<H> {
    /// The batch's index; not given, the one that the counters say.
    pub fn batch(&mut self, index: u64) -> &mut Rig<H> {
        self.world.batch.index = Some(index);
        self
    }

    /// How many samples the batch holds.
    pub fn batch_size(&mut self, size: usize) -> &mut Rig<H> {
        self.world.batch.size = size;
        self
    }

    /// The loader that the batch came from.
    pub fn loader(&mut self, index: usize, name: impl Into<String>) -> &mut Rig<H> {
        self.world.batch.loader_index = index;
        self.world.batch.loader = name.into();
        self
    }

    /// Whether the batch is known to be the epoch's last.
    pub fn last_batch(&mut self, is_last: bool) -> &mut Rig<H> {
        self.world.batch.is_last = is_last;
        self
    }

    /// The batch's tensors.
    pub fn batch_tensors(&mut self, tensors: impl Into<NamedTensors>) -> &mut Rig<H> {
        self.world.batch.tensors = tensors.into();
        self
    }

    /// The loss; it is the latest and the average too, until those are given.
    pub fn loss(&mut self, loss: f64) -> &mut Rig<H> {
        self.world.loss = Some(loss);
        self.world.losses = (Some(loss), Some(loss));
        self
    }

    /// The step yielded no loss, or was skipped.
    pub fn no_loss(&mut self) -> &mut Rig<H> {
        self.world.loss = None;
        self
    }

    /// The mean of this epoch's losses.
    pub fn average_loss(&mut self, average: f64) -> &mut Rig<H> {
        self.world.losses.1 = Some(average);
        self
    }

    /// A metric that was logged.
    pub fn metric(&mut self, name: &str, value: f64) -> &mut Rig<H> {
        self.world.shared.metrics.log(name, value, LogOptions::STEP);
        self
    }

    /// How long the module's step took.
    pub fn forward_time(&mut self, duration: Duration) -> &mut Rig<H> {
        self.world.times.forward = duration;
        self
    }

    /// How long the loop waited for the batch.
    pub fn data_wait(&mut self, duration: Duration) -> &mut Rig<H> {
        self.world.times.wait = duration;
        self
    }

    /// How long the backward pass took.
    pub fn backward_time(&mut self, duration: Duration) -> &mut Rig<H> {
        self.world.times.backward = duration;
        self
    }

    /// How long clipping and the update took.
    pub fn optimizer_time(&mut self, duration: Duration) -> &mut Rig<H> {
        self.world.times.optimizer = duration;
        self
    }

    /// A number that the step of an evaluation logs for its batch.
    pub fn batch_metric(&mut self, name: impl Into<String>, value: f64) -> &mut Rig<H> {
        self.world.batch_metrics.insert(name.into(), value);
        self
    }

    /// What the step of an evaluation gives as its outputs.
    pub fn outputs(&mut self, outputs: impl Into<NamedTensors>) -> &mut Rig<H> {
        self.world.outputs = outputs.into();
        self
    }

    /// What the module predicted.
    pub fn prediction(&mut self, prediction: impl Any) -> &mut Rig<H> {
        self.world.prediction = Box::new(prediction);
        self
    }
}

/// The model.
impl<H> Rig<H> {
    /// The parameters. Their number follows.
    pub fn params(&mut self, params: impl Into<NamedTensors>) -> &mut Rig<H> {
        self.world.model.params = params.into();
        self.world.shared.run.parameters = self.world.model.params.values() as u64;
        self
    }

    /// The gradients. Their norms follow, until those are given.
    pub fn gradients(&mut self, gradients: impl Into<NamedTensors>) -> &mut Rig<H> {
        self.world.gradients = gradients.into();
        self
    }

    /// The norm of the gradients before and after clipping.
    pub fn norms(&mut self, before: f64, after: f64) -> &mut Rig<H> {
        self.world.norms.given = Some((before, after));
        self
    }

    /// How gradients are clipped, where they are.
    pub fn clip_rule(&mut self, rule: Option<ClipRule>) -> &mut Rig<H> {
        self.world.norms.rule = rule;
        self
    }

    /// The learning rate of every group of every optimizer. It is 0.001 until given.
    pub fn lr(&mut self, lr: f64) -> &mut Rig<H> {
        let groups = self.world.model.optimizers.iter_mut().flat_map(|optimizer| &mut optimizer.groups);
        groups.for_each(|group| group.lr = lr);
        self
    }

    /// The learning rate that the next update will use; not given, it is the same.
    pub fn next_lr(&mut self, lr: f64) -> &mut Rig<H> {
        self.world.next_lr = Some(lr);
        self
    }

    /// The optimizers: for each its name and the learning rates of its groups, named `group 0`, `group 1`, ….
    pub fn optimizers<const N: usize>(&mut self, optimizers: [(&str, &[f64]); N]) -> &mut Rig<H> {
        let optimizers = optimizers.map(|(name, lrs)| {
            let groups = lrs.iter().enumerate().map(|(at, lr)| group(&format!("group {at}"), *lr));
            Optimizer { name: name.to_owned(), groups: groups.collect(), state: NamedTensors::default() }
        });
        self.world.model.optimizers = optimizers.into();
        self
    }

    /// One more optimizer, in full: its name, its groups and its state tensors.
    pub fn add_optimizer(
        &mut self,
        name: &str,
        groups: Vec<ParamGroup>,
        state: impl Into<NamedTensors>,
    ) -> &mut Rig<H> {
        let optimizer = Optimizer { name: name.to_owned(), groups, state: state.into() };
        self.world.model.optimizers.push(optimizer);
        self
    }

    /// Which optimizer steps.
    pub fn optimizer(&mut self, index: usize) -> &mut Rig<H> {
        self.world.optimizer = index;
        self
    }

    /// The checkpoint that was saved or loaded: its step, its path and the directory of all checkpoints.
    pub fn checkpoint(
        &mut self,
        step: u64,
        path: impl Into<PathBuf>,
        root: impl Into<PathBuf>,
    ) -> &mut Rig<H> {
        self.world.checkpoint.step = step;
        self.world.checkpoint.path = path.into();
        self.world.checkpoint.root = root.into();
        self
    }

    /// The epoch of that checkpoint, from 0.
    pub fn saved_epoch(&mut self, epoch: u64) -> &mut Rig<H> {
        self.world.checkpoint.epoch = epoch;
        self
    }

    /// A metric of that checkpoint, logged at its step. For a later checkpoint it is an old value, until it is set again.
    pub fn saved_metric(&mut self, name: impl Into<String>, value: f64) -> &mut Rig<H> {
        let (name, saved) = (name.into(), &mut self.world.checkpoint);
        saved.metric_steps.insert(name.clone(), saved.step);
        saved.metrics.insert(name, value);
        self
    }

    /// The event about that checkpoint may have been delivered before, or not.
    pub fn again(&mut self, again: bool) -> &mut Rig<H> {
        self.world.checkpoint.again = again;
        self
    }

    /// The score of that checkpoint where it is the best so far.
    pub fn best_score(&mut self, score: Option<f64>) -> &mut Rig<H> {
        self.world.checkpoint.best_score = score;
        self
    }

    /// The notice of `on_notice`, as it stands in `events.jsonl`: `json!({ "event": "said", "by": "a", "text": "b" })`.
    pub fn notice(&mut self, entry: serde_json::Value) -> &mut Rig<H> {
        self.world.notice = entry;
        self
    }

    /// The hook that was disabled, and why.
    pub fn disabled(&mut self, hook: impl Into<String>, reason: impl Into<String>) -> &mut Rig<H> {
        self.world.disabled = (hook.into(), reason.into());
        self
    }
}
