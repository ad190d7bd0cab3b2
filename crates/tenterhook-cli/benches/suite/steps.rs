//! The time of a training step, compared with one without trainer or without hooks.

use crate::measure::{Effort, Measured, Result, alternate};
use crate::table::Line;
use crate::trainings::{self, How, train};
use crate::workload::{BuiltInCnn, BuiltInGpt, Deep, Span, Tiny, Workload};

fn compared<W: Workload>(
    rounds: usize,
    [ours, theirs]: [How; 2],
    span: Span,
    compare: impl Fn(f64, f64) -> f64,
) -> Result<Measured> {
    alternate(rounds, [&mut || train::<W>(ours, span), &mut || train::<W>(theirs, span)], compare)
}

fn microseconds_more(ours: f64, theirs: f64) -> f64 {
    (ours - theirs) * 1e6
}

fn ratio(ours: f64, theirs: f64) -> f64 {
    ours / theirs
}

/// Short enough for many rounds.
const SHORT: Span = Span::timed(1000, 100);
/// Long enough for several checkpoints.
const TINY: Span = Span::timed(5000, 500);

/// The time per step of the tiny model, for comparison with the overhead of the trainer.
fn of_raw_step() -> Result<String> {
    Ok(format!("a raw step takes {:.1} µs", train::<Tiny>(How::Raw, TINY)? * 1e6))
}

pub fn step(effort: Effort) -> Result<Vec<Line>> {
    let more = compared::<Tiny>(effort.rounds(101), [How::Trainer, How::Raw], SHORT, microseconds_more)?;
    let what = "trainer step minus raw Burn loop, Linear 32→2, batch 32, no hooks";
    let alone = |_| Ok(trainings::nothing(How::Trainer, TINY)? * 1e6);
    let alone = (0..effort.rounds(31)).map(alone).collect::<Result<_>>()?;
    Ok(vec![
        Line::new(what, "µs", more, Some(2.0)).with_note(of_raw_step()?),
        Line::new(
            "the trainer's own part of a step: a module that does nothing",
            "µs",
            Measured::of(alone)?,
            None,
        ),
    ])
}

pub fn hooks(effort: Effort) -> Result<Vec<Line>> {
    let rounds = effort.rounds(21);
    let more = |how| compared::<Tiny>(rounds, [how, How::Raw], TINY, microseconds_more);
    let what = "the same with checkpoint every 1,000 steps";
    Ok(vec![
        Line::new("the same with console, jsonl, lr monitor, throughput", "µs", more(How::Watched)?, None),
        Line::new(what, "µs", more(How::Hooks)?, Some(6.0)),
        Line::new("the same and a run directory", "µs", more(How::Recorded)?, None),
    ])
}

pub fn models(effort: Effort) -> Result<Vec<Line>> {
    let sides = [How::Trainer, How::Raw];
    let gpt = compared::<BuiltInGpt>(effort.rounds(11), sides, Span::timed(5, 1), ratio)?;
    let cnn = compared::<BuiltInCnn>(effort.rounds(21), sides, Span::timed(50, 5), ratio)?;
    Ok(vec![
        Line::new("trainer relative to raw Burn loop, built-in GPT, time", "×", gpt, None),
        Line::new("trainer relative to raw Burn loop, built-in CNN, time", "×", cnn, None),
    ])
}

pub fn gradient_monitor(effort: Effort) -> Result<Vec<Line>> {
    let span = Span::timed(40, 5);
    let more = |how| compared::<Deep>(effort.rounds(21), [how, How::Trainer], span, ratio);
    let what = "`gradient_monitor` every step, 50 parameter tensors (25 layers 128 wide, batch 128)";
    Ok(vec![
        Line::new(what, "×", more(How::Monitored)?, Some(1.05)),
        Line::new("the same, norms only: no update ratios, no clipping", "×", more(How::Norms)?, None),
    ])
}
