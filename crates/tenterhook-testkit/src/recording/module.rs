//! The toy module, with every call recorded.

use tenterhook::module::{
    Horizon, LoadReport, Optimization, OptimizerState, Snapshot, SnapshotData, SnapshotParts,
};
use tenterhook::tensor::ReadScalar;
use tenterhook::toy::{Toy, ToyBatch, ToyLoss};
use tenterhook::{
    CheckpointEntries, ClipRule, Cx, Failure, GradientsMut, LrChange, ModelView, Module, ModuleResult,
    OptimizerSource, Stage, StepOutput, TensorMap, TensorSource,
};

use super::call_log::{CallLog, InjectedAction, raise};

const MODULE: &str = "module";

type Step = Box<
    dyn FnMut(
        &mut RecordingModule,
        &ToyBatch,
        &mut Cx<'_, RecordingModule>,
    ) -> ModuleResult<StepOutput<ToyLoss>>,
>;
type Handler = Box<dyn FnMut(&'static str, &mut Cx<'_, RecordingModule>)>;

/// The toy module with every call recorded. A test can inject actions into the calls and replace the training step.
pub struct RecordingModule {
    /// The toy that computes.
    pub toy: Toy,
    /// The recorded calls.
    pub call_log: CallLog,
    /// The argument of the last `configure_optimizers`.
    pub horizon: Horizon,
    automatic: bool,
    /// Exposes no tensors and logs no metrics of its own.
    plain: bool,
    snapshot_fails: bool,
    /// A stop that was injected into a call without a context; requested in the next call that has one.
    stop_pending: bool,
    step: Option<Step>,
    handler: Option<Handler>,
}

impl RecordingModule {
    /// A module that computes with this toy.
    #[must_use]
    pub fn new(toy: Toy, call_log: &CallLog) -> RecordingModule {
        RecordingModule {
            toy,
            call_log: call_log.clone(),
            horizon: Horizon::default(),
            automatic: true,
            plain: false,
            snapshot_fails: false,
            stop_pending: false,
            step: None,
            handler: None,
        }
    }

    /// Replaces the toy's training step.
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

    /// Calls this in every handler and step that gets a context.
    #[must_use]
    pub fn with_handler(
        mut self,
        handler: impl FnMut(&'static str, &mut Cx<'_, RecordingModule>) + 'static,
    ) -> RecordingModule {
        self.handler = Some(Box::new(handler));
        self
    }

    /// Switches to manual optimization.
    #[must_use]
    pub fn manual(mut self) -> RecordingModule {
        self.automatic = false;
        self
    }

    /// Exposes no tensors and logs no metrics of its own.
    #[must_use]
    pub fn plain(mut self) -> RecordingModule {
        self.plain = true;
        self
    }

    /// Takes snapshots that panic when they are read.
    #[must_use]
    pub fn with_failing_snapshot(mut self) -> RecordingModule {
        self.snapshot_fails = true;
        self
    }

    /// Records a call that changes nothing.
    fn note(&self, place: &'static str) -> ModuleResult {
        self.call_log.note(MODULE, place)
    }

    /// Records a call without a context.
    fn act(&mut self, place: &'static str) -> ModuleResult {
        let injected = raise(self.call_log.record(MODULE, place, None), MODULE, place)?;
        self.stop_pending |= injected == Some(InjectedAction::Stop);
        Ok(())
    }

    /// Records a call with a context.
    fn handle(&mut self, place: &'static str, cx: &mut Cx<'_, Self>) -> ModuleResult<Option<InjectedAction>> {
        let injected = self.call_log.record(MODULE, place, Some((cx.batch_index(), cx.loader_index())));
        if let Some(handler) = &mut self.handler {
            handler(place, cx);
        }
        if std::mem::take(&mut self.stop_pending) || injected == Some(InjectedAction::Stop) {
            cx.stop("injected by the test");
        }
        if injected == Some(InjectedAction::EndEpoch) {
            cx.end_epoch();
        }
        raise(injected, MODULE, place)
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

/// Methods that are recorded, and otherwise those of the toy.
macro_rules! recorded_and_forwarded {
    ($($method:ident($($argument:ident: $Argument:ty),*);)*) => {$(
        fn $method(&mut self, $($argument: $Argument),*) -> ModuleResult {
            self.act(stringify!($method))?;
            self.toy.$method($($argument),*)
        }
    )*};
}

/// Methods that are recorded and do nothing else.
macro_rules! recorded {
    ($($method:ident($(_: $Argument:ty)?);)*) => {$(
        fn $method(&mut self, $(_: $Argument)?) -> ModuleResult {
            self.act(stringify!($method))
        }
    )*};
}

macro_rules! recording_module {
    ($($handler:ident)*) => {
        impl Module for RecordingModule {
            type Batch = ToyBatch;
            type Scalar = ToyLoss;
            type Prediction = usize;

            fn training_step(&mut self, batch: &ToyBatch, cx: &mut Cx<'_, Self>) -> ModuleResult<StepOutput<ToyLoss>> {
                if self.handle("training_step", cx)? == Some(InjectedAction::Skip) {
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
            fn configure_optimizers(&mut self, horizon: Horizon) -> ModuleResult<Optimization> {
                self.act("configure_optimizers")?;
                self.horizon = horizon;
                self.toy.configure_optimizers(horizon)
            }
            recorded_and_forwarded! {
                optimizer_zero_grad(optimizer: usize);
                backward(loss: &ToyLoss, divide_by: f64);
                clip_gradients(optimizer: usize, rule: ClipRule);
                optimizer_step(optimizer: usize, keep_gradients: bool);
                lr_scheduler_step(scheduler: usize, metric: Option<f64>);
                change_lr(optimizer: usize, change: LrChange);
                load_weights(weights: &TensorMap);
                load_optimizer_state(state: &OptimizerState);
            }
            recorded! { configure_model(); setup(_: Stage); teardown(_: Stage); on_exception(_: &Failure); }
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
            fn snapshot(&self, wanted: SnapshotParts) -> ModuleResult<Snapshot> {
                if self.snapshot_fails {
                    return Ok(Snapshot::new(|_| panic!("the snapshot panics")));
                }
                let saved = SnapshotData::of(self, wanted)?;
                Ok(Snapshot::new(move |_| Ok(saved)))
            }
            fn weights(&self) -> ModuleResult<TensorMap> {
                self.note("weights")?;
                self.toy.weights()
            }
            fn optimizer_state(&self) -> ModuleResult<OptimizerState> {
                self.note("optimizer_state")?;
                self.toy.optimizer_state()
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
            fn on_save_checkpoint(&mut self, entries: &CheckpointEntries) -> ModuleResult {
                self.act("on_save_checkpoint")?;
                Ok(entries.put("recording", &"was here")?)
            }
            fn on_load_checkpoint(&mut self, entries: &CheckpointEntries) -> ModuleResult {
                self.act("on_load_checkpoint")?;
                match entries.read::<String>("recording")?.as_deref() {
                    Some("was here") => Ok(()),
                    other => Err(format!("the checkpoint holds {other:?} of the module").into()),
                }
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
