//! `tenter validate`, `tenter test` and `tenter predict`: evaluate saved weights.

use std::path::Path;
use std::process::ExitCode;

use serde_json::json;
use tenterhook::config::Config;
use tenterhook::run::{RunDirectoryOptions, RunLock};
use tenterhook::task::Program;
use tenterhook::{Outcome, Report, RunError, RunNotice, Trainer};

use super::trust::{Action, load_run_config};
use super::weights::Weights;
use super::{CommandResult, load_config, print_data, print_stderr, print_stdout};
use crate::app::App;
use crate::arguments::{Evaluate, Output};
use crate::error::CommandError;
use crate::format::metric;
use crate::signals::{self, SignalHandler};

/// The directory for files of hooks, below the directory of all runs.
const EVALUATIONS: &str = "evaluations";

pub(crate) fn validate(app: &App, arguments: &Evaluate) -> CommandResult {
    evaluate(app, arguments, |program, trainer, output| {
        program.validate(trainer).inspect(|report| print_metrics(report, "val/", output))
    })
}

pub(crate) fn test(app: &App, arguments: &Evaluate) -> CommandResult {
    evaluate(app, arguments, |program, trainer, output| {
        program.test(trainer).inspect(|report| print_metrics(report, "test/", output))
    })
}

pub(crate) fn predict(app: &App, arguments: &Evaluate) -> CommandResult {
    evaluate(app, arguments, |program, trainer, output| {
        let (report, predictions) = program.predict(trainer)?;
        for prediction in predictions.iter().filter(|_| !output.quiet) {
            match prediction.get("text").and_then(|text| text.as_str()).filter(|_| !output.json) {
                Some(text) => print_stdout(text),
                None => print_data(&prediction.to_string()),
            }
        }
        Ok(report)
    })
}

/// The exit code of a call that did not fail.
pub(super) fn exit_code(report: &Report) -> ExitCode {
    match &report.outcome {
        Outcome::Interrupted { signal } => ExitCode::from(signals::exit_code(signal)),
        _ => ExitCode::SUCCESS,
    }
}

/// Prints the metrics of an evaluation, unless it was interrupted.
fn print_metrics(report: &Report, prefix: &str, output: Output) {
    if matches!(report.outcome, Outcome::Interrupted { .. }) {
        return;
    }
    let metrics: Vec<_> = report.metrics.iter().filter(|(name, _)| name.starts_with(prefix)).collect();
    if output.json {
        let metrics: serde_json::Map<_, _> =
            metrics.iter().map(|(name, value)| ((*name).clone(), json!(value))).collect();
        print_data(&json!({ "metrics": metrics }).to_string());
    } else if !output.quiet {
        for (name, value) in metrics {
            print_stdout(&format!("{name:<20} {}", metric(name, *value)));
        }
    }
}

/// Tests a run whose training has ended, in its directory. It runs without hooks, because without a checkpoint their
/// state is lost.
pub(super) fn test_finished_run(
    app: &App,
    resolved: &Config,
    lock: Option<RunLock>,
    weights: &Path,
    output: Output,
) -> CommandResult {
    let signals = SignalHandler::install(resolved.trainer.shutdown_timeout.0)?;
    let mut program = resolved.program(&app.tasks, &app.registry)?;
    program.load_weights(weights).map_err(CommandError::new)?;
    let plan = RunDirectoryOptions { resume: lock, then_test: true, ..resolved.run_directory() };
    let trainer = Trainer::new(resolved.trainer.clone())?;
    let trainer = trainer.with_config(resolved.to_json()).with_run_directory(plan);
    let mut trainer = with_notices(trainer, output).with_interrupt(signals.interrupt());
    signals.interrupt_with("stopping the test after this batch");
    if !output.quiet {
        print_stderr(format_args!(
            "testing {} without hooks: the run has no checkpoint with their state",
            weights.display()
        ));
    }
    let report = program.test(&mut trainer).map_err(CommandError::from_run)?;
    print_metrics(&report, "test/", output);
    Ok(exit_code(&report))
}

/// Runs a call of the trainer with saved weights.
fn evaluate(
    app: &App,
    arguments: &Evaluate,
    call: impl FnOnce(&mut dyn Program, &mut Trainer, Output) -> Result<Report, RunError>,
) -> CommandResult {
    let found = Weights::at(&arguments.weights)?;
    let Evaluate { trust, overrides, output, .. } = arguments;
    let resolved = match (&arguments.config, &found.config) {
        (Some(named), _) => load_config(app, Some(named), overrides)?,
        (None, Some(of_run)) => load_run_config(app, of_run, overrides, *trust, Action::Evaluate)?,
        (None, None) => {
            let what = format!("{} has no configuration", arguments.weights.display());
            return Err(CommandError::new(what).fix("name a configuration before --weights"));
        }
    };
    let signals = SignalHandler::install(resolved.trainer.shutdown_timeout.0)?;
    let mut program = resolved.program(&app.tasks, &app.registry)?;
    program.load_weights(&found.path).map_err(CommandError::new)?;
    let mut trainer = evaluation_trainer(app, &resolved, *output)?.with_interrupt(signals.interrupt());
    signals.interrupt_with("stopping after this batch");
    let called = call(&mut *program, &mut trainer, *output);
    if let Some(files) = trainer.run_info().files().filter(|files| files.is_dir() && !output.quiet) {
        print_stderr(format_args!("files of hooks are in {}", files.display()));
    }
    called.map(|report| exit_code(&report)).map_err(CommandError::from_run)
}

/// A trainer with all hooks of the configuration. An evaluation is not a run, so files of hooks go into a
/// directory beside the runs, which is created with the first file.
fn evaluation_trainer(app: &App, resolved: &Config, output: Output) -> Result<Trainer, CommandError> {
    let trainer = resolved.bare_trainer(&app.registry)?;
    let place = resolved.runs_dir.join(EVALUATIONS).join(&trainer.run_info().id);
    let trainer = trainer.with_checkpoints_in(place.join("checkpoints"));
    Ok(with_notices(trainer, output))
}

/// Prints notices to standard error.
fn with_notices(trainer: Trainer, output: Output) -> Trainer {
    trainer.with_notices(move |notice| {
        // The signal handler has printed the interrupt already.
        if !output.quiet && !matches!(notice, RunNotice::Interrupted { .. }) {
            print_stderr(notice);
        }
    })
}
