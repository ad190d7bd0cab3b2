use tenterhook_core::Hook as _;
use tenterhook_core::{Status, Validation};
use tenterhook_testkit::Rig;

use super::*;

fn rig(options: PlateauDetectorOptions) -> Rig<PlateauDetector> {
    Rig::new(PlateauDetector::new(options).expect("they fit"))
}

fn options() -> PlateauDetectorOptions {
    PlateauDetectorOptions { window: 3, threshold: 0.5, ..PlateauDetectorOptions::default() }
}

/// Runs an epoch of ten steps that ends with this value. Returns whether the metric is on a plateau.
fn epoch(rig: &mut Rig<PlateauDetector>, epoch: u64, value: f64) -> bool {
    let step = (epoch + 1) * 10;
    rig.metrics().set_step(step);
    rig.epoch(epoch).step(step).metric("train/loss", value).on_train_epoch_end();
    rig.metrics().get("plateau/train/loss") == Some(1.0)
}

fn plateaus(options: PlateauDetectorOptions, values: &[f64]) -> (Vec<bool>, Vec<String>) {
    let mut rig = rig(options);
    let found = values.iter().zip(0..).map(|(value, at)| epoch(&mut rig, at, *value)).collect();
    assert!(rig.failures().is_empty());
    (found, said(&rig))
}

fn said(rig: &Rig<PlateauDetector>) -> Vec<String> {
    rig.said().into_iter().map(|(_, text)| text).collect()
}

#[test]
fn a_plateau_is_a_range_below_the_threshold_and_is_reported_once() {
    let (found, said) = plateaus(options(), &[5.0, 3.0, 3.25, 3.0, 3.25, 2.0, 2.25, 2.25]);
    assert_eq!(found, [false, false, false, true, true, false, false, true]);
    assert_eq!(
        said,
        [
            "plateau: `train/loss` = 3 has changed by 0.25 in the last 3 epochs, less than 0.5",
            "plateau: `train/loss` = 2.25 has changed by 0.25 in the last 3 epochs, less than 0.5",
        ]
    );
}

#[test]
fn the_defaults_are_five_epochs_and_a_thousandth() {
    let defaults = PlateauDetectorOptions::default();
    let (found, _) = plateaus(defaults.clone(), &[1.0, 1.0005, 1.0, 1.0009, 1.0, 1.0]);
    assert_eq!(found, [false, false, false, false, true, true]);
    let (found, _) = plateaus(defaults, &[0.0, 0.0, 0.0, 0.0, 0.001]);
    assert_eq!(found, [false; 5], "a thousandth is not below a thousandth");
}

#[test]
fn a_relative_threshold_is_a_share_of_the_mean() {
    let relative = PlateauDetectorOptions { relative: true, threshold: 0.01, ..options() };
    assert_eq!(plateaus(relative.clone(), &[100.0, 100.5, 100.0]).0, [false, false, true]);
    assert_eq!(plateaus(relative.clone(), &[-1.0, -1.5, -1.0]).0, [false; 3]);
    assert_eq!(plateaus(relative, &[0.0; 3]).0, [false, false, true], "nothing moved at all");
    assert!(
        plateaus(PlateauDetectorOptions { threshold: 0.01, ..options() }, &[100.0, 100.5, 100.0])
            .1
            .is_empty()
    );
}

#[test]
fn a_plateau_that_lasts_is_reported_after_the_cooldown() {
    let values = [1.0, 1.0, 1.0, 9.0, 2.0, 2.0, 2.0, 2.0];
    assert_eq!(plateaus(options(), &values).1.len(), 2);
    let quiet = PlateauDetectorOptions { cooldown: 4, ..options() };
    let mut rig = rig(quiet);
    let counts: Vec<_> = values
        .iter()
        .zip(0..)
        .map(|(value, at)| {
            epoch(&mut rig, at, *value);
            said(&rig).len()
        })
        .collect();
    assert_eq!(counts, [0, 0, 1, 1, 1, 1, 1, 2]);
}

#[test]
fn non_finite_values_are_not_a_plateau() {
    let nan = f64::NAN;
    assert_eq!(
        plateaus(options(), &[nan, nan, nan, 1.0, 1.0, 1.0]).0,
        [false, false, false, false, false, true]
    );
}

#[test]
fn an_epoch_without_the_metric_or_cut_short_does_not_count() {
    let mut rig = rig(options());
    for at in [0, 1] {
        epoch(&mut rig, at, 1.0);
    }
    rig.epoch(2).step(30).on_train_epoch_end();
    assert_eq!(rig.metrics().get("plateau/train/loss"), Some(0.0), "an old value is not counted twice");
    rig.status(Status::Interrupted);
    assert!(!epoch(&mut rig, 3, 1.0));
    rig.status(Status::Training);
    assert!(epoch(&mut rig, 4, 1.0));
}

#[test]
fn a_missing_metric_is_reported_once_and_not_before_it_is_due() {
    let mut rig = rig(PlateauDetectorOptions { monitor: "val/loss".into(), ..options() });
    rig.validation(Validation { every_n_epochs: Some(2), ..Validation::default() }).metric("a", 1.0);
    rig.epoch(0).on_train_epoch_end();
    assert_eq!(said(&rig), Vec::<String>::new());
    for at in 1..4 {
        assert_eq!(rig.epoch(at).on_train_epoch_end().failure, None);
    }
    assert_eq!(said(&rig), ["warning: metric `val/loss` was not logged; logged metrics: `a`"]);
}

#[test]
fn a_resumed_run_finds_and_reports_the_same() {
    let values = [f64::NAN, 1.0, 1.0, 1.0, 1.0, 5.0, 5.0, 5.0];
    let (whole, _) = plateaus(options(), &values);
    for split in 1..values.len() {
        let mut first = rig(options());
        let begun = values[..split].iter().zip(0..).map(|(value, at)| epoch(&mut first, at, *value));
        let mut found: Vec<_> = begun.collect();
        let before = said(&first).len();
        let mut rig = first.resumed(PlateauDetector::new(options()).expect("they fit"));
        let rest = values.iter().zip(0..).skip(split).map(|(value, at)| epoch(&mut rig, at, *value));
        found.extend(rest);
        assert_eq!(found, whole, "resumed after {split}");
        assert_eq!(before + said(&rig).len(), 2, "resumed after {split}");
    }
}

#[test]
fn invalid_values_are_refused_by_key() {
    for (options, begins) in [
        (PlateauDetectorOptions { monitor: String::new(), ..options() }, "`monitor` is empty"),
        (PlateauDetectorOptions { window: 1, ..options() }, "`window` must be 2"),
        (PlateauDetectorOptions { threshold: 0.0, ..options() }, "`threshold` is 0"),
        (PlateauDetectorOptions { threshold: f64::NAN, ..options() }, "`threshold` is NaN"),
    ] {
        let error = PlateauDetector::new(options).expect_err("refused").to_string();
        assert!(error.starts_with(begins), "{error}");
    }
    assert!(toml::from_str::<PlateauDetectorOptions>("relative = 1").is_err());
    assert!(toml::from_str::<PlateauDetectorOptions>("cooldown = -1").is_err());
}

#[test]
fn a_run_must_be_as_long_as_a_window_that_is_set() {
    let needs = |window| {
        let options = PlateauDetectorOptions { window, ..PlateauDetectorOptions::default() };
        PlateauDetector::new(options).expect("it fits").spec().min_run_length
    };
    assert_eq!(needs(5), [("window", Cadence::Epochs(5))], "the default, too");
    assert_eq!(needs(8), [("window", Cadence::Epochs(8))]);
}
