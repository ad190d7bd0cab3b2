//! The optimizers of a module during training.

use tenterhook_core::update::GradientsMut;
use tenterhook_core::{ClipRule, LrChange, OptimizerSource, ParamGroup, TensorSource};

use super::active::{ActiveGroup, ActiveOptimizer, Slot};
use super::gradients::Gradients;
use super::param_groups::owners;
use super::state::OptimizerSnapshot;
use super::{Engine, Optimizers, ParamInfo, Schedule};
use crate::module::{Horizon, ModuleResult, Optimization, OptimizerState};
use crate::schedule::{ScheduleStep, Scheduler};
use crate::tensors::{Buffers, TensorMap};

/// The optimizers of a module during training: groups with learning rates, schedules, gradients and state.
pub struct OptimizerSet<E: Engine> {
    pub(super) engine: E,
    pub(super) optimizers: Vec<ActiveOptimizer<E>>,
    pub(super) schedules: Vec<ActiveSchedule>,
    pub(super) gradients: Gradients<E::Gradients>,
}

/// A schedule during training.
pub(super) struct ActiveSchedule {
    optimizer: usize,
    pub(super) scheduler: Box<dyn Scheduler>,
    pub(super) count: u64,
    total: Option<u64>,
    /// Its latest factor.
    pub(super) factor: f64,
}

/// The inputs with which an engine updates one parameter.
pub struct Update<'a, E: Engine> {
    /// The algorithm of its group.
    pub algorithm: &'a E::Algorithm,
    /// The current learning rate.
    pub lr: f64,
    /// The state of the algorithm for it.
    pub state: &'a mut Option<E::State>,
    /// The gradients of its optimizer's parameters.
    pub gradients: &'a mut E::Gradients,
    /// The index of its gradient there.
    pub index: usize,
}

impl<E: Engine> OptimizerSet<E> {
    /// A set without optimizers.
    #[must_use]
    pub fn new(engine: E) -> OptimizerSet<E> {
        OptimizerSet { engine, optimizers: Vec::new(), schedules: Vec::new(), gradients: Gradients::empty() }
    }

    /// Assigns the parameters to the optimizers and computes the first factor of each schedule.
    pub fn configure(
        &mut self,
        optimizers: Optimizers<E>,
        params: &[ParamInfo],
        horizon: Horizon,
    ) -> ModuleResult<Optimization> {
        let Optimizers(mut optimizers) = optimizers;
        let owners = owners(params, &optimizers)?;
        self.gradients = Gradients::new(&self.engine, params, &owners, optimizers.len());
        let mut plans = Vec::new();
        self.schedules.clear();
        for (optimizer, of_it) in optimizers.iter_mut().enumerate() {
            for Schedule { mut scheduler, plan } in of_it.schedules.drain(..) {
                let total = horizon.of_scheduler(&plan);
                let factor = scheduler.factor(ScheduleStep { count: 0, total, metric: None })?;
                self.schedules.push(ActiveSchedule { optimizer, scheduler, count: 0, total, factor });
                plans.push(plan);
            }
        }
        let live = optimizers.into_iter().enumerate();
        let live = live
            .map(|(index, optimizer)| ActiveOptimizer::new(&self.engine, index, optimizer, params, &owners));
        self.optimizers = live.collect::<Result<_, _>>()?;
        self.apply_schedules();
        Ok(Optimization { optimizers: self.optimizers.len(), schedulers: plans })
    }

    /// The inputs for updating this parameter of the model; `None` if it belongs to another optimizer.
    pub fn update(&mut self, optimizer: usize, parameter: usize) -> Option<Update<'_, E>> {
        let place = self.gradients.places.get(parameter).copied().flatten();
        let (_, index) = place.filter(|(owner, _)| *owner == optimizer)?;
        let ActiveOptimizer { groups, slots, factor, entries, .. } = self.optimizers.get_mut(optimizer)?;
        entries.take();
        let Slot { group, state, .. } = slots.get_mut(index)?;
        let ActiveGroup { algorithm, base_lr, .. } = &groups[*group];
        let gradients = &mut self.gradients.parts[optimizer];
        Some(Update { algorithm, lr: base_lr * *factor, state, gradients, index })
    }

    /// The gradients with that of this parameter of the model, and its index there; `None` if it has no
    /// optimizer.
    pub fn gradient_of(&mut self, parameter: usize) -> Option<(&mut E::Gradients, usize)> {
        let (part, index) = self.gradients.places.get(parameter).copied().flatten()?;
        Some((&mut self.gradients.parts[part], index))
    }

    /// The gradients by optimizer.
    #[must_use]
    pub fn parts(&self) -> &[E::Gradients] {
        &self.gradients.parts
    }

    /// The mutable gradients by optimizer.
    pub fn parts_mut(&mut self) -> &mut [E::Gradients] {
        &mut self.gradients.parts
    }

    /// The gradients of one optimizer's parameters, or of all.
    #[must_use]
    pub fn gradients(&self, optimizer: Option<usize>) -> &dyn TensorSource {
        match optimizer {
            Some(optimizer) => &self.gradients.parts[optimizer],
            None => &self.gradients,
        }
    }

    /// Removes all gradients of one optimizer.
    pub fn zero_grad(&mut self, optimizer: usize) -> ModuleResult {
        let part = self.part_mut(optimizer)?;
        (0..part.count()).for_each(|index| part.remove(index));
        Ok(())
    }

    /// Clips all gradients of one optimizer.
    pub fn clip(&mut self, optimizer: usize, rule: ClipRule) -> ModuleResult {
        let part = self.part_mut(optimizer)?;
        let all: Vec<_> = (0..part.count()).collect();
        part.clip(&all, rule);
        Ok(())
    }

    /// The names of one optimizer's parameters without a gradient.
    #[must_use]
    pub fn without_gradient(&self, optimizer: usize) -> Vec<String> {
        let Some(part) = self.gradients.parts.get(optimizer) else { return Vec::new() };
        let missing = (0..part.count()).filter(|index| !part.is_present(*index));
        missing.map(|index| part.name(index).to_owned()).collect()
    }

    /// The current learning rate of an optimizer's first group.
    #[must_use]
    pub fn lr(&self, optimizer: usize) -> f64 {
        self.optimizers[optimizer].lr(0)
    }

    /// Changes the base learning rates of one optimizer, so that schedules continue from there.
    pub fn change_lr(&mut self, optimizer: usize, change: LrChange) -> ModuleResult {
        let ActiveOptimizer { groups, factor, .. } =
            self.optimizers.get_mut(optimizer).ok_or_else(|| no_such(optimizer))?;
        for group in groups {
            group.base_lr = match change {
                LrChange::Scale(scale) => group.base_lr * scale,
                // A factor of 0 cannot be divided by.
                LrChange::Set(lr) if *factor == 0.0 => lr,
                LrChange::Set(lr) => lr / *factor,
            };
        }
        Ok(())
    }

    /// Steps a schedule, with its metric if it monitors one.
    pub fn step_schedule(&mut self, schedule: usize, metric: Option<f64>) -> ModuleResult {
        let schedule = &mut self.schedules[schedule];
        schedule.count += 1;
        let tick = ScheduleStep { count: schedule.count, total: schedule.total, metric };
        schedule.factor = schedule.scheduler.factor(tick)?;
        self.apply_schedules();
        Ok(())
    }

    /// Updates the factor of each optimizer.
    pub(super) fn apply_schedules(&mut self) {
        for (index, optimizer) in self.optimizers.iter_mut().enumerate() {
            let of_it = self.schedules.iter().filter(|schedule| schedule.optimizer == index);
            optimizer.factor = of_it.map(|schedule| schedule.factor).product();
        }
    }

    /// A snapshot of the state of optimizers and schedules, which copies no tensor.
    #[must_use]
    pub fn snapshot(&self) -> OptimizerSnapshot<E> {
        OptimizerSnapshot::of(self)
    }

    /// The state of optimizers and schedules, for a checkpoint.
    pub fn state(&self) -> ModuleResult<OptimizerState> {
        self.snapshot().read(&Buffers::default())
    }

    /// The gradients that are present, by parameter name.
    #[must_use]
    pub fn gradients_state(&self) -> TensorMap {
        let mut present = TensorMap::default();
        for part in &self.gradients.parts {
            for index in (0..part.count()).filter(|index| part.is_present(*index)) {
                present.insert_f32(part.name(index), part.shape(index), &part.read(index));
            }
        }
        present
    }

    /// Checks that gradients belong to these parameters.
    pub fn check_gradients(&self, gradients: &TensorMap) -> ModuleResult {
        let all = &self.gradients;
        let known = |name: &str| (0..all.count()).any(|index| all.name(index) == name);
        let unknown = gradients.names().filter(|name| !known(name));
        let unknown = unknown.map(|name| format!("`{name}` is no parameter of an optimizer"));
        let mismatched = (0..all.count()).filter_map(|index| {
            let (name, shape, dtype) = (all.name(index), all.shape(index), all.dtype(index));
            let given = gradients.get(name).ok()?;
            let fits = given.shape == shape && given.dtype == dtype;
            (!fits).then(|| format!("`{name}` is {given:?}, but its parameter is {dtype:?}{shape:?}"))
        });
        let wrong: Vec<_> = unknown.chain(mismatched).collect();
        if wrong.is_empty() {
            return Ok(());
        }
        Err(format!("these gradients do not fit this model: {}", wrong.join(", ")).into())
    }

    /// Loads the gradients of a checkpoint and removes all others.
    pub fn load_gradients(&mut self, gradients: &TensorMap) -> ModuleResult {
        self.check_gradients(gradients)?;
        for part in &mut self.gradients.parts {
            for index in 0..part.count() {
                match gradients.get(part.name(index)) {
                    Ok(given) => part.replace(index, &given.to_f32()?),
                    Err(_) => part.remove(index),
                }
            }
        }
        Ok(())
    }

    fn part_mut(&mut self, optimizer: usize) -> Result<&mut E::Gradients, String> {
        self.gradients.parts.get_mut(optimizer).ok_or_else(|| no_such(optimizer))
    }
}

fn no_such(optimizer: usize) -> String {
    format!("there is no optimizer number {optimizer}, counted from 0")
}

impl<E: Engine> OptimizerSource for OptimizerSet<E> {
    fn count(&self) -> usize {
        self.optimizers.len()
    }
    fn name(&self, index: usize) -> &str {
        &self.optimizers[index].name
    }
    fn groups(&self, index: usize) -> Vec<ParamGroup> {
        self.optimizers[index].groups()
    }
    fn state(&self, index: usize) -> &dyn TensorSource {
        &self.optimizers[index]
    }
}
