//! Two named training data loaders, sampled at a ratio of three to one. A hook prints the loader of every batch.
//!
//! `cargo run -p tenterhook-burn --example several_loaders`

use std::collections::BTreeMap;

use burn::module::{Module, Param};
use burn::optim::SgdConfig;
use burn::tensor::{Device, Tensor};
use tenterhook::data::{BatchData, Batches, DataLoaders, Interleave};
use tenterhook::prelude::*;
use tenterhook_burn::{Burn, BurnCx, BurnModule, Optimizer, Step};

/// Learns the mean of the data.
#[derive(Module, Debug)]
struct Mean {
    value: Param<Tensor<1>>,
}

struct Numbers(Tensor<1>);

impl BatchData for Numbers {
    fn size(&self) -> usize {
        self.0.dims()[0]
    }
}

impl BurnModule for Mean {
    type Batch = Numbers;
    type Prediction = ();

    fn training_step(&mut self, batch: &Numbers, cx: &mut BurnCx<'_, Mean>) -> ModuleResult<Step> {
        let loss = (self.value.val() - batch.0.clone()).square().mean();
        // The module can read the loader's name, for example to weight the loss.
        Ok(if cx.loader_name() == "synthetic" { loss * 0.5 } else { loss }.into())
    }
}

/// Prints the loaders of the batches in order.
#[derive(Default)]
struct LoaderOrder {
    names: Vec<String>,
    losses: BTreeMap<String, f64>,
}

#[hook]
impl Observer for LoaderOrder {
    fn on_train_batch_end(&mut self, cx: &TrainBatchEnd) -> HookResult {
        self.names.push(cx.batch.loader.to_owned());
        if let Some(loss) = &cx.loss {
            self.losses.insert(cx.batch.loader.to_owned(), loss.value());
        }
        Ok(())
    }

    fn on_train_epoch_end(&mut self, cx: &TrainEpochEnd) -> HookResult {
        println!("epoch {}: {}", cx.epoch, self.names.join(" "));
        println!("         last losses {:.3?}", self.losses);
        self.names.clear();
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::flex();
    let batches = |name, around: f32, count: u8| {
        let device = device.clone();
        let samples: Vec<_> = (0..count).map(|i| around + f32::from(i % 5) / 10.0).collect();
        let collate = move |samples: Vec<f32>| Ok(Numbers(Tensor::from_data(samples.as_slice(), &device)));
        Batches::new(name, samples, collate).size(8).shuffled(1)
    };
    let mut data = DataLoaders::new()
        .train(batches("real", 1.0, 48))
        .train(batches("synthetic", 2.0, 16))
        // Sampled at random; `Interleave::Alternating(vec![3, 1])` is strictly periodic.
        .interleave(Interleave::Weighted(vec![3.0, 1.0]));

    let mean = Mean { value: Param::from_data([0.0_f32], &device) };
    let mut module = Burn::new(mean, &device)
        .with_optimizers(|_| Ok(Optimizer::new("sgd", SgdConfig::new().build(), 0.1).into()));
    let mut trainer = Trainer::new(Settings { max_epochs: Some(4), ..Settings::default() })?;
    trainer.add_hook(LoaderOrder::default())?;
    trainer.fit(&mut module, &mut data)?;
    println!("mean {:.2}", module.value.val().into_scalar::<f32>());
    Ok(())
}
