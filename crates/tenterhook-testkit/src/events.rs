//! Methods that deliver events: each builds the context from the simulated run and passes it to the real
//! runner.

#[allow(clippy::wildcard_imports)] // forty contexts
use tenterhook_core::*;

use crate::outcomes::Delivery;
use crate::rig::Rig;
use crate::simulated_run::SimulatedRun;

trait FromRun<'a> {
    fn from_run(run: &'a SimulatedRun) -> Self;
}

macro_rules! contexts {
    ($run:ident; $($Event:ident { $($field:ident: $value:expr,)* })*) => {$(
        impl<'a> FromRun<'a> for $Event<'a> {
            fn from_run($run: &'a SimulatedRun) -> $Event<'a> {
                tenterhook_core::context!($Event { run_cx: $run.run_cx(Event::$Event), $($field: $value,)* })
            }
        }
    )*};
}

contexts! { run;
    Setup { stage: run.run_cx(Event::Setup).stage, config: &run.shared.run.config, }
    Teardown { stage: run.run_cx(Event::Teardown).stage, outcome: &run.at.outcome, }
    FitStart { config: &run.shared.run.config, }
    FitEnd { outcome: &run.at.outcome, }
    SanityCheckStart {}
    SanityCheckEnd {}
    TrainStart { config: &run.shared.run.config, }
    TrainEnd { outcome: &run.at.outcome, }
    TrainEpochStart {}
    TrainEpochEnd {}
    TrainBatchStart { batch: run.batch(), wait: run.times.wait, }
    TrainBatchEnd { batch: run.batch(), loss: run.result.loss.as_ref().map(|loss| Scalar::new(loss)), }
    BeforeForward { batch: run.batch(), }
    AfterForward { batch: run.batch(), duration: run.times.forward, }
    BeforeZeroGrad { gradients: Tensors::new(&run.update.gradients), }
    BeforeBackward { loss: loss(run), }
    AfterBackward {
        loss: loss(run),
        gradients: Tensors::new(&run.update.gradients),
        duration: run.times.backward,
    }
    BeforeOptimizerStep { optimizer: run.update.optimizer, gradients: Tensors::new(&run.update.gradients), }
    GradientClip {
        optimizer: run.update.optimizer,
        norm_before: Scalar::new(&run.update.norms.before),
        norm_after: Scalar::new(&run.update.norms.after),
        rule: run.update.norms.rule,
        gradients: Tensors::new(&run.update.gradients),
    }
    AfterOptimizerStep {
        optimizer: run.update.optimizer,
        gradients: Tensors::new(&run.update.gradients),
        duration: run.times.optimizer,
    }
    Activation { point: &run.activation.0, values: Tensors::new(&run.activation.1), }
    StepEnd {
        loss: loss(run),
        grad_norm: Scalar::new(&run.update.norms.before),
        lr: lr(run),
        next_lr: run.update.next_lr.unwrap_or_else(|| lr(run)),
    }
    ValidationStart {}
    ValidationEpochStart {}
    ValidationBatchStart { batch: run.batch(), }
    ValidationBatchEnd {
        batch: run.batch(),
        loss: run.result.loss,
        batch_metrics: &run.result.metrics,
        outputs: Tensors::new(&run.result.outputs),
    }
    ValidationEpochEnd {}
    ValidationEnd {}
    TestStart {}
    TestEpochStart {}
    TestBatchStart { batch: run.batch(), }
    TestBatchEnd {
        batch: run.batch(),
        loss: run.result.loss,
        batch_metrics: &run.result.metrics,
        outputs: Tensors::new(&run.result.outputs),
    }
    TestEpochEnd {}
    TestEnd {}
    PredictStart {}
    PredictEpochStart {}
    PredictBatchStart { batch: run.batch(), }
    PredictBatchEnd {
        batch: run.batch(),
        prediction: &*run.values.prediction,
        loss: run.result.loss,
        batch_metrics: &run.result.metrics,
        outputs: Tensors::new(&run.result.outputs),
    }
    PredictEpochEnd {}
    PredictEnd {}
    SaveCheckpoint { entries: &run.checkpoint.entries, }
    LoadCheckpoint { entries: &run.checkpoint.entries, }
    CheckpointSaved {
        saved_step: run.checkpoint.step,
        saved_epoch: run.checkpoint.epoch,
        saved_metrics: &run.checkpoint.metrics,
        saved_metric_steps: &run.checkpoint.metric_steps,
        path: &run.checkpoint.path,
        root: &run.checkpoint.root,
        best_score: run.checkpoint.best_score,
        redelivered: run.checkpoint.redelivered,
    }
    CheckpointLoaded { path: &run.checkpoint.path, root: &run.checkpoint.root, }
    Log {
        logged_in: run.run_cx(Event::Log).phase,
        epoch_end: run.at.progress.epochs_done > run.at.progress.epoch,
        time: run.shared.elapsed().as_secs_f64(),
        metrics: &run.log.line.metrics,
        histograms: &run.log.line.histograms,
    }
    HookDisabled { hook: &run.values.disabled.0, reason: &run.values.disabled.1, }
    Notice {
        kind: run.values.notice["event"].as_str().unwrap_or_default(),
        text: run.values.notice["text"].as_str().unwrap_or_default(),
        shown: true,
        entry: &run.values.notice,
    }
    Exception { failure: &run.values.failure, }
}

/// The loss, or NaN if none is set.
fn loss(run: &SimulatedRun) -> Scalar<'_> {
    Scalar::new(run.result.loss.as_ref().unwrap_or(&f64::NAN))
}

fn lr(run: &SimulatedRun) -> f64 {
    run.model.learning_rates().first().copied().unwrap_or(0.0)
}

macro_rules! deliveries {
    ($($(#[$doc:meta])* $mode:ident $handler:ident $Event:ident $Phase:ident $sources:tt;)*) => {
        /// Events: one method for each, with the name of its handler.
        impl<H: Hook> Rig<H> {
            $(
                $(#[$doc])*
                pub fn $handler(&mut self) -> &Delivery {
                    self.run.before(Event::$Event);
                    let calls = self.probed.notes().calls;
                    let cx = $Event::from_run(&self.run);
                    let aborts = if Event::$Event == Event::Exception {
                        self.runner.deliver_despite_failures(&cx)
                    } else {
                        self.runner.deliver(&cx).err().into_iter().collect()
                    };
                    self.run.after(Event::$Event);
                    self.record(Event::$Event, calls, aborts)
                }
            )*

            /// Delivers this event.
            pub fn deliver(&mut self, event: Event) -> &Delivery {
                match event {
                    $(Event::$Event => self.$handler(),)*
                    _ => unreachable!("the table has every event"),
                }
            }
        }
    };
}

for_each_event!(deliveries);

/// Update hooks and forward hooks.
impl<H: Hook> Rig<H> {
    /// Calls the update hook with the gradients of the rig, and returns the result. If it fails, they are unchanged and the
    /// failure is in [`failures`](Rig::failures).
    ///
    /// ```
    /// use tenterhook_core::{hook, HookSpec, Gradients, HookResult, Update, UpdateHook};
    /// use tenterhook_testkit::Rig;
    ///
    /// struct Halve;
    ///
    /// #[hook]
    /// impl UpdateHook for Halve {
    ///     fn declare(&self, spec: HookSpec) -> HookSpec {
    ///         spec.name("halve")
    ///     }
    ///     fn update(&mut self, gradients: &mut Gradients, _: &Update) -> HookResult {
    ///         gradients.scale(0.5);
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let mut rig = Rig::new(Halve);
    /// let after = rig.gradients([("w", [2.0, -4.0])]).update();
    /// assert_eq!(after.get("w"), Some(&[1.0, -2.0][..]));
    /// ```
    pub fn update(&mut self) -> &NamedTensors {
        let mut gradients = std::mem::take(&mut self.run.update.gradients);
        let run_cx = self.run.run_cx(Event::BeforeOptimizerStep);
        let cx = Update { run_cx, optimizer: self.run.update.optimizer };
        let updated = self.runner.update(&mut gradients, &cx);
        self.run.update.gradients = gradients;
        match updated {
            Ok(()) => self.note_contained(),
            Err(failure) => self.note_abort(failure),
        }
        &self.run.update.gradients
    }

    /// Delivers an activation, if the hook wants this point.
    ///
    /// ```
    /// use tenterhook_core::{HookResult, hook, Activation, Observer};
    /// use tenterhook_testkit::Rig;
    ///
    /// struct Norms(Vec<f64>);
    ///
    /// #[hook]
    /// impl Observer for Norms {
    ///     fn wants_point(&self, point: &str) -> bool {
    ///         point.ends_with(".mlp")
    ///     }
    ///     fn on_activation(&mut self, cx: &Activation) -> HookResult {
    ///         self.0.push(cx.values.norm());
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let mut rig = Rig::new(Norms(Vec::new()));
    /// rig.activation("blocks.0.mlp", [3.0, 4.0]).activation("blocks.0.attention", [1.0]);
    /// assert_eq!(rig.hook().0, [5.0]);
    /// ```
    pub fn activation(&mut self, point: &str, values: impl Into<Vec<f32>>) -> &mut Rig<H> {
        self.show(point, NamedTensors::from([(point, values)]))
    }

    /// Delivers an activation of any shape.
    pub fn shaped_activation(
        &mut self,
        point: &str,
        shape: impl Into<Vec<usize>>,
        values: impl Into<Vec<f32>>,
    ) -> &mut Rig<H> {
        self.show(point, NamedTensors::default().with(point, shape, values))
    }

    /// Delivers an activation of several tensors.
    pub fn show(&mut self, point: &str, values: NamedTensors) -> &mut Rig<H> {
        self.run.activation = (point.to_owned(), values);
        self.on_activation();
        self
    }
}

impl<H: Hook> Rig<H> {
    fn record(&mut self, event: Event, calls_before: usize, aborts: Vec<Failure>) -> &Delivery {
        let noted = self.outcomes.failures.len();
        self.note_contained();
        for failure in aborts {
            self.note_abort(failure);
        }
        self.outcomes.refused.extend(self.runner.take_refused_changes());

        let (own, others): (Vec<_>, Vec<_>) =
            self.runner.take_decisions().into_iter().partition(|decided| decided.hook == self.name);
        let decision = own.into_iter().next().map_or(Decision::CONTINUE, |decided| decided.decision);
        let others_requests = others.iter().flat_map(|decided| decided.decision.requests());
        for request in decision.requests().iter().chain(others_requests) {
            self.run.model.apply(request);
        }
        self.outcomes.others.extend(others);

        let delivered = self.probed.notes().calls > calls_before;
        let failure = self.own_failure_since(noted);
        let deliveries = &mut self.outcomes.deliveries;
        deliveries.push(Delivery { event, delivered, decision, failure });
        &deliveries[deliveries.len() - 1]
    }
}
