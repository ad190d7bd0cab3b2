//! The toy as module, data and strategy that record every call, can be made to go wrong in any of
//! them, and let a test write the training step.

use tenterhook::data::{Loaders, Turns};
use tenterhook::module::{Horizon, LoadReport, Optimization, OptimizerState, Saved, Snapshot, Wanted};
use tenterhook::toy::{Toy, ToyBatch, ToyData, ToyLoss};
use tenterhook::{
    BoxError, ClipRule, Cx, DataModule, Entries, Failure, GradientsMut, Loader, Lr, ModelView, Module,
    ModuleResult, OptimizerSource, Progress, Settings, Split, Stage, StepOutput, Strategy, TensorMap,
    TensorSource, Trainer,
};

use crate::tape::Tape;

/// A trainer that keeps its notices to itself.
pub fn trainer(settings: Settings) -> Trainer {
    Trainer::new(settings).unwrap().with_notices(|_| {}).without_introduction()
}

/// So many epochs, and no sanity check. Checkpoints are written at once, so that they are announced at the same
/// moment every time.
pub fn epochs(epochs: i64) -> Settings {
    Settings {
        max_epochs: Some(epochs),
        num_sanity_val_steps: 0,
        background_saves: false,
        ..Settings::default()
    }
}

/// So many training batches in one loader, and so many validation batches in one.
pub fn data(train: u64, validate: u64) -> ToyData {
    let validate = if validate == 0 { Vec::new() } else { vec![validate] };
    ToyData { train: vec![train], validate, ..ToyData::default() }
}

/// All parameters of the toy, to the bit.
pub fn bits(toy: &Toy) -> Vec<u32> {
    toy.param("weight").iter().chain(toy.param("bias")).map(|value| value.to_bits()).collect()
}

type Step = Box<dyn FnMut(&mut Lab, &ToyBatch, &mut Cx<'_, Lab>) -> ModuleResult<StepOutput<ToyLoss>>>;
type Handler = Box<dyn FnMut(&'static str, &mut Cx<'_, Lab>)>;

pub struct Lab {
    pub toy: Toy,
    pub tape: Tape,
    /// What it was told when its optimizers were made.
    pub horizon: Horizon,
    automatic: bool,
    /// What it gives to be saved panics when it is read.
    torn: bool,
    step: Option<Step>,
    handler: Option<Handler>,
}

impl Lab {
    pub fn new(toy: Toy, tape: &Tape) -> Lab {
        Lab {
            toy,
            tape: tape.clone(),
            horizon: Horizon::default(),
            automatic: true,
            torn: false,
            step: None,
            handler: None,
        }
    }

    /// With another training step than the toy's.
    pub fn with_step(
        mut self,
        step: impl FnMut(&mut Lab, &ToyBatch, &mut Cx<'_, Lab>) -> ModuleResult<StepOutput<ToyLoss>> + 'static,
    ) -> Lab {
        self.step = Some(Box::new(step));
        self
    }

    /// With this done in every handler and step that gets a context.
    pub fn with_handler(mut self, handler: impl FnMut(&'static str, &mut Cx<'_, Lab>) + 'static) -> Lab {
        self.handler = Some(Box::new(handler));
        self
    }

    /// With a training step that steps the optimizers itself.
    pub fn manual(mut self) -> Lab {
        self.automatic = false;
        self
    }

    /// With something to save that panics when it is read, on whatever thread that is.
    pub fn torn(mut self) -> Lab {
        self.torn = true;
        self
    }

    fn note(&self, place: &'static str) -> ModuleResult {
        self.tape.note("module", place)
    }

    fn handle(&mut self, place: &'static str, cx: &mut Cx<'_, Lab>) -> ModuleResult {
        self.note(place)?;
        if let Some(handler) = &mut self.handler {
            handler(place, cx);
        }
        Ok(())
    }
}

impl ModelView for Lab {
    fn params(&self) -> &dyn TensorSource {
        self.toy.params()
    }
    fn optimizers(&self) -> &dyn OptimizerSource {
        self.toy.optimizers()
    }
}

macro_rules! lab_module {
    ($($handler:ident)*) => {
        impl Module for Lab {
            type Batch = ToyBatch;
            type Scalar = ToyLoss;
            type Prediction = usize;

            fn training_step(&mut self, batch: &ToyBatch, cx: &mut Cx<'_, Self>) -> ModuleResult<StepOutput<ToyLoss>> {
                self.handle("training_step", cx)?;
                let Some(mut step) = self.step.take() else {
                    cx.show("weights", |_| tenterhook::ModelView::params(&self.toy));
                    return Ok(StepOutput::Loss(self.toy.loss(batch)));
                };
                let output = step(self, batch, cx);
                self.step = Some(step);
                output
            }
            fn validation_step(&mut self, batch: &ToyBatch, cx: &mut Cx<'_, Self>) -> ModuleResult {
                self.handle("validation_step", cx)?;
                cx.log("val/loss", tenterhook::tensor::ReadScalar::read(&self.toy.loss(batch)));
                Ok(())
            }
            fn test_step(&mut self, _: &ToyBatch, cx: &mut Cx<'_, Self>) -> ModuleResult {
                self.handle("test_step", cx)
            }
            fn predict_step(&mut self, _: &ToyBatch, cx: &mut Cx<'_, Self>) -> ModuleResult<usize> {
                self.handle("predict_step", cx)?;
                Ok(cx.loader_index())
            }
            fn automatic_optimization(&self) -> bool {
                self.automatic
            }
            fn configure_model(&mut self) -> ModuleResult {
                self.note("configure_model")
            }
            fn configure_optimizers(&mut self, horizon: Horizon) -> ModuleResult<Optimization> {
                self.note("configure_optimizers")?;
                self.horizon = horizon;
                self.toy.configure_optimizers(horizon)
            }
            fn optimizer_zero_grad(&mut self, optimizer: usize) -> ModuleResult {
                self.note("optimizer_zero_grad")?;
                self.toy.optimizer_zero_grad(optimizer)
            }
            fn backward(&mut self, loss: &ToyLoss, divide_by: f64) -> ModuleResult {
                self.note("backward")?;
                self.toy.backward(loss, divide_by)
            }
            fn clip_gradients(&mut self, optimizer: usize, rule: ClipRule) -> ModuleResult {
                self.note("clip_gradients")?;
                self.toy.clip_gradients(optimizer, rule)
            }
            fn optimizer_step(&mut self, optimizer: usize, keep_gradients: bool) -> ModuleResult {
                self.note("optimizer_step")?;
                self.toy.optimizer_step(optimizer, keep_gradients)
            }
            fn lr_scheduler_step(&mut self, scheduler: usize, metric: Option<f64>) -> ModuleResult {
                self.note("lr_scheduler_step")?;
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
                self.note("change_lr")?;
                self.toy.change_lr(optimizer, change)
            }
            fn snapshot(&self, wanted: Wanted) -> ModuleResult<Snapshot> {
                if self.torn {
                    return Ok(Snapshot::new(|_| panic!("torn in two")));
                }
                let saved = Saved {
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
                self.note("load_weights")?;
                self.toy.load_weights(weights)
            }
            fn optimizer_state(&self) -> ModuleResult<OptimizerState> {
                self.note("optimizer_state")?;
                self.toy.optimizer_state()
            }
            fn load_optimizer_state(&mut self, state: &OptimizerState) -> ModuleResult {
                self.note("load_optimizer_state")?;
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
                self.note("setup")
            }
            fn teardown(&mut self, _: Stage) -> ModuleResult {
                self.note("teardown")
            }
            fn on_save_checkpoint(&mut self, entries: &Entries) -> ModuleResult {
                self.note("on_save_checkpoint")?;
                Ok(entries.put("lab", &"was here")?)
            }
            fn on_load_checkpoint(&mut self, entries: &Entries) -> ModuleResult {
                self.note("on_load_checkpoint")?;
                assert_eq!(entries.read::<String>("lab")?.as_deref(), Some("was here"));
                Ok(())
            }
            fn on_exception(&mut self, _: &Failure) -> ModuleResult {
                self.note("on_exception")
            }
            $(
                fn $handler(&mut self, cx: &mut Cx<'_, Self>) -> ModuleResult {
                    self.handle(stringify!($handler), cx)
                }
            )*
        }
    };
}

tenterhook::for_each_module_handler!(lab_module);

pub struct LabData {
    data: ToyData,
    tape: Tape,
}

impl LabData {
    pub fn new(data: ToyData, tape: &Tape) -> LabData {
        LabData { data, tape: tape.clone() }
    }
}

impl DataModule<ToyBatch> for LabData {
    fn loaders(&mut self, split: Split) -> Result<Loaders<ToyBatch>, BoxError> {
        self.tape.note("data", "loaders")?;
        let loaders = self.data.loaders(split)?.into_iter();
        Ok(loaders.map(|inner| Box::new(LabLoader { inner, tape: self.tape.clone() }) as _).collect())
    }
    fn turns(&self) -> Turns {
        self.data.turns()
    }
    fn setup(&mut self, _: Stage) -> Result<(), BoxError> {
        self.tape.note("data", "setup")
    }
    fn teardown(&mut self, _: Stage) -> Result<(), BoxError> {
        self.tape.note("data", "teardown")
    }
    fn on_exception(&mut self, _: &Failure) -> Result<(), BoxError> {
        self.tape.note("data", "on_exception")
    }
}

struct LabLoader {
    inner: Box<dyn Loader<ToyBatch>>,
    tape: Tape,
}

impl Loader<ToyBatch> for LabLoader {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn batches(&self) -> Option<u64> {
        self.inner.batches()
    }
    fn seek(&mut self, epoch: u64, batch: u64, shuffled: bool) -> Result<(), BoxError> {
        self.tape.note("data", "seek")?;
        self.inner.seek(epoch, batch, shuffled)
    }
    fn next(&mut self) -> Result<Option<ToyBatch>, BoxError> {
        self.tape.note("data", "next")?;
        self.inner.next()
    }
}

pub struct LabStrategy {
    tape: Tape,
}

impl LabStrategy {
    pub fn new(tape: &Tape) -> LabStrategy {
        LabStrategy { tape: tape.clone() }
    }
}

macro_rules! lab_strategy {
    ($($handler:ident)*) => {
        impl Strategy for LabStrategy {
            fn setup(&mut self, _: Stage) -> Result<(), BoxError> {
                self.tape.note("strategy", "setup")
            }
            fn teardown(&mut self, _: Stage) -> Result<(), BoxError> {
                self.tape.note("strategy", "teardown")
            }
            fn on_exception(&mut self, _: &Failure) -> Result<(), BoxError> {
                self.tape.note("strategy", "on_exception")
            }
            $(
                fn $handler(&mut self, _: &Progress) -> Result<(), BoxError> {
                    self.tape.note("strategy", stringify!($handler))
                }
            )*
        }
    };
}

tenterhook::for_each_strategy_handler!(lab_strategy);
