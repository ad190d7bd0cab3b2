//! The command line of `tenter` with your own task, hook, schedule and optimizer.
//!
//! Without arguments it trains for two epochs and deletes the run. With arguments it is a program like `tenter`:
//!
//! ```text
//! cargo run -p tenterhook-cli --example app
//! cargo run -p tenterhook-cli --example app -- train --set trainer.max_epochs=50
//! cargo run -p tenterhook-cli --example app -- init my.toml
//! ```

use std::process::ExitCode;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tenterhook::data::{BatchData, Batches, DataLoaders};
use tenterhook::optim::{OptimizerFactory, OptimizerOptions, SchedulerTable};
use tenterhook::plan::DeclaredMetric;
use tenterhook::prelude::*;
use tenterhook::schedule::{ScheduleStep, Scheduler};
use tenterhook::task::{BuildContext, Problem, Task};
use tenterhook_app::App;
use tenterhook_burn::burn::module::Module;
use tenterhook_burn::burn::nn::{Linear, LinearConfig};
use tenterhook_burn::burn::optim::SgdConfig;
use tenterhook_burn::burn::optim::decay::WeightDecayConfig;
use tenterhook_burn::burn::optim::momentum::MomentumConfig;
use tenterhook_burn::burn::tensor::activation::tanh;
use tenterhook_burn::burn::tensor::{Device, Tensor, TensorData};
use tenterhook_burn::{Algorithm, Burn, BurnCx, BurnEngine, BurnModule, OptimizerTable, Step, burn, device};

/// A small network that learns a wave.
#[derive(Module, Debug)]
struct Net {
    hidden: Linear,
    out: Linear,
}

struct Points {
    x: Tensor<2>,
    y: Tensor<2>,
}

impl BatchData for Points {
    fn size(&self) -> usize {
        self.x.dims()[0]
    }
}

impl Net {
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.out.forward(tanh(self.hidden.forward(x)))
    }

    fn loss(&self, batch: &Points) -> Tensor<1> {
        (self.forward(batch.x.clone()) - batch.y.clone()).square().mean()
    }
}

impl BurnModule for Net {
    type Batch = Points;
    type Prediction = Vec<f32>;

    fn training_step(&mut self, batch: &Points, _: &mut BurnCx<'_, Net>) -> ModuleResult<Step> {
        Ok(self.loss(batch).into())
    }

    fn validation_step(&self, batch: &Points, cx: &mut BurnCx<'_, Net>) -> ModuleResult {
        cx.log("val/loss", self.loss(batch).into_scalar());
        Ok(())
    }

    fn test_step(&self, batch: &Points, cx: &mut BurnCx<'_, Net>) -> ModuleResult {
        cx.log("test/loss", self.loss(batch).into_scalar());
        Ok(())
    }

    fn predict_step(&self, batch: &Points, _: &mut BurnCx<'_, Net>) -> ModuleResult<Vec<f32>> {
        Ok(self.forward(batch.x.clone()).into_data().iter::<f32>().collect())
    }

    fn metrics(&self) -> Option<Vec<DeclaredMetric>> {
        Some(vec![
            DeclaredMetric::new("val/loss", Phase::Validate),
            DeclaredMetric::new("test/loss", Phase::Test),
        ])
    }
}

/// `task = "wave"` in a configuration.
struct Wave;

#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct WaveOptions {
    /// The optimizer.
    optimizer: OptimizerTable,
    /// Learning rate schedules.
    schedulers: Vec<SchedulerTable>,
}

impl Task for Wave {
    type Options = WaveOptions;
    type Module = Burn<Net>;
    type Data = DataLoaders<Points>;

    fn name(&self) -> &'static str {
        "wave"
    }

    fn purpose(&self) -> &'static str {
        "learns a wave from a few of its points"
    }

    fn defaults(&self) -> &'static str {
        r#"
            [trainer]
            max_epochs = 20

            [optimizer]
            use = "heavy_ball"
            lr = 0.02

            [[schedulers]]
            use = "staircase"
            height = 20

            [[hooks]]
            use = "losses"
        "#
    }

    fn build(
        &self,
        options: WaveOptions,
        build: &BuildContext<'_>,
    ) -> Result<(Burn<Net>, DataLoaders<Points>), Vec<Problem>> {
        let device = device(build.device).map_err(|error| vec![Problem::new("device", error.to_string())])?;
        let recipe = OptimizerFactory::new(options.optimizer, options.schedulers, build.registry)?;
        device.seed(build.seed);
        let linear = |from, to| LinearConfig::new(from, to).init(&device);
        let module = Burn::new(Net { hidden: linear(1, 16), out: linear(16, 1) }, &device)
            .with_optimizers(move |_| recipe.optimizers().map_err(Into::into));
        let batches = |name: &str, first: u16| {
            let device = device.clone();
            let samples: Vec<f32> = (first..300).step_by(3).map(|i| f32::from(i) / 150.0 - 1.0).collect();
            Batches::new(name, samples, move |samples| Ok(points(samples, &device))).size(10)
        };
        let data = DataLoaders::new()
            .train(batches("train", 0).shuffled(build.seed))
            .validate(batches("val", 1))
            .test(batches("test", 2))
            .predict(batches("test", 2));
        Ok((module, data))
    }

    fn show(&self, prediction: &Vec<f32>) -> Vec<serde_json::Value> {
        prediction.iter().map(|y| json!({ "y": y })).collect()
    }
}

fn points(x: Vec<f32>, device: &Device) -> Points {
    let y = x.iter().map(|x| (3.0 * x).sin()).collect();
    let column = |numbers: Vec<f32>| {
        let rows = numbers.len();
        Tensor::from_data(TensorData::new(numbers, [rows, 1]), device)
    };
    Points { y: column(y), x: column(x) }
}

/// `use = "losses"`: prints the losses of every epoch.
struct Losses {
    digits: usize,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct LossesOptions {
    /// Digits after the decimal point.
    digits: usize,
}

impl Default for LossesOptions {
    fn default() -> LossesOptions {
        LossesOptions { digits: 4 }
    }
}

impl Losses {
    fn new(options: LossesOptions) -> Result<Losses, String> {
        if options.digits > 9 {
            return Err("`digits` must be 9 or less".into());
        }
        Ok(Losses { digits: options.digits })
    }
}

#[hook]
impl Observer for Losses {
    fn on_train_epoch_end(&mut self, cx: &TrainEpochEnd) -> HookResult {
        let (digits, metric) = (self.digits, |name| cx.metrics().get(name).unwrap_or(f64::NAN));
        let (train, val) = (metric("train/loss"), metric("val/loss"));
        println!("epoch {:>2}  train/loss {train:.digits$}  val/loss {val:.digits$}", cx.epoch);
        Ok(())
    }
}

/// `use = "staircase"`: lowers the learning rate by a tenth at regular intervals.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Staircase {
    /// Number of steps between two reductions.
    height: u64,
}

impl Scheduler for Staircase {
    fn factor(&mut self, tick: ScheduleStep) -> Result<f64, BoxError> {
        Ok(0.9_f64.powf((tick.count / self.height) as f64))
    }
}

fn staircase(options: Staircase) -> Result<Staircase, &'static str> {
    if options.height == 0 { Err("`height` must be 1 or more") } else { Ok(options) }
}

/// `use = "heavy_ball"`: gradient descent with momentum.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct HeavyBall {
    /// Fraction of the momentum that is lost per step.
    friction: f64,
}

impl Default for HeavyBall {
    fn default() -> HeavyBall {
        HeavyBall { friction: 0.1 }
    }
}

impl OptimizerOptions<BurnEngine> for HeavyBall {
    #[allow(clippy::cast_possible_truncation)] // Burn's settings are 32-bit
    fn algorithm(&self, weight_decay: f64) -> Result<Algorithm, BoxError> {
        if !(0.0..=1.0).contains(&self.friction) {
            return Err(OptionError::new("friction", "`friction` must be from 0 to 1").into());
        }
        let momentum = MomentumConfig::new().with_momentum(1.0 - self.friction).with_dampening(0.0);
        let decay = WeightDecayConfig::new(weight_decay as f32);
        Ok(SgdConfig::new().with_momentum(Some(momentum)).with_weight_decay(Some(decay)).build().into())
    }

    fn momentum(&self) -> Option<f64> {
        Some(1.0 - self.friction)
    }
}

fn main() -> ExitCode {
    let app = App::new("app")
        .task(Wave)
        .hook("losses", Losses::new)
        .scheduler("staircase", staircase)
        .optimizer::<BurnEngine, HeavyBall>("heavy_ball");
    if std::env::args_os().len() > 1 {
        return app.run();
    }
    let runs = match tempfile::tempdir() {
        Ok(runs) => runs,
        Err(error) => {
            eprintln!("error: no directory for the run: {error}");
            return ExitCode::FAILURE;
        }
    };
    let runs_dir = format!("runs_dir={}", runs.path().display());
    app.run_with(["app", "train", "--set", "trainer.max_epochs=2", "--set", &runs_dir, "--quiet"])
}
