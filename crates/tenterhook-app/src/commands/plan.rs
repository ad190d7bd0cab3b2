//! `tenter plan`: who receives what, in which order, and why.

use std::path::Path;
use std::process::ExitCode;

use serde_json::{Map, Value, json};
use tenterhook::sources::{self, Receiver};
use tenterhook::{Cadence, Event, HookKind, HookSpec, PlanError, Trainer};
use tenterhook_testkit::Scenario;
use tenterhook_testkit::recording::CallLog;

use super::{Done, costs, print, print_data, resolve, tell};
use crate::app::App;
use crate::arguments::Changes;
use crate::error::{CommandError, WRONG_INPUT, reason};

pub(crate) fn run(app: &App, path: &Path, changes: &Changes, json: bool) -> Done {
    let (trainer, found) = planned(app, path, changes)?;
    let (warnings, refused): (Vec<_>, Vec<_>) = found.into_iter().partition(PlanError::is_warning);
    if json {
        print_data(&for_programs(&trainer, &refused, &warnings));
    } else {
        print(for_people(&trainer).trim_end());
    }
    for warning in &warnings {
        tell(format_args!("warning: {warning}"));
    }
    for refusal in &refused {
        tell(format_args!("refused: {refusal}"));
    }
    Ok(if refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(WRONG_INPUT) })
}

fn planned(app: &App, path: &Path, changes: &Changes) -> Result<(Trainer, Vec<PlanError>), CommandError> {
    if path.extension().is_some_and(|extension| extension == "json") {
        let (scenario, call_log) = (Scenario::read(path).map_err(CommandError::new)?, CallLog::default());
        let mut trainer = scenario.trainer(&call_log).map_err(CommandError::new)?;
        let (mut module, mut data) = scenario.parts(&call_log);
        let refused =
            trainer.refusals(&mut module, &mut data).map_err(|error| CommandError::new(reason(error)))?;
        return Ok((trainer, refused));
    }
    let resolved = resolve(app, Some(path), changes)?;
    let mut trainer = resolved.bare_trainer(&app.registry)?;
    let mut program = resolved.program(&app.tasks, &app.registry)?;
    let refused = program.refusals(&mut trainer).map_err(|error| CommandError::new(reason(error)))?;
    Ok((trainer, refused))
}

fn for_people(trainer: &Trainer) -> String {
    let mut lines = vec!["Hooks".to_owned()];
    let declared = trainer.hooks().declared();
    for hook in trainer.list_hooks() {
        let state = if hook.enabled { "" } else { ", disabled" };
        let spec = declared.iter().find(|spec| spec.name == hook.name);
        let says = spec.map(said_of_itself).unwrap_or_default();
        let budget = hook.budget.map(|budget| format!(", {}", costs::budget(&budget))).unwrap_or_default();
        lines.push(format!(
            "  {:<24} {}, on_error = \"{}\"{budget}{state}{says}",
            hook.name, hook.kind, hook.on_error
        ));
        if hook.kind == HookKind::Update {
            lines.push(format!("  {:<24} after on_before_optimizer_step, before clipping", ""));
        }
        if hook.kind == HookKind::Forward {
            lines.push(format!("  {:<24} during the module's steps, at the points it wants", ""));
        }
    }
    lines.extend(["", "Events, and who receives them in which order"].map(str::to_owned));
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
    lines.extend(["", "Events that no hook wants; their context is never built"].map(str::to_owned));
    lines.extend(without_hooks);
    let lines: Vec<_> = lines.iter().map(|line| line.trim_end()).collect();
    lines.join("\n") + "\n"
}

/// The update hooks that are enabled, in the order in which they change the gradients, and why they stand there.
fn update_hooks(trainer: &Trainer) -> Vec<(String, &'static str)> {
    let enabled =
        trainer.list_hooks().into_iter().filter(|hook| hook.kind == HookKind::Update && hook.enabled);
    let row = |name: String| {
        // The name is reserved for what changes nothing.
        let why =
            if name == "identity" { "never called: it changes nothing" } else { "in registration order" };
        (name, why)
    };
    enabled.map(|hook| row(hook.name)).collect()
}

/// What a hook declares, as the end of its line.
fn said_of_itself(spec: &HookSpec) -> String {
    let list = |word: &str, names: Vec<String>| {
        if names.is_empty() { String::new() } else { format!(", {word} {}", names.join(" and ")) }
    };
    let times = |cadences: &[Cadence]| cadences.iter().map(ToString::to_string).collect();
    [
        list("reads", spec.reads.clone()),
        list("writes", spec.writes.clone()),
        list("asks for", spec.asks.clone()),
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

fn for_programs(trainer: &Trainer, refused: &[PlanError], warnings: &[PlanError]) -> String {
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
