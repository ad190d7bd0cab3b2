//! Two spirals, and a small network that tells them apart.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::activation::relu;
use burn::tensor::{Device, Int, Tensor, TensorData};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook::data::{Batches, Loading};
use tenterhook::optim::{Recipe, SchedulerTable};
use tenterhook::plan::DeclaredMetric;
use tenterhook::prelude::*;
use tenterhook::task::{Build, Problem, Task};
use tenterhook_burn::{Burn, BurnCx, BurnModule, HookPoints, OptimizerTable, Step, device};

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

    /// `hooks` hears the activations that are named here; `tenter points` lists them.
    fn forward(&self, at: Tensor<2>, hooks: &mut impl HookPoints) -> Tensor<2> {
        let x = relu(self.fc1.forward(at));
        hooks.point("fc1", &x);
        let x = relu(self.fc2.forward(x));
        hooks.point("fc2", &x);
        let logits = self.out.forward(x);
        hooks.point("logits", &logits);
        logits
    }

    fn loss(
        &self,
        at: Tensor<2>,
        classes: Tensor<1, Int>,
        hooks: &mut impl HookPoints,
    ) -> (Tensor<1>, Tensor<2>) {
        let logits = self.forward(at, hooks);
        let loss = CrossEntropyLossConfig::new().init(&logits.device());
        (loss.forward(logits.clone(), classes), logits)
    }
}

/// What the data yields.
#[derive(Clone)]
pub struct Points {
    at: Tensor<2>,
    class: Tensor<1, Int>,
}

impl BatchData for Points {
    fn size(&self) -> usize {
        self.at.dims()[0]
    }
}

/// How it is trained and evaluated.
impl BurnModule for Net {
    type Batch = Points;
    type Prediction = Vec<i64>;

    fn training_step(&mut self, batch: &Points, cx: &mut BurnCx<'_, Self>) -> ModuleResult<Step> {
        let (loss, _) = self.loss(batch.at.clone(), batch.class.clone(), cx);
        Ok(loss.into())
    }

    fn validation_step(&self, batch: &Points, cx: &mut BurnCx<'_, Self>) -> ModuleResult {
        let (loss, logits) = self.loss(batch.at.clone(), batch.class.clone(), cx);
        let right: f64 = classes(logits).equal(batch.class.clone()).int().sum().into_scalar();
        cx.log("val/loss", loss.into_scalar());
        cx.log("val/accuracy", right / batch.size() as f64);
        Ok(())
    }

    fn test_step(&self, batch: &Points, cx: &mut BurnCx<'_, Self>) -> ModuleResult {
        let guesses = classes(self.forward(batch.at.clone(), cx));
        let right: f64 = guesses.equal(batch.class.clone()).int().sum().into_scalar();
        cx.log("test/accuracy", right / batch.size() as f64);
        Ok(())
    }

    fn predict_step(&self, batch: &Points, cx: &mut BurnCx<'_, Self>) -> ModuleResult<Vec<i64>> {
        Ok(classes(self.forward(batch.at.clone(), cx)).into_data().iter::<i64>().collect())
    }

    fn metrics(&self) -> Option<Vec<DeclaredMetric>> {
        Some(vec![
            DeclaredMetric::new("val/loss", Phase::Validate),
            DeclaredMetric::new("val/accuracy", Phase::Validate),
            DeclaredMetric::new("test/accuracy", Phase::Test),
        ])
    }
}

fn classes(logits: Tensor<2>) -> Tensor<1, Int> {
    logits.argmax(1).squeeze_dim(1)
}

/// What `task = "spiral"` means in a configuration.
pub struct Spiral;

/// The tables of the configuration; what is not here is an error there.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// The network.
    pub model: ModelOptions,
    /// The optimizer.
    pub optimizer: OptimizerTable,
    /// Schedules of the learning rate.
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
    type Data = Loading<Points>;

    fn name(&self) -> &str {
        "spiral"
    }

    fn purpose(&self) -> &str {
        "tells two spirals apart"
    }

    fn defaults(&self) -> &str {
        "[trainer]\nmax_epochs = 30\n"
    }

    fn build(&self, options: Options, build: &Build<'_>) -> Result<(Burn<Net>, Loading<Points>), Vec<Problem>> {
        let device = device(build.device).map_err(|error| vec![Problem::new("device", error.to_string())])?;
        if options.model.hidden == 0 {
            return Err(vec![Problem::new("model.hidden", "must be at least 1")]);
        }
        let recipe = Recipe::new(options.optimizer, options.schedulers, build.registry)?;
        device.seed(build.seed);
        let net = Net::new(options.model.hidden, &device);
        let module = Burn::new(net, &device).with_optimizers(move |_| recipe.optimizers().map_err(Into::into));
        let batches = |name: &str, first: usize| {
            let device = device.clone();
            Batches::new(name, spirals(first), move |samples| Ok(collate(samples, &device))).size(32)
        };
        let data = Loading::new()
            .train(batches("train", 0).shuffled(build.seed))
            .validate(batches("val", 1))
            .test(batches("test", 2))
            .predict(batches("test", 2));
        Ok((module, data))
    }

    fn show(&self, classes: &Vec<i64>) -> Vec<serde_json::Value> {
        classes.iter().map(|class| serde_json::json!({ "class": class })).collect()
    }
}

/// Points on the two spirals: every third one, from this one on.
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

fn collate(samples: Vec<([f32; 2], i64)>, device: &Device) -> Points {
    let size = samples.len();
    let (at, class): (Vec<_>, Vec<_>) = samples.into_iter().unzip();
    Points {
        at: Tensor::from_data(TensorData::new(at.concat(), [size, 2]), device),
        class: Tensor::from_data(TensorData::new(class, [size]), device),
    }
}
