//! Hooks in an existing Burn loop, without the trainer.
//!
//! `cargo run -p tenterhook-burn --example existing_loop`

use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::{Device, Distribution, Tensor};
use tenterhook::OwnLoop;
use tenterhook::prelude::*;
use tenterhook_burn::Loss;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let print =
        closure::on_step_end("print", |cx| println!("step {:>3}  loss {:.4}", cx.step, cx.loss.value()));
    let stop = closure::on_step_end("stop", |cx| {
        if cx.loss.value() < 0.001 { Decision::stop("good enough") } else { Decision::CONTINUE }
    });
    let hooks = OwnLoop::new(hooks![print.every("20 steps")?, stop])?;

    // The existing loop …
    let device = Device::flex().autodiff();
    device.seed(1);
    let mut model: Linear = LinearConfig::new(4, 1).init(&device);
    let mut optimizer = AdamWConfig::new().init();
    for _ in 0..1000 {
        let x = Tensor::<2>::random([32, 4], Distribution::Normal(0.0, 1.0), &device);
        let y = x.clone().sum_dim(1);
        let loss = MseLoss::new().forward(model.forward(x), y, Reduction::Mean);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(0.03, model, gradients);

        // … with the lines that add hooks. The loss stays on the device unless a hook reads it.
        let loss = Loss::from(loss);
        let (loss, norm) = (Scalar::new(&loss), Scalar::new(&f64::NAN));
        let verdict = hooks.emit(|run_cx| StepEnd::new(run_cx, loss, norm, 0.03, 0.03))?;
        if let Some((hook, reason)) = verdict.stop() {
            println!("step {:>3}  `{hook}` stops: {reason}", hooks.progress().step);
            break;
        }
    }
    Ok(())
}
