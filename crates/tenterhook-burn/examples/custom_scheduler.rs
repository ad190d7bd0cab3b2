//! A custom learning rate schedule, stepped after every optimizer step. A hook draws the learning rate.
//!
//! `cargo run -p tenterhook-burn --example custom_scheduler`

use burn::module::{Module, Param};
use burn::optim::SgdConfig;
use burn::tensor::{Device, Tensor};
use tenterhook::data::{BatchData, Batches, DataLoaders};
use tenterhook::prelude::*;
use tenterhook::schedule::{ScheduleStep, Scheduler};
use tenterhook_burn::{Burn, BurnCx, BurnModule, Optimizer, Schedule, Step};

/// A triangular wave whose height halves in every period.
struct Triangle {
    period: u64,
}

impl Scheduler for Triangle {
    fn factor(&mut self, tick: ScheduleStep) -> Result<f64, BoxError> {
        let (wave, at) = (tick.count / self.period, tick.count % self.period);
        let share = at as f64 / self.period as f64;
        let height = 0.5_f64.powf(wave as f64);
        Ok(height * (1.0 - (2.0 * share - 1.0).abs()).max(0.1))
    }
}

#[derive(Module, Debug)]
struct Valley {
    x: Param<Tensor<1>>,
}

/// The loss depends only on the model, so a batch has no data.
struct EmptyBatch;

impl BatchData for EmptyBatch {
    fn size(&self) -> usize {
        1
    }
}

impl BurnModule for Valley {
    type Batch = EmptyBatch;
    type Prediction = ();

    fn training_step(&mut self, _: &EmptyBatch, _: &mut BurnCx<'_, Valley>) -> ModuleResult<Step> {
        Ok((self.x.val() - 2.0).square().sum().into())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::flex();
    let valley = Valley { x: Param::from_data([-1.0_f32], &device) };
    let mut module = Burn::new(valley, &device).with_optimizers(|_| {
        let sgd = Optimizer::new("sgd", SgdConfig::new().build(), 0.2);
        Ok(sgd.schedule(Schedule::per_step(Triangle { period: 10 })).into())
    });
    let mut data = DataLoaders::new().train(Batches::new("train", vec![(); 30], |_| Ok(EmptyBatch)).size(1));

    let mut trainer = Trainer::new(Settings { max_epochs: Some(1), ..Settings::default() })?;
    trainer.add_hook(closure::on_step_end("draw", |cx| {
        let bar: String = (0..40).filter(|mark| f64::from(*mark) / 200.0 < cx.lr).map(|_| '#').collect();
        println!("step {:>2}  loss {:.3}  lr {:.3} {bar}", cx.step, cx.loss.value(), cx.lr);
    }))?;
    trainer.fit(&mut module, &mut data)?;
    Ok(())
}
