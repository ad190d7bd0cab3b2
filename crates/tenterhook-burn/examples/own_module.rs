//! A complete module: its four steps, an optimizer with parameter groups and a schedule, and a lifecycle handler.
//!
//! `cargo run -p tenterhook-burn --example own_module`

use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig};
use burn::optim::AdamWConfig;
use burn::tensor::activation::relu;
use burn::tensor::{Device, Int, Tensor, TensorData};
use tenterhook::TensorSource;
use tenterhook::data::{BatchData, Batches, DataLoaders};
use tenterhook::module::Horizon;
use tenterhook::prelude::*;
use tenterhook::schedule::Cosine;
use tenterhook_burn::{Burn, BurnCx, BurnModule, Group, Optimizer, Optimizers, Schedule, Step, TensorList};

/// Classifies points as inside or outside of a circle.
#[derive(Module, Debug)]
struct Circle {
    fc1: Linear,
    dropout: Dropout,
    fc2: Linear,
}

#[derive(Clone)]
struct Points {
    at: Tensor<2>,
    inside: Tensor<1, Int>,
    shown: TensorList,
}

impl BatchData for Points {
    fn size(&self) -> usize {
        self.at.dims()[0]
    }

    // The float tensors that hooks see as `cx.batch.tensors`.
    fn tensors(&self) -> &dyn TensorSource {
        &self.shown
    }
}

impl Circle {
    fn new(device: &Device) -> Circle {
        Circle {
            fc1: LinearConfig::new(2, 32).init(device),
            dropout: DropoutConfig::new(0.1).init(),
            fc2: LinearConfig::new(32, 2).init(device),
        }
    }

    fn forward(&self, at: Tensor<2>) -> Tensor<2> {
        self.fc2.forward(self.dropout.forward(relu(self.fc1.forward(at))))
    }

    fn loss(&self, batch: &Points) -> Tensor<1> {
        let logits = self.forward(batch.at.clone());
        CrossEntropyLossConfig::new().init(&batch.at.device()).forward(logits, batch.inside.clone())
    }

    fn classes(&self, batch: &Points) -> Tensor<1, Int> {
        self.forward(batch.at.clone()).argmax(1).squeeze_dim(1)
    }

    fn accuracy(&self, batch: &Points) -> f64 {
        let right: f64 = self.classes(batch).equal(batch.inside.clone()).int().sum().into_scalar();
        right / batch.size() as f64
    }
}

impl BurnModule for Circle {
    type Batch = Points;
    type Prediction = Vec<i64>;

    fn training_step(&mut self, batch: &Points, _: &mut BurnCx<'_, Circle>) -> ModuleResult<Step> {
        Ok(self.loss(batch).into())
    }

    // In the evaluation steps the model has no autodiff, and dropout is off.
    fn validation_step(&self, batch: &Points, cx: &mut BurnCx<'_, Circle>) -> ModuleResult {
        cx.log("val/loss", self.loss(batch).into_scalar());
        cx.log("val/accuracy", self.accuracy(batch));
        Ok(())
    }

    fn test_step(&self, batch: &Points, cx: &mut BurnCx<'_, Circle>) -> ModuleResult {
        cx.log("test/accuracy", self.accuracy(batch));
        Ok(())
    }

    fn predict_step(&self, batch: &Points, _: &mut BurnCx<'_, Circle>) -> ModuleResult<Vec<i64>> {
        Ok(self.classes(batch).into_data().iter::<i64>().collect())
    }

    fn configure_optimizers(&mut self, _: Horizon) -> Result<Optimizers, BoxError> {
        let decayed = AdamWConfig::new().with_weight_decay(0.01).build();
        let plain = AdamWConfig::new().with_weight_decay(0.0).build();
        let optimizer = Optimizer::new("adamw", decayed, 0.02)
            .group(Group::new("no_decay", ["**.bias"]).with(plain))
            .schedule(Schedule::per_step(Cosine { warmup: 10, ..Cosine::default() }));
        Ok(optimizer.into())
    }

    fn on_train_epoch_end(&mut self, cx: &mut BurnCx<'_, Circle>) -> ModuleResult {
        let metric = |name| cx.metrics().get(name).unwrap_or(f64::NAN);
        let (loss, accuracy) = (metric("val/loss"), metric("val/accuracy"));
        println!("epoch {:>2}  val/loss {loss:.3}  val/accuracy {accuracy:.3}", cx.epoch());
        Ok(())
    }
}

/// Every third of 900 points in the unit disc, starting with this one.
fn points(first: usize) -> Vec<([f32; 2], i64)> {
    let at = |i: usize| {
        let (radius, angle) = (((i * 389 % 900) as f32 / 900.0).sqrt(), i as f32 * 2.4);
        ([radius * angle.cos(), radius * angle.sin()], i64::from(radius < 0.7))
    };
    (first..900).step_by(3).map(at).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::flex();
    device.seed(1);
    let batches = |name, first| {
        let device = device.clone();
        let collate = move |samples: Vec<([f32; 2], i64)>| {
            let size = samples.len();
            let (at, inside): (Vec<_>, Vec<_>) = samples.into_iter().unzip();
            let at: Tensor<2> = Tensor::from_data(TensorData::new(at.concat(), [size, 2]), &device);
            let inside: Tensor<1, Int> = Tensor::from_data(TensorData::new(inside, [size]), &device);
            let shown = TensorList::default().with("at", at.clone()).with("inside", inside.clone().float());
            Ok(Points { at, inside, shown })
        };
        Batches::new(name, points(first), collate)
    };
    let mut data = DataLoaders::new()
        .train(batches("train", 0).shuffled(1))
        .validate(batches("val", 1))
        .test(batches("test", 2))
        .predict(batches("test", 2).size(12));

    let mut module = Burn::new(Circle::new(&device), &device);
    let mut trainer = Trainer::new(Settings {
        max_epochs: Some(10),
        limit_predict_batches: Some(BatchLimit::Count(1)),
        ..Settings::default()
    })?;
    trainer.fit(&mut module, &mut data)?;
    let report = trainer.test(&mut module, &mut data)?;
    println!("test/accuracy {:.3}", report.metrics["test/accuracy"]);
    let (_, predictions) = trainer.predict(&mut module, &mut data)?;
    println!("the first of the test set: {:?}", predictions[0][0]);
    Ok(())
}
