//! A hook of your own on a training run: watch the losses, and stop when they are small enough.
//!
//! `cargo run --release -p tenterhook --example first_hook`

use tenterhook::prelude::*;
use tenterhook::toy::{Toy, ToyData};

/// Watches, and cannot do anything else.
#[derive(Default)]
struct Losses {
    seen: Vec<f64>,
}

#[hook]
impl Observer for Losses {
    fn on_step_end(&mut self, cx: &StepEnd) -> HookResult {
        self.seen.push(cx.loss.value());
        Ok(())
    }

    fn on_train_end(&mut self, cx: &TrainEnd) -> HookResult {
        let (first, last) = (self.seen.first(), self.seen.last());
        println!("{} steps, loss from {:.3} to {:.5}", cx.step, first.unwrap_or(&0.0), last.unwrap_or(&0.0));
        Ok(())
    }
}

/// Watches, and may say how training goes on.
struct GoodEnough {
    loss: f64,
}

#[hook(reads = ["val/loss"])]
impl Controller for GoodEnough {
    fn on_validation_end(&mut self, cx: &ValidationEnd) -> HookResult<Decision> {
        let loss = cx.metrics().get("val/loss").unwrap_or(f64::INFINITY);
        if loss < self.loss {
            return Ok(Decision::stop(format!("val/loss {loss:.6} is below {}", self.loss)));
        }
        Ok(Decision::CONTINUE)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut trainer = Trainer::new(Settings { max_epochs: Some(500), ..Settings::default() })?;
    trainer.add_hook(Losses::default())?;
    trainer.add_hook(GoodEnough { loss: 0.001 })?;
    let mut toy = Toy::default();
    let report = trainer.fit(&mut toy, &mut ToyData::default())?;
    println!("{:?}", report.outcome);
    println!("weight {:.2?}, bias {:.2?}", toy.param("weight"), toy.param("bias"));
    Ok(())
}
