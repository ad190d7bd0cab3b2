//! `tenter trace`: shows the order of events in a few batches of a call, or in a scenario.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};
use tenterhook::settings::BatchLimit;
use tenterhook::sources;
use tenterhook_testkit::Scenario;
use tenterhook_testkit::recording::RecordedCall;

use super::tree::{Fired, Tracer, depths};
use super::{CommandResult, error_of, load_config, print_data, print_stderr, print_stdout};
use crate::app::App;
use crate::arguments::{Call, Trace};
use crate::error::CommandError;

/// Whether a file is a scenario and not a configuration.
pub(super) fn is_scenario(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "json")
}

pub(crate) fn run(app: &App, arguments: &Trace) -> CommandResult {
    let Trace { file, overrides, stage, batches, all, json } = arguments;
    if is_scenario(file) {
        if stage.is_some() {
            return Err(CommandError::new("a scenario contains its own calls").at("--stage"));
        }
        return trace_scenario(file, *all);
    }
    let mut resolved = load_config(app, Some(file), overrides)?;
    let settings = &mut resolved.trainer;
    let (call, batches) = (stage.unwrap_or_default(), Some(BatchLimit::Count(*batches)));
    match call {
        Call::Fit => {
            settings.max_epochs = Some(1);
            settings.limit_train_batches = batches;
            settings.limit_val_batches.get_or_insert(BatchLimit::Count(1));
            settings.num_sanity_val_steps = settings.num_sanity_val_steps.clamp(0, 1);
        }
        Call::Validate => settings.limit_val_batches = batches,
        Call::Test => settings.limit_test_batches = batches,
        Call::Predict => settings.limit_predict_batches = batches,
    }
    let scratch = temporary_directory()?;
    let mut program = resolved.program(&app.tasks, &app.registry)?;
    let trainer = resolved.bare_trainer(&app.registry)?;
    let mut trainer =
        trainer.rehearsing_in(scratch.path()).with_notices(|_| {}).without_run_header().lenient();
    let tracer = Tracer::default();
    trainer.add_hook(tracer.clone())?;
    let result = match call {
        Call::Fit => program.fit(&mut trainer),
        Call::Validate => program.validate(&mut trainer),
        Call::Test => program.test(&mut trainer),
        Call::Predict => program.predict(&mut trainer).map(|(report, _)| report),
    };
    let fired = tracer.fired();
    for (fired, depth) in fired.iter().zip(depths(&fired)) {
        let mut receivers: Vec<String> = match &fired.point {
            Some(point) => trainer.hooks().hooks_wanting(point).into_iter().map(str::to_owned).collect(),
            None => sources::receivers(fired.event, trainer.hooks())
                .into_iter()
                .map(|receiver| receiver.source.trim_start_matches("hook:").to_owned())
                .collect(),
        };
        receivers.retain(|name| name != Tracer::NAME);
        if *json {
            print_data(&row(fired, depth, &receivers));
        } else {
            print_stdout(line(fired, depth, &receivers).trim_end());
        }
    }
    result.map(|_| ExitCode::SUCCESS).map_err(|error| error_of(error, &trainer))
}

fn line(fired: &Fired, depth: usize, receivers: &[String]) -> String {
    let mut what = format!("{:depth$}{}", "", fired.event.handler(), depth = 2 * depth);
    if fired.event.handler().ends_with("_batch_start")
        && let Some((index, loader)) = &fired.batch
    {
        let _ = write!(what, "  batch {index} of {loader}");
    }
    if let Some(point) = &fired.point {
        let _ = write!(what, "  {point}");
    }
    if fired.event.handler() == "on_train_epoch_start" {
        let _ = write!(what, "  {}", tenterhook::epoch_label(fired.epoch, None));
    }
    if fired.event.handler() == "on_step_end" {
        let _ = write!(what, "  step {}", fired.step);
    }
    format!("{what:<58}{}", receivers.join(", "))
}

fn row(fired: &Fired, depth: usize, receivers: &[String]) -> String {
    let Fired { event, epoch, step, batch, point } = fired;
    let (index, loader) = batch.clone().unzip();
    json!({
        "event": event.handler(), "depth": depth, "epoch": epoch, "step": step,
        "batch": index, "loader": loader, "point": point, "receivers": receivers,
    })
    .to_string()
}

/// A directory that is removed when the command ends.
fn temporary_directory() -> Result<tempfile::TempDir, CommandError> {
    tempfile::tempdir().map_err(|error| CommandError::new(error).at("cannot make a temporary directory"))
}

fn trace_scenario(path: &Path, all: bool) -> CommandResult {
    let scenario = Scenario::read(path).map_err(CommandError::new)?;
    let (call_log, failure) = scenario.run(temporary_directory()?.path()).map_err(CommandError::new)?;
    for call in call_log.calls().iter().filter(|call| all || is_comparable(call)) {
        print_data(&row_of(call).to_string());
    }
    if let Some(failure) = failure {
        print_stderr(format_args!("the run failed: {failure}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// The JSON row of a call. Steps, batch starts and batch ends have the batch index, and the loader index if
/// it is not 0.
fn row_of(RecordedCall { source, place, batch }: &RecordedCall) -> Value {
    let steps = ["training_step", "validation_step", "test_step", "predict_step"];
    let is_batch_event = place.ends_with("_batch_start") || place.ends_with("_batch_end");
    match batch.filter(|_| is_batch_event || steps.contains(place)) {
        None => json!([source, place]),
        Some((index, 0)) => json!([source, place, index]),
        Some((index, loader)) => json!([source, place, index, loader]),
    }
}

/// Calls that Lightning or its recordings do not have.
const NOT_IN_LIGHTNING: &[&str] = &[
    "configure_model",
    "clip_gradients",
    "on_step_end",
    "on_after_optimizer_step",
    "on_gradient_clip",
    "on_before_forward",
    "on_after_forward",
    "on_checkpoint_saved",
    "on_checkpoint_loaded",
    "on_log",
    "on_hook_disabled",
    "on_notice",
    "change_lr",
    "weights",
    "load_weights",
    "optimizer_state",
    "load_optimizer_state",
    "loaders",
    "seek",
    "next",
];

/// The events that Lightning's strategy receives; ours receives more.
const OF_STRATEGY: &[&str] = &[
    "setup",
    "teardown",
    "on_train_start",
    "on_train_end",
    "on_train_batch_start",
    "on_validation_start",
    "on_validation_end",
    "on_test_start",
    "on_test_end",
    "on_predict_start",
    "on_predict_end",
    "on_exception",
];

/// Events that Lightning's module does not receive.
const NOT_OF_MODULE: &[&str] = &["on_sanity_check_start", "on_sanity_check_end", "on_exception"];

/// Whether Lightning also has this call.
fn is_comparable(RecordedCall { source, place, .. }: &RecordedCall) -> bool {
    match source.as_str() {
        "strategy" => OF_STRATEGY.contains(place),
        "module" => !NOT_OF_MODULE.contains(place) && !NOT_IN_LIGHTNING.contains(place),
        _ => !NOT_IN_LIGHTNING.contains(place),
    }
}
