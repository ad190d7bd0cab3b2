//! `tenter points`: the activations that a module shows, with their shapes.

mod seen;

use std::process::ExitCode;

use serde_json::json;
use tenterhook::config::Config;
use tenterhook::plan::nearest;
use tenterhook::run::Interrupt;
use tenterhook::settings::{BatchLimit, FastDevRun};
use tenterhook::task::Program;
use tenterhook::{Pattern, Phase, RunError, Settings, Trainer};

use super::{Done, print, print_data, resolve, tell};
use crate::app::App;
use crate::arguments::Points;
use crate::error::{CommandError, FAILED, reason};
use crate::table::{Side, counted, table};
use seen::{Look, Point, Span};

/// So many names fit into a message.
const SOME: usize = 12;

pub(crate) fn run(app: &App, arguments: &Points) -> Done {
    let pattern = arguments.pattern.as_deref().map(str::parse::<Pattern>).transpose()?;
    let resolved = resolve(app, arguments.configured.config.as_deref(), &arguments.configured.changes)?;
    let mut program = resolved.program(&app.tasks, &app.registry)?;
    let trainer = resolved.bare_trainer(&app.registry)?;
    let look = Look::default();
    let mut failures = 0;
    for phase in seen::PHASES {
        let problem = match shown(&resolved, &mut *program, phase, &look)? {
            Err(error) => {
                failures += 1;
                reason(error)
            }
            Ok(()) if !look.had_batch(phase) => "there is no data".to_owned(),
            Ok(()) if !look.had_point(phase) => "no point is shown".to_owned(),
            Ok(()) => continue,
        };
        tell(format_args!("{}: {problem}", seen::word(phase)));
    }
    let all = look.points();
    if all.is_empty() && failures > 0 {
        return Ok(ExitCode::from(FAILED));
    }
    let chosen: Vec<_> =
        all.iter().filter(|point| pattern.as_ref().is_none_or(|p| p.matches(&point.name))).collect();
    if let Some(pattern) = pattern.filter(|_| chosen.is_empty() && !all.is_empty()) {
        return Err(selects_nothing(&pattern, &all));
    }
    let wanting = |point: &Point| trainer.hooks().hooks_wanting(&point.name);
    if arguments.json {
        print_data(&for_programs(&chosen, wanting));
    } else {
        print(for_people(&chosen, wanting).trim_end());
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs one batch of a phase, without the configuration's hooks; nothing is written.
fn shown(
    resolved: &Config,
    program: &mut dyn Program,
    phase: Phase,
    look: &Look,
) -> Result<Result<(), RunError>, CommandError> {
    let one = Some(BatchLimit::Count(1));
    let mut settings = Settings { num_sanity_val_steps: 0, ..resolved.trainer.clone() };
    if phase != Phase::Train {
        // Training keeps its length, by which schedules are made, and is interrupted instead.
        settings = Settings {
            limit_val_batches: one,
            limit_test_batches: one,
            limit_predict_batches: one,
            overfit_batches: BatchLimit::Count(0),
            fast_dev_run: FastDevRun(0),
            ..settings
        };
    }
    let interrupt = Interrupt::new();
    let trainer = Trainer::new(settings)?;
    let mut trainer = trainer.with_notices(|_| {}).without_introduction().with_interrupt(interrupt.clone());
    trainer.add_hook(look.hook(interrupt))?;
    Ok(match phase {
        Phase::Train | Phase::SanityCheck => program.fit(&mut trainer).map(drop),
        Phase::Validate => program.validate(&mut trainer).map(drop),
        Phase::Test => program.test(&mut trainer).map(drop),
        Phase::Predict => program.predict(&mut trainer).map(drop),
    })
}

fn selects_nothing(pattern: &Pattern, all: &[Point]) -> CommandError {
    let names = || all.iter().map(|point| point.name.as_str());
    let near = nearest(&pattern.to_string(), names());
    let near = near.map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
    let few: Vec<_> = names().take(SOME).collect();
    let more = if all.len() > SOME { ", …" } else { "" };
    let points = counted(all.len() as u64, "point");
    CommandError::new(format_args!("`{pattern}` selects none of {points}"))
        .fix(format_args!("{near}there are: {}{more}", few.join(", ")))
}

fn for_people<'h>(points: &[&Point], wanting: impl Fn(&Point) -> Vec<&'h str>) -> String {
    if points.is_empty() {
        return "the module shows no hook points; name an activation in its forward pass, as in \
                `points.point(\"mlp\", &x)`"
            .to_owned();
    }
    let heading = ["point", "shape", "elements", "phases", "hooks"].map(str::to_owned);
    let mut rows = vec![heading.to_vec()];
    for point in points {
        for (number, (span, phases)) in point.spans().into_iter().enumerate() {
            // The name stands once; further shapes stand below the first.
            let first = |text: String| if number == 0 { text } else { String::new() };
            let phases: Vec<_> = phases.into_iter().map(seen::word).collect();
            rows.push(vec![
                first(point.name.clone()),
                span.to_string(),
                span.elements(),
                phases.join(", "),
                first(wanting(point).join(", ")),
            ]);
        }
    }
    if rows[1..].iter().all(|row| row[4].is_empty()) {
        for row in &mut rows {
            row.truncate(4);
        }
    }
    table(&rows, &[Side::Left, Side::Left, Side::Right, Side::Left, Side::Left]).join("\n")
}

fn for_programs<'h>(points: &[&Point], wanting: impl Fn(&Point) -> Vec<&'h str>) -> String {
    let shape = |(span, phases): (&Span, Vec<Phase>)| {
        let phases: Vec<_> = phases.into_iter().map(seen::word).collect();
        json!({
            "phases": phases,
            "smallest": span.low, "largest": span.high,
            "elements": { "least": span.least, "most": span.most },
        })
    };
    let points: Vec<_> = points
        .iter()
        .map(|point| {
            let shapes: Vec<_> = point.spans().into_iter().map(shape).collect();
            json!({ "name": point.name, "shapes": shapes, "hooks": wanting(point) })
        })
        .collect();
    format!("{:#}", json!({ "points": points }))
}
