//! The cost of an event: a loop around the runner, with hooks that do nothing.
//!
//! ```text
//! cargo run --release -p tenterhook-core --example cost                 instructions, counted by valgrind
//! cargo run --release -p tenterhook-core --example cost -- time         nanoseconds on this machine
//! cargo run --release -p tenterhook-core --example cost -- delivered 10 1000000
//!                                             one loop only, for other profilers
//! ```
//!
//! `tests/cost.rs` builds this program and checks the counts.

mod callgrind;
mod own_loop;

use std::error::Error;
use std::time::Instant;

use callgrind::{Costs, Scenario};
use own_loop::OwnLoop;

/// The best of several measurements, in nanoseconds.
fn time(scenario: Scenario) -> Result<f64, Box<dyn Error>> {
    const ITERATIONS: u64 = 1_000_000;
    let mut own = OwnLoop::new(scenario)?;
    let mut best = f64::INFINITY;
    for _ in 0..10 {
        let start = Instant::now();
        own.run(scenario, ITERATIONS)?;
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / ITERATIONS as f64);
    }
    Ok(best)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => {
            callgrind::valgrind::version()?;
            print!("{}", Costs::counted(&std::env::current_exe()?)?);
        }
        ["time"] => print!("{}", Costs::new("nanoseconds", time)?),
        [kind, hooks, iterations] => {
            let scenario =
                Scenario::parse(kind, hooks.parse()?).ok_or("empty, unwanted, delivered or accounted?")?;
            OwnLoop::new(scenario)?.run(scenario, iterations.parse()?)?;
        }
        _ => return Err("nothing, `time`, or a scenario, a number of hooks and one of iterations".into()),
    }
    Ok(())
}
