//! `tenter validate`, `tenter test` and `tenter predict`, with weights from a run.

use std::path::Path;
use std::process::ExitCode;

use serde_json::json;
use tenterhook::config::Config;
use tenterhook::run::{Interrupt, RunDirectoryPlan, RunLock};
use tenterhook::task::Program;
use tenterhook::{Outcome, Report, RunError, RunNotice, Trainer};

use super::trust::{Act, resolve_of_run};
use super::weights::Weights;
use super::{Done, print, print_data, resolve, tell};
use crate::app::App;
use crate::arguments::{Evaluate, Output};
use crate::error::CommandError;
use crate::progress::metric;
use crate::signals;

/// Where files of hooks go, below the directory of all runs.
const EVALUATIONS: &str = "evaluations";

pub(crate) fn validate(app: &App, arguments: &Evaluate) -> Done {
    evaluate(app, arguments, "val/", |program, trainer| program.validate(trainer))
}

pub(crate) fn test(app: &App, arguments: &Evaluate) -> Done {
    evaluate(app, arguments, "test/", |program, trainer| program.test(trainer))
}

pub(crate) fn predict(app: &App, arguments: &Evaluate) -> Done {
    with_weights(app, arguments, |program, trainer, output| {
        let (report, predictions) = program.predict(trainer)?;
        for prediction in predictions.iter().filter(|_| !output.quiet) {
            match prediction.get("text").and_then(|text| text.as_str()).filter(|_| !output.json) {
                Some(text) => print(text),
                None => print_data(&prediction.to_string()),
            }
        }
        Ok(report)
    })
}

fn evaluate(
    app: &App,
    arguments: &Evaluate,
    of: &str,
    call: impl FnOnce(&mut dyn Program, &mut Trainer) -> Result<Report, RunError>,
) -> Done {
    with_weights(app, arguments, |program, trainer, output| {
        let report = call(program, trainer)?;
        print_metrics(&report, of, output);
        Ok(report)
    })
}

/// The exit code of a call that did not fail.
pub(super) fn ended(report: &Report) -> ExitCode {
    match &report.outcome {
        Outcome::Interrupted { signal } => ExitCode::from(signals::exit_code(signal)),
        _ => ExitCode::SUCCESS,
    }
}

/// Half an evaluation has no metrics to print.
fn print_metrics(report: &Report, of: &str, output: Output) {
    if matches!(report.outcome, Outcome::Interrupted { .. }) {
        return;
    }
    let metrics: Vec<_> = report.metrics.iter().filter(|(name, _)| name.starts_with(of)).collect();
    if output.json {
        let metrics: serde_json::Map<_, _> =
            metrics.iter().map(|(name, value)| ((*name).clone(), json!(value))).collect();
        print_data(&json!({ "metrics": metrics }).to_string());
    } else if !output.quiet {
        for (name, value) in metrics {
            print(&format!("{name:<20} {}", metric(name, *value)));
        }
    }
}

/// The test of a run whose training has ended, in its directory. The state of its hooks is lost with its checkpoints, so
/// none of them receives it.
pub(super) fn test_of_run(
    app: &App,
    resolved: &Config,
    lock: Option<RunLock>,
    weights: &Path,
    output: Output,
) -> Done {
    let interrupt = Interrupt::new();
    let watch = signals::watch(interrupt.clone(), resolved.trainer.shutdown_timeout.0)?;
    let mut program = resolved.program(&app.tasks, &app.registry)?;
    program.load_weights(weights).map_err(CommandError::new)?;
    let plan = RunDirectoryPlan { resume: lock, then_test: true, ..resolved.run_directory() };
    let trainer = Trainer::new(resolved.trainer.clone())?;
    let trainer = trainer.with_config(resolved.to_json()).with_run_directory(plan);
    let mut trainer = told(trainer, output).with_interrupt(interrupt);
    watch.begins("the test ends after this batch");
    if !output.quiet {
        tell(format_args!(
            "testing {}, without hooks: the run has no checkpoint of their state",
            weights.display()
        ));
    }
    let report = program.test(&mut trainer).map_err(CommandError::of_run)?;
    print_metrics(&report, "test/", output);
    Ok(ended(&report))
}

fn with_weights(
    app: &App,
    arguments: &Evaluate,
    call: impl FnOnce(&mut dyn Program, &mut Trainer, Output) -> Result<Report, RunError>,
) -> Done {
    let found = Weights::at(&arguments.weights)?;
    let Evaluate { trust, changes, .. } = arguments;
    let resolved = match (&arguments.config, &found.config) {
        (Some(named), _) => resolve(app, Some(named), changes)?,
        (None, Some(of_run)) => resolve_of_run(app, of_run, changes, *trust, Act::Evaluate)?,
        (None, None) => {
            let what = format!("{} does not say what it was trained with", arguments.weights.display());
            return Err(CommandError::new(what).fix("name a configuration before --weights"));
        }
    };
    let interrupt = Interrupt::new();
    let watch = signals::watch(interrupt.clone(), resolved.trainer.shutdown_timeout.0)?;
    let mut program = resolved.program(&app.tasks, &app.registry)?;
    program.load_weights(&found.path).map_err(CommandError::new)?;
    let mut trainer = watched(app, &resolved, arguments.output)?.with_interrupt(interrupt);
    watch.begins("it ends after this batch");
    let called = call(&mut *program, &mut trainer, arguments.output);
    if let Some(files) = trainer.run_info().files().filter(|files| files.is_dir() && !arguments.output.quiet)
    {
        tell(format_args!("files of hooks are in {}", files.display()));
    }
    called.map(|report| ended(&report)).map_err(CommandError::of_run)
}

/// A trainer with all hooks of the configuration: those that want an event of the stage receive it, as in
/// [`Trainer::test`]. It is no run, so files of hooks go into a directory beside the runs, which is made with the
/// first of them.
fn watched(app: &App, resolved: &Config, output: Output) -> Result<Trainer, CommandError> {
    let trainer = resolved.bare_trainer(&app.registry)?;
    let place = resolved.runs_dir.join(EVALUATIONS).join(&trainer.run_info().id);
    let trainer = trainer.with_checkpoints_in(place.join("checkpoints"));
    Ok(told(trainer, output))
}

/// Notices go to standard error: standard output is for what was asked for.
fn told(trainer: Trainer, output: Output) -> Trainer {
    trainer.with_notices(move |notice| {
        // Whoever sent a signal has been answered at once.
        if !output.quiet && !matches!(notice, RunNotice::Interrupted { .. }) {
            tell(notice);
        }
    })
}
