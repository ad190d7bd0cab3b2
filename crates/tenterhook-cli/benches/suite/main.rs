//! The benchmark suite: one table, each line with the command that measures it.
//!
//! ```text
//! cargo bench                        every row
//! cargo bench -- step startup        these rows
//! cargo bench -- --list              list the rows
//! cargo bench -- --quick             with few rounds
//! cargo bench -- --json              print JSON
//! cargo bench -- --check-counts      only counts, not times; fails when a target is missed
//! cargo bench -- run tiny raw 1000   a single training run, for profilers and other tools
//! ```
//!
//! Times are reported, but not checked. Method and results: `docs/explanation/performance.md`.

mod counts;
mod events;
mod learner;
mod measure;
mod nothing;
mod on_gpt;
mod startup;
mod steps;
mod table;
mod trainings;
mod workload;

#[path = "../../../tenterhook-core/examples/cost/callgrind.rs"]
mod callgrind;
#[path = "../../../tenterhook-core/examples/cost/own_loop.rs"]
mod own_loop;

use std::process::{Command, ExitCode, Stdio};

use measure::{Effort, Result};
use table::{Line, table};

/// The allocator of `tenter`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A measurement that runs in its own process.
struct Row {
    name: &'static str,
    about: &'static str,
    /// Counts are checked against their targets.
    counted: bool,
    measure: fn(Effort) -> Result<Vec<Line>>,
}

const fn timed(name: &'static str, about: &'static str, measure: fn(Effort) -> Result<Vec<Line>>) -> Row {
    Row { name, about, counted: false, measure }
}

const fn counted(name: &'static str, about: &'static str, measure: fn(Effort) -> Result<Vec<Line>>) -> Row {
    Row { name, about, counted: true, measure }
}

const ROWS: [Row; 13] = [
    counted("unwanted", "an event that no hook wants, in instructions over an empty loop", events::unwanted),
    timed("delivered", "an event delivered to hooks that do nothing", events::delivered),
    timed("accounted", "the same with accounting", events::accounted),
    timed("step", "a training step without hooks, minus that of a raw Burn loop", steps::step),
    timed("hooks", "the same with common hooks", steps::hooks),
    counted(
        "instructions",
        "training steps of GPT and CNN relative to a raw Burn loop",
        counts::instructions,
    ),
    timed("models", "the same in time", steps::models),
    // Not a count, because its program takes minutes to build.
    timed(
        "learner",
        "the same relative to Burn's `Learner`, in time, instructions and memory",
        learner::measure,
    ),
    timed(
        "gradient_monitor",
        "the gradient monitor with 50 gradients at every step",
        steps::gradient_monitor,
    ),
    counted("on_gpt", "points and hooks on the GPT, in instructions", on_gpt::measure),
    counted("allocations", "allocations of a training step without hooks", counts::allocations),
    timed("startup", "from the start of `tenter` to its first step, or to its help", startup::measure),
    timed("allocator", "training the GPT with another setting of the allocator", startup::allocator),
];

/// The command line.
struct Options {
    rows: Vec<String>,
    effort: Effort,
    json: bool,
    check_counts: bool,
}

fn options(arguments: &[String]) -> Result<Options> {
    let mut options =
        Options { rows: Vec::new(), effort: Effort { quick: false }, json: false, check_counts: false };
    for argument in arguments {
        match argument.as_str() {
            // Cargo passes it to every benchmark.
            "--bench" => {}
            "--quick" => options.effort.quick = true,
            "--json" => options.json = true,
            "--check-counts" => options.check_counts = true,
            name if ROWS.iter().any(|row| row.name == name) => options.rows.push(name.to_owned()),
            other => {
                return Err(format!(
                    "`{other}` is neither a row (`--list` shows them) nor `--quick`, `--json` or `--check-counts`"
                )
                .into());
            }
        }
    }
    Ok(options)
}

/// Measures a row in a new process on one thread, so rows do not affect each other.
fn measure_apart(row: &Row, effort: Effort) -> Vec<Line> {
    eprintln!("{}: {}", row.name, row.about);
    let measured = || -> Result<Vec<Line>> {
        let mut child = Command::new(std::env::current_exe()?);
        child.args(["measure", row.name]).args(effort.quick.then_some("--quick"));
        let output = child.env("RAYON_NUM_THREADS", "1").stderr(Stdio::inherit()).output()?;
        if !output.status.success() {
            return Err(format!("its process ended with {}", output.status).into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    };
    measured().unwrap_or_else(|error| vec![Line::missing(row.name, error.to_string())])
}

fn measure_here(name: &str, quick: bool) -> Result<()> {
    let row = ROWS.iter().find(|row| row.name == name).ok_or("there is no such row")?;
    let mut lines = (row.measure)(Effort { quick })?;
    for line in &mut lines {
        row.name.clone_into(&mut line.row);
    }
    println!("{}", serde_json::to_string(&lines)?);
    Ok(())
}

fn show(options: &Options) -> Result<ExitCode> {
    let named = |row: &Row| options.rows.iter().any(|name| name == row.name);
    let usual = |row: &Row| row.counted || !options.check_counts;
    let wanted = |row: &&Row| if options.rows.is_empty() { usual(row) } else { named(row) };
    let lines: Vec<_> =
        ROWS.iter().filter(wanted).flat_map(|row| measure_apart(row, options.effort)).collect();
    if options.json {
        println!("{}", serde_json::to_string_pretty(&lines)?);
    } else {
        print!("{}", table(&lines));
    }
    let missed = |line: &&Line| line.measured.is_none() || (line.counted && line.is_met() == Some(false));
    if let Some(missed) = lines.iter().find(missed).filter(|_| options.check_counts) {
        eprintln!("{} misses its target", missed.what);
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn main() -> Result<ExitCode> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.into_iter().filter(|argument| argument != "--bench").collect();
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--list"] => ROWS.iter().for_each(|row| println!("{:<18}{}", row.name, row.about)),
        ["measure", name] => measure_here(name, false)?,
        ["measure", name, "--quick"] => measure_here(name, true)?,
        ["run", what, how, steps] => trainings::run(what, how, steps.parse()?)?,
        // The same arguments as the example `cost` of the core, so the same code counts both.
        [event @ ("empty" | "unwanted" | "delivered" | "accounted"), hooks, iterations]
            if hooks.parse::<usize>().is_ok() =>
        {
            events::run(event, hooks.parse()?, iterations.parse()?)?;
        }
        _ => return show(&options(&arguments)?),
    }
    Ok(ExitCode::SUCCESS)
}
