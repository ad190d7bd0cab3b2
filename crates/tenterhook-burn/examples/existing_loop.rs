//! Hooks on a Burn loop that you have already and want to keep: no trainer, the runner alone.
//!
//! `cargo run -p tenterhook-burn --example existing_loop`

use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::{Device, Distribution, Tensor};
use tenterhook::moment::{FixedClock, NoModel};
use tenterhook::prelude::*;
use tenterhook::{HookRunner, Part, Shared};
use tenterhook_burn::Loss;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut hooks = HookRunner::default();
    let print =
        closure::on_step_end("print", |cx| println!("step {:>3}  loss {:.4}", cx.step, cx.loss.value()));
    hooks.add(print.every("20 steps")?)?;
    hooks.add(closure::on_step_end("stop", |cx| {
        if cx.loss.value() < 0.001 { Decision::stop("good enough") } else { Decision::CONTINUE }
    }))?;
    let shared = Shared::new(RunInfo::default(), 0, Box::new(FixedClock::default()));
    hooks.publish(&shared);

    // The loop as it was …
    let device = Device::flex().autodiff();
    device.seed(1);
    let mut model: Linear = LinearConfig::new(4, 1).init(&device);
    let mut optimizer = AdamWConfig::new().init();
    let mut progress = Progress::default();
    'training: for _ in 0..1000 {
        let x = Tensor::<2>::random([32, 4], Distribution::Normal(0.0, 1.0), &device);
        let y = x.clone().sum_dim(1);
        let loss = MseLoss::new().forward(model.forward(x), y, Reduction::Mean);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(0.03, model, gradients);

        // … and what makes hooks of it.
        progress.step += 1;
        progress.step_counted = true;
        step_end(&mut hooks, &shared, progress, &loss.into())?;
        for decided in hooks.take_decisions() {
            if let Flow::Stop { reason } = decided.decision.flow() {
                println!("step {:>3}  `{}` stops: {reason}", progress.step, decided.hook);
                break 'training;
            }
        }
    }
    Ok(())
}

/// Tells the hooks that a step is complete. The loss stays on the device unless one of them reads it.
fn step_end(hooks: &mut HookRunner, shared: &Shared, progress: Progress, loss: &Loss) -> Result<(), Failure> {
    if hooks.wants(Event::StepEnd) {
        let standing = (Stage::Fit, Phase::Train, Status::Training);
        let moment = Moment::new(standing, progress, shared, &NoModel, &NoModel);
        // This loop does not know the norm of its gradients.
        let (loss, grad_norm) = (Scalar::new(loss), Scalar::new(&f64::NAN));
        let event = StepEnd { moment, loss, grad_norm, lr: 0.03, next_lr: 0.03 };
        hooks.deliver(&event)?;
    }
    Ok(())
}
