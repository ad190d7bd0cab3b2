//! The progress of a run: a bar on a terminal, plain lines elsewhere.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tenterhook::{
    HookInfo, HookResult, HookRunner, Observer, RunContext, Teardown, Tier, TrainBatchEnd, TrainEpochEnd,
    TrainEpochStart, TrainStart, ValidationEnd, hook, printable,
};

use crate::terminal::{err_is_terminal, tell};

/// The loss is read no more often than this, however fast the steps are.
const REFRESH: Duration = Duration::from_millis(200);
/// Without a terminal there is a line at the end of every epoch, and after so long within one.
pub(crate) const LINES: Duration = Duration::from_secs(10);

/// A bar, when standard error is a terminal.
pub(crate) fn bar() -> Option<ProgressBar> {
    err_is_terminal().then(|| {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
        let template = "{spinner} [{bar:28}] {percent:>3}%  {msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar
    })
}

/// Whether this hook is the one below: it shows a run, and is no part of it.
pub(crate) fn only_shows(hook: &HookInfo) -> bool {
    // Runs of earlier versions have it under the other name.
    ["tenter_progress", "progress"].contains(&hook.name.as_str()) && hook.tier == Tier::BuiltIn
}

/// Shows progress on standard error: loss, accuracy, speed and the time left.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    silent: bool,
    /// A hook prints the end of each epoch.
    epochs_printed: bool,
    began: Option<Start>,
    shown: Option<Instant>,
}

/// Where training stood when this process began to train.
struct Start {
    at: Instant,
    batches: u64,
    samples: u64,
    tokens: u64,
}

impl Progress {
    /// A bar when standard error is a terminal, else a line per epoch.
    pub(crate) fn new() -> Progress {
        Progress { bar: bar(), silent: false, ..Progress::silent() }
    }

    /// One that shows nothing. A run has the same hooks, however it is watched, so that it can be resumed.
    pub(crate) fn silent() -> Progress {
        Progress { bar: None, silent: true, epochs_printed: false, began: None, shown: None }
    }

    /// Whether a hook prints the end of each epoch, so that this one does not.
    pub(crate) fn beside(mut self, hooks: &HookRunner) -> Progress {
        self.epochs_printed = hooks.declared().iter().any(|spec| spec.prints_epochs);
        self
    }

    /// The bar, for others who write to the same terminal.
    pub(crate) fn bar(&self) -> Option<ProgressBar> {
        self.bar.clone()
    }

    fn speed(&self, cx: &RunContext<'_>) -> String {
        let Some(start) = &self.began else { return String::new() };
        let seconds = start.at.elapsed().as_secs_f64();
        let (unit, seen) = match cx.tokens - start.tokens {
            0 => ("samples/s", cx.samples - start.samples),
            tokens => ("tokens/s", tokens),
        };
        if seconds < 0.05 || seen == 0 {
            String::new()
        } else {
            format!("  {:.0} {unit}", seen as f64 / seconds)
        }
    }

    /// How long it will still take at this speed, where the length of training is known.
    fn time_left(&self, cx: &RunContext<'_>) -> String {
        let (Some(start), Some(all)) = (&self.began, cx.run.total_batches) else { return String::new() };
        let (done, left) = (cx.total_batches - start.batches, all.saturating_sub(cx.total_batches));
        if done == 0 || left == 0 {
            return String::new();
        }
        let seconds = start.at.elapsed().as_secs_f64() / done as f64 * left as f64;
        format!("  {} left", duration(seconds))
    }

    fn line(&self, cx: &RunContext<'_>) -> String {
        let mut line = cx.epoch_label();
        if cx.epochs_done == cx.epoch {
            let _ = write!(line, "  step {}", cx.step);
        }
        if let Some(loss) = cx.average_loss() {
            let _ = write!(line, "  loss {}", number(loss));
        }
        for (name, value) in evaluated(&cx.metrics().to_map()) {
            let _ = write!(line, "  {name} {}", metric(&name, value));
        }
        printable::line(&line) + &self.speed(cx) + &self.time_left(cx)
    }
}

#[hook(name = "tenter_progress", tier = "built_in")]
impl Observer for Progress {
    fn on_train_start(&mut self, cx: &TrainStart) -> HookResult {
        let (batches, samples, tokens) = (cx.total_batches, cx.samples, cx.tokens);
        self.began = Some(Start { at: Instant::now(), batches, samples, tokens });
        if let (Some(bar), Some(all)) = (&self.bar, cx.run.total_batches) {
            bar.set_length(all);
            bar.set_position(batches);
        }
        Ok(())
    }

    fn on_train_epoch_start(&mut self, _: &TrainEpochStart) -> HookResult {
        self.shown = None;
        Ok(())
    }

    fn on_train_batch_end(&mut self, cx: &TrainBatchEnd) -> HookResult {
        if self.silent {
            return Ok(());
        }
        let Some(bar) = &self.bar else {
            // An epoch may last for hours.
            let shown = *self.shown.get_or_insert_with(Instant::now);
            if shown.elapsed() >= LINES {
                self.shown = Some(Instant::now());
                tell(self.line(cx));
            }
            return Ok(());
        };
        bar.set_position(cx.total_batches);
        if self.shown.is_none_or(|shown| shown.elapsed() >= REFRESH) {
            self.shown = Some(Instant::now());
            bar.set_message(self.line(cx));
        }
        Ok(())
    }

    fn on_validation_end(&mut self, _: &ValidationEnd) -> HookResult {
        self.shown = None;
        Ok(())
    }

    fn on_train_epoch_end(&mut self, cx: &TrainEpochEnd) -> HookResult {
        if self.silent {
            return Ok(());
        }
        let line = self.line(cx);
        match &self.bar {
            Some(bar) => bar.set_message(line),
            None if self.epochs_printed => {}
            None => tell(line),
        }
        Ok(())
    }

    fn teardown(&mut self, _: &Teardown) -> HookResult {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        Ok(())
    }
}

/// Whether a metric is one that people follow. Of activations there is one for each point and statistic.
pub(crate) fn is_followed(name: &str) -> bool {
    let what = name.split('/').nth(1).unwrap_or(name);
    what != "act" && !what.starts_with("act_")
}

/// The metrics of evaluations that people follow; what training logs is the loss beside them.
fn evaluated(metrics: &BTreeMap<String, f64>) -> Vec<(String, f64)> {
    let of_evaluation = |name: &&String| name.starts_with("val/") || name.starts_with("test/");
    metrics
        .keys()
        .filter(of_evaluation)
        .filter(|name| is_followed(name))
        .map(|name| (name.clone(), metrics[name]))
        .collect()
}

/// A metric as people read it: accuracies in per cent, the rest with four digits.
pub(crate) fn metric(name: &str, value: f64) -> String {
    if name.split('/').any(|part| part == "accuracy") && (0.0..=1.0).contains(&value) {
        format!("{:.2} %", value * 100.0)
    } else {
        number(value)
    }
}

/// Four digits that count, whatever the size.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    if value != 0.0 && !(1e-3..1e5).contains(&size) { format!("{value:.3e}") } else { format!("{value:.4}") }
}

/// A time as people say it.
pub(crate) fn duration(seconds: f64) -> String {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // no run lasts so long
    let whole = seconds.round() as u64;
    match whole {
        _ if seconds < 10.0 => format!("{seconds:.1} s"),
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_logged_of_every_point_is_no_part_of_a_line() {
        let names = ["train/loss", "val/accuracy/second", "val/act_mean/fc1", "val/action", "val/loss"];
        let metrics = names.iter().map(|name| ((*name).to_owned(), 1.0)).collect();
        let shown: Vec<_> = evaluated(&metrics).into_iter().map(|(name, _)| name).collect();
        assert_eq!(shown, ["val/accuracy/second", "val/action", "val/loss"]);
    }

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(metric("val/accuracy", 0.98765), "98.77 %");
        assert_eq!(metric("val/loss", 0.98765), "0.9877");
        assert_eq!(number(0.000_012_34), "1.234e-5");
        let times: Vec<_> = [0.42, 12.0, 75.0, 7300.0].into_iter().map(duration).collect();
        assert_eq!(times, ["0.4 s", "12 s", "1 min 15 s", "2 h 01 min"]);
    }
}
