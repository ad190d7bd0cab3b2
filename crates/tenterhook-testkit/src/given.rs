//! What is given: setters for everything that a context can show.

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

/// Setters: what each sets in the made-up run.
macro_rules! given {
    ($world:ident, $title:literal; $($(#[$doc:meta])* $name:ident($($value:ident: $of:ty),*) $set:block)*) => {
        #[doc = $title]
        impl<H> Rig<H> {
            $(
                $(#[$doc])*
                pub fn $name(&mut self, $($value: $of),*) -> &mut Rig<H> {
                    let $world = &mut self.world;
                    $set;
                    self
                }
            )*
        }
    };
}

given! { world, "Where the run stands.";
    /// The epoch, from 0.
    epoch(epoch: u64) { world.at.progress.epoch = epoch; }
    /// The completed optimizer steps.
    step(step: u64) { world.at.progress.step = step; }
    /// All counters at once.
    progress(progress: Progress) { world.at.progress = progress; }
    /// The time since the run began.
    elapsed(elapsed: Duration) {
        let before = world.shared.elapsed_before;
        world.shared.clock = Box::new(FixedClock(elapsed.saturating_sub(before)));
    }
    /// Which of the trainer's calls is running; not given, the event says what is usual.
    stage(stage: Stage) { world.at.stage = Some(stage); }
    /// Which loop is running; not given, the event says what is usual.
    phase(phase: Phase) { world.at.phase = Some(phase); }
    /// How the run is doing; not given, the event says what is usual.
    status(status: Status) { world.at.status = Some(status); }
    /// How the run ended, for the events at its end.
    outcome(outcome: Outcome) { world.at.outcome = outcome; }
    /// What failed, for `on_exception`.
    failure(failure: Failure) { world.told.failure = failure; }
}

given! { world, "What does not change during a run.";
    /// The run's seed; all random streams begin anew.
    seed(seed: u64) { world.shared.streams.replace(RandomStreams::new(seed)); }
    /// The full configuration.
    config(config: Value) { world.shared.run.config = config; }
    /// Whether it is a dry run over a few batches.
    fast_dev_run(on: bool) { world.shared.run.fast_dev_run = on; }
    /// When `fit` validates.
    validation(validation: Validation) { world.shared.run.validation = validation; }
    /// Everything about the run at once: id, directory, device, number of parameters, ….
    run(run: RunInfo) { world.shared.run = run; }
}

given! { world, "The batch and what was computed from it.";
    /// The batch's index; not given, the one that the counters say.
    batch(index: u64) { world.batch.index = Some(index); }
    /// How many samples the batch holds.
    batch_size(size: usize) { world.batch.size = size; }
    /// The loader that the batch came from.
    loader(index: usize, name: impl Into<String>) {
        world.batch.loader_index = index;
        world.batch.loader = name.into();
    }
    /// Whether the batch is known to be the epoch's last.
    last_batch(is_last: bool) { world.batch.is_last = is_last; }
    /// The batch's tensors.
    batch_tensors(tensors: impl Into<NamedTensors>) { world.batch.tensors = tensors.into(); }
    /// The loss; it is the latest and the average too, until those are given.
    loss(loss: f64) {
        world.result.loss = Some(loss);
        world.result.losses = (Some(loss), Some(loss));
    }
    /// The step yielded no loss, or was skipped.
    no_loss() { world.result.loss = None; }
    /// The mean of this epoch's losses.
    average_loss(average: f64) { world.result.losses.1 = Some(average); }
    /// A metric that was logged.
    metric(name: &str, value: f64) { world.shared.metrics.log(name, value, LogOptions::STEP); }
    /// How long the module's step took.
    forward_time(duration: Duration) { world.times.forward = duration; }
    /// How long the loop waited for the batch.
    data_wait(duration: Duration) { world.times.wait = duration; }
    /// How long the backward pass took.
    backward_time(duration: Duration) { world.times.backward = duration; }
    /// How long clipping and the update took.
    optimizer_time(duration: Duration) { world.times.optimizer = duration; }
    /// A number that the step of an evaluation logs for its batch.
    batch_metric(name: impl Into<String>, value: f64) { world.result.metrics.insert(name.into(), value); }
    /// What the step of an evaluation gives as its outputs.
    outputs(outputs: impl Into<NamedTensors>) { world.result.outputs = outputs.into(); }
    /// What the module predicted.
    prediction(prediction: impl Any) { world.told.prediction = Box::new(prediction); }
}

given! { world, "The model.";
    /// The parameters. Their number follows.
    params(params: impl Into<NamedTensors>) {
        world.model.params = params.into();
        world.shared.run.parameters = world.model.params.values() as u64;
    }
    /// The gradients. Their norms follow, until those are given.
    gradients(gradients: impl Into<NamedTensors>) { world.update.gradients = gradients.into(); }
    /// The norm of the gradients before and after clipping.
    norms(before: f64, after: f64) { world.update.norms.given = Some((before, after)); }
    /// How gradients are clipped, where they are.
    clip_rule(rule: Option<ClipRule>) { world.update.norms.rule = rule; }
    /// The learning rate of every group of every optimizer. It is 0.001 until given.
    lr(lr: f64) {
        let groups = world.model.optimizers.iter_mut().flat_map(|optimizer| &mut optimizer.groups);
        groups.for_each(|group| group.lr = lr);
    }
    /// The learning rate that the next update will use; not given, it is the same.
    next_lr(lr: f64) { world.update.next_lr = Some(lr); }
    /// One more optimizer, in full: its name, its groups and its state tensors.
    add_optimizer(name: &str, groups: Vec<ParamGroup>, state: impl Into<NamedTensors>) {
        let optimizer = Optimizer { name: name.to_owned(), groups, state: state.into() };
        world.model.optimizers.push(optimizer);
    }
    /// Which optimizer steps.
    optimizer(index: usize) { world.update.optimizer = index; }
    /// The checkpoint that was saved or loaded: its step, its path and the directory of all checkpoints.
    checkpoint(step: u64, path: impl Into<PathBuf>, root: impl Into<PathBuf>) {
        world.checkpoint.step = step;
        world.checkpoint.path = path.into();
        world.checkpoint.root = root.into();
    }
    /// The epoch of that checkpoint, from 0.
    saved_epoch(epoch: u64) { world.checkpoint.epoch = epoch; }
    /// A metric of that checkpoint, logged at its step. For a later checkpoint it is an old value, until it is set again.
    saved_metric(name: impl Into<String>, value: f64) {
        let (name, saved) = (name.into(), &mut world.checkpoint);
        saved.metric_steps.insert(name.clone(), saved.step);
        saved.metrics.insert(name, value);
    }
    /// The event about that checkpoint may have been delivered before, or not.
    again(again: bool) { world.checkpoint.again = again; }
    /// The score of that checkpoint where it is the best so far.
    best_score(score: Option<f64>) { world.checkpoint.best_score = score; }
    /// The notice of `on_notice`, as it stands in `events.jsonl`: `json!({ "event": "said", "by": "a", "text": "b" })`.
    notice(entry: serde_json::Value) { world.told.notice = entry; }
    /// The hook that was disabled, and why.
    disabled(hook: impl Into<String>, reason: impl Into<String>) {
        world.told.disabled = (hook.into(), reason.into());
    }
}

impl<H> Rig<H> {
    /// The optimizers: for each its name and the learning rates of its groups, named `group 0`, `group 1`, ….
    pub fn optimizers<const N: usize>(&mut self, optimizers: [(&str, &[f64]); N]) -> &mut Rig<H> {
        let optimizers = optimizers.map(|(name, lrs)| {
            let groups = lrs.iter().enumerate().map(|(at, lr)| group(&format!("group {at}"), *lr));
            Optimizer { name: name.to_owned(), groups: groups.collect(), state: NamedTensors::default() }
        });
        self.world.model.optimizers = optimizers.into();
        self
    }
}
