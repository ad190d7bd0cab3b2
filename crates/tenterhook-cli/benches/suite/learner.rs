//! Against Burn's own `Learner`: in `benches/learner`, a package apart, because it needs parts of Burn that nothing else
//! here does.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::measure::{Effort, Measured, Result};
use crate::table::Line;

/// What that program says of one training.
#[derive(Clone, Copy, Deserialize)]
struct Trained {
    seconds_per_step: f64,
    peak_kib: f64,
}

/// Builds it where it is not built yet.
fn program() -> Result<PathBuf> {
    let package = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/learner");
    let target = std::env::var_os("TENTERHOOK_LEARNER_TARGET")
        .map_or_else(|| PathBuf::from(package).join("target"), PathBuf::from);
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "--locked", "--target-dir"]).arg(&target).current_dir(package);
    // What was told to this program's cargo is not meant for that one.
    let built = cargo.env_remove("RUSTFLAGS").stdout(Stdio::null()).status()?;
    if !built.success() {
        return Err(format!("{cargo:?}: {built}").into());
    }
    Ok(target.join("release/learner-bench"))
}

pub fn measure(effort: Effort) -> Result<Vec<Line>> {
    let program = program()?;
    let train = |how: &str, model: &str| -> Result<Trained> {
        let output = Command::new(&program).args([how, model]).stderr(Stdio::inherit()).output()?;
        Ok(serde_json::from_slice(&output.stdout)?)
    };
    let mut lines = Vec::new();
    for (model, name, rounds) in [("tiny", "Linear 32→2", 21), ("cnn", "CNN", 21), ("gpt", "GPT", 21)] {
        let (mut times, mut peaks) = (Vec::new(), Vec::new());
        for round in 0..=effort.rounds(rounds) {
            let (ours, theirs) = (train("trainer", model)?, train("learner", model)?);
            if round > 0 {
                times.push(match model {
                    "tiny" => (theirs.seconds_per_step - ours.seconds_per_step) * 1e6,
                    _ => ours.seconds_per_step / theirs.seconds_per_step,
                });
                peaks.push(ours.peak_kib / theirs.peak_kib);
            }
        }
        let (times, peaks) = (Measured::of(times)?, Measured::of(peaks)?);
        if model == "tiny" {
            lines.push(Line::new(
                "Burn's `Learner` step minus the trainer's, Linear 32→2",
                "µs",
                times,
                None,
            ));
        } else {
            let against = format!("trainer against Burn's `Learner`, built-in {name}");
            lines.push(Line::new(format!("{against}, time"), "×", times, Some(1.0)));
            lines.push(Line::new(format!("{against}, peak memory"), "×", peaks, Some(1.0)));
        }
    }
    Ok(lines)
}
