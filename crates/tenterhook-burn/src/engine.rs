//! The module that the trainer runs: a Burn model with its gradients, optimizers and schedules.

use std::ops::{Deref, DerefMut};

use burn::tensor::Device;
use tenterhook::module::{
    Horizon, LoadReport, Module, ModuleResult, Optimization, OptimizerState, Saved, Snapshot, StepOutput,
    Wanted,
};
use tenterhook::plan::DeclaredMetric;
use tenterhook::schedule::{Scheduler, Tick};
use tenterhook::tensors::{Buffers, TensorMap};
use tenterhook::{
    BoxError, ClipRule, Cx, Entries, Failure, GradientsMut, Lr, ModelView, OptimizerSource, ParamGroup,
    Stage, TensorSource,
};

use crate::gradients::Gradients;
use crate::module::{BurnModule, Step};
use crate::optimizer::Optimizers;
use crate::params::{self, Live};
use crate::saved::Held;
use crate::scalar::Loss;
use crate::stepper::Stepper;
use crate::{assign, optimizer_state, saved};

/// A Burn model under the trainer. It stands for its model: `burn.forward(..)` is the model's.
pub struct Burn<M: BurnModule> {
    pub(crate) live: Live<M>,
    /// The model without autodiff, while an evaluation runs.
    evaluated: Option<M>,
    device: Device,
    pub(crate) gradients: Gradients,
    pub(crate) optimizers: Steppers,
    pub(crate) schedules: Vec<LiveSchedule>,
    /// Makes the optimizers instead of the model.
    recipe: Option<Recipe>,
}

type Recipe = Box<dyn FnMut(Horizon) -> Result<Optimizers, BoxError>>;

pub(crate) struct Steppers(pub(crate) Vec<Stepper>);

/// A schedule at work.
pub(crate) struct LiveSchedule {
    pub(crate) optimizer: usize,
    pub(crate) scheduler: Box<dyn Scheduler>,
    pub(crate) count: u64,
    of: Option<u64>,
    /// What it last said.
    pub(crate) factor: f64,
}

impl<M: BurnModule> Burn<M> {
    /// A model for the trainer, on this device or its autodiff twin. Its parameters are initialised
    /// here if they are not yet, in their own order.
    #[must_use]
    pub fn new(model: M, device: &Device) -> Burn<M> {
        let device = device.clone().autodiff();
        // Forked, because a parameter that was merely moved would be the result of a computation.
        let model = model.fork(&device).train();
        let facts = params::facts(&model);
        let gradients = Gradients::new(&facts, &vec![None; facts.len()], 0, &device);
        Burn {
            live: Live::new(model, facts),
            evaluated: None,
            device,
            gradients,
            optimizers: Steppers(Vec::new()),
            schedules: Vec::new(),
            recipe: None,
        }
    }

    /// Takes the optimizers from here instead of from the model: from a configuration, say.
    #[must_use]
    pub fn with_optimizers(
        mut self,
        make: impl FnMut(Horizon) -> Result<Optimizers, BoxError> + 'static,
    ) -> Burn<M> {
        self.recipe = Some(Box::new(make));
        self
    }

    /// The device it computes on, with autodiff.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The model, back.
    #[must_use]
    pub fn into_model(self) -> M {
        match self.live.model {
            Some(model) => model,
            None => unreachable!("the model is only away within an optimizer's step"),
        }
    }

    /// Evaluates the weights that it has now, if it evaluates.
    fn swap_in(&mut self) {
        if self.evaluated.is_some() {
            self.evaluated = Some(self.valid());
        }
    }

    fn evaluated(&mut self) -> M {
        // Taken out so that the step can borrow the rest; cloning a model copies handles only.
        self.evaluated.clone().unwrap_or_else(|| self.valid())
    }

    /// Multiplies the schedules of an optimizer.
    fn apply_schedules(&mut self, optimizer: usize) {
        let of_it = self.schedules.iter().filter(|schedule| schedule.optimizer == optimizer);
        self.optimizers.0[optimizer].factor = of_it.map(|schedule| schedule.factor).product();
    }

    pub(crate) fn apply_all_schedules(&mut self) {
        (0..self.optimizers.0.len()).for_each(|optimizer| self.apply_schedules(optimizer));
    }
}

impl<M: BurnModule> Deref for Burn<M> {
    type Target = M;

    fn deref(&self) -> &M {
        match &self.live.model {
            Some(model) => model,
            None => unreachable!("the model is only away within an optimizer's step"),
        }
    }
}

impl<M: BurnModule> DerefMut for Burn<M> {
    fn deref_mut(&mut self) -> &mut M {
        match self.live.changing() {
            Some(model) => model,
            None => unreachable!("the model is only away within an optimizer's step"),
        }
    }
}

impl<M: BurnModule> ModelView for Burn<M> {
    fn params(&self) -> &dyn TensorSource {
        &self.live
    }
    fn optimizers(&self) -> &dyn OptimizerSource {
        &self.optimizers
    }
}

impl OptimizerSource for Steppers {
    fn count(&self) -> usize {
        self.0.len()
    }
    fn name(&self, index: usize) -> &str {
        &self.0[index].name
    }
    fn groups(&self, index: usize) -> Vec<ParamGroup> {
        self.0[index].groups()
    }
    fn state(&self, index: usize) -> &dyn TensorSource {
        &self.0[index]
    }
}

macro_rules! implement_module {
    ($($handler:ident)*) => {
        impl<M: BurnModule> Module for Burn<M> {
            type Batch = M::Batch;
            type Scalar = Loss;
            type Prediction = M::Prediction;

            fn training_step(
                &mut self,
                batch: &M::Batch,
                cx: &mut Cx<'_, Self>,
            ) -> ModuleResult<StepOutput<Loss>> {
                if !BurnModule::automatic_optimization(&**self) {
                    M::manual_step(self, batch, cx)?;
                    return Ok(StepOutput::NoLoss);
                }
                Ok(match BurnModule::training_step(&mut **self, batch, cx)? {
                    Step::Loss(loss) => StepOutput::Loss(loss.into()),
                    Step::NoLoss => StepOutput::NoLoss,
                })
            }

            fn validation_step(&mut self, batch: &M::Batch, cx: &mut Cx<'_, Self>) -> ModuleResult {
                BurnModule::validation_step(&self.evaluated(), batch, cx)
            }

            fn test_step(&mut self, batch: &M::Batch, cx: &mut Cx<'_, Self>) -> ModuleResult {
                BurnModule::test_step(&self.evaluated(), batch, cx)
            }

            fn predict_step(&mut self, batch: &M::Batch, cx: &mut Cx<'_, Self>) -> ModuleResult<M::Prediction> {
                BurnModule::predict_step(&self.evaluated(), batch, cx)
            }

            fn configure_optimizers(&mut self, horizon: Horizon) -> ModuleResult<Optimization> {
                let Optimizers(optimizers) = match &mut self.recipe {
                    Some(make) => make(horizon)?,
                    None => BurnModule::configure_optimizers(&mut **self, horizon)?,
                };
                self.use_optimizers(optimizers, horizon)
            }

            fn configure_model(&mut self) -> ModuleResult {
                BurnModule::configure_model(&mut **self)?;
                self.live.facts = params::facts(&**self);
                Ok(())
            }

            fn automatic_optimization(&self) -> bool {
                BurnModule::automatic_optimization(&**self)
            }

            fn engine(&self) -> Option<String> {
                Some(format!("burn {}", crate::BURN_VERSION))
            }

            fn metrics(&self) -> Option<Vec<DeclaredMetric>> {
                BurnModule::metrics(&**self)
            }

            fn optimizer_zero_grad(&mut self, optimizer: usize) -> ModuleResult {
                self.part_mut(optimizer)?.clear();
                Ok(())
            }

            fn backward(&mut self, loss: &Loss, divide_by: f64) -> ModuleResult {
                let loss = loss.tensor().ok_or("this loss does not depend on the model")?;
                // A graph is consumed by its backward pass, so there is nothing to keep it for.
                let mut gradients =
                    if divide_by > 1.0 { (loss.clone() / divide_by).backward() } else { loss.backward() };
                let Burn { live, gradients: all, .. } = self;
                if let Some(model) = &live.model {
                    all.add(model, &mut gradients);
                }
                Ok(())
            }

            fn without_gradient(&self, optimizer: usize) -> Vec<String> {
                self.gradients.parts.get(optimizer).map(crate::gradients::Part::missing).unwrap_or_default()
            }

            fn clip_gradients(&mut self, optimizer: usize, rule: ClipRule) -> ModuleResult {
                self.part_mut(optimizer)?.clip_all(rule);
                Ok(())
            }

            fn optimizer_step(&mut self, optimizer: usize, keep_gradients: bool) -> ModuleResult {
                let Burn { live, gradients, optimizers, .. } = self;
                let stepper = optimizers.0.get_mut(optimizer).ok_or_else(|| no_such(optimizer))?;
                let mut followed = live.followed.take();
                live.model = live.changing().take().map(|model| {
                    stepper.step(optimizer, model, gradients, keep_gradients, &mut followed)
                });
                live.followed.replace(followed);
                Ok(())
            }

            fn lr_scheduler_step(&mut self, scheduler: usize, metric: Option<f64>) -> ModuleResult {
                let schedule = &mut self.schedules[scheduler];
                schedule.count += 1;
                let tick = Tick { count: schedule.count, of: schedule.of, metric };
                schedule.factor = schedule.scheduler.factor(tick)?;
                let optimizer = schedule.optimizer;
                self.apply_schedules(optimizer);
                Ok(())
            }

            fn gradients(&self, optimizer: Option<usize>) -> &dyn TensorSource {
                match optimizer {
                    Some(optimizer) => &self.gradients.parts[optimizer],
                    None => &self.gradients,
                }
            }

            fn gradients_mut(&mut self, optimizer: usize) -> &mut dyn GradientsMut {
                &mut self.gradients.parts[optimizer]
            }

            fn grad_norm(&self, optimizer: usize) -> Loss {
                self.gradients.parts[optimizer].norm()
            }

            fn lr(&self, optimizer: usize) -> f64 {
                self.optimizers.0[optimizer].lr(0)
            }

            fn change_lr(&mut self, optimizer: usize, change: Lr) -> ModuleResult {
                self.optimizers.0.get_mut(optimizer).ok_or_else(|| no_such(optimizer))?.change_lr(change);
                Ok(())
            }

            fn detach(loss: Loss) -> Loss {
                loss.detached()
            }

            fn reseed(&mut self, seed: u64) {
                self.device.seed(seed);
            }

            fn eval_mode(&mut self) {
                self.evaluated = Some(self.valid());
            }

            fn train_mode(&mut self) {
                self.evaluated = None;
            }

            fn weights(&self) -> ModuleResult<TensorMap> {
                saved::weights(&self.live)?.read(&Buffers::default())
            }

            fn load_weights(&mut self, weights: &TensorMap) -> ModuleResult {
                saved::load_weights(&mut self.live, weights)?;
                self.swap_in();
                Ok(())
            }

            fn load_matching(&mut self, weights: &TensorMap) -> ModuleResult<LoadReport> {
                let report = saved::load_matching(&mut self.live, weights)?;
                self.swap_in();
                Ok(report)
            }

            fn optimizer_state(&self) -> ModuleResult<OptimizerState> {
                optimizer_state::optimizers(self)?.read(&Buffers::default())
            }

            fn load_optimizer_state(&mut self, state: &OptimizerState) -> ModuleResult {
                optimizer_state::load_optimizers(self, state)
            }

            fn saves_gradients(&self) -> bool {
                true
            }
            fn gradients_state(&self) -> ModuleResult<TensorMap> {
                self.gradients.held().read(&Buffers::default())
            }

            fn load_gradients(&mut self, gradients: &TensorMap) -> ModuleResult {
                self.gradients.load(gradients)
            }

            fn snapshot(&self, wanted: Wanted) -> ModuleResult<Snapshot> {
                self.live.present()?;
                let weights = wanted.weights.then(|| saved::weights(&self.live)).transpose()?;
                let optimizers = wanted.optimizers.then(|| optimizer_state::optimizers(self)).transpose()?;
                let gradients = wanted.gradients.then(|| self.gradients.held());
                Ok(Snapshot::new(move |buffers| {
                    let read = |held: Held| held.read(buffers);
                    // What training changes in place goes first: it is copied there if it is still shared by then.
                    let optimizers = optimizers.map(|held| held.read(buffers)).transpose()?.unwrap_or_default();
                    Ok(Saved {
                        optimizers,
                        weights: weights.map(read).transpose()?.unwrap_or_default(),
                        gradients: gradients.map(read).transpose()?.unwrap_or_default(),
                    })
                }))
            }

            fn setup(&mut self, stage: Stage) -> ModuleResult {
                BurnModule::setup(&mut **self, stage)
            }

            fn teardown(&mut self, stage: Stage) -> ModuleResult {
                BurnModule::teardown(&mut **self, stage)
            }

            fn on_save_checkpoint(&mut self, entries: &Entries) -> ModuleResult {
                BurnModule::on_save_checkpoint(&mut **self, entries)
            }

            fn on_load_checkpoint(&mut self, entries: &Entries) -> ModuleResult {
                BurnModule::on_load_checkpoint(&mut **self, entries)
            }

            fn on_exception(&mut self, failure: &Failure) -> ModuleResult {
                BurnModule::on_exception(&mut **self, failure)
            }

            $(
                fn $handler(&mut self, cx: &mut Cx<'_, Self>) -> ModuleResult {
                    BurnModule::$handler(&mut **self, cx)
                }
            )*
        }
    };
}

tenterhook::for_each_module_handler!(implement_module);

fn no_such(optimizer: usize) -> String {
    format!("there is no optimizer number {optimizer}, counted from 0")
}

impl<M: BurnModule> Burn<M> {
    fn part_mut(&mut self, optimizer: usize) -> Result<&mut crate::gradients::Part, String> {
        self.gradients.parts.get_mut(optimizer).ok_or_else(|| no_such(optimizer))
    }

    /// Gives every parameter to its optimizer, and asks every schedule for its first factor.
    fn use_optimizers(
        &mut self,
        mut optimizers: Vec<crate::Optimizer>,
        horizon: Horizon,
    ) -> ModuleResult<Optimization> {
        let owners = assign::owners(&self.live.facts, &optimizers)?;
        let by_optimizer: Vec<_> = owners.iter().map(|owner| owner.map(|(optimizer, _)| optimizer)).collect();
        self.gradients = Gradients::new(&self.live.facts, &by_optimizer, optimizers.len(), &self.device);
        let mut plans = Vec::new();
        self.schedules.clear();
        for (optimizer, of_it) in optimizers.iter_mut().enumerate() {
            for crate::Schedule { mut scheduler, plan } in of_it.schedules.drain(..) {
                let of = horizon.of_scheduler(&plan);
                let factor = scheduler.factor(Tick { count: 0, of, metric: None })?;
                self.schedules.push(LiveSchedule { optimizer, scheduler, count: 0, of, factor });
                plans.push(plan);
            }
        }
        let steppers = optimizers.into_iter().enumerate();
        let steppers =
            steppers.map(|(index, optimizer)| Stepper::new(index, optimizer, &self.live.facts, &owners));
        self.optimizers = Steppers(steppers.collect::<Result<_, _>>()?);
        self.apply_all_schedules();
        Ok(Optimization { optimizers: self.optimizers.0.len(), schedulers: plans })
    }
}
