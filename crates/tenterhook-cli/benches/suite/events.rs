//! What an event costs in a loop of somebody's own.

use std::time::Instant;

use crate::callgrind::{Costs, Scenario, valgrind};
use crate::measure::{Effort, Result, in_turns};
use crate::own_loop::OwnLoop;
use crate::table::Line;

/// One loop and nothing else.
pub fn run(kind: &str, hooks: usize, iterations: u64) -> Result<()> {
    let scenario = Scenario::parse(kind, hooks).ok_or("empty, unwanted or delivered?")?;
    Ok(OwnLoop::new(scenario)?.run(scenario, iterations)?)
}

/// Instructions; `tests/cost.rs` in core holds them to the same target.
pub fn unwanted(_: Effort) -> Result<Vec<Line>> {
    valgrind::version()?;
    let costs = Costs::counted(&std::env::current_exe()?)?;
    let line = |hooks: usize| {
        let cost = costs.of(Scenario::Unwanted(hooks)).ok_or("it was not counted")?;
        let what = format!("event nobody wants, {hooks} idle hooks");
        Ok(Line::counted(what, "instructions", (cost * 100.0).round() / 100.0, 8.0))
    };
    [0, 100].into_iter().map(line).collect()
}

/// Nanoseconds over an empty loop.
pub fn delivered(effort: Effort) -> Result<Vec<Line>> {
    let line = |hooks: usize, target: f64| -> Result<Line> {
        let iterations = 1_000_000 / hooks as u64;
        let time = |scenario: Scenario| {
            let mut own = OwnLoop::new(scenario)?;
            Ok(move || {
                let began = Instant::now();
                own.run(scenario, iterations)?;
                Ok(began.elapsed().as_secs_f64() / iterations as f64)
            })
        };
        let time = |scenario| -> Result<_> { time(scenario) };
        let (mut event, mut empty) = (time(Scenario::Delivered(hooks))?, time(Scenario::Empty)?);
        let over = |event: f64, empty: f64| (event - empty) * 1e9;
        let measured = in_turns(effort.rounds(51), [&mut event, &mut empty], over)?;
        let what = format!("delivering to {hooks} no-op hooks, accounting off");
        Ok(Line::new(what, "ns", measured, Some(target)))
    };
    Ok(vec![line(1, 12.0)?, line(10, 60.0)?, line(100, 600.0)?])
}
