//! Against Burn's own `Learner`: in `benches/learner`, a package apart, because it needs parts of Burn that nothing else
//! here does.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::callgrind::valgrind;
use crate::counts::per_step;
use crate::measure::{Effort, Measured, Result, in_turns};
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
    valgrind::version()?;
    let program = program()?;
    let mut lines = Vec::new();
    let (times, _) = compared(&program, effort.rounds(21), "tiny", |ours, theirs| (theirs - ours) * 1e6)?;
    lines.push(Line::new("Burn's `Learner` step minus the trainer's, Linear 32→2", "µs", times, None));
    for (model, name, rounds, few, more) in [("cnn", "CNN", 41, 2, 8), ("gpt", "GPT", 41, 1, 1)] {
        let (times, peaks) = compared(&program, effort.rounds(rounds), model, |ours, theirs| ours / theirs)?;
        let of = |how: &str| {
            per_step(few, more, |steps| {
                valgrind::count(&program, &[how, model, &steps.to_string()].map(str::to_owned))
            })
        };
        let instructions = of("trainer")? / of("learner")?;
        let against = format!("trainer against Burn's `Learner`, built-in {name}");
        lines.push(Line::new(format!("{against}, time"), "×", times, Some(1.0)));
        lines.push(Line::counted(format!("{against}, instructions"), "×", instructions, 1.0));
        lines.push(Line::new(format!("{against}, peak memory"), "×", peaks, Some(1.0)));
    }
    Ok(lines)
}

/// Trains by turns, each time in a process of its own: seconds per step as `compare` has it, and the ratio of the peaks.
fn compared(
    program: &Path,
    rounds: usize,
    model: &str,
    compare: impl Fn(f64, f64) -> f64,
) -> Result<(Measured, Measured)> {
    let train = |how: &str, peaks: &mut Vec<f64>| -> Result<f64> {
        let output = Command::new(program).args([how, model]).stderr(Stdio::inherit()).output()?;
        let Trained { seconds_per_step, peak_kib } = serde_json::from_slice(&output.stdout)?;
        peaks.push(peak_kib);
        Ok(seconds_per_step)
    };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let times = in_turns(
        rounds,
        [&mut || train("trainer", &mut ours), &mut || train("learner", &mut theirs)],
        compare,
    )?;
    let peaks = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
    Ok((times, Measured::of(peaks)?))
}
