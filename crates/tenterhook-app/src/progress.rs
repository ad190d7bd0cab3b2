//! Progress of a run: a bar on a terminal, one line per epoch otherwise.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tenterhook::{
    HookInfo, HookResult, HookRunner, Observer, RunContext, Teardown, Tier, TrainBatchEnd, TrainEpochEnd,
    TrainEpochStart, TrainStart, ValidationEnd, hook, printable,
};

use crate::format::{duration, in_summaries, metric, number};
use crate::terminal::{err_is_terminal, print_stderr};

/// The interval between updates of the bar. Each update reads the loss.
const REFRESH: Duration = Duration::from_millis(200);
/// The interval between lines within an epoch when there is no terminal.
pub(crate) const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// A progress bar, if standard error is a terminal.
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

/// Whether this hook is [`Progress`], which is not part of the configuration.
pub(crate) fn is_progress(hook: &HookInfo) -> bool {
    // `progress` is its name in older runs.
    ["tenter_progress", "progress"].contains(&hook.name.as_str()) && hook.tier == Tier::BuiltIn
}

/// Hook that shows loss, metrics, speed and remaining time on standard error.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    silent: bool,
    /// Another hook prints the end of each epoch.
    epochs_printed: bool,
    /// The start time of training in this process, with the progress at that time.
    start: Option<(Instant, tenterhook::Progress)>,
    updated: Option<Instant>,
}

impl Progress {
    /// A bar if standard error is a terminal, otherwise a line per epoch.
    pub(crate) fn new() -> Progress {
        Progress { bar: bar(), silent: false, ..Progress::silent() }
    }

    /// A hook that shows nothing, for quiet runs: a resume requires the same hooks.
    pub(crate) fn silent() -> Progress {
        Progress { bar: None, silent: true, epochs_printed: false, start: None, updated: None }
    }

    /// Prints no line per epoch if one of these hooks already does.
    pub(crate) fn without_repeating(mut self, hooks: &HookRunner) -> Progress {
        self.epochs_printed = hooks.declared().iter().any(|spec| spec.prints_epochs);
        self
    }

    /// The bar, which must be suspended while something else writes to the terminal.
    pub(crate) fn bar(&self) -> Option<ProgressBar> {
        self.bar.clone()
    }

    fn speed(&self, cx: &RunContext<'_>) -> String {
        let Some((time, start)) = &self.start else { return String::new() };
        let seconds = time.elapsed().as_secs_f64();
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

    /// The remaining time at the current speed, if the length of training is known.
    fn time_left(&self, cx: &RunContext<'_>) -> String {
        let (Some((time, start)), Some(all)) = (&self.start, cx.run.total_batches) else {
            return String::new();
        };
        let (done, left) = (cx.total_batches - start.total_batches, all.saturating_sub(cx.total_batches));
        if done == 0 || left == 0 {
            return String::new();
        }
        let seconds = time.elapsed().as_secs_f64() / done as f64 * left as f64;
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
        let progress: &tenterhook::Progress = cx;
        self.start = Some((Instant::now(), *progress));
        if let (Some(bar), Some(all)) = (&self.bar, cx.run.total_batches) {
            bar.set_length(all);
            bar.set_position(cx.total_batches);
        }
        Ok(())
    }

    fn on_train_epoch_start(&mut self, _: &TrainEpochStart) -> HookResult {
        self.updated = None;
        Ok(())
    }

    fn on_train_batch_end(&mut self, cx: &TrainBatchEnd) -> HookResult {
        if self.silent {
            return Ok(());
        }
        let Some(bar) = &self.bar else {
            // A line within an epoch, since an epoch may last for hours.
            let updated = *self.updated.get_or_insert_with(Instant::now);
            if updated.elapsed() >= LINE_INTERVAL {
                self.updated = Some(Instant::now());
                print_stderr(self.line(cx));
            }
            return Ok(());
        };
        bar.set_position(cx.total_batches);
        if self.updated.is_none_or(|updated| updated.elapsed() >= REFRESH) {
            self.updated = Some(Instant::now());
            bar.set_message(self.line(cx));
        }
        Ok(())
    }

    fn on_validation_end(&mut self, _: &ValidationEnd) -> HookResult {
        self.updated = None;
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
            None => print_stderr(line),
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

/// The metrics of evaluations that a progress line shows beside the training loss.
fn evaluated(metrics: &BTreeMap<String, f64>) -> Vec<(String, f64)> {
    let of_evaluation = |name: &&String| name.starts_with("val/") || name.starts_with("test/");
    metrics
        .keys()
        .filter(of_evaluation)
        .filter(|name| in_summaries(name))
        .map(|name| (name.clone(), metrics[name]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_evaluation_metrics_without_those_of_activations() {
        let names = ["train/loss", "val/accuracy/second", "val/act_mean/fc1", "val/action", "val/loss"];
        let metrics = names.iter().map(|name| ((*name).to_owned(), 1.0)).collect();
        let shown: Vec<_> = evaluated(&metrics).into_iter().map(|(name, _)| name).collect();
        assert_eq!(shown, ["val/accuracy/second", "val/action", "val/loss"]);
    }
}
