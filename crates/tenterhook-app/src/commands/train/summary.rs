//! The summary of a training run, as text or JSON.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;
use tenterhook::checkpoint::Best;
use tenterhook::run::SinkDeliveries;
use tenterhook::{Failures, Outcome, Report, Trainer};

use super::super::{costs, print_data, print_stdout, sinks};
use super::init_from::Initialized;
use crate::app::App;
use crate::arguments::Output;
use crate::failures::lines;
use crate::format::{duration, in_summaries, json_number, metric, plural};

pub(super) struct Summary<'a> {
    pub(super) fitted: &'a Report,
    pub(super) tested: Option<&'a Report>,
    pub(super) best: Option<&'a Best>,
    pub(super) seconds: f64,
    /// The hash of the configuration, as in `run.json`.
    pub(super) config_hash: String,
    pub(super) resumed_from: Option<&'a Path>,
    pub(super) initialized: Option<&'a Initialized>,
    /// Show hook costs per event.
    pub(super) profile_hooks: bool,
    /// The command that resumes an interrupted run.
    pub(super) resume: Option<&'a str>,
}

impl Summary<'_> {
    pub(super) fn print(&self, app: &App, trainer: &Trainer, output: Output) {
        if output.json {
            print_data(&self.to_json(trainer));
        } else if !output.quiet {
            self.print_text(app, trainer);
        }
    }

    fn to_json(&self, trainer: &Trainer) -> String {
        let Summary { fitted, tested, best, seconds, .. } = self;
        let metrics = tested.map_or(&fitted.metrics, |tested| &tested.metrics);
        let run = trainer.run_info();
        json!({
            "run": run.id,
            "directory": run.directory.as_ref().filter(|directory| directory.is_dir()),
            "config_hash": self.config_hash,
            "resumed_from": self.resumed_from,
            "init_from": self.initialized.map(Initialized::to_json),
            "outcome": fitted.outcome,
            "epochs": fitted.progress.epochs_done,
            "steps": fitted.progress.step,
            "samples": fitted.progress.samples,
            "tokens": fitted.progress.tokens,
            "seconds": seconds,
            "failures": self.failures().kinds,
            "failures_left_out": self.failures().left_out,
            "best": best.map(|best| json!({ "path": best.path, "score": best.score.as_ref().map(|score| score.1) })),
            "hook_costs": fitted.hook_costs,
            "sinks": self.sinks(),
            "metrics": metrics.iter().map(|(name, value)| (name.clone(), json_number(*value))).collect::<serde_json::Map<_, _>>(),
        })
        .to_string()
    }

    /// Failures in training and in the test after it.
    fn failures(&self) -> Failures {
        let mut failures = self.fitted.failures.clone();
        if let Some(tested) = self.tested {
            failures.extend(&tested.failures);
        }
        failures
    }

    /// What the sinks delivered in training and in the test after it.
    fn sinks(&self) -> Vec<SinkDeliveries> {
        let mut sinks = self.fitted.sinks.clone();
        if let Some(tested) = self.tested {
            SinkDeliveries::add_all(&mut sinks, &tested.sinks);
        }
        sinks
    }

    fn print_text(&self, app: &App, trainer: &Trainer) {
        let Summary { fitted, tested, best, seconds, .. } = self;
        let progress = fitted.progress;
        let (epochs, steps) = (plural(progress.epochs_done, "epoch"), plural(progress.step, "step"));
        let outcome = match &fitted.outcome {
            Outcome::Stopped { by, reason } => format!("stopped by `{by}` ({reason})"),
            Outcome::Interrupted { signal } => format!("interrupted by {signal}"),
            _ => "completed".to_owned(),
        };
        print_stdout(&format!("\n{outcome} after {epochs}, {steps}, {}", duration(*seconds)));
        let directory = trainer.run_info().directory.as_ref().filter(|directory| directory.is_dir());
        let place = if directory.is_some() { " in metrics.jsonl" } else { "" };
        let print_rows = |remark: &str, prefix: &str, report: &Report| {
            for row in rows(remark, prefix, &report.metrics, place) {
                print_stdout(&row);
            }
        };
        print_rows("", "train/", fitted);
        print_rows("", "val/", fitted);
        if let Some(report) = tested {
            let weights = match best {
                Some(Best { score: Some((name, value)), .. }) => {
                    format!("   with the best weights ({name} {})", metric(name, *value))
                }
                Some(_) => "   with the saved weights".to_owned(),
                None => "   with the last weights; no checkpoint hook saved better ones".to_owned(),
            };
            print_rows(&weights, "test/", report);
        }
        for (at, line) in costs::summary(self.fitted, self.profile_hooks).into_iter().enumerate() {
            print_stdout(&if at == 0 { format!("\n{line}") } else { line });
        }
        let sent = sinks::lines(&self.sinks());
        if !sent.is_empty() {
            print_stdout(&format!("\n{}\n  {}", sinks::TITLE, sent.join("\n  ")));
        }
        let failures = lines(&self.failures());
        if !failures.is_empty() {
            print_stdout(&format!("\nfailures\n  {}", failures.join("\n  ")));
        }
        let Some(directory) = directory else { return };
        print_stdout(&format!("\nthe run is in {}", directory.display()));
        let name = app.command;
        let weights = best.map_or_else(|| directory.with_file_name("latest"), |best| best.path.clone());
        print_stdout("next steps");
        if let Some(resume) = self.resume {
            print_stdout(&format!("  {resume}    resume the run"));
        }
        print_stdout(&format!("  {name} predict --weights {}", weights.display()));
        print_stdout(&format!("  {name} init my.toml    then edit it, and: {name} train my.toml"));
        print_stdout(&format!("  {name} trace my.toml   shows the order of events"));
    }
}

/// The metrics of a stage with a remark beside the first, and the number of omitted metrics.
fn rows(remark: &str, prefix: &str, metrics: &BTreeMap<String, f64>, place: &str) -> Vec<String> {
    let of_stage = metrics.iter().filter(|(name, _)| name.starts_with(prefix));
    let (shown, others): (Vec<_>, Vec<_>) = of_stage.partition(|(name, _)| in_summaries(name));
    let remarks = std::iter::once(remark).chain(std::iter::repeat(""));
    let row = |((name, value), remark): ((&String, &f64), _)| {
        format!("  {name:<20} {:>10}{remark}", metric(name, *value))
    };
    let mut rows: Vec<_> = shown.into_iter().zip(remarks).map(row).collect();
    if !others.is_empty() {
        rows.push(format!("  and {} more activation metrics{place}", others.len()));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_shows_its_metrics_with_one_remark_and_counts_those_of_activations() {
        let names = ["test/accuracy", "test/act_mean/a", "test/act_mean/b", "test/loss", "val/loss"];
        let metrics = names.iter().map(|name| ((*name).to_owned(), 0.5)).collect();
        let shown = rows("   with the last weights", "test/", &metrics, " in metrics.jsonl");
        let expected = [
            "  test/accuracy           50.00 %   with the last weights",
            "  test/loss                0.5000",
            "  and 2 more activation metrics in metrics.jsonl",
        ];
        assert_eq!(shown, expected);
        assert_eq!(rows("", "val/", &metrics, ""), ["  val/loss                 0.5000"]);
    }
}
