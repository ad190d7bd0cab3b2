//! `tenter points`: lists the hook points of a module with their shapes.

mod recorder;

use std::process::ExitCode;

use serde_json::json;
use tenterhook::config::Config;
use tenterhook::plan::nearest;
use tenterhook::run::Interrupt;
use tenterhook::settings::{BatchLimit, FastDevRun};
use tenterhook::task::Program;
use tenterhook::{Pattern, Phase, RunError, Settings, Trainer};

use super::{CommandResult, load_config, print_data, print_stderr, print_stdout};
use crate::app::App;
use crate::arguments::Points;
use crate::error::{CommandError, FAILED, message_of};
use crate::format::{Side, plural, table};
use recorder::{PHASES, Point, PointRecorder, ShapeRange, phase_name};

/// Maximum number of names in an error.
const MAX_NAMES: usize = 12;

pub(crate) fn run(app: &App, arguments: &Points) -> CommandResult {
    let pattern = arguments.pattern.as_deref().map(str::parse::<Pattern>).transpose()?;
    let resolved = load_config(app, arguments.config.config.as_deref(), &arguments.config.overrides)?;
    let mut program = resolved.program(&app.tasks, &app.registry)?;
    let trainer = resolved.bare_trainer(&app.registry)?;
    let recorder = PointRecorder::default();
    let mut has_failed = false;
    for phase in PHASES {
        let problem = match run_one_batch(&resolved, &mut *program, phase, &recorder)? {
            Err(error) => {
                has_failed = true;
                message_of(error)
            }
            Ok(()) if !recorder.had_batch(phase) => "no data".to_owned(),
            Ok(()) if !recorder.had_point(phase) => "no points".to_owned(),
            Ok(()) => continue,
        };
        print_stderr(format_args!("{}: {problem}", phase_name(phase)));
    }
    let all = recorder.points();
    if all.is_empty() && has_failed {
        return Ok(ExitCode::from(FAILED));
    }
    let selected: Vec<_> =
        all.iter().filter(|point| pattern.as_ref().is_none_or(|p| p.matches(&point.name))).collect();
    if let Some(pattern) = pattern.filter(|_| selected.is_empty() && !all.is_empty()) {
        return Err(selects_nothing(&pattern, &all));
    }
    let hooks_of = |point: &Point| trainer.hooks().hooks_wanting(&point.name);
    if arguments.json {
        print_data(&to_json(&selected, hooks_of));
    } else {
        print_stdout(to_text(&selected, hooks_of).trim_end());
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs one batch of a phase without the hooks of the configuration, and writes nothing.
fn run_one_batch(
    resolved: &Config,
    program: &mut dyn Program,
    phase: Phase,
    recorder: &PointRecorder,
) -> Result<Result<(), RunError>, CommandError> {
    let one = Some(BatchLimit::Count(1));
    let mut settings = Settings { num_sanity_val_steps: 0, ..resolved.trainer.clone() };
    if phase != Phase::Train {
        // The training length is unchanged, because schedules depend on it; the recorder interrupts training
        // instead.
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
    let mut trainer = trainer.with_notices(|_| {}).without_run_header().with_interrupt(interrupt.clone());
    trainer.add_hook(recorder.interrupting(interrupt))?;
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
    let few: Vec<_> = names().take(MAX_NAMES).collect();
    let more = if all.len() > MAX_NAMES { ", …" } else { "" };
    let points = plural(all.len() as u64, "point");
    CommandError::new(format_args!("`{pattern}` selects none of {points}"))
        .fix(format_args!("{near}there are: {}{more}", few.join(", ")))
}

fn to_text<'h>(points: &[&Point], hooks_of: impl Fn(&Point) -> Vec<&'h str>) -> String {
    if points.is_empty() {
        return "the module has no hook points; name an activation in its forward pass, e.g. \
                `points.point(\"mlp\", &x)`"
            .to_owned();
    }
    let heading = ["point", "shape", "elements", "phases", "hooks"].map(str::to_owned);
    let mut rows = vec![heading.to_vec()];
    for point in points {
        for (row, (shapes, phases)) in point.shapes().into_iter().enumerate() {
            let only_first_row = |text: String| if row == 0 { text } else { String::new() };
            let phases: Vec<_> = phases.into_iter().map(phase_name).collect();
            rows.push(vec![
                only_first_row(point.name.clone()),
                shapes.to_string(),
                shapes.elements(),
                phases.join(", "),
                only_first_row(hooks_of(point).join(", ")),
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

fn to_json<'h>(points: &[&Point], hooks_of: impl Fn(&Point) -> Vec<&'h str>) -> String {
    let shape = |(shapes, phases): (&ShapeRange, Vec<Phase>)| {
        let phases: Vec<_> = phases.into_iter().map(phase_name).collect();
        json!({
            "phases": phases,
            "smallest": shapes.smallest, "largest": shapes.largest,
            "elements": { "least": shapes.min_elements, "most": shapes.max_elements },
        })
    };
    let points: Vec<_> = points
        .iter()
        .map(|point| {
            let shapes: Vec<_> = point.shapes().into_iter().map(shape).collect();
            json!({ "name": point.name, "shapes": shapes, "hooks": hooks_of(point) })
        })
        .collect();
    format!("{:#}", json!({ "points": points }))
}
