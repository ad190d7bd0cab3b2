//! Reproducible measurements with targets: instructions and allocations, counted by callgrind.

use std::collections::BTreeMap;

use crate::callgrind::valgrind;
use crate::measure::{Effort, Result};
use crate::table::Line;

/// The count per step in steady state: the difference between training runs of `few` and of `few + more` steps, divided by
/// `more`. Both run in parallel, which does not change the counts.
pub fn per_step(few: u64, more: u64, count: impl Fn(u64) -> Result<u64> + Sync) -> Result<f64> {
    let counted = |steps| count(steps).map_err(|error| error.to_string());
    let (short, long) = std::thread::scope(|scope| {
        let short = scope.spawn(|| counted(few));
        let long = counted(few + more);
        (short.join().unwrap_or_else(|_| Err("it panicked".into())), long)
    });
    Ok(long?.checked_sub(short?).ok_or("less for more steps")? as f64 / more as f64)
}

fn arguments(what: &str, how: &str, steps: u64) -> [String; 4] {
    ["run".to_owned(), what.to_owned(), how.to_owned(), steps.to_string()]
}

/// Instructions of a step in steady state; see [`per_step`].
pub fn instructions_per_step(what: &str, how: &str, few: u64, more: u64) -> Result<f64> {
    valgrind::version()?;
    let program = std::env::current_exe()?;
    per_step(few, more, |steps| valgrind::count(&program, &arguments(what, how, steps)))
}

pub fn instructions(_: Effort) -> Result<Vec<Line>> {
    let line = |model: &str, name: &str, few, more| -> Result<Line> {
        let of = |how: &str| instructions_per_step(model, how, few, more);
        let (ours, theirs) = (of("trainer")?, of("raw")?);
        let what = format!("trainer relative to raw Burn loop, built-in {name}, one thread, instructions");
        let note = format!("{:.1} million in a raw step", theirs / 1e6);
        Ok(Line::counted(what, "×", ours / theirs, 1.005).with_note(note))
    };
    Ok(vec![line("gpt", "GPT", 1, 1)?, line("cnn", "CNN", 2, 8)?])
}

/// Allocations of the tiny model over one logging interval, so one line of the log is included.
pub fn allocations(_: Effort) -> Result<Vec<Line>> {
    valgrind::version()?;
    let of = |how: &str| per_step(200, 50, |steps| allocated("tiny", how, steps));
    let (raw, trainer, boxing) = (of("raw")?, of("trainer")?, of("boxing")?);
    if boxing < trainer + 1.0 {
        return Err(format!(
            "a hook that allocates once per step does not show: {boxing} allocations with it, {trainer} without"
        )
        .into());
    }
    // Without a line of the log.
    let alone = per_step(205, 40, |steps| allocated("nothing", "trainer", steps))?;
    let what = "allocations per step in steady state, no hooks, Linear 32→2";
    Ok(vec![
        Line::counted(what, "", trainer, raw).with_note("the target is the count of a raw Burn loop"),
        Line::counted("allocations of the trainer itself, between two lines of the log", "", alone, 0.0),
    ])
}

/// The number of allocations of a whole training run.
fn allocated(what: &str, how: &str, steps: u64) -> Result<u64> {
    let profile = tempfile::NamedTempFile::new()?;
    valgrind::count_into(&std::env::current_exe()?, &arguments(what, how, steps), profile.path())?;
    let profile = std::fs::read_to_string(profile.path())?;
    // Counts calls of mimalloc's functions: they are never inlined, unlike their Rust wrappers.
    let asks = |name: &str| matches!(name, "mi_malloc_aligned" | "mi_zalloc_aligned" | "mi_realloc_aligned");
    match calls(&profile, asks) {
        0 => Err("no call of mimalloc is in callgrind's profile; was the program stripped?".into()),
        calls => Ok(calls),
    }
}

/// The number of calls of some functions in a callgrind profile. A name is written once, as `(7) name`, and then as
/// `(7)`; `cfn=` names the called function, and the `calls=` line after it has the count.
fn calls(profile: &str, wanted: impl Fn(&str) -> bool) -> u64 {
    let mut names = BTreeMap::new();
    let (mut called, mut sum) = (false, 0);
    for line in profile.lines() {
        if let Some(function) = line.strip_prefix("fn=").or_else(|| line.strip_prefix("cfn=")) {
            let (id, name) = function.split_once(')').unwrap_or((function, ""));
            if !name.is_empty() {
                names.insert(id, wanted(name.trim()));
            }
            called = line.starts_with("cfn=") && names.get(id).copied().unwrap_or(false);
        } else if let Some(calls) = line.strip_prefix("calls=").filter(|_| called) {
            sum += calls.split(' ').next().and_then(|calls| calls.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    sum
}
