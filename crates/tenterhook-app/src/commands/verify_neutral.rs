//! `tenter verify-neutral`: the proof that a configuration's observers change nothing, or who does.

use std::process::ExitCode;
use std::time::Instant;

use indicatif::ProgressBar;
use tenterhook::neutral::{self, Finding, NeutralError, NeutralityReport, RunProgress, Verification};
use tenterhook::run::Interrupt;

use super::{Done, accept, print, print_data, resolve, tell};
use crate::app::App;
use crate::arguments::VerifyNeutral;
use crate::error::{CommandError, FAILED, WRONG_INPUT};
use crate::progress::{LINES, bar};
use crate::signals;

/// Nothing was judged, which must not be taken for a difference that was found.
const NOT_COMPARED: u8 = WRONG_INPUT;

pub(crate) fn run(app: &App, arguments: &VerifyNeutral) -> Done {
    let resolved = resolve(app, arguments.configured.config.as_deref(), &arguments.configured.changes)?;
    let mut program = resolved.program(&app.tasks, &app.registry)?;
    let mut trainer = resolved.bare_trainer(&app.registry)?;
    accept(&resolved, &mut *program, &mut trainer)?;
    let steps = arguments.steps.unwrap_or_else(|| neutral::usual_steps(&trainer));
    drop((program, trainer));
    let interrupt = Interrupt::new();
    let watch = signals::watch(interrupt.clone(), resolved.trainer.shutdown_timeout.0)?;
    watch.begins("the comparison ends after this batch, and nothing is judged");
    let mut shown = Shown::default();
    let judged = Verification::of(steps)
        .with_interrupt(interrupt)
        .on_progress(move |tick| shown.show(tick))
        .run(|| Ok((resolved.bare_trainer(&app.registry)?, resolved.program(&app.tasks, &app.registry)?)));
    let report = match judged {
        Ok(report) => report,
        Err(error) => {
            if arguments.json {
                print_data(&why_not(&error).to_string());
            }
            return told(error);
        }
    };
    if arguments.json {
        print_data(&serde_json::to_string(&report)?);
    } else {
        print(&for_people(app, &report));
    }
    Ok(match report.finding {
        Finding::Neutral | Finding::NothingToTest => ExitCode::SUCCESS,
        Finding::NothingExercised => ExitCode::from(NOT_COMPARED),
        Finding::NotDeterministic { .. } | Finding::Differs { .. } => ExitCode::from(FAILED),
    })
}

/// Why nothing was compared, for programs.
fn why_not(error: &NeutralError) -> serde_json::Value {
    match error {
        NeutralError::Interrupted { signal } => {
            serde_json::json!({ "result": "interrupted", "signal": signal })
        }
        error => serde_json::json!({ "result": "failed", "error": error.to_string() }),
    }
}

/// Why nothing was compared, for people.
fn told(error: NeutralError) -> Done {
    match error {
        NeutralError::Run { kind, error } => {
            tell(format_args!("the run {kind} failed, so nothing was compared"));
            Err(CommandError::of_run(*error).code(NOT_COMPARED))
        }
        NeutralError::Interrupted { signal } => Ok(ExitCode::from(signals::exit_code(&signal))),
        error => Err(CommandError::new(error).code(NOT_COMPARED)),
    }
}

fn for_people(app: &App, report: &NeutralityReport) -> String {
    let mut lines = vec![report.to_string()];
    let hint = match &report.finding {
        Finding::Neutral => &[][..],
        Finding::NothingToTest => &[
            "Controllers, update hooks and checkpoints are not judged: they are meant to change training, or only save.",
            "Add an observer to [[hooks]], such as `use = \"gradient_monitor\"`, to have it judged.",
        ],
        Finding::NothingExercised => &[
            "A hook that did nothing has changed nothing: compare more steps with `--steps`, let it fire more often, or let",
            "there be what it waits for, such as a validation.",
        ],
        Finding::NotDeterministic { .. } => &[
            "Make the program do the same twice first: look for a random source without a seed, for the clock,",
            "and for anything that outlasts a run. `trainer.deterministic = true` may help.",
        ],
        Finding::Differs { .. } => &[
            "Through a context an observer cannot change training, so it reached past it. Does it draw from the engine's",
            "generator? Draw from `cx.rng()`. Does it hold on to something that the model or another hook uses? Take a copy.",
            "Does a controller read what it logs? Let the controller declare that: `reads = [\"…\"]`.",
            "Then verify again: who changes something at a later step only is not named yet.",
        ],
    };
    if !hint.is_empty() {
        lines.push(String::new());
    }
    lines.extend(hint.iter().map(|line| (*line).to_owned()));
    if matches!(report.finding, Finding::NothingToTest) {
        lines.push(format!("`{} hooks` lists what there is.", app.command));
    }
    lines.join("\n")
}

/// Progress: a bar on a terminal, else a line per run, and every few seconds within a long one.
#[derive(Default)]
struct Shown {
    bar: Option<ProgressBar>,
    began: bool,
    told: Option<Instant>,
}

impl Shown {
    fn show(&mut self, tick: &RunProgress<'_>) {
        if !std::mem::replace(&mut self.began, true) {
            self.bar = bar();
        }
        let RunProgress { run, kind, step, steps, ended } = tick;
        let Some(bar) = &self.bar else {
            let told = *self.told.get_or_insert_with(Instant::now);
            if *ended || told.elapsed() >= LINES {
                self.told = Some(Instant::now());
                let how = if *ended { "done after" } else { "at" };
                tell(format_args!("run {run}, {kind}: {how} step {step}"));
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

impl Drop for Shown {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
