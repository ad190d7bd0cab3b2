//! The toy module, recording everything that is asked of it.

use tenterhook::module::{Horizon, Interval, LoadReport, Optimization, OptimizerState, SchedulerPlan};
use tenterhook::toy::{Toy, ToyBatch, ToyLoss};
use tenterhook::{
    ClipRule, Cx, Entries, Failure, GradientsMut, Lr, ModelView, Module, ModuleResult, OptimizerSource,
    Stage, StepOutput, TensorMap, TensorSource,
};

use super::tape::{Tape, injected};
use super::{Happening, LogSpec, ModuleSpec, SchedulerSpec};

const SOURCE: &str = "module";

pub(crate) struct RecordingModule {
    toy: Toy,
    tape: Tape,
    log: Vec<(String, LogSpec)>,
    /// A stop asked for where a module has nothing to say it with; said at the next opportunity.
    wants_to_stop: bool,
}

impl RecordingModule {
    pub(super) fn new(spec: &ModuleSpec, tape: Tape) -> RecordingModule {
        let toy = match spec.scheduler {
            None => Toy::default(),
            Some(SchedulerSpec::Epoch) => {
                Toy::default().with_scheduler(SchedulerPlan::every(Interval::Epoch))
            }
            Some(SchedulerSpec::Step) => Toy::default().with_scheduler(SchedulerPlan::every(Interval::Step)),
            Some(SchedulerSpec::Plateau) => {
                Toy::default().with_scheduler(SchedulerPlan::on_plateau_of("val_loss"))
            }
        };
        let log = spec.log.iter().map(|(name, log)| (name.clone(), log.clone())).collect();
        RecordingModule { toy, tape, log, wants_to_stop: false }
    }

    /// A call in which the module can say something.
    fn handle(&mut self, event: &'static str, cx: &mut Cx<'_, Self>) -> ModuleResult<Option<Happening>> {
        let happening = self.tape.note(SOURCE, event, Some((cx.batch_index(), cx.loader_index())));
        for (name, log) in self.log.iter().filter(|(_, log)| log.at == event) {
            cx.log(name, log.value.at(cx.epoch()));
        }
        if std::mem::take(&mut self.wants_to_stop) {
            cx.stop("the scenario says so");
        }
        match happening {
            Some(Happening::Error) => return Err(injected(SOURCE, event)),
            Some(Happening::Stop) => cx.stop("the scenario says so"),
            Some(Happening::EndEpoch) => cx.end_epoch(),
            Some(Happening::Skip) | None => {}
        }
        Ok(happening)
    }

    /// A call in which it can only fail.
    fn act(&mut self, event: &'static str) -> ModuleResult {
        match self.tape.note(SOURCE, event, None) {
            Some(Happening::Error) => Err(injected(SOURCE, event)),
            happening => {
                self.wants_to_stop |= happening == Some(Happening::Stop);
                Ok(())
            }
        }
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
            type Prediction = ();

            fn training_step(&mut self, batch: &ToyBatch, cx: &mut Cx<'_, Self>) -> ModuleResult<StepOutput<ToyLoss>> {
                Ok(match self.handle("training_step", cx)? {
                    Some(Happening::Skip) => StepOutput::NoLoss,
                    _ => StepOutput::Loss(self.toy.loss(batch)),
                })
            }
            fn validation_step(&mut self, _: &ToyBatch, cx: &mut Cx<'_, Self>) -> ModuleResult {
                self.handle("validation_step", cx).map(|_| ())
            }
            fn test_step(&mut self, _: &ToyBatch, cx: &mut Cx<'_, Self>) -> ModuleResult {
                self.handle("test_step", cx).map(|_| ())
            }
            fn predict_step(&mut self, _: &ToyBatch, cx: &mut Cx<'_, Self>) -> ModuleResult {
                self.handle("predict_step", cx).map(|_| ())
            }
            fn configure_optimizers(&mut self, horizon: Horizon) -> ModuleResult<Optimization> {
                self.act("configure_optimizers")?;
                self.toy.configure_optimizers(horizon)
            }
            fn configure_model(&mut self) -> ModuleResult {
                self.act("configure_model")
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
                self.toy.change_lr(optimizer, change)
            }
            fn weights(&self) -> ModuleResult<TensorMap> {
                self.toy.weights()
            }
            fn load_weights(&mut self, weights: &TensorMap) -> ModuleResult {
                self.toy.load_weights(weights)
            }
            fn optimizer_state(&self) -> ModuleResult<OptimizerState> {
                self.toy.optimizer_state()
            }
            fn load_optimizer_state(&mut self, state: &OptimizerState) -> ModuleResult {
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
            fn on_save_checkpoint(&mut self, _: &Entries) -> ModuleResult {
                self.act("on_save_checkpoint")
            }
            fn on_load_checkpoint(&mut self, _: &Entries) -> ModuleResult {
                self.act("on_load_checkpoint")
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
