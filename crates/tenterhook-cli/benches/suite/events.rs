//! The cost of an event in a custom loop.

use std::time::Instant;

use crate::callgrind::{Costs, Scenario, valgrind};
use crate::measure::{Effort, Measured, Result, alternate};
use crate::own_loop::OwnLoop;
use crate::table::Line;

/// Runs one loop.
pub fn run(kind: &str, hooks: usize, iterations: u64) -> Result<()> {
    let scenario = Scenario::parse(kind, hooks).ok_or("empty, unwanted, delivered or accounted?")?;
    Ok(OwnLoop::new(scenario)?.run(scenario, iterations)?)
}

/// Counts instructions; `tests/cost.rs` in core has the same target.
pub fn unwanted(_: Effort) -> Result<Vec<Line>> {
    valgrind::version()?;
    let costs = Costs::counted(&std::env::current_exe()?)?;
    let line = |hooks: usize| {
        let cost = costs.of(Scenario::Unwanted(hooks)).ok_or("it was not counted")?;
        let what = format!("event that no hook wants, {hooks} idle hooks");
        Ok(Line::counted(what, "instructions", (cost * 100.0).round() / 100.0, 8.0))
    };
    [0, 100].into_iter().map(line).collect()
}

fn delivering_to(hooks: usize) -> String {
    format!("delivering to {hooks} no-op {}", if hooks == 1 { "hook" } else { "hooks" })
}

/// Without cost accounting.
pub fn delivered(effort: Effort) -> Result<Vec<Line>> {
    let line = |(hooks, target)| {
        let what = format!("{}, accounting off", delivering_to(hooks));
        Ok(Line::new(
            what,
            "ns",
            over_an_empty_loop(effort, Scenario::Delivered(hooks), hooks)?,
            Some(target),
        ))
    };
    [(1, 12.0), (10, 60.0), (100, 600.0)].into_iter().map(line).collect()
}

/// With cost accounting, as in a run: all calls are counted, and after the first thousand, one in sixteen is timed.
pub fn accounted(effort: Effort) -> Result<Vec<Line>> {
    let line = |(hooks, target)| {
        let what = format!("{}, accounting on (1 call in 16 timed)", delivering_to(hooks));
        Ok(Line::new(
            what,
            "ns",
            over_an_empty_loop(effort, Scenario::Accounted(hooks), hooks)?,
            Some(target),
        ))
    };
    [(1, 20.0), (10, 80.0), (100, 700.0)].into_iter().map(line).collect()
}

/// Nanoseconds per event, minus those of an empty loop.
fn over_an_empty_loop(effort: Effort, scenario: Scenario, hooks: usize) -> Result<Measured> {
    // Shorter than a time slice of the scheduler, so most rounds are not interrupted.
    let iterations = 100_000 / hooks as u64;
    let timed = |scenario: Scenario| -> Result<_> {
        let mut own = OwnLoop::new(scenario)?;
        Ok(move || -> Result<f64> {
            let began = Instant::now();
            own.run(scenario, iterations)?;
            Ok(began.elapsed().as_secs_f64() / iterations as f64)
        })
    };
    let (mut event, mut empty) = (timed(scenario)?, timed(Scenario::Empty)?);
    let over = |event: f64, empty: f64| (event - empty) * 1e9;
    alternate(effort.rounds(301), [&mut event, &mut empty], over)
}
