//! Models and data, for a raw Burn loop and for the trainer. Also used by `benches/learner`.

use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;
use std::time::Instant;

use tenterhook::data::Loaders;
use tenterhook::prelude::*;
use tenterhook::tensor::ReadScalar;
use tenterhook::{BoxError, Split};
use tenterhook_burn::burn::{
    self,
    module::Module,
    nn::loss::{MseLoss, Reduction},
    nn::{Linear, LinearConfig},
    optim::{AdamWConfig, GradientsParams, ModuleOptimizer, SgdConfig},
    tensor::{Device, Tensor, TensorData, activation::relu},
};
use tenterhook_burn::{Burn, BurnCx, BurnModule, Loss, Optimizer, Step};
use tenterhook_tasks::digits::ImageBatch;
use tenterhook_tasks::digits::model::{self, Classifier, ModelOptions};
use tenterhook_tasks::text::TextBatch;
use tenterhook_tasks::text::model::{Gpt, GptOptions};

/// Steps between logged losses.
const LOG_EVERY: u64 = 50;

/// A model with its data and its optimizer.
pub trait Workload {
    type Batch: BatchData + Clone + 'static;
    type Model: BurnModule<Batch = Self::Batch>;
    const LR: f64;

    fn model(device: &Device) -> Self::Model;
    fn batches(device: &Device) -> Vec<Self::Batch>;
    fn loss(model: &Self::Model, batch: &Self::Batch) -> Tensor<1>;
    /// The Burn model.
    fn burns_optimizer() -> ModuleOptimizer {
        AdamWConfig::new().init()
    }
    /// The module for the trainer.
    fn optimizer() -> Optimizer {
        Optimizer::new("adamw", AdamWConfig::new().build(), Self::LR)
    }
}

/// The smallest model, to measure the loop around it: one layer, 32 to 2, with SGD.
pub struct Tiny;
/// Fifty parameter tensors: 25 layers of width 128.
pub struct Deep;
/// The language model of the task `text`.
pub struct BuiltInGpt;
/// The network of the task `digits`.
pub struct BuiltInCnn;

/// A sequence of layers.
#[derive(Module, Debug)]
pub struct Layers {
    layers: Vec<Linear>,
}

impl Layers {
    fn new(sizes: &[usize], device: &Device) -> Layers {
        Layers { layers: sizes.windows(2).map(|of| LinearConfig::new(of[0], of[1]).init(device)).collect() }
    }

    fn loss(&self, Pairs { x, y }: &Pairs) -> Tensor<1> {
        let mut guess = x.clone();
        for (at, layer) in self.layers.iter().enumerate() {
            guess = layer.forward(if at == 0 { guess } else { relu(guess) });
        }
        MseLoss::new().forward(guess, y.clone(), Reduction::Mean)
    }
}

/// Inputs and targets.
#[derive(Clone, Debug)]
pub struct Pairs {
    x: Tensor<2>,
    y: Tensor<2>,
}

impl Pairs {
    /// A few batches of synthetic data.
    fn some(rows: usize, [inputs, outputs]: [usize; 2], device: &Device) -> Vec<Pairs> {
        let numbers = |columns: usize, of: usize| {
            let numbers: Vec<_> =
                (0..rows * columns).map(|at| ((at * 31 + of * 7) % 97) as f32 / 97.0).collect();
            Tensor::from_data(TensorData::new(numbers, [rows, columns]), device)
        };
        (0..8).map(|of| Pairs { x: numbers(inputs, of), y: numbers(outputs, of + 8) }).collect()
    }
}

impl BatchData for Pairs {
    fn size(&self) -> usize {
        self.x.dims()[0]
    }
}

impl BurnModule for Layers {
    type Batch = Pairs;
    type Prediction = ();

    fn training_step(&mut self, batch: &Pairs, _: &mut BurnCx<'_, Layers>) -> ModuleResult<Step> {
        Ok(self.loss(batch).into())
    }
}

impl Workload for Tiny {
    type Batch = Pairs;
    type Model = Layers;
    const LR: f64 = 0.01;

    fn model(device: &Device) -> Layers {
        Layers::new(&[32, 2], device)
    }
    fn batches(device: &Device) -> Vec<Pairs> {
        Pairs::some(32, [32, 2], device)
    }
    fn loss(model: &Layers, batch: &Pairs) -> Tensor<1> {
        model.loss(batch)
    }
    fn burns_optimizer() -> ModuleOptimizer {
        SgdConfig::new().init()
    }
    fn optimizer() -> Optimizer {
        Optimizer::new("sgd", SgdConfig::new().build(), Tiny::LR)
    }
}

impl Workload for Deep {
    type Batch = Pairs;
    type Model = Layers;
    const LR: f64 = 1e-4;

    fn model(device: &Device) -> Layers {
        Layers::new(&[128; 26], device)
    }
    fn batches(device: &Device) -> Vec<Pairs> {
        Pairs::some(128, [128, 128], device)
    }
    fn loss(model: &Layers, batch: &Pairs) -> Tensor<1> {
        model.loss(batch)
    }
}

impl Workload for BuiltInGpt {
    type Batch = TextBatch;
    type Model = Gpt;
    const LR: f64 = 1e-3;

    fn model(device: &Device) -> Gpt {
        Gpt::new(&GptOptions::default(), device)
    }
    fn batches(device: &Device) -> Vec<TextBatch> {
        let context = GptOptions::default().context;
        let byte = |window: usize, at: usize| u8::try_from((window * 31 + at * at) % 251).unwrap_or_default();
        let window = |window| (0..=context).map(|at| byte(window, at)).collect();
        let windows: Vec<Vec<u8>> = (0..64).map(window).collect();
        windows.chunks(8).map(|windows| TextBatch::windows(windows, device)).collect()
    }
    fn loss(model: &Gpt, batch: &TextBatch) -> Tensor<1> {
        match batch {
            TextBatch::Windows { tokens, targets, .. } => {
                model.loss(tokens.clone().autodiff(), targets.clone().autodiff())
            }
            TextBatch::Prompt(_) => unreachable!("there are windows only"),
        }
    }
}

impl Workload for BuiltInCnn {
    type Batch = ImageBatch;
    type Model = Classifier;
    const LR: f64 = 5e-3;

    fn model(device: &Device) -> Classifier {
        Classifier::new(&ModelOptions::default(), [8, 8], 10, device)
    }
    fn batches(device: &Device) -> Vec<ImageBatch> {
        let image = |of: u32| ((0..64).map(|at| ((of * 31 + at * 7) % 97) as f32 / 97.0).collect(), of % 10);
        let images = |of: u32| (of * 32..of * 32 + 32).map(image).collect();
        (0..8).map(|of| ImageBatch::new(images(of), [8, 8], device)).collect()
    }
    fn loss(model: &Classifier, batch: &ImageBatch) -> Tensor<1> {
        let logits = model.forward(batch.pixels().clone().autodiff());
        model::loss(logits, batch.labels().clone().autodiff())
    }
}

/// The number of steps, and the range of steps that is timed.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub steps: u64,
    from: u64,
    to: u64,
}

impl Span {
    /// Times a number of steps after warm-up. One more step starts, which ends the last timed one.
    pub const fn timed(steps: u64, warm_up: u64) -> Span {
        Span { steps: warm_up + steps + 1, from: warm_up, to: warm_up + steps }
    }

    /// Runs exactly this number of steps, and times all but the last.
    pub const fn of(steps: u64) -> Span {
        Span { steps, from: 0, to: steps.saturating_sub(1) }
    }
}

/// When the timed steps started and ended.
#[derive(Default)]
pub struct Watch {
    began: Cell<Option<Instant>>,
    ended: Cell<Option<Instant>>,
}

impl Watch {
    /// NaN if no step was timed.
    pub fn seconds_per_step(&self, span: Span) -> f64 {
        match (self.began.get(), self.ended.get()) {
            (Some(began), Some(ended)) => (ended - began).as_secs_f64() / (span.to - span.from) as f64,
            _ => f64::NAN,
        }
    }
}

/// Repeats the same few batches, and reads the clock at the start of the first and the last timed step. This
/// excludes setup and teardown, and needs no hook.
pub struct Source<B> {
    batches: Vec<B>,
    given: u64,
    span: Span,
    watch: Rc<Watch>,
}

impl<B: Clone> Source<B> {
    pub fn new(batches: Vec<B>, span: Span) -> (Source<B>, Rc<Watch>) {
        let watch = Rc::new(Watch::default());
        (Source { batches, given: 0, span, watch: watch.clone() }, watch)
    }

    pub fn give(&mut self) -> B {
        if self.given == self.span.from {
            self.watch.began.set(Some(Instant::now()));
        }
        if self.given == self.span.to {
            self.watch.ended.set(Some(Instant::now()));
        }
        self.given += 1;
        let at = usize::try_from(self.given).unwrap_or_default() % self.batches.len();
        self.batches[at].clone()
    }
}

impl<B: Clone> Loader<B> for Source<B> {
    fn name(&self) -> &'static str {
        "train"
    }
    fn batches(&self) -> Option<u64> {
        Some(self.span.steps)
    }
    fn seek(&mut self, _: u64, batch: u64, _: bool) -> Result<(), BoxError> {
        self.given = batch;
        Ok(())
    }
    fn next(&mut self) -> Result<Option<B>, BoxError> {
        Ok(Some(self.give()))
    }
}

/// A batch source as a data module.
pub struct Given<B>(Option<Source<B>>);

impl<B> Given<B> {
    pub fn new(source: Source<B>) -> Given<B> {
        Given(Some(source))
    }
}

impl<B: Clone + 'static> DataModule<B> for Given<B> {
    fn loaders(&mut self, split: Split) -> Result<Loaders<B>, BoxError> {
        let source = self.0.take_if(|_| split == Split::Train);
        Ok(source.into_iter().map(|source| Box::new(source) as Box<dyn Loader<B>>).collect())
    }
}

/// Trains with a hand-written loop, and returns the seconds per step.
pub fn raw<W: Workload>(span: Span) -> f64 {
    let device = Device::flex();
    device.seed(0);
    let mut model = W::model(&device).fork(&device.clone().autodiff()).train();
    let mut optimizer = W::burns_optimizer();
    let (mut source, watch) = Source::new(W::batches(&device), span);
    let mut losses = 0.0;
    for _ in 0..span.steps {
        let batch = source.give();
        let loss = W::loss(&model, &batch);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        // Losses are kept as in the trainer: as scalars on the device.
        losses += Loss::from(loss.inner()).read();
        model = optimizer.step(W::LR, model, gradients);
    }
    std::hint::black_box(losses);
    watch.seconds_per_step(span)
}

/// The settings for the same training with the trainer.
pub fn settings(span: Span) -> Settings {
    Settings {
        max_steps: i64::try_from(span.steps).unwrap_or(i64::MAX),
        log_every_n_steps: LOG_EVERY,
        ..Settings::default()
    }
}

/// Trains with this trainer, which has the settings above, and returns the seconds per step.
pub fn trained<W: Workload>(span: Span, trainer: &mut Trainer) -> Result<f64, Box<dyn Error>> {
    let device = Device::flex();
    device.seed(0);
    let mut module = Burn::new(W::model(&device), &device).with_optimizers(|_| Ok(W::optimizer().into()));
    let (source, watch) = Source::new(W::batches(&device), span);
    trainer.fit(&mut module, &mut Given::new(source))?;
    Ok(watch.seconds_per_step(span))
}
