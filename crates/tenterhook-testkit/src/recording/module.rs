//! The toy module, recording everything that is asked of it.

use tenterhook::module::{
    Horizon, LoadReport, Optimization, OptimizerState, Snapshot, SnapshotData, SnapshotParts,
};
use tenterhook::tensor::ReadScalar;
use tenterhook::toy::{Toy, ToyBatch, ToyLoss};
use tenterhook::{
    ClipRule, Cx, Entries, Failure, GradientsMut, Lr, ModelView, Module, ModuleResult, OptimizerSource,
    Stage, StepOutput, TensorMap, TensorSource,
};

use super::tape::{Happening, Tape, raised};

const MODULE: &str = "module";

type Step = Box<
    dyn FnMut(
        &mut RecordingModule,
        &ToyBatch,
        &mut Cx<'_, RecordingModule>,
    ) -> ModuleResult<StepOutput<ToyLoss>>,
>;
type Handler = Box<dyn FnMut(&'static str, &mut Cx<'_, RecordingModule>)>;

/// The toy module. It records every call, anything can be made to happen in it, and a test may write its training step.
pub struct RecordingModule {
    /// The toy that computes.
    pub toy: Toy,
    /// What it was called for.
    pub tape: Tape,
    /// What it was told when its optimizers were made.
    pub horizon: Horizon,
    automatic: bool,
    /// It shows no tensors and logs no metrics of its own.
    plain: bool,
    /// What it gives to be saved panics when it is read.
    torn: bool,
    /// A stop asked for in a call without a context, made in the next one that has one.
    wants_to_stop: bool,
    step: Option<Step>,
    handler: Option<Handler>,
}

impl RecordingModule {
    /// A module that computes what this toy computes.
    #[must_use]
    pub fn new(toy: Toy, tape: &Tape) -> RecordingModule {
        RecordingModule {
            toy,
            tape: tape.clone(),
            horizon: Horizon::default(),
            automatic: true,
            plain: false,
            torn: false,
            wants_to_stop: false,
            step: None,
            handler: None,
        }
    }

    /// With another training step than the toy's.
    #[must_use]
    pub fn with_step(
        mut self,
        step: impl FnMut(
            &mut RecordingModule,
            &ToyBatch,
            &mut Cx<'_, RecordingModule>,
        ) -> ModuleResult<StepOutput<ToyLoss>>
        + 'static,
    ) -> RecordingModule {
        self.step = Some(Box::new(step));
        self
    }

    /// With this done in every handler and step that gets a context.
    #[must_use]
    pub fn with_handler(
        mut self,
        handler: impl FnMut(&'static str, &mut Cx<'_, RecordingModule>) + 'static,
    ) -> RecordingModule {
        self.handler = Some(Box::new(handler));
        self
    }

    /// With a training step that steps the optimizers itself.
    #[must_use]
    pub fn manual(mut self) -> RecordingModule {
        self.automatic = false;
        self
    }

    /// Without tensors that it shows and metrics that it logs by itself.
    #[must_use]
    pub fn plain(mut self) -> RecordingModule {
        self.plain = true;
        self
    }

    /// With something to save that panics when it is read, on whatever thread that is.
    #[must_use]
    pub fn torn(mut self) -> RecordingModule {
        self.torn = true;
        self
    }

    /// A call that changes nothing.
    fn note(&self, place: &'static str) -> ModuleResult {
        self.tape.note(MODULE, place)
    }

    /// A call without a context, in which it can only fail.
    fn act(&mut self, place: &'static str) -> ModuleResult {
        let happening = raised(self.tape.record(MODULE, place, None), MODULE, place)?;
        self.wants_to_stop |= happening == Some(Happening::Stop);
        Ok(())
    }

    /// A call with a context.
    fn handle(&mut self, place: &'static str, cx: &mut Cx<'_, Self>) -> ModuleResult<Option<Happening>> {
        let happening = self.tape.record(MODULE, place, Some((cx.batch_index(), cx.loader_index())));
        if let Some(handler) = &mut self.handler {
            handler(place, cx);
        }
        if std::mem::take(&mut self.wants_to_stop) || happening == Some(Happening::Stop) {
            cx.stop("the tape says so");
        }
        if happening == Some(Happening::EndEpoch) {
            cx.end_epoch();
        }
        raised(happening, MODULE, place)
    }
}

impl ModelView for RecordingModule {
    fn params(&self) -> &dyn TensorSource {
        self.toy.params()
    }
    fn optimizers(&self) -> &dyn OptimizerSource {
        self.toy.optimizers()
    }
}

macro_rules! recording_module {
    ($($handler:ident)*) => {
        impl Module for RecordingModule {
            type Batch = ToyBatch;
            type Scalar = ToyLoss;
            type Prediction = usize;

            fn training_step(&mut self, batch: &ToyBatch, cx: &mut Cx<'_, Self>) -> ModuleResult<StepOutput<ToyLoss>> {
                if self.handle("training_step", cx)? == Some(Happening::Skip) {
                    return Ok(StepOutput::NoLoss);
                }
                let Some(mut step) = self.step.take() else {
                    if !self.plain {
                        cx.show("weights", |_| self.toy.params());
                    }
                    return Ok(StepOutput::Loss(self.toy.loss(batch)));
                };
                let output = step(self, batch, cx);
                self.step = Some(step);
                output
            }
            fn validation_step(&mut self, batch: &ToyBatch, cx: &mut Cx<'_, Self>) -> ModuleResult {
                self.handle("validation_step", cx)?;
                if !self.plain {
                    cx.log("val/loss", self.toy.loss(batch).read());
                }
                Ok(())
            }
            fn test_step(&mut self, _: &ToyBatch, cx: &mut Cx<'_, Self>) -> ModuleResult {
                self.handle("test_step", cx).map(|_| ())
            }
            fn predict_step(&mut self, _: &ToyBatch, cx: &mut Cx<'_, Self>) -> ModuleResult<usize> {
                self.handle("predict_step", cx)?;
                Ok(cx.loader_index())
            }
            fn automatic_optimization(&self) -> bool {
                self.automatic
            }
            fn configure_model(&mut self) -> ModuleResult {
                self.act("configure_model")
            }
            fn configure_optimizers(&mut self, horizon: Horizon) -> ModuleResult<Optimization> {
                self.act("configure_optimizers")?;
                self.horizon = horizon;
                self.toy.configure_optimizers(horizon)
            }
            fn optimizer_zero_grad(&mut self, optimizer: usize) -> ModuleResult {
                self.act("optimizer_zero_grad")?;
                self.toy.optimizer_zero_grad(optimizer)
            }
            fn backward(&mut self, loss: &ToyLoss, divide_by: f64) -> ModuleResult {
                self.act("backward")?;
                self.toy.backward(loss, divide_by)
            }
            fn clip_gradients(&mut self, optimizer: usize, rule: ClipRule) -> ModuleResult {
                self.act("clip_gradients")?;
                self.toy.clip_gradients(optimizer, rule)
            }
            fn optimizer_step(&mut self, optimizer: usize, keep_gradients: bool) -> ModuleResult {
                self.act("optimizer_step")?;
                self.toy.optimizer_step(optimizer, keep_gradients)
            }
            fn lr_scheduler_step(&mut self, scheduler: usize, metric: Option<f64>) -> ModuleResult {
                self.act("lr_scheduler_step")?;
                self.toy.lr_scheduler_step(scheduler, metric)
            }
            fn gradients(&self, optimizer: Option<usize>) -> &dyn TensorSource {
                self.toy.gradients(optimizer)
            }
            fn gradients_mut(&mut self, optimizer: usize) -> &mut dyn GradientsMut {
                self.toy.gradients_mut(optimizer)
            }
            fn grad_norm(&self, optimizer: usize) -> ToyLoss {
                self.toy.grad_norm(optimizer)
            }
            fn lr(&self, optimizer: usize) -> f64 {
                self.toy.lr(optimizer)
            }
            fn change_lr(&mut self, optimizer: usize, change: Lr) -> ModuleResult {
                self.act("change_lr")?;
                self.toy.change_lr(optimizer, change)
            }
            fn snapshot(&self, wanted: SnapshotParts) -> ModuleResult<Snapshot> {
                if self.torn {
                    return Ok(Snapshot::new(|_| panic!("torn in two")));
                }
                let saved = SnapshotData {
                    weights: if wanted.weights { self.weights()? } else { TensorMap::default() },
                    optimizers: if wanted.optimizers { self.optimizer_state()? } else { OptimizerState::default() },
                    gradients: if wanted.gradients { self.gradients_state()? } else { TensorMap::default() },
                };
                Ok(Snapshot::new(move |_| Ok(saved)))
            }
            fn weights(&self) -> ModuleResult<TensorMap> {
                self.note("weights")?;
                self.toy.weights()
            }
            fn load_weights(&mut self, weights: &TensorMap) -> ModuleResult {
                self.act("load_weights")?;
                self.toy.load_weights(weights)
            }
            fn optimizer_state(&self) -> ModuleResult<OptimizerState> {
                self.note("optimizer_state")?;
                self.toy.optimizer_state()
            }
            fn load_optimizer_state(&mut self, state: &OptimizerState) -> ModuleResult {
                self.act("load_optimizer_state")?;
                self.toy.load_optimizer_state(state)
            }
            fn saves_gradients(&self) -> bool {
                true
            }
            fn gradients_state(&self) -> ModuleResult<TensorMap> {
                self.toy.gradients_state()
            }
            fn load_gradients(&mut self, gradients: &TensorMap) -> ModuleResult {
                self.toy.load_gradients(gradients)
            }
            fn load_matching(&mut self, weights: &TensorMap) -> ModuleResult<LoadReport> {
                self.toy.load_matching(weights)
            }
            fn setup(&mut self, _: Stage) -> ModuleResult {
                self.act("setup")
            }
            fn teardown(&mut self, _: Stage) -> ModuleResult {
                self.act("teardown")
            }
            fn on_save_checkpoint(&mut self, entries: &Entries) -> ModuleResult {
                self.act("on_save_checkpoint")?;
                Ok(entries.put("recording", &"was here")?)
            }
            fn on_load_checkpoint(&mut self, entries: &Entries) -> ModuleResult {
                self.act("on_load_checkpoint")?;
                match entries.read::<String>("recording")?.as_deref() {
                    Some("was here") => Ok(()),
                    other => Err(format!("the checkpoint holds {other:?} of the module").into()),
                }
            }
            fn on_exception(&mut self, _: &Failure) -> ModuleResult {
                self.act("on_exception")
            }
            $(
                fn $handler(&mut self, cx: &mut Cx<'_, Self>) -> ModuleResult {
                    self.handle(stringify!($handler), cx).map(|_| ())
                }
            )*
        }
    };
}

tenterhook::for_each_module_handler!(recording_module);
