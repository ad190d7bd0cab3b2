//! A GAN with two optimizers and manual optimization: a generator learns to sample from a normal
//! distribution, and a critic learns to distinguish its samples from real ones.
//!
//! `cargo run -p tenterhook-burn --example gan`

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::AdamConfig;
use burn::tensor::activation::{relu, softplus};
use burn::tensor::{Device, Distribution, Tensor, TensorData};
use tenterhook::data::{BatchData, Batches, DataLoaders};
use tenterhook::module::Horizon;
use tenterhook::prelude::*;
use tenterhook_burn::{Burn, BurnCx, BurnModule, Optimizer, Optimizers};

const REAL: Distribution = Distribution::Normal(4.0, 1.25);
const BATCH: usize = 128;

#[derive(Module, Debug)]
struct Gan {
    generator: Linear,
    critic: Critic,
}

#[derive(Module, Debug)]
struct Critic {
    fc1: Linear,
    fc2: Linear,
    out: Linear,
}

impl Critic {
    /// Scores of the samples; higher ones look more real.
    fn forward(&self, samples: Tensor<2>) -> Tensor<2> {
        self.out.forward(relu(self.fc2.forward(relu(self.fc1.forward(samples)))))
    }
}

impl Gan {
    fn new(device: &Device) -> Gan {
        let linear = |from, to| LinearConfig::new(from, to).init(device);
        Gan {
            generator: linear(1, 1),
            critic: Critic { fc1: linear(1, 32), fc2: linear(32, 32), out: linear(32, 1) },
        }
    }

    fn generate(&self, count: usize) -> Tensor<2> {
        let noise = Distribution::Normal(0.0, 1.0);
        self.generator.forward(Tensor::random([count, 1], noise, &self.generator.weight.device()))
    }
}

struct Samples(Tensor<2>);

impl BatchData for Samples {
    fn size(&self) -> usize {
        self.0.dims()[0]
    }
}

/// The optimizers, in the order of `configure_optimizers`.
const GENERATOR: usize = 0;
const CRITIC: usize = 1;

impl BurnModule for Gan {
    type Batch = Samples;
    type Prediction = ();

    fn automatic_optimization(&self) -> bool {
        false
    }

    fn configure_optimizers(&mut self, _: Horizon) -> Result<Optimizers, BoxError> {
        let adam = || AdamConfig::new().with_beta_1(0.5).build();
        Ok(Optimizers::one(Optimizer::new("generator", adam(), 0.01).only(["generator.**"]))
            .and(Optimizer::new("critic", adam(), 0.005).only(["critic.**"])))
    }

    fn manual_step(gan: &mut Burn<Gan>, batch: &Samples, cx: &mut BurnCx<'_, Gan>) -> ModuleResult {
        let real = gan.critic.forward(batch.0.clone());
        let made = gan.critic.forward(gan.generate(BATCH).detach());
        let loss = softplus(real.neg(), 1.0).mean() + softplus(made, 1.0).mean();
        cx.zero_grad(gan, CRITIC)?;
        cx.backward(gan, &loss.into())?;
        cx.optimizer_step(gan, CRITIC)?;

        let loss = softplus(gan.critic.forward(gan.generate(BATCH)).neg(), 1.0).mean();
        cx.zero_grad(gan, GENERATOR)?;
        cx.backward(gan, &loss.into())?;
        cx.optimizer_step(gan, GENERATOR)
    }

    fn on_train_epoch_end(&mut self, cx: &mut BurnCx<'_, Gan>) -> ModuleResult {
        let made = self.generate(4096).inner();
        let (variance, mean) = made.var_mean(0);
        let (mean, std): (f64, f64) = (mean.into_scalar(), variance.sqrt().into_scalar());
        println!("step {:>4}  generated: mean {mean:.2}, std {std:.2}", cx.progress().step);
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::flex();
    device.seed(1);
    let real: Vec<f32> = Tensor::<1>::random([100 * BATCH], REAL, &device).into_data().iter().collect();
    let mut module = Burn::new(Gan::new(&device), &device);
    let collate = move |samples: Vec<f32>| {
        let size = samples.len();
        Ok(Samples(Tensor::from_data(TensorData::new(samples, [size, 1]), &device)))
    };
    let mut data = DataLoaders::new().train(Batches::new("real", real, collate).size(BATCH).shuffled(1));

    println!("                 real: mean 4.00, std 1.25");
    let mut trainer = Trainer::new(Settings { max_epochs: Some(10), ..Settings::default() })?;
    trainer.fit(&mut module, &mut data)?;
    Ok(())
}
