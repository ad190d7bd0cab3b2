//! The length of training is known when the optimizers are created.

use tenterhook::Settings;
use tenterhook::module::Horizon;
use tenterhook::settings::BatchLimit;
use tenterhook::toy::Toy;

use crate::call_log::CallLog;
use crate::lab::{Lab, LabData, data, epochs, trainer};

/// The horizon that the module receives in a fit on seven batches, and the calls.
fn told(settings: Settings, manual: bool) -> (Horizon, CallLog) {
    let call_log = CallLog::default();
    let mut lab = Lab::new(Toy::default(), &call_log);
    if manual {
        lab = lab.manual();
    }
    trainer(settings).fit(&mut lab, &mut LabData::new(data(7, 0), &call_log)).unwrap();
    (lab.horizon, call_log)
}

fn known(steps: u64, epochs: u64) -> Horizon {
    Horizon { steps: Some(steps), epochs: Some(epochs) }
}

#[test]
fn steps_are_counted_like_those_of_the_loop() {
    assert_eq!(told(epochs(3), false).0, known(21, 3));
    let windows = Settings { accumulate_grad_batches: 3, ..epochs(3) };
    let (horizon, call_log) = told(windows, false);
    assert_eq!(horizon, known(9, 3), "the last window of an epoch is a short one");
    let made = call_log.places("module").iter().filter(|place| **place == "optimizer_step").count();
    assert_eq!(made, 9);
    let limited = Settings { limit_train_batches: Some(BatchLimit::Fraction(0.5)), ..epochs(2) };
    assert_eq!(told(limited, false).0, known(6, 2));
}

#[test]
fn the_limit_that_is_reached_first_counts() {
    let steps = |max_steps, epochs| Settings { max_steps, max_epochs: epochs, ..crate::lab::epochs(0) };
    assert_eq!(told(steps(10, None), false).0, known(10, 2));
    assert_eq!(told(steps(10, Some(1)), false).0, known(7, 1));
    assert_eq!(told(steps(5, Some(9)), false).0, known(5, 1));
}

#[test]
fn with_manual_optimization_the_number_of_steps_is_unknown() {
    assert_eq!(told(epochs(2), true).0, Horizon { steps: None, epochs: Some(2) });
}

#[test]
fn the_training_loaders_are_made_once_and_before_the_optimizers() {
    let (_, call_log) = told(epochs(2), false);
    let rows: Vec<_> = call_log.rows().into_iter().map(|(of, place)| format!("{of} {place}")).collect();
    let at = |row: &str| rows.iter().position(|other| other == row).unwrap();
    assert!(at("data loaders") < at("module configure_optimizers"));
    let made = rows.iter().filter(|row| *row == "data loaders").count();
    assert_eq!(made, 2, "those of training and those of validation, each once");
}
