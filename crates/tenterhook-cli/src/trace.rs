//! `tenter trace`: runs a scenario and prints its rows.

use std::path::Path;
use std::process::ExitCode;

use crate::print;
use crate::scenario::{Row, Scenario};

pub(crate) fn run(path: &Path, all: bool) -> Result<ExitCode, String> {
    let scenario = Scenario::read(path)?;
    let directory =
        tempfile::tempdir().map_err(|error| format!("cannot make a temporary directory: {error}"))?;
    let (tape, failure) = scenario.run(directory.path())?;
    for row in tape.rows().iter().filter(|row| all || is_comparable(row)) {
        print(&row.to_json().to_string());
    }
    if let Some(failure) = failure {
        eprintln!("the run failed: {failure}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Events that Lightning does not have.
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

/// Whether a row can be compared with Lightning's order.
fn is_comparable(row: &Row) -> bool {
    match row.source.as_str() {
        "strategy" => OF_STRATEGY.contains(&row.event),
        "module" => !NOT_OF_MODULE.contains(&row.event) && !OURS_ALONE.contains(&row.event),
        _ => !OURS_ALONE.contains(&row.event),
    }
}
