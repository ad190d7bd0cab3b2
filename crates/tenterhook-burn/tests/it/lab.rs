//! Shared by the tests: two small models, their data, and a lock around the random generator of the process.

use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::module::{Module, Param};
use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig};
use burn::optim::SgdConfig;
use burn::tensor::activation::tanh;
use burn::tensor::{Device, Distribution, Tensor, TensorData};
use tenterhook::data::{BatchData, Batches, DataLoaders};
use tenterhook::{ModuleResult, Settings, TensorMap, Trainer};
use tenterhook_burn::{Burn, BurnCx, BurnModule, HookPoints as _, Optimizer, Step};
pub use tenterhook_testkit::recording::SharedVec;

static ALONE: Mutex<()> = Mutex::new(());

/// Makes models and data. Only one exists at a time, because the process has one random generator, which
/// every training step seeds.
pub struct Bench {
    pub device: Device,
    _alone: MutexGuard<'static, ()>,
}

impl Bench {
    pub fn new() -> Bench {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        Bench { device: Device::flex(), _alone: alone }
    }

    /// A net with the initial weights of this seed.
    pub fn net(&self, seed: u64) -> Net {
        self.net_with(0.5, seed)
    }

    /// A net with another dropout probability.
    pub fn net_with(&self, dropout: f64, seed: u64) -> Net {
        self.device.seed(seed);
        let net = Net::new(dropout, &self.device.clone().autodiff());
        // Burn initialises parameters at first use; this forces it now.
        net.fc1.weight.val();
        net.fc2.weight.val();
        net.fc1.bias.as_ref().map(Param::val);
        net.fc2.bias.as_ref().map(Param::val);
        net
    }

    pub fn burn<M: BurnModule>(&self, model: M) -> Burn<M> {
        Burn::new(model, &self.device)
    }

    /// Four training batches and two validation batches.
    pub fn pairs(&self) -> DataLoaders<Pairs> {
        let batches = |name, samples: u32, from: u32| {
            let device = self.device.clone();
            let samples: Vec<_> = (from..from + samples).collect();
            Batches::new(name, samples, move |samples| Ok(Pairs::new(&samples, &device))).size(5)
        };
        DataLoaders::new().train(batches("train", 20, 0).shuffled(1)).validate(batches("val", 10, 20))
    }

    pub fn slope(&self) -> Burn<Slope> {
        self.burn(Slope::new(&self.device.clone().autodiff()))
    }
}

/// A net with dropout.
#[derive(Module, Debug)]
pub struct Net {
    pub fc1: Linear,
    pub dropout: Dropout,
    pub fc2: Linear,
}

impl Net {
    fn new(dropout: f64, device: &Device) -> Net {
        Net {
            fc1: LinearConfig::new(3, 8).init(device),
            dropout: DropoutConfig::new(dropout).init(),
            fc2: LinearConfig::new(8, 2).init(device),
        }
    }

    pub fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.fc2.forward(self.dropout.forward(tanh(self.fc1.forward(x))))
    }

    pub fn loss(&self, batch: &Pairs) -> Tensor<1> {
        MseLoss::new().forward(self.forward(batch.x.clone()), batch.y.clone(), Reduction::Mean)
    }
}

#[derive(Clone)]
pub struct Pairs {
    pub x: Tensor<2>,
    pub y: Tensor<2>,
}

impl Pairs {
    pub fn new(samples: &[u32], device: &Device) -> Pairs {
        let number = |sample: &u32, at: u32| ((sample * 7 + at * 5) % 11) as f32 / 5.0 - 1.0;
        let rows = |columns: u32| {
            let numbers: Vec<_> =
                samples.iter().flat_map(|sample| (0..columns).map(move |at| number(sample, at))).collect();
            Tensor::from_data(TensorData::new(numbers, [samples.len(), columns as usize]), device)
        };
        Pairs { x: rows(3), y: rows(2) }
    }
}

impl BatchData for Pairs {
    fn size(&self) -> usize {
        self.x.dims()[0]
    }
}

impl BurnModule for Net {
    type Batch = Pairs;
    type Prediction = Vec<f32>;

    fn training_step(&mut self, batch: &Pairs, _: &mut BurnCx<'_, Net>) -> ModuleResult<Step> {
        Ok(self.loss(batch).into())
    }

    fn validation_step(&self, batch: &Pairs, cx: &mut BurnCx<'_, Net>) -> ModuleResult {
        // Drawing in a validation must not change training.
        let _ = Tensor::<1>::random([3], Distribution::Default, &batch.x.device());
        cx.output_with("prediction", || self.forward(batch.x.clone()));
        cx.log("val/loss", self.loss(batch).into_scalar());
        Ok(())
    }
}

/// A model whose gradients are the numbers of the batch: the loss is the sum of the products with its parameters.
#[derive(Module, Debug)]
pub struct Slope {
    pub weight: Param<Tensor<1>>,
    pub inner: Inner,
}

#[derive(Module, Debug)]
pub struct Inner {
    pub bias: Param<Tensor<1>>,
}

/// The gradients of `weight` and of `inner.bias`.
#[derive(Clone, Copy)]
pub struct Numbers(pub [f32; 2], pub [f32; 1]);

impl BatchData for Numbers {
    fn size(&self) -> usize {
        1
    }
}

impl Slope {
    pub fn new(device: &Device) -> Slope {
        let param = |numbers: &[f32]| Param::from_data(numbers, device);
        Slope { weight: param(&[0.0, 0.0]), inner: Inner { bias: param(&[0.0]) } }
    }

    /// A model with these initial parameters.
    pub fn at(weight: [f32; 2], bias: [f32; 1], device: &Device) -> Slope {
        let device = device.clone().autodiff();
        Slope {
            weight: Param::from_data(weight, &device),
            inner: Inner { bias: Param::from_data(bias, &device) },
        }
    }
}

impl BurnModule for Slope {
    type Batch = Numbers;
    type Prediction = ();

    fn training_step(&mut self, batch: &Numbers, _: &mut BurnCx<'_, Slope>) -> ModuleResult<Step> {
        let device = self.weight.device();
        let weight = (self.weight.val() * Tensor::from_data(batch.0, &device)).sum();
        let bias = (self.inner.bias.val() * Tensor::from_data(batch.1, &device)).sum();
        Ok((weight + bias).into())
    }

    fn validation_step(&self, _: &Numbers, cx: &mut BurnCx<'_, Slope>) -> ModuleResult {
        cx.log("val/loss", 1.0);
        Ok(())
    }
}

/// These batches in order, for training and validation.
pub fn numbers(batches: &[Numbers]) -> DataLoaders<Numbers> {
    to_train_on(batches).validate(one_by_one("val", batches))
}

/// These batches in order, for training.
pub fn to_train_on(batches: &[Numbers]) -> DataLoaders<Numbers> {
    DataLoaders::new().train(one_by_one("train", batches))
}

fn one_by_one(name: &str, batches: &[Numbers]) -> Batches<Numbers> {
    Batches::new(name, batches.to_vec(), |samples| Ok(samples[0])).size(1)
}

/// Plain SGD.
pub fn sgd(lr: f64) -> Optimizer {
    Optimizer::new("sgd", SgdConfig::new().build(), lr)
}

/// Settings for this number of epochs, without a sanity check.
pub fn epochs(epochs: i64) -> Settings {
    Settings { max_epochs: Some(epochs), num_sanity_val_steps: 0, ..Settings::default() }
}

/// A trainer that prints no notices.
pub fn trainer(settings: Settings) -> Trainer {
    Trainer::new(settings).unwrap().with_notices(|_| {}).without_run_header()
}

/// All weights by name.
pub fn weights<M: BurnModule>(module: &Burn<M>) -> TensorMap {
    tenterhook::Module::weights(module).unwrap()
}

/// The weights and the bias of the slope.
pub fn numbers_of(slope: &Burn<Slope>) -> (Vec<f32>, Vec<f32>) {
    let weights = weights(slope);
    (weights.f32("weight", &[2]).unwrap(), weights.f32("inner.bias", &[1]).unwrap())
}
