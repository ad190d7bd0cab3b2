//! Closures as hooks, and wrappers that call them less often.
//!
//! `cargo run --release -p tenterhook --example closures_and_wrappers`

use tenterhook::prelude::*;
use tenterhook::toy::{Toy, ToyData};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut trainer = Trainer::new(Settings { max_epochs: Some(4), ..Settings::default() })?;

    let print =
        closure::on_step_end("print", |cx| println!("step {:>2}  loss {:.4}", cx.step, cx.loss.value()));
    trainer.add_hook(print.every("10 steps")?)?;

    let gradients = closure::on_before_optimizer_step("gradients", |cx| {
        println!("step {:>2}  gradient norm {:.4}", cx.current_step(), cx.gradients.norm());
    });
    trainer.add_hook(gradients.once())?;

    // A closure that returns a decision is a controller.
    let halve_lr = closure::on_train_epoch_start("halve_lr", |cx| {
        if cx.epoch == 2 { Decision::scale_lr(0.5) } else { Decision::CONTINUE }
    });
    trainer.add_hook(halve_lr)?;

    for hook in trainer.list_hooks() {
        println!("{:<12} {}", hook.name, hook.kind);
    }
    trainer.fit(&mut Toy::default(), &mut ToyData::default())?;
    Ok(())
}
