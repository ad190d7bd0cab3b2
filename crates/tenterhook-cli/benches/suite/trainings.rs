//! The trainings that are measured, by name: what is trained, and how.

use tenterhook::prelude::*;
use tenterhook::registry::Registry;
use tenterhook::run::RunDirectoryPlan;

use crate::measure::Result;
use crate::workload::{self, BuiltInCnn, BuiltInGpt, Deep, Span, Tiny, Workload};

/// How a model is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// By a Burn loop without a trainer.
    Raw,
    /// By the trainer without hooks.
    Trainer,
    /// With what many have: console, jsonl, lr monitor, throughput, a checkpoint every 1,000 steps.
    Hooks,
    /// With these and a run directory.
    Recorded,
    /// With the gradient monitor at every step.
    Monitored,
    /// With a hook that allocates once per step, to see that this shows.
    Boxing,
}

impl How {
    pub const ALL: [(&str, How); 6] = [
        ("raw", How::Raw),
        ("trainer", How::Trainer),
        ("hooks", How::Hooks),
        ("recorded", How::Recorded),
        ("monitored", How::Monitored),
        ("boxing", How::Boxing),
    ];

    fn parse(name: &str) -> Option<How> {
        How::ALL.into_iter().find(|(of, _)| *of == name).map(|(_, how)| how)
    }
}

/// One training and nothing else; prints what a step took.
pub fn run(what: &str, how: &str, steps: u64) -> Result<()> {
    let how = How::parse(how).ok_or("raw, trainer, hooks, recorded, monitored or boxing?")?;
    let span = Span { warm_up: 0, timed: steps };
    let seconds = match what {
        "tiny" => train::<Tiny>(how, span)?,
        "deep" => train::<Deep>(how, span)?,
        "gpt" => train::<BuiltInGpt>(how, span)?,
        "cnn" => train::<BuiltInCnn>(how, span)?,
        _ => return Err("tiny, deep, gpt or cnn?".into()),
    };
    println!("{seconds:e} seconds per step");
    Ok(())
}

/// Trains: seconds per step.
pub fn train<W: Workload>(how: How, span: Span) -> Result<f64> {
    if how == How::Raw {
        return workload::raw::<W>(span);
    }
    // What it prints is made and goes nowhere.
    let mut trainer = Trainer::new(workload::settings(span))?.with_notices(|_| {});
    let registry = Registry::default();
    let files = tempfile::tempdir()?;
    if matches!(how, How::Hooks | How::Recorded) {
        trainer = match how {
            How::Recorded => trainer.with_run_directory(RunDirectoryPlan::below(files.path())),
            _ => trainer.with_checkpoints_in(files.path()),
        };
        let none = || serde_json::json!({});
        for name in ["console", "jsonl", "lr_monitor", "throughput"] {
            trainer.add_hook(registry.hook(name, none())?)?;
        }
        let every = serde_json::json!({ "every_n_train_steps": 1000 });
        trainer.add_hook(registry.hook("checkpoint", every)?)?;
    }
    if how == How::Monitored {
        trainer.add_hook(registry.hook("gradient_monitor", serde_json::json!({ "log_frequency": 1 }))?)?;
    }
    if how == How::Boxing {
        let boxing = closure::on_train_batch_end("boxing", |cx| {
            std::hint::black_box(Box::new(cx.step));
        });
        trainer.add_hook(boxing)?;
    }
    workload::trained::<W>(span, &mut trainer)
}
