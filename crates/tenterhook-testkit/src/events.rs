//! Every event as a method: its context made up from what was given, delivered by the real runner.

#[allow(clippy::wildcard_imports)] // forty contexts
use tenterhook_core::*;

use crate::findings::Reply;
use crate::rig::Rig;
use crate::world::World;

/// A context that can be made up.
trait MadeUp<'a> {
    fn from_world(world: &'a World) -> Self;
}

macro_rules! made_up {
    ($world:ident; $($Event:ident { $($field:ident: $value:expr,)* })*) => {$(
        impl<'a> MadeUp<'a> for $Event<'a> {
            fn from_world($world: &'a World) -> $Event<'a> {
                tenterhook_core::context!($Event { run_cx: $world.run_cx(Event::$Event), $($field: $value,)* })
            }
        }
    )*};
}

made_up! { world;
    Setup { stage: world.run_cx(Event::Setup).stage, config: &world.shared.run.config, }
    Teardown { stage: world.run_cx(Event::Teardown).stage, outcome: &world.at.outcome, }
    FitStart { config: &world.shared.run.config, }
    FitEnd { outcome: &world.at.outcome, }
    SanityCheckStart {}
    SanityCheckEnd {}
    TrainStart { config: &world.shared.run.config, }
    TrainEnd { outcome: &world.at.outcome, }
    TrainEpochStart {}
    TrainEpochEnd {}
    TrainBatchStart { batch: world.batch(), wait: world.times.wait, }
    TrainBatchEnd { batch: world.batch(), loss: world.result.loss.as_ref().map(|loss| Scalar::new(loss)), }
    BeforeForward { batch: world.batch(), }
    AfterForward { batch: world.batch(), duration: world.times.forward, }
    BeforeZeroGrad { gradients: Tensors::new(&world.update.gradients), }
    BeforeBackward { loss: loss(world), }
    AfterBackward {
        loss: loss(world),
        gradients: Tensors::new(&world.update.gradients),
        duration: world.times.backward,
    }
    BeforeOptimizerStep { optimizer: world.update.optimizer, gradients: Tensors::new(&world.update.gradients), }
    GradientClip {
        optimizer: world.update.optimizer,
        norm_before: Scalar::new(&world.update.norms.before),
        norm_after: Scalar::new(&world.update.norms.after),
        rule: world.update.norms.rule,
        gradients: Tensors::new(&world.update.gradients),
    }
    AfterOptimizerStep {
        optimizer: world.update.optimizer,
        gradients: Tensors::new(&world.update.gradients),
        duration: world.times.optimizer,
    }
    Activation { point: &world.point.0, values: Tensors::new(&world.point.1), }
    StepEnd {
        loss: loss(world),
        grad_norm: Scalar::new(&world.update.norms.before),
        lr: lr(world),
        next_lr: world.update.next_lr.unwrap_or_else(|| lr(world)),
    }
    ValidationStart {}
    ValidationEpochStart {}
    ValidationBatchStart { batch: world.batch(), }
    ValidationBatchEnd {
        batch: world.batch(),
        loss: world.result.loss,
        batch_metrics: &world.result.metrics,
        outputs: Tensors::new(&world.result.outputs),
    }
    ValidationEpochEnd {}
    ValidationEnd {}
    TestStart {}
    TestEpochStart {}
    TestBatchStart { batch: world.batch(), }
    TestBatchEnd {
        batch: world.batch(),
        loss: world.result.loss,
        batch_metrics: &world.result.metrics,
        outputs: Tensors::new(&world.result.outputs),
    }
    TestEpochEnd {}
    TestEnd {}
    PredictStart {}
    PredictEpochStart {}
    PredictBatchStart { batch: world.batch(), }
    PredictBatchEnd {
        batch: world.batch(),
        prediction: &*world.told.prediction,
        loss: world.result.loss,
        batch_metrics: &world.result.metrics,
        outputs: Tensors::new(&world.result.outputs),
    }
    PredictEpochEnd {}
    PredictEnd {}
    SaveCheckpoint { entries: &world.checkpoint.entries, }
    LoadCheckpoint { entries: &world.checkpoint.entries, }
    CheckpointSaved {
        saved_step: world.checkpoint.step,
        saved_epoch: world.checkpoint.epoch,
        saved_metrics: &world.checkpoint.metrics,
        saved_metric_steps: &world.checkpoint.metric_steps,
        path: &world.checkpoint.path,
        root: &world.checkpoint.root,
        best_score: world.checkpoint.best_score,
        again: world.checkpoint.again,
    }
    CheckpointLoaded { path: &world.checkpoint.path, root: &world.checkpoint.root, }
    Log {
        of: world.run_cx(Event::Log).phase,
        epoch_end: world.at.progress.epochs_done > world.at.progress.epoch,
        time: world.shared.elapsed().as_secs_f64(),
        metrics: &world.log.line.0,
        histograms: &world.log.line.1,
    }
    HookDisabled { hook: &world.told.disabled.0, reason: &world.told.disabled.1, }
    Notice {
        kind: world.told.notice["event"].as_str().unwrap_or_default(),
        text: world.told.notice["text"].as_str().unwrap_or_default(),
        told: true,
        entry: &world.told.notice,
    }
    Exception { failure: &world.told.failure, }
}

/// Where a loss must exist and none was given, it is not a number.
fn loss(world: &World) -> Scalar<'_> {
    Scalar::new(world.result.loss.as_ref().unwrap_or(&f64::NAN))
}

fn lr(world: &World) -> f64 {
    world.model.learning_rates().first().copied().unwrap_or(0.0)
}

macro_rules! deliveries {
    ($($(#[$doc:meta])* $mode:ident $handler:ident $Event:ident $Phase:ident $sources:tt;)*) => {
        /// Events, one method each, under the handler's name.
        impl<H: Hook> Rig<H> {
            $(
                $(#[$doc])*
                pub fn $handler(&mut self) -> &Reply {
                    self.world.before(Event::$Event);
                    let calls = self.probed.notes().calls;
                    let cx = $Event::from_world(&self.world);
                    let aborts = if Event::$Event == Event::Exception {
                        self.runner.deliver_despite_failures(&cx)
                    } else {
                        self.runner.deliver(&cx).err().into_iter().collect()
                    };
                    self.world.after(Event::$Event);
                    self.file(Event::$Event, calls, aborts)
                }
            )*

            /// Delivers an event that is given as a value.
            pub fn deliver(&mut self, event: Event) -> &Reply {
                match event {
                    $(Event::$Event => self.$handler(),)*
                    _ => unreachable!("the table has every event"),
                }
            }
        }
    };
}

for_each_event!(deliveries);

impl<H: Hook> Rig<H> {
    fn file(&mut self, event: Event, calls_before: usize, aborts: Vec<Failure>) -> &Reply {
        let noted = self.findings.failures.len();
        self.note_contained();
        for failure in aborts {
            self.note_abort(failure);
        }
        self.findings.refused.extend(self.runner.take_refused_changes());

        let (own, others): (Vec<_>, Vec<_>) =
            self.runner.take_decisions().into_iter().partition(|decided| decided.hook == self.name);
        let decision = own.into_iter().next().map_or(Decision::CONTINUE, |decided| decided.decision);
        let others_requests = others.iter().flat_map(|decided| decided.decision.requests());
        for request in decision.requests().iter().chain(others_requests) {
            self.world.model.carry_out(request);
        }
        self.findings.others.extend(others);

        let delivered = self.probed.notes().calls > calls_before;
        let failure = self.own_failure_since(noted);
        let replies = &mut self.findings.replies;
        replies.push(Reply { event, delivered, decision, failure });
        &replies[replies.len() - 1]
    }
}
