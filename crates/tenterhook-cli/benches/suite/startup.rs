//! The time until `tenter` runs its first step or prints its help, and the effect of its allocator.

use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::measure::{Effort, Measured, Result, alternate};
use crate::table::Line;

const TENTER: &str = env!("CARGO_BIN_EXE_tenter");

/// The task `digits` with a line after the first batch.
const FIRST_STEP: &str = "[[hooks]]\nuse = \"console\"\nlog_every_n_batches = 1\n";

pub fn measure(effort: Effort) -> Result<Vec<Line>> {
    let directory = tempfile::tempdir()?;
    std::fs::write(directory.path().join("first.toml"), FIRST_STEP)?;
    let rounds = effort.rounds(31);
    let (mut steps, mut helps) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let (step, help) = (to_first_step(directory.path())?, to_help()?);
        if round > 0 {
            steps.push(step * 1e3);
            helps.push(help * 1e3);
        }
    }
    Ok(vec![
        Line::new("`tenter train` to its first step", "ms", Measured::of(steps)?, Some(200.0)),
        Line::new("`tenter --help`", "ms", Measured::of(helps)?, Some(20.0)),
    ])
}

fn to_first_step(directory: &Path) -> Result<f64> {
    let mut tenter = Command::new(TENTER);
    tenter.args(["train", "first.toml"]).current_dir(directory).env_remove("RAYON_NUM_THREADS");
    let began = Instant::now();
    let mut running = tenter.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let said = running.stderr.take().ok_or("it says nothing")?;
    let first = BufReader::new(said).lines().map_while(io::Result::ok).find(|line| line.contains("batch 1"));
    let took = began.elapsed().as_secs_f64();
    running.kill()?;
    running.wait()?;
    first.map(|_| took).ok_or_else(|| "`tenter train` ended before its first step".into())
}

fn to_help() -> Result<f64> {
    let began = Instant::now();
    let help = Command::new(TENTER).arg("--help").output()?;
    if !help.status.success() {
        return Err("`tenter --help` failed".into());
    }
    Ok(began.elapsed().as_secs_f64())
}

/// The effect of `MIMALLOC_PURGE_DELAY=-1` (return no memory to the system) on the GPT. The allocator itself is chosen at
/// compile time.
pub fn allocator(effort: Effort) -> Result<Vec<Line>> {
    let train = |delay: Option<&str>| -> Result<f64> {
        let mut child = Command::new(std::env::current_exe()?);
        child.args(["run", "gpt", "trainer", "6"]).envs(delay.map(|delay| ("MIMALLOC_PURGE_DELAY", delay)));
        let output = child.output()?;
        let said = String::from_utf8(output.stdout)?;
        said.split(' ')
            .next()
            .and_then(|seconds| seconds.parse().ok())
            .ok_or_else(|| "it did not train".into())
    };
    let ratio = |ours: f64, theirs: f64| ours / theirs;
    let never = alternate(effort.rounds(11), [&mut || train(Some("-1")), &mut || train(None)], ratio)?;
    Ok(vec![Line::new("built-in GPT with `MIMALLOC_PURGE_DELAY=-1`, relative to without", "×", never, None)])
}
