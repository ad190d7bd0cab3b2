//! Hooks in your own training loop, without the trainer.
//!
//! `cargo run --release -p tenterhook --example own_loop`

use tenterhook::OwnLoop;
use tenterhook::prelude::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let hooks = OwnLoop::new(hooks![
        closure::on_step_end("print", |cx| println!("step {}  loss {:.3}", cx.step, cx.loss.value())),
        closure::on_step_end("stop", |cx| {
            if cx.loss.value() < 0.1 { Decision::stop("good enough") } else { Decision::CONTINUE }
        }),
    ])?;

    let mut x = 4.0_f64;
    loop {
        // Your training step: here, halving x makes x² small.
        x *= 0.5;
        let loss = x * x;

        // This loop does not compute the norm of its gradients.
        let (loss, norm) = (Scalar::new(&loss), Scalar::new(&f64::NAN));
        let verdict = hooks.emit(|run_cx| StepEnd::new(run_cx, loss, norm, 0.5, 0.5))?;
        if let Some((hook, reason)) = verdict.stop() {
            println!("`{hook}` stops: {reason}");
            return Ok(());
        }
    }
}
