//! The task: a small network that learns to distinguish two spirals.
//!
//! From top to bottom: the model, a batch, the steps, the options, and the data.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::activation::relu;
use burn::tensor::{Device, Int, Tensor, TensorData};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook::TensorSource;
use tenterhook::data::{Batches, DataLoaders};
use tenterhook::optim::{OptimizerFactory, SchedulerTable};
use tenterhook::plan::DeclaredMetric;
use tenterhook::prelude::*;
use tenterhook::task::{BuildContext, Problem, Task};
use tenterhook_burn::{Burn, BurnCx, BurnModule, OptimizerTable, HookPoints, Step, TensorList, device};

/// The model: an ordinary Burn module.
#[derive(Module, Debug)]
pub struct Net {
    fc1: Linear,
    fc2: Linear,
    out: Linear,
}

impl Net {
    fn new(hidden: usize, device: &Device) -> Net {
        Net {
            fc1: LinearConfig::new(2, hidden).init(device),
            fc2: LinearConfig::new(hidden, hidden).init(device),
            out: LinearConfig::new(hidden, 2).init(device),
        }
    }

    /// The logits of the two classes. Hooks can observe the activations named here; the command `points` lists them.
    fn forward(&self, position: Tensor<2>, points: &mut impl HookPoints) -> Tensor<2> {
        let x = relu(self.fc1.forward(position));
        points.point("fc1", &x);
        let x = relu(self.fc2.forward(x));
        points.point("fc2", &x);
        let logits = self.out.forward(x);
        points.point("logits", &logits);
        logits
    }

    /// The loss and the logits of a batch.
    fn loss(&self, batch: &SpiralBatch, points: &mut impl HookPoints) -> (Tensor<1>, Tensor<2>) {
        let logits = self.forward(batch.position.clone(), points);
        let loss = CrossEntropyLossConfig::new().init(&logits.device());
        (loss.forward(logits.clone(), batch.class.clone()), logits)
    }
}

/// A batch of positions, each with its class.
#[derive(Clone)]
pub struct SpiralBatch {
    position: Tensor<2>,
    class: Tensor<1, Int>,
    tensors: TensorList,
}

impl BatchData for SpiralBatch {
    fn size(&self) -> usize {
        self.position.dims()[0]
    }

    /// The tensors that hooks see as `cx.batch.tensors`.
    fn tensors(&self) -> &dyn TensorSource {
        &self.tensors
    }
}

/// Training and evaluation of one batch.
impl BurnModule for Net {
    type Batch = SpiralBatch;
    type Prediction = Vec<i64>;

    fn training_step(&mut self, batch: &SpiralBatch, cx: &mut BurnCx<'_, Self>) -> ModuleResult<Step> {
        let (loss, _) = self.loss(batch, cx);
        Ok(loss.into())
    }

    fn validation_step(&self, batch: &SpiralBatch, cx: &mut BurnCx<'_, Self>) -> ModuleResult {
        let (loss, logits) = self.loss(batch, cx);
        // Metrics are averaged over all batches, weighted by their size.
        cx.log("val/loss", loss.into_scalar());
        cx.log("val/accuracy", accuracy(logits, batch));
        Ok(())
    }

    fn test_step(&self, batch: &SpiralBatch, cx: &mut BurnCx<'_, Self>) -> ModuleResult {
        let logits = self.forward(batch.position.clone(), cx);
        cx.log("test/accuracy", accuracy(logits, batch));
        Ok(())
    }

    fn predict_step(&self, batch: &SpiralBatch, cx: &mut BurnCx<'_, Self>) -> ModuleResult<Vec<i64>> {
        Ok(classes(self.forward(batch.position.clone(), cx)).into_data().iter::<i64>().collect())
    }

    /// The metrics that the steps log; with them, a misspelt `monitor` is found before training.
    fn metrics(&self) -> Option<Vec<DeclaredMetric>> {
        Some(vec![
            DeclaredMetric::new("val/loss", Phase::Validate),
            DeclaredMetric::new("val/accuracy", Phase::Validate),
            DeclaredMetric::new("test/accuracy", Phase::Test),
        ])
    }
}

/// The most likely class of each position.
fn classes(logits: Tensor<2>) -> Tensor<1, Int> {
    logits.argmax(1).squeeze_dim(1)
}

/// The fraction of positions with the right class.
fn accuracy(logits: Tensor<2>, batch: &SpiralBatch) -> f64 {
    let correct: f64 = classes(logits).equal(batch.class.clone()).int().sum().into_scalar();
    correct / batch.size() as f64
}

/// `task = "spiral"` in a configuration.
pub struct Spiral;

/// The tables of the configuration that belong to this task. Unknown keys are errors.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// The network.
    pub model: ModelOptions,
    /// The optimizer.
    pub optimizer: OptimizerTable,
    /// Learning rate schedules.
    pub schedulers: Vec<SchedulerTable>,
}

/// The `[model]` table.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ModelOptions {
    /// Width of the hidden layers.
    pub hidden: usize,
}

impl Default for ModelOptions {
    fn default() -> ModelOptions {
        ModelOptions { hidden: 64 }
    }
}

impl Task for Spiral {
    type Options = Options;
    type Module = Burn<Net>;
    type Data = DataLoaders<SpiralBatch>;

    fn name(&self) -> &str {
        "spiral"
    }

    fn purpose(&self) -> &str {
        "tells two spirals apart"
    }

    /// The default configuration, for keys that a file omits.
    fn defaults(&self) -> &str {
        "[trainer]\nmax_epochs = 30\n"
    }

    /// Builds the model and its data from the options.
    fn build(&self, options: Options, build: &BuildContext<'_>) -> Result<(Burn<Net>, DataLoaders<SpiralBatch>), Vec<Problem>> {
        let device = device(build.device).map_err(|error| vec![Problem::new("device", error.to_string())])?;
        if options.model.hidden == 0 {
            return Err(vec![Problem::new("model.hidden", "must be at least 1")]);
        }
        let recipe = OptimizerFactory::new(options.optimizer, options.schedulers, build.registry)?;
        device.seed(build.seed);
        let net = Net::new(options.model.hidden, &device);
        let module = Burn::new(net, &device).with_optimizers(move |_| recipe.optimizers().map_err(Into::into));
        let batches = |name: &str, first: usize| {
            let device = device.clone();
            Batches::new(name, spirals(first), move |samples| Ok(collate(samples, &device))).size(32)
        };
        let data = DataLoaders::new()
            .train(batches("train", 0).shuffled(build.seed))
            .validate(batches("val", 1))
            .test(batches("test", 2))
            .predict(batches("test", 2));
        Ok((module, data))
    }

    /// One line of JSON for each prediction, for the command `predict`.
    fn show(&self, classes: &Vec<i64>) -> Vec<serde_json::Value> {
        classes.iter().map(|class| serde_json::json!({ "class": class })).collect()
    }
}

/// Positions on the two spirals with their class: every third one, starting with `first`.
fn spirals(first: usize) -> Vec<([f32; 2], i64)> {
    (first..1200)
        .step_by(3)
        .map(|index| {
            let (class, along) = (index % 2, index as f32 / 1200.0);
            let turn = 9.0 * along + std::f32::consts::PI * class as f32;
            ([along * turn.cos(), along * turn.sin()], class as i64)
        })
        .collect()
}

/// Makes a batch of samples.
fn collate(samples: Vec<([f32; 2], i64)>, device: &Device) -> SpiralBatch {
    let size = samples.len();
    let (position, class): (Vec<_>, Vec<_>) = samples.into_iter().unzip();
    let position: Tensor<2> = Tensor::from_data(TensorData::new(position.concat(), [size, 2]), device);
    let class: Tensor<1, Int> = Tensor::from_data(TensorData::new(class, [size]), device);
    let tensors = TensorList::default().with("position", position.clone()).with("class", class.clone().float());
    SpiralBatch { position, class, tensors }
}
