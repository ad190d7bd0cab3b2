//! A second module besides the toy, `y = w·x`. The test chooses its batches, its losses count how often they
//! are read, and its optimizer consumes gradients unless they are kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tenterhook::data::Loaders;
use tenterhook::module::{Horizon, LoadReport, Optimization, OptimizerState};
use tenterhook::tensor::{NoTensors, ReadScalar};
use tenterhook::{
    BatchData, BoxError, ClipRule, Cx, DataModule, GradientsMut, Loader, LrChange, ModelView, Module,
    ModuleResult, NamedTensors, OptimizerSource, ParamGroup, Split, StepOutput, TensorBytes, TensorMap,
    TensorSource,
};

/// Points of the line, with a number of tokens. Without points there is no loss.
#[derive(Clone, Debug, Default)]
pub struct Points {
    pub points: Vec<(f32, f32)>,
    pub tokens: u64,
}

pub fn points(points: &[(f32, f32)]) -> Points {
    Points { points: points.to_vec(), tokens: 10 * points.len() as u64 }
}

impl BatchData for Points {
    fn size(&self) -> usize {
        self.points.len()
    }
    fn tokens(&self) -> u64 {
        self.tokens
    }
}

#[derive(Clone, Debug, Default)]
pub struct Counter(Arc<AtomicUsize>);

impl Counter {
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// A scalar that counts its reads.
#[derive(Clone, Debug)]
pub struct Lazy {
    value: f64,
    gradient: f32,
    reads: Counter,
}

impl ReadScalar for Lazy {
    fn read(&self) -> f64 {
        self.reads.0.fetch_add(1, Ordering::Relaxed);
        self.value
    }
}

pub struct Line {
    params: NamedTensors,
    gradients: NamedTensors,
    lr: f64,
    loss_reads: Counter,
    norm_reads: Counter,
    /// The number of requests for the norm of the gradients, whether it is read or not.
    norms: Counter,
}

impl Line {
    /// A line with `w = 0` and this learning rate.
    pub fn new(lr: f64) -> Line {
        let params = NamedTensors::from([("w", vec![0.0])]);
        let [loss_reads, norm_reads, norms] = std::array::from_fn(|_| Counter::default());
        Line { gradients: params.clone(), params, lr, loss_reads, norm_reads, norms }
    }

    pub fn w(&self) -> f32 {
        self.params.at(0)[0]
    }

    /// The gradient after the last update.
    pub fn gradient(&self) -> f32 {
        self.gradients.at(0)[0]
    }

    /// The counter of loss reads.
    pub fn loss_counter(&self) -> Counter {
        self.loss_reads.clone()
    }

    pub fn loss_reads(&self) -> usize {
        self.loss_reads.count()
    }

    pub fn norm_reads(&self) -> usize {
        self.norm_reads.count()
    }

    pub fn norms(&self) -> usize {
        self.norms.count()
    }

    fn loss(&self, batch: &Points) -> Lazy {
        let (w, n) = (self.w(), batch.points.len() as f32);
        let errors = || batch.points.iter().map(|(x, y)| (w * x - y, *x));
        let value = errors().map(|(error, _)| f64::from(error * error)).sum::<f64>() / f64::from(n);
        let gradient = errors().map(|(error, x)| 2.0 * error * x).sum::<f32>() / n;
        Lazy { value, gradient, reads: self.loss_reads.clone() }
    }
}

impl ModelView for Line {
    fn params(&self) -> &dyn TensorSource {
        &self.params
    }
    fn optimizers(&self) -> &dyn OptimizerSource {
        self
    }
}

impl OptimizerSource for Line {
    fn count(&self) -> usize {
        1
    }
    fn name(&self, _: usize) -> &'static str {
        "sgd"
    }
    fn groups(&self, _: usize) -> Vec<ParamGroup> {
        vec![ParamGroup { name: "all".into(), lr: self.lr, momentum: None, weight_decay: None }]
    }
    fn state(&self, _: usize) -> &dyn TensorSource {
        &NoTensors
    }
}

impl Module for Line {
    type Batch = Points;
    type Scalar = Lazy;
    type Prediction = ();

    fn training_step(&mut self, batch: &Points, cx: &mut Cx<'_, Self>) -> ModuleResult<StepOutput<Lazy>> {
        cx.show("line", |_| &self.params);
        if batch.points.is_empty() {
            return Ok(StepOutput::NoLoss);
        }
        Ok(StepOutput::Loss(self.loss(batch)))
    }
    fn validation_step(&mut self, batch: &Points, cx: &mut Cx<'_, Self>) -> ModuleResult {
        cx.show("line", |_| &self.params);
        cx.log("val/loss", self.loss(batch).value);
        Ok(())
    }
    fn configure_optimizers(&mut self, _: Horizon) -> ModuleResult<Optimization> {
        Ok(Optimization { optimizers: 1, schedulers: Vec::new() })
    }
    fn optimizer_zero_grad(&mut self, _: usize) -> ModuleResult {
        self.gradients.edit(0, &mut |values| values.fill(0.0));
        Ok(())
    }
    fn backward(&mut self, loss: &Lazy, divide_by: f64) -> ModuleResult {
        #[allow(clippy::cast_possible_truncation)]
        self.gradients.edit(0, &mut |values| values[0] += loss.gradient / divide_by as f32);
        Ok(())
    }
    fn clip_gradients(&mut self, _: usize, _: ClipRule) -> ModuleResult {
        Err("a line does not clip".into())
    }
    fn optimizer_step(&mut self, _: usize, keep_gradients: bool) -> ModuleResult {
        let gradient = self.gradients.at(0)[0];
        #[allow(clippy::cast_possible_truncation)]
        self.params.edit(0, &mut |values| values[0] -= self.lr as f32 * gradient);
        if !keep_gradients {
            self.gradients.edit(0, &mut |values| values.fill(f32::NAN));
        }
        Ok(())
    }
    fn lr_scheduler_step(&mut self, _: usize, _: Option<f64>) -> ModuleResult {
        Ok(())
    }
    fn gradients(&self, _: Option<usize>) -> &dyn TensorSource {
        &self.gradients
    }
    fn gradients_mut(&mut self, _: usize) -> &mut dyn GradientsMut {
        &mut self.gradients
    }
    fn grad_norm(&self, _: usize) -> Lazy {
        self.norms.0.fetch_add(1, Ordering::Relaxed);
        let value = f64::from(self.gradients.at(0)[0].abs());
        Lazy { value, gradient: 0.0, reads: self.norm_reads.clone() }
    }
    fn lr(&self, _: usize) -> f64 {
        self.lr
    }
    fn change_lr(&mut self, _: usize, change: LrChange) -> ModuleResult {
        self.lr = match change {
            LrChange::Set(lr) => lr,
            LrChange::Scale(factor) => self.lr * factor,
        };
        Ok(())
    }
    fn weights(&self) -> ModuleResult<TensorMap> {
        Ok(TensorMap::from_iter([("w".to_owned(), TensorBytes::from_f32([1], &[self.w()]))]))
    }
    fn load_weights(&mut self, _: &TensorMap) -> ModuleResult {
        Err("a line is not restored".into())
    }
    fn optimizer_state(&self) -> ModuleResult<OptimizerState> {
        Ok(OptimizerState::default())
    }
    fn load_optimizer_state(&mut self, _: &OptimizerState) -> ModuleResult {
        Err("a line is not restored".into())
    }
    fn saves_gradients(&self) -> bool {
        true
    }
    fn gradients_state(&self) -> ModuleResult<TensorMap> {
        Ok(TensorMap::from_iter([("w".to_owned(), TensorBytes::from_f32([1], self.gradients.at(0)))]))
    }
    fn load_gradients(&mut self, _: &TensorMap) -> ModuleResult {
        Err("a line is not restored".into())
    }
    fn load_matching(&mut self, _: &TensorMap) -> ModuleResult<LoadReport> {
        Err("a line is not restored".into())
    }
}

/// A data module with these batches.
#[derive(Clone, Debug, Default)]
pub struct Batches {
    pub train: Vec<Points>,
    pub validate: Vec<Points>,
}

impl Batches {
    pub fn of(train: Vec<Points>) -> Batches {
        Batches { train, validate: Vec::new() }
    }
}

impl DataModule<Points> for Batches {
    fn loaders(&mut self, split: Split) -> Result<Loaders<Points>, BoxError> {
        let batches = match split {
            Split::Train => self.train.clone(),
            Split::Validate if !self.validate.is_empty() => self.validate.clone(),
            _ => return Ok(Vec::new()),
        };
        Ok(vec![Box::new(Walk { batches, next: 0 })])
    }
}

struct Walk {
    batches: Vec<Points>,
    next: usize,
}

impl Loader<Points> for Walk {
    fn name(&self) -> &'static str {
        "points"
    }
    fn batches(&self) -> Option<u64> {
        Some(self.batches.len() as u64)
    }
    fn seek(&mut self, _: u64, batch: u64, _: bool) -> Result<(), BoxError> {
        self.next = usize::try_from(batch)?;
        Ok(())
    }
    fn next(&mut self) -> Result<Option<Points>, BoxError> {
        self.next += 1;
        Ok(self.batches.get(self.next - 1).cloned())
    }
}

pub fn first() -> Points {
    points(&[(1.0, 2.0), (2.0, 1.0)])
}

pub fn second() -> Points {
    points(&[(3.0, 1.0), (0.5, 4.0)])
}

pub fn third() -> Points {
    points(&[(1.5, -1.0), (1.0, 1.0)])
}
