//! `tenter plan`: shows which hooks receive each event, in which order, and why.

use std::process::ExitCode;

use serde_json::{Map, Value, json};
use tenterhook::sources::{self, Receiver};
use tenterhook::{Cadence, Event, HookKind, HookSpec, PlanError, Trainer};
use tenterhook_testkit::Scenario;
use tenterhook_testkit::recording::CallLog;

use super::trace::is_scenario;
use super::{CommandResult, costs, load_config, print_data, print_stderr, print_stdout};
use crate::app::App;
use crate::arguments::Plan;
use crate::error::{CommandError, WRONG_INPUT, message_of};

pub(crate) fn run(app: &App, arguments: &Plan) -> CommandResult {
    let (trainer, problems) = plan(app, arguments)?;
    let (warnings, refused): (Vec<_>, Vec<_>) = problems.into_iter().partition(PlanError::is_warning);
    if arguments.json {
        print_data(&to_json(&trainer, &refused, &warnings));
    } else {
        print_stdout(to_text(&trainer).trim_end());
    }
    for warning in &warnings {
        print_stderr(format_args!("warning: {warning}"));
    }
    for refusal in &refused {
        print_stderr(format_args!("refused: {refusal}"));
    }
    Ok(if refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(WRONG_INPUT) })
}

/// The trainer of a configuration or scenario, with the problems of its plan.
fn plan(app: &App, arguments: &Plan) -> Result<(Trainer, Vec<PlanError>), CommandError> {
    let path = &arguments.config;
    if is_scenario(path) {
        let (scenario, call_log) = (Scenario::read(path).map_err(CommandError::new)?, CallLog::default());
        let mut trainer = scenario.trainer(&call_log).map_err(CommandError::new)?;
        let (mut module, mut data) = scenario.parts(&call_log);
        let refused = trainer
            .plan_errors(&mut module, &mut data)
            .map_err(|error| CommandError::new(message_of(error)))?;
        return Ok((trainer, refused));
    }
    let resolved = load_config(app, Some(path), &arguments.overrides)?;
    let mut trainer = resolved.bare_trainer(&app.registry)?;
    let mut program = resolved.program(&app.tasks, &app.registry)?;
    let problems = program.plan_errors(&mut trainer).map_err(|error| CommandError::new(message_of(error)))?;
    Ok((trainer, problems))
}

fn to_text(trainer: &Trainer) -> String {
    let mut lines = vec!["Hooks".to_owned()];
    let declared = trainer.hooks().declared();
    for hook in trainer.list_hooks() {
        let state = if hook.enabled { "" } else { ", disabled" };
        let spec = declared.iter().find(|spec| spec.name == hook.name);
        let declared = spec.map(declarations).unwrap_or_default();
        let budget = hook.budget.map(|budget| format!(", {}", costs::budget(&budget))).unwrap_or_default();
        lines.push(format!(
            "  {:<24} {}, on_error = \"{}\"{budget}{state}{declared}",
            hook.name, hook.kind, hook.on_error
        ));
        if hook.kind == HookKind::Update {
            lines.push(format!("  {:<24} after on_before_optimizer_step, before clipping", ""));
        }
        if hook.kind == HookKind::Forward {
            lines.push(format!("  {:<24} during the module's steps, at its hook points", ""));
        }
    }
    lines.extend(["", "Events and their receivers, in order"].map(str::to_owned));
    let mut without_hooks = Vec::new();
    for event in Event::ALL {
        let receivers = sources::receivers(*event, trainer.hooks());
        if *event == Event::GradientClip {
            lines.push("  update hooks".to_owned());
            let rows = update_hooks(trainer).into_iter().enumerate();
            lines.extend(rows.map(|(number, (name, why))| format!("    {}. {name:<24} {why}", number + 1)));
        }
        if !trainer.hooks().wants(*event) {
            let sources: Vec<_> = receivers.into_iter().map(|receiver| receiver.source).collect();
            without_hooks.push(format!("  {event:<28} {}", sources.join(", ")));
            continue;
        }
        lines.push(format!("  {event}"));
        for (number, Receiver { source, why }) in receivers.iter().enumerate() {
            let name = source.strip_prefix("hook:").unwrap_or(source);
            let why = if name == *why { "" } else { why };
            lines.push(format!("    {}. {name:<24} {why}", number + 1));
        }
    }
    lines.extend(["", "Events without hooks, and their other receivers"].map(str::to_owned));
    lines.extend(without_hooks);
    let lines: Vec<_> = lines.iter().map(|line| line.trim_end()).collect();
    lines.join("\n") + "\n"
}

/// The enabled update hooks in order, and the reason for their place.
fn update_hooks(trainer: &Trainer) -> Vec<(String, &'static str)> {
    let enabled =
        trainer.list_hooks().into_iter().filter(|hook| hook.kind == HookKind::Update && hook.enabled);
    let row = |name: String| {
        // This name is reserved for the update hook that changes nothing.
        let why =
            if name == "identity" { "never called: it changes nothing" } else { "in registration order" };
        (name, why)
    };
    enabled.map(|hook| row(hook.name)).collect()
}

/// The declarations of a hook, as the end of its line.
fn declarations(spec: &HookSpec) -> String {
    let list = |word: &str, names: Vec<String>| {
        if names.is_empty() { String::new() } else { format!(", {word} {}", names.join(" and ")) }
    };
    let times = |cadences: &[Cadence]| cadences.iter().map(ToString::to_string).collect();
    [
        list("reads", spec.reads.clone()),
        list("writes", spec.writes.clone()),
        list("requests", spec.gated_by.clone()),
        list("monitors", spec.monitors.iter().cloned().collect()),
        list("every", times(&spec.every)),
        list("after", times(&spec.after)),
        list(
            "runs on",
            Some(spec.ranks).filter(|ranks| !ranks.is_all()).iter().map(ToString::to_string).collect(),
        ),
    ]
    .concat()
}

fn to_json(trainer: &Trainer, refused: &[PlanError], warnings: &[PlanError]) -> String {
    let mut events = Map::new();
    for event in Event::ALL {
        let receivers = sources::receivers(*event, trainer.hooks());
        let rows =
            receivers.into_iter().map(|Receiver { source, why }| json!({ "source": source, "why": why }));
        events.insert(event.handler().to_owned(), Value::Array(rows.collect()));
    }
    let texts = |errors: &[PlanError]| errors.iter().map(ToString::to_string).collect::<Vec<_>>();
    let (refused, warnings) = (texts(refused), texts(warnings));
    let updates = update_hooks(trainer).into_iter().map(|(name, why)| json!({ "name": name, "why": why }));
    let updates: Vec<_> = updates.collect();
    let hooks = trainer.list_hooks();
    let plan = json!({
        "hooks": hooks, "events": events, "update_hooks": updates, "refused": refused, "warnings": warnings
    });
    format!("{plan:#}\n")
}
