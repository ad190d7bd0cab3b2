//! The measured training runs, by name.

use std::path::Path;

use tenterhook::prelude::*;
use tenterhook::registry::Registry;
use tenterhook::run::RunDirectoryOptions;

use crate::measure::Result;
use crate::nothing;
use crate::on_gpt::{Natively, OnHost, PlainGpt};
use crate::workload::{self, BuiltInCnn, BuiltInGpt, Deep, Span, Tiny, Workload};

/// The variants of a measured training run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// A Burn loop without a trainer.
    Raw,
    /// The trainer without hooks.
    Trainer,
    /// With logging hooks: console, jsonl, lr monitor, throughput.
    Watched,
    /// With common hooks: console, jsonl, lr monitor, throughput, a checkpoint every 1,000 steps.
    Hooks,
    /// With common hooks and a run directory.
    Recorded,
    /// With the gradient monitor at every step.
    Monitored,
    /// With the norm of every gradient at every step: no copies of weights, no norms around clipping.
    Norms,
    /// With statistics of every activation at every step.
    Activations,
    /// With an update hook that changes every gradient in host memory.
    OnHost,
    /// With an update hook that changes every gradient on Burn's device.
    Natively,
    /// With a hook that allocates once per step, to check that the measurement detects it.
    Boxing,
}

impl How {
    pub const ALL: [(&str, How); 11] = [
        ("raw", How::Raw),
        ("trainer", How::Trainer),
        ("watched", How::Watched),
        ("hooks", How::Hooks),
        ("recorded", How::Recorded),
        ("monitored", How::Monitored),
        ("norms", How::Norms),
        ("activations", How::Activations),
        ("on_host", How::OnHost),
        ("natively", How::Natively),
        ("boxing", How::Boxing),
    ];

    fn parse(name: &str) -> Option<How> {
        How::ALL.into_iter().find(|(of, _)| *of == name).map(|(_, how)| how)
    }
}

/// Runs a single training and prints the time per step.
pub fn run(what: &str, how: &str, steps: u64) -> Result<()> {
    let known = || format!("`{how}` is none of {:?}", How::ALL.map(|(name, _)| name));
    let how = How::parse(how).ok_or_else(known)?;
    let span = Span::of(steps);
    let seconds = match what {
        "tiny" => train::<Tiny>(how, span)?,
        "deep" => train::<Deep>(how, span)?,
        "gpt" => train::<BuiltInGpt>(how, span)?,
        "plain" => train::<PlainGpt>(how, span)?,
        "cnn" => train::<BuiltInCnn>(how, span)?,
        "nothing" => nothing(how, span)?,
        _ => return Err("tiny, deep, gpt, plain, cnn or nothing?".into()),
    };
    println!("{seconds:e} seconds per step");
    Ok(())
}

/// Trains a module that does nothing, and returns the seconds per step.
pub fn nothing(how: How, span: Span) -> Result<f64> {
    let files = tempfile::tempdir()?;
    nothing::train(span, &mut trainer(how, span, files.path())?)
}

/// Trains, and returns the seconds per step.
pub fn train<W: Workload>(how: How, span: Span) -> Result<f64> {
    if how == How::Raw {
        return Ok(workload::raw::<W>(span));
    }
    let files = tempfile::tempdir()?;
    workload::trained::<W>(span, &mut trainer(how, span, files.path())?)
}

/// The trainer with its hooks, which write to this directory.
fn trainer(how: How, span: Span, files: &Path) -> Result<Trainer> {
    // Output is formatted but not printed.
    let mut trainer = Trainer::new(workload::settings(span))?.with_notices(|_| {}).without_run_header();
    let registry = Registry::default();
    let add = |trainer: &mut Trainer, name: &str, options: serde_json::Value| -> Result<()> {
        Ok(trainer.add_hook(registry.hook(name, options)?)?)
    };
    if matches!(how, How::Watched | How::Hooks | How::Recorded) {
        trainer = match how {
            How::Recorded => trainer.with_run_directory(RunDirectoryOptions::in_dir(files)),
            _ => trainer.with_checkpoints_in(files),
        };
        for name in ["console", "jsonl", "lr_monitor", "throughput"] {
            add(&mut trainer, name, serde_json::json!({}))?;
        }
    }
    match how {
        How::Hooks | How::Recorded => {
            add(&mut trainer, "checkpoint", serde_json::json!({ "every_n_train_steps": 1000 }))?;
        }
        How::Monitored => add(&mut trainer, "gradient_monitor", serde_json::json!({ "log_frequency": 1 }))?,
        How::Norms => {
            let options =
                serde_json::json!({ "log_frequency": 1, "log_update_ratio": false, "log_clipping": false });
            add(&mut trainer, "gradient_monitor", options)?;
        }
        How::Activations => add(&mut trainer, "activation_stats", serde_json::json!({ "log_frequency": 1 }))?,
        How::OnHost => trainer.add_hook(OnHost)?,
        How::Natively => trainer.add_hook(Natively)?,
        How::Boxing => trainer.add_hook(closure::on_train_batch_end("boxing", |cx| {
            std::hint::black_box(Box::new(cx.step));
        }))?,
        How::Raw | How::Trainer | How::Watched => {}
    }
    Ok(trainer)
}
