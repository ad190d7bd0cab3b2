//! Hooks on a loop of your own, without the trainer: the runner alone.
//!
//! `cargo run --release -p tenterhook --example own_loop`

use tenterhook::moment::{FixedClock, NoModel};
use tenterhook::prelude::*;
use tenterhook::{HookRunner, Shared};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut hooks = HookRunner::default();
    hooks
        .add(closure::on_step_end("print", |cx| println!("step {}  loss {:.3}", cx.step, cx.loss.value())))?;
    hooks.add(closure::on_step_end("stop", |cx| {
        if cx.loss.value() < 0.1 { Decision::stop("good enough") } else { Decision::CONTINUE }
    }))?;
    let shared = Shared::new(RunInfo::default(), 0, Box::new(FixedClock::default()));
    hooks.publish(&shared);

    let (mut x, mut progress) = (4.0_f64, Progress::default());
    'training: loop {
        // Your own step: here, halving x makes x² small.
        x *= 0.5;
        let loss = x * x;
        progress.step += 1;
        progress.step_counted = true;

        // An event nobody wants costs this test and nothing else.
        if hooks.wants(Event::StepEnd) {
            let standing = (Stage::Fit, Phase::Train, Status::Training);
            let moment = Moment::new(standing, progress, &shared, &NoModel, &NoModel);
            let (loss, grad_norm) = (Scalar::new(&loss), Scalar::new(&0.0));
            let event = StepEnd { moment, loss, grad_norm, lr: 0.5, next_lr: 0.5 };
            hooks.deliver(&event)?;
        }
        for decided in hooks.take_decisions() {
            if let Flow::Stop { reason } = decided.decision.flow() {
                println!("`{}` stops: {reason}", decided.hook);
                break 'training;
            }
        }
    }
    Ok(())
}
