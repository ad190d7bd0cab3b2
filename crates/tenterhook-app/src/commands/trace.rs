//! `tenter trace`: the order of events, of a call's first batches or of a scenario.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};
use tenterhook::settings::Amount;
use tenterhook::sources;
use tenterhook_testkit::Scenario;
use tenterhook_testkit::recording::RecordedCall;

use super::tree::{Fired, Tracer, depths};
use super::{Done, failed, print, print_data, resolve, tell};
use crate::app::App;
use crate::arguments::{Call, Changes};
use crate::error::CommandError;

/// What to trace, and how to show it.
#[derive(Clone, Copy)]
pub(crate) struct Shown {
    pub(crate) json: bool,
    /// Of a scenario, every row.
    pub(crate) all: bool,
    /// Of a configuration, which call; unset, a training.
    pub(crate) stage: Option<Call>,
    /// Of a configuration, how many batches.
    pub(crate) batches: u64,
}

pub(crate) fn run(app: &App, path: &Path, changes: &Changes, shown: Shown) -> Done {
    let Shown { json, all, stage, batches } = shown;
    if path.extension().is_some_and(|extension| extension == "json") {
        if stage.is_some() {
            return Err(CommandError::new("a scenario says itself which calls it makes").at("--stage"));
        }
        return scenario(path, all);
    }
    let mut resolved = resolve(app, Some(path), changes)?;
    // A look at the beginning of the call, which leaves nothing behind.
    let settings = &mut resolved.trainer;
    let (call, batches) = (stage.unwrap_or_default(), Some(Amount::Count(batches)));
    match call {
        Call::Fit => {
            settings.max_epochs = Some(1);
            settings.limit_train_batches = batches;
            settings.limit_val_batches.get_or_insert(Amount::Count(1));
            settings.num_sanity_val_steps = settings.num_sanity_val_steps.clamp(0, 1);
        }
        Call::Validate => settings.limit_val_batches = batches,
        Call::Test => settings.limit_test_batches = batches,
        Call::Predict => settings.limit_predict_batches = batches,
    }
    let scratch = scratch()?;
    let mut program = resolved.program(&app.tasks, &app.registry)?;
    let trainer = resolved.bare_trainer(&app.registry)?;
    let mut trainer =
        trainer.rehearsing_in(scratch.path()).with_notices(|_| {}).without_introduction().lenient();
    let tracer = Tracer::default();
    trainer.add_hook(tracer.clone())?;
    let ran = match call {
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
        if json {
            print_data(&row(fired, depth, &receivers));
        } else {
            print(line(fired, depth, &receivers).trim_end());
        }
    }
    ran.map(|_| ExitCode::SUCCESS).map_err(|error| failed(error, &trainer))
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

/// A directory that goes with its files when the command ends.
fn scratch() -> Result<tempfile::TempDir, CommandError> {
    tempfile::tempdir().map_err(|error| CommandError::new(error).at("cannot make a temporary directory"))
}

fn scenario(path: &Path, all: bool) -> Done {
    let scenario = Scenario::read(path).map_err(CommandError::new)?;
    let (call_log, failure) = scenario.run(scratch()?.path()).map_err(CommandError::new)?;
    for call in call_log.calls().iter().filter(|call| all || is_comparable(call)) {
        print_data(&row_of(call).to_string());
    }
    if let Some(failure) = failure {
        tell(format_args!("the run failed: {failure}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Only steps and the starts and ends of batches carry the batch index, and the loader's only when not 0.
fn row_of(RecordedCall { source, place, batch }: &RecordedCall) -> Value {
    let steps = ["training_step", "validation_step", "test_step", "predict_step"];
    let about_a_batch = place.ends_with("_batch_start") || place.ends_with("_batch_end");
    match batch.filter(|_| about_a_batch || steps.contains(place)) {
        None => json!([source, place]),
        Some((index, 0)) => json!([source, place, index]),
        Some((index, loader)) => json!([source, place, index, loader]),
    }
}

/// Calls that Lightning does not have, or that its recordings leave out.
const OURS_ALONE: &[&str] = &[
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

/// The events that Lightning's strategy receives; ours receives more, as the published order says.
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

/// The events that Lightning does not give to its module.
const NOT_OF_MODULE: &[&str] = &["on_sanity_check_start", "on_sanity_check_end", "on_exception"];

/// Whether a call can be compared with Lightning's order.
fn is_comparable(RecordedCall { source, place, .. }: &RecordedCall) -> bool {
    match source.as_str() {
        "strategy" => OF_STRATEGY.contains(place),
        "module" => !NOT_OF_MODULE.contains(place) && !OURS_ALONE.contains(place),
        _ => !OURS_ALONE.contains(place),
    }
}
