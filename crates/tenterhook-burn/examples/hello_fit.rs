//! A minimal training: a Burn model, its training step, and a hook that prints the loss.
//!
//! `cargo run -p tenterhook-burn --example hello_fit`

use burn::module::Module;
use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::{Linear, LinearConfig};
use burn::optim::SgdConfig;
use burn::tensor::{Device, Tensor, TensorData};
use tenterhook::data::{BatchData, Batches, DataLoaders};
use tenterhook::prelude::*;
use tenterhook_burn::{Burn, BurnCx, BurnModule, Optimizer, Step};

#[derive(Module, Debug)]
struct Line {
    fc: Linear,
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

impl BurnModule for Line {
    type Batch = Points;
    type Prediction = ();

    fn training_step(&mut self, batch: &Points, _: &mut BurnCx<'_, Line>) -> ModuleResult<Step> {
        let guess = self.fc.forward(batch.x.clone());
        Ok(MseLoss::new().forward(guess, batch.y.clone(), Reduction::Mean).into())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::flex();
    let line = Line { fc: LinearConfig::new(1, 1).init(&device) };
    let mut module = Burn::new(line, &device)
        .with_optimizers(|_| Ok(Optimizer::new("sgd", SgdConfig::new().build(), 0.2).into()));

    let samples: Vec<f32> = (0..64).map(|i| i as f32 / 32.0 - 1.0).collect();
    let collate = move |x: Vec<f32>| {
        let y = x.iter().map(|x| 3.0 * x + 0.5).collect();
        let column = |numbers: Vec<f32>| {
            let rows = numbers.len();
            Tensor::from_data(TensorData::new(numbers, [rows, 1]), &device)
        };
        Ok(Points { y: column(y), x: column(x) })
    };
    let mut data = DataLoaders::new().train(Batches::new("train", samples, collate).size(16).shuffled(1));

    let mut trainer = Trainer::new(Settings { max_epochs: Some(15), ..Settings::default() })?;
    let print =
        closure::on_step_end("print", |cx| println!("step {:>2}  loss {:.5}", cx.step, cx.loss.value()));
    trainer.add_hook(print.every("10 steps")?)?;
    trainer.fit(&mut module, &mut data)?;

    let answer: f32 = module.fc.forward(Tensor::<2>::ones([1, 1], module.device())).into_scalar();
    println!("3 · 1 + 0.5 = {answer:.3}");
    Ok(())
}
