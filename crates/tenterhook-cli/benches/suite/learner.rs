//! Comparison with Burn's own `Learner`, which runs in the separate package `benches/learner`, because it
//! needs more features of Burn.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::callgrind::valgrind;
use crate::counts::per_step;
use crate::measure::{Effort, Measured, Result, alternate};
use crate::table::Line;

/// The output of that program for one training run.
#[derive(Clone, Copy, Deserialize)]
struct Trained {
    seconds_per_step: f64,
    /// Peak memory in use, and peak resident memory.
    in_use_kib: f64,
    resident_kib: f64,
}

/// Builds the program if necessary.
fn program() -> Result<PathBuf> {
    let package = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/learner");
    let target = std::env::var_os("TENTERHOOK_LEARNER_TARGET")
        .map_or_else(|| PathBuf::from(package).join("target"), PathBuf::from);
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "--locked", "--target-dir"]).arg(&target).current_dir(package);
    // The flags of this build must not apply to that package.
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
    let tiny = compared(&program, effort.rounds(21), "tiny", |ours, theirs| (theirs - ours) * 1e6)?;
    lines.push(Line::new("Burn's `Learner` step minus the trainer's, Linear 32→2", "µs", tiny.times, None));
    for (model, name, rounds, few, more) in [("cnn", "CNN", 41, 2, 8), ("gpt", "GPT", 41, 1, 1)] {
        let Compared { times, in_use, resident } =
            compared(&program, effort.rounds(rounds), model, |ours, theirs| ours / theirs)?;
        let of = |how: &str| {
            per_step(few, more, |steps| {
                valgrind::count(&program, &[how, model, &steps.to_string()].map(str::to_owned))
            })
        };
        let instructions = of("trainer")? / of("learner")?;
        let compared = format!("trainer relative to Burn's `Learner`, built-in {name}");
        lines.push(Line::new(format!("{compared}, time"), "×", times, Some(1.0)));
        lines.push(Line::counted(format!("{compared}, instructions"), "×", instructions, 1.0));
        lines.push(Line::new(format!("{compared}, peak memory in use"), "×", in_use, Some(1.0)));
        lines.push(Line::new(
            format!("{compared}, peak resident memory (see Notes)"),
            "×",
            resident,
            Some(1.0),
        ));
    }
    Ok(lines)
}

/// The trainer compared with the `Learner`: time per step, and ratios of peak memory.
struct Compared {
    times: Measured,
    in_use: Measured,
    resident: Measured,
}

/// Trains with both alternately, each time in a new process.
fn compared(
    program: &Path,
    rounds: usize,
    model: &str,
    compare: impl Fn(f64, f64) -> f64,
) -> Result<Compared> {
    let train = |how: &str, trained: &mut Vec<Trained>| -> Result<f64> {
        let output = Command::new(program).args([how, model]).stderr(Stdio::inherit()).output()?;
        let one: Trained = serde_json::from_slice(&output.stdout)?;
        trained.push(one);
        Ok(one.seconds_per_step)
    };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let times = alternate(
        rounds,
        [&mut || train("trainer", &mut ours), &mut || train("learner", &mut theirs)],
        compare,
    )?;
    let ratios = |of: fn(&Trained) -> f64| {
        Measured::of(ours.iter().zip(&theirs).map(|(ours, theirs)| of(ours) / of(theirs)).collect())
    };
    Ok(Compared {
        times,
        in_use: ratios(|trained| trained.in_use_kib)?,
        resident: ratios(|trained| trained.resident_kib)?,
    })
}
