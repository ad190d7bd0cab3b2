//! Setters for all values of contexts.

use std::any::Any;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use tenterhook_core::context::ClipRule;
use tenterhook_core::random::RandomStreams;
use tenterhook_core::run_context::FixedClock;
use tenterhook_core::{
    Failure, LogOptions, NamedTensors, Outcome, ParamGroup, Phase, Progress, RunInfo, Stage, Status,
    Validation,
};

use crate::model::{Optimizer, group};
use crate::rig::Rig;

/// Setters of the simulated run.
macro_rules! setters {
    ($run:ident, $title:literal; $($(#[$doc:meta])* $name:ident($($value:ident: $of:ty),*) $set:block)*) => {
        #[doc = $title]
        impl<H> Rig<H> {
            $(
                $(#[$doc])*
                pub fn $name(&mut self, $($value: $of),*) -> &mut Rig<H> {
                    let $run = &mut self.run;
                    $set;
                    self
                }
            )*
        }
    };
}

setters! { run, "Position of the run.";
    /// The epoch, from 0.
    epoch(epoch: u64) { run.at.progress.epoch = epoch; }
    /// The completed optimizer steps.
    step(step: u64) { run.at.progress.step = step; }
    /// All progress counters.
    progress(progress: Progress) { run.at.progress = progress; }
    /// The time since the run began.
    elapsed(elapsed: Duration) {
        let before = run.shared.elapsed_before;
        run.shared.clock = Box::new(FixedClock(elapsed.saturating_sub(before)));
    }
    /// The stage (call of the trainer). Default: the usual one of the event.
    stage(stage: Stage) { run.at.stage = Some(stage); }
    /// The phase (loop). Default: the usual one of the event.
    phase(phase: Phase) { run.at.phase = Some(phase); }
    /// The status of the run. Default: the usual one of the event.
    status(status: Status) { run.at.status = Some(status); }
    /// The outcome of the run, for the events at its end.
    outcome(outcome: Outcome) { run.at.outcome = outcome; }
    /// The failure, for `on_exception`.
    failure(failure: Failure) { run.values.failure = failure; }
}

setters! { run, "Constants of the run.";
    /// The seed of the run; restarts all random streams.
    seed(seed: u64) { run.shared.streams.replace(RandomStreams::new(seed)); }
    /// The full configuration.
    config(config: Value) { run.shared.run.config = config; }
    /// Whether `fast_dev_run` is set.
    fast_dev_run(on: bool) { run.shared.run.fast_dev_run = on; }
    /// When `fit` validates.
    validation(validation: Validation) { run.shared.run.validation = validation; }
    /// All facts about the run: id, directory, device, number of parameters, ….
    run(facts: RunInfo) { run.shared.run = facts; }
}

setters! { run, "The batch and its results.";
    /// The index of the batch. Default: that of the progress counters.
    batch(index: u64) { run.batch.index = Some(index); }
    /// The number of samples in the batch.
    batch_size(size: usize) { run.batch.size = size; }
    /// The data loader of the batch.
    loader(index: usize, name: impl Into<String>) {
        run.batch.loader_index = index;
        run.batch.loader = name.into();
    }
    /// Whether the batch is known to be the last of the epoch.
    last_batch(is_last: bool) { run.batch.is_last = is_last; }
    /// The batch's tensors.
    batch_tensors(tensors: impl Into<NamedTensors>) { run.batch.tensors = tensors.into(); }
    /// The loss of the batch, and the latest and the average loss.
    loss(loss: f64) {
        run.result.loss = Some(loss);
        run.result.losses = (Some(loss), Some(loss));
    }
    /// The step returned no loss, or was skipped.
    no_loss() { run.result.loss = None; }
    /// The mean of this epoch's losses.
    average_loss(average: f64) { run.result.losses.1 = Some(average); }
    /// Logs a metric.
    metric(name: &str, value: f64) { run.shared.metrics.log(name, value, LogOptions::STEP); }
    /// Duration of the training step of the module.
    forward_time(duration: Duration) { run.times.forward = duration; }
    /// Time that the loop waited for the batch.
    data_wait(duration: Duration) { run.times.wait = duration; }
    /// Duration of the backward pass.
    backward_time(duration: Duration) { run.times.backward = duration; }
    /// Duration of clipping and the optimizer step.
    optimizer_time(duration: Duration) { run.times.optimizer = duration; }
    /// A metric that an evaluation step logs for its batch.
    batch_metric(name: impl Into<String>, value: f64) { run.result.metrics.insert(name.into(), value); }
    /// The outputs of an evaluation step.
    outputs(outputs: impl Into<NamedTensors>) { run.result.outputs = outputs.into(); }
    /// The prediction of the module.
    prediction(prediction: impl Any) { run.values.prediction = Box::new(prediction); }
}

setters! { run, "The model.";
    /// The parameters. Also sets their number in the facts about the run.
    params(params: impl Into<NamedTensors>) {
        run.model.params = params.into();
        run.shared.run.parameters = run.model.params.values() as u64;
    }
    /// The gradients. Norms that are not set are computed from them.
    gradients(gradients: impl Into<NamedTensors>) { run.update.gradients = gradients.into(); }
    /// The norm of the gradients before and after clipping.
    norms(before: f64, after: f64) { run.update.norms.overridden = Some((before, after)); }
    /// The clipping rule.
    clip_rule(rule: Option<ClipRule>) { run.update.norms.rule = rule; }
    /// The learning rate of every group of every optimizer. Default: 0.001.
    lr(lr: f64) {
        let groups = run.model.optimizers.iter_mut().flat_map(|optimizer| &mut optimizer.groups);
        groups.for_each(|group| group.lr = lr);
    }
    /// The learning rate of the next update. Default: the current one.
    next_lr(lr: f64) { run.update.next_lr = Some(lr); }
    /// Adds an optimizer with parameter groups and state tensors.
    add_optimizer(name: &str, groups: Vec<ParamGroup>, state: impl Into<NamedTensors>) {
        let optimizer = Optimizer { name: name.to_owned(), groups, state: state.into() };
        run.model.optimizers.push(optimizer);
    }
    /// The index of the optimizer that steps.
    optimizer(index: usize) { run.update.optimizer = index; }
    /// The checkpoint that is saved or loaded: step, path and the directory of all checkpoints.
    checkpoint(step: u64, path: impl Into<PathBuf>, root: impl Into<PathBuf>) {
        run.checkpoint.step = step;
        run.checkpoint.path = path.into();
        run.checkpoint.root = root.into();
    }
    /// The epoch of that checkpoint, from 0.
    saved_epoch(epoch: u64) { run.checkpoint.epoch = epoch; }
    /// A metric of that checkpoint, logged at its step. Later checkpoints keep the value with its old step.
    saved_metric(name: impl Into<String>, value: f64) {
        let (name, saved) = (name.into(), &mut run.checkpoint);
        saved.metric_steps.insert(name.clone(), saved.step);
        saved.metrics.insert(name, value);
    }
    /// Whether the event about that checkpoint may have been delivered before.
    redelivered(redelivered: bool) { run.checkpoint.redelivered = redelivered; }
    /// The score of that checkpoint if it is the best so far.
    best_score(score: Option<f64>) { run.checkpoint.best_score = score; }
    /// The notice of `on_notice`, as in `events.jsonl`: `json!({ "event": "said", "by": "a", "text": "b" })`.
    notice(entry: serde_json::Value) { run.values.notice = entry; }
    /// The hook that was disabled, and the reason.
    disabled(hook: impl Into<String>, reason: impl Into<String>) {
        run.values.disabled = (hook.into(), reason.into());
    }
}

impl<H> Rig<H> {
    /// Sets the optimizers: for each its name and the learning rates of its groups, named `group 0`, `group 1`, ….
    pub fn optimizers<const N: usize>(&mut self, optimizers: [(&str, &[f64]); N]) -> &mut Rig<H> {
        let optimizers = optimizers.map(|(name, lrs)| {
            let groups = lrs.iter().enumerate().map(|(at, lr)| group(&format!("group {at}"), *lr));
            Optimizer { name: name.to_owned(), groups: groups.collect(), state: NamedTensors::default() }
        });
        self.run.model.optimizers = optimizers.into();
        self
    }
}
