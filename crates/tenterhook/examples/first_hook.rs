//! Two hooks: an observer that records the losses, and a controller that stops training when the loss is small enough.
//!
//! `cargo run --release -p tenterhook --example first_hook`

use tenterhook::prelude::*;
use tenterhook::toy::{Toy, ToyData};

/// An observer: it reads, and cannot change training.
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

/// A controller: it may return a decision.
struct StopBelow {
    loss: f64,
}

#[hook(reads = ["val/loss"])]
impl Controller for StopBelow {
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
    trainer.add_hook(StopBelow { loss: 0.001 })?;
    let mut toy = Toy::default();
    let report = trainer.fit(&mut toy, &mut ToyData::default())?;
    println!("{:?}", report.outcome);
    println!("weight {:.2?}, bias {:.2?}", toy.param("weight"), toy.param("bias"));
    Ok(())
}
