//! `tenter verify-neutral`: proves that observers do not change training, or finds the one that does.

use std::process::ExitCode;
use std::time::Instant;

use indicatif::ProgressBar;
use tenterhook::neutral::{self, Finding, NeutralError, NeutralityReport, RunProgress, Verification};

use super::{CommandResult, check_plan, load_config, print_data, print_stderr, print_stdout};
use crate::app::App;
use crate::arguments::VerifyNeutral;
use crate::error::{CommandError, FAILED, WRONG_INPUT};
use crate::progress::{LINE_INTERVAL, bar};
use crate::signals::{self, SignalHandler};

/// Exit code if nothing was compared. It differs from the one for a difference.
const NOT_COMPARED: u8 = WRONG_INPUT;

pub(crate) fn run(app: &App, arguments: &VerifyNeutral) -> CommandResult {
    let resolved = load_config(app, arguments.config.config.as_deref(), &arguments.config.overrides)?;
    let mut program = resolved.program(&app.tasks, &app.registry)?;
    let mut trainer = resolved.bare_trainer(&app.registry)?;
    check_plan(&resolved, &mut *program, &mut trainer)?;
    let steps = arguments.steps.unwrap_or_else(|| neutral::usual_steps(&trainer));
    drop((program, trainer));
    let signals = SignalHandler::install(resolved.trainer.shutdown_timeout.0)?;
    signals.interrupt_with("stopping after this batch, without a result");
    let mut progress = ProgressDisplay::default();
    let judged = Verification::of(steps)
        .with_interrupt(signals.interrupt())
        .on_progress(move |tick| progress.show(tick))
        .run(|| Ok((resolved.bare_trainer(&app.registry)?, resolved.program(&app.tasks, &app.registry)?)));
    let report = match judged {
        Ok(report) => report,
        Err(error) => {
            if arguments.json {
                print_data(&error_json(&error).to_string());
            }
            return report_error(error);
        }
    };
    if arguments.json {
        print_data(&serde_json::to_string(&report)?);
    } else {
        print_stdout(&to_text(app, &report));
    }
    Ok(match report.finding {
        Finding::Neutral | Finding::NothingToTest => ExitCode::SUCCESS,
        Finding::NothingExercised => ExitCode::from(NOT_COMPARED),
        Finding::NotDeterministic { .. } | Finding::Differs { .. } => ExitCode::from(FAILED),
    })
}

/// The reason why nothing was compared, as JSON.
fn error_json(error: &NeutralError) -> serde_json::Value {
    match error {
        NeutralError::Interrupted { signal } => {
            serde_json::json!({ "result": "interrupted", "signal": signal })
        }
        error => serde_json::json!({ "result": "failed", "error": error.to_string() }),
    }
}

/// The reason why nothing was compared, as an error.
fn report_error(error: NeutralError) -> CommandResult {
    match error {
        NeutralError::Run { kind, error } => {
            print_stderr(format_args!("the run {kind} failed, so nothing was compared"));
            Err(CommandError::from_run(*error).code(NOT_COMPARED))
        }
        NeutralError::Interrupted { signal } => Ok(ExitCode::from(signals::exit_code(&signal))),
        error => Err(CommandError::new(error).code(NOT_COMPARED)),
    }
}

fn to_text(app: &App, report: &NeutralityReport) -> String {
    let mut lines = vec![report.to_string()];
    let hint = match &report.finding {
        Finding::Neutral => &[][..],
        Finding::NothingToTest => &[
            "Controllers and update hooks may change training, and checkpoints only save, so they are not checked.",
            "Add an observer to [[hooks]], e.g. `use = \"gradient_monitor\"`, to check it.",
        ],
        Finding::NothingExercised => &[
            "No observer was called. Compare more steps with `--steps`, let the observers fire more often, or enable what",
            "they wait for, such as validation.",
        ],
        Finding::NotDeterministic { .. } => &[
            "Make training deterministic first: look for unseeded random numbers, for the clock, and for state that",
            "survives a run. `trainer.deterministic = true` may help.",
        ],
        Finding::Differs { .. } => &[
            "The context does not let an observer change training, so it changes something else. If it draws random numbers",
            "from the engine's generator, use `cx.rng()`. If it shares state with the model or another hook, copy it. If a",
            "controller reads what it logs, the controller must declare that: `reads = [\"…\"]`.",
            "Then verify again: observers that only change later steps are not named yet.",
        ],
    };
    if !hint.is_empty() {
        lines.push(String::new());
    }
    lines.extend(hint.iter().map(|line| (*line).to_owned()));
    if matches!(report.finding, Finding::NothingToTest) {
        lines.push(format!("`{} hooks` lists the available hooks.", app.command));
    }
    lines.join("\n")
}

/// Progress: a bar on a terminal; otherwise a line per run, and every few seconds within a run.
#[derive(Default)]
struct ProgressDisplay {
    bar: Option<ProgressBar>,
    has_started: bool,
    updated: Option<Instant>,
}

impl ProgressDisplay {
    fn show(&mut self, tick: &RunProgress<'_>) {
        if !std::mem::replace(&mut self.has_started, true) {
            self.bar = bar();
        }
        let RunProgress { run, kind, step, steps, ended } = tick;
        let Some(bar) = &self.bar else {
            let updated = *self.updated.get_or_insert_with(Instant::now);
            if *ended || updated.elapsed() >= LINE_INTERVAL {
                self.updated = Some(Instant::now());
                let how = if *ended { "done after" } else { "at" };
                print_stderr(format_args!("run {run}, {kind}: {how} step {step}"));
            }
            return;
        };
        bar.set_length(*steps);
        bar.set_position(*step);
        bar.set_message(format!("run {run}, {kind}: step {step}"));
        if *ended {
            bar.set_message("");
        }
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
