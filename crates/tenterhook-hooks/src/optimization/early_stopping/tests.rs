use tenterhook_core::{Event, Phase, Status, Validation};
use tenterhook_testkit::Rig;

use super::*;

fn of(monitor: &str) -> EarlyStoppingOptions {
    EarlyStoppingOptions { mode: Some(Mode::Min), ..EarlyStoppingOptions::new(monitor) }
}

fn hook(options: EarlyStoppingOptions) -> EarlyStopping {
    EarlyStopping::new(options).expect("they fit")
}

fn stops_at(options: EarlyStoppingOptions, values: &[f64]) -> Option<(usize, String)> {
    let mut hook = hook(options);
    values.iter().enumerate().find_map(|(at, value)| Some((at, hook.stop_reason(*value)?)))
}

/// The notices of a hook with these options for these values.
fn said(options: EarlyStoppingOptions, values: &[f64]) -> Vec<String> {
    let mut rig = Rig::new(hook(EarlyStoppingOptions { check_on_train_epoch_end: Some(false), ..options }));
    for value in values {
        rig.metric("m", *value).on_validation_end();
    }
    texts(&rig)
}

fn texts(rig: &Rig<EarlyStopping>) -> Vec<String> {
    rig.said().into_iter().map(|(_, text)| text).collect()
}

#[test]
fn patience_counts_checks_without_improvement() {
    let options = EarlyStoppingOptions { patience: 2, ..of("m") };
    assert_eq!(stops_at(options.clone(), &[3.0, 2.0, 2.0, 1.0, 1.5, 1.0, 0.0]).map(|(at, _)| at), Some(5));
    assert_eq!(stops_at(options, &[3.0, 2.0, 1.0]), None);
}

#[test]
fn a_change_below_min_delta_is_no_improvement() {
    let options = EarlyStoppingOptions { patience: 1, min_delta: 0.5, ..of("m") };
    assert_eq!(stops_at(options.clone(), &[3.0, 2.4, 2.0]).map(|(at, _)| at), Some(2));
    let max = EarlyStoppingOptions { mode: Some(Mode::Max), ..options };
    assert_eq!(stops_at(max, &[1.0, 2.0, 2.5]).map(|(at, _)| at), Some(2));
}

#[test]
fn thresholds_and_non_finite_values_stop_at_once_with_the_reason() {
    let options =
        EarlyStoppingOptions { stopping_threshold: Some(0.1), divergence_threshold: Some(10.0), ..of("m") };
    for (value, reason) in [
        (0.05, "`m` = 0.05 is better than the stopping threshold 0.1"),
        (11.0, "`m` = 11 is worse than the divergence threshold 10"),
        (f64::NAN, "`m` = NaN is not finite"),
    ] {
        assert_eq!(stops_at(options.clone(), &[1.0, value]), Some((1, reason.to_owned())));
    }
    assert_eq!(stops_at(options, &[1.0, 0.1, 10.0]), None);
}

#[test]
fn without_check_finite_a_non_finite_metric_is_no_improvement() {
    let options = EarlyStoppingOptions { check_finite: false, patience: 2, ..of("m") };
    let (at, reason) = stops_at(options, &[1.0, f64::NAN, f64::INFINITY]).expect("it stops");
    assert_eq!((at, reason.as_str()), (2, "`m` has not improved on 1 in 2 checks"));
}

#[test]
fn a_nan_is_never_the_best_and_counts_as_a_check() {
    for mode in [Mode::Min, Mode::Max] {
        let options = |patience| EarlyStoppingOptions {
            check_finite: false,
            patience,
            mode: Some(mode),
            ..EarlyStoppingOptions::new("m")
        };
        // The first number becomes the best value, and later values are compared with it.
        assert_eq!(stops_at(options(2), &[f64::NAN, 1.0, 1.0, f64::NAN]).map(|(at, _)| at), Some(3));
        let (at, reason) = stops_at(options(1), &[f64::NAN]).expect("it stops");
        assert_eq!((at, reason.as_str()), (0, "`m` has not improved in 1 check"));
    }
}

#[test]
fn messages_have_at_most_six_digits() {
    let third = 1.0 / 3.0;
    let (_, reason) =
        stops_at(EarlyStoppingOptions { patience: 1, ..of("m") }, &[third, third]).expect("it stops");
    assert_eq!(reason, "`m` has not improved on 0.333333 in 1 check");
    let verbose = EarlyStoppingOptions { verbose: true, patience: 2, ..of("m") };
    let said = said(verbose, &[third, 2.0 * third]);
    assert_eq!(said, ["`m` improved to 0.333333", "`m` = 0.666667 did not improve, 1 check in a row"]);
}

#[test]
fn the_direction_is_set_or_inferred_from_the_name() {
    let rising = |options| stops_at(options, &[1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(rising(EarlyStoppingOptions::new("val/accuracy")), None);
    assert!(rising(EarlyStoppingOptions::new("val/loss")).is_some());
    let set = EarlyStoppingOptions { mode: Some(Mode::Max), ..EarlyStoppingOptions::new("val/loss") };
    assert_eq!(rising(set), None);
}

#[test]
fn invalid_values_are_refused_by_key() {
    let refused = |options| EarlyStopping::new(options).expect_err("refused").to_string();
    for (options, begins) in [
        (EarlyStoppingOptions::new("score"), "`mode` must be set for the `monitor` \"score\""),
        (EarlyStoppingOptions::new(""), "`monitor` is empty"),
        (EarlyStoppingOptions { min_delta: -0.1, ..of("m") }, "`min_delta` is -0.1"),
        (EarlyStoppingOptions { min_delta: f64::NAN, ..of("m") }, "`min_delta` is NaN"),
        (EarlyStoppingOptions { stopping_threshold: Some(f64::NAN), ..of("m") }, "`stopping_threshold` must"),
        (EarlyStoppingOptions { divergence_threshold: Some(f64::NAN), ..of("m") }, "`divergence_threshold`"),
    ] {
        let error = refused(options);
        assert!(error.starts_with(begins), "{error}");
    }
}

#[test]
fn it_checks_after_validation_or_at_the_end_of_the_epoch() {
    let events = |at_epoch_end: Option<bool>, at_validation_end: bool| {
        let mut rig = Rig::new(hook(EarlyStoppingOptions {
            check_on_train_epoch_end: at_epoch_end,
            patience: 1,
            ..of("m")
        }));
        let validation = Validation { at_epoch_end: !at_validation_end, ..Validation::default() };
        rig.validation(validation).metric("m", 1.0);
        for _ in 0..2 {
            rig.on_validation_end();
            rig.on_train_epoch_end();
        }
        rig.decisions().into_iter().map(|(event, _)| event).collect::<Vec<_>>()
    };
    assert_eq!(events(Some(true), true), [Event::TrainEpochEnd]);
    assert_eq!(events(Some(false), false), [Event::ValidationEnd]);
    assert_eq!(events(None, false), [Event::TrainEpochEnd], "once per epoch");
    assert_eq!(events(None, true), [Event::ValidationEnd], "several times per epoch");
}

#[test]
fn a_missing_metric_is_an_error_that_lists_the_existing_ones() {
    let mut rig = Rig::new(hook(of("val/los")));
    let reply = rig.metric("val/loss", 1.0).metric("train/loss", 2.0).on_train_epoch_end();
    let failure = reply.failure.clone().expect("it fails");
    assert!(
        failure.contains("metric `val/los` was not logged; logged metrics: `train/loss`, `val/loss`"),
        "{failure}"
    );
}

#[test]
fn without_strict_a_missing_metric_is_reported_once() {
    let mut rig = Rig::new(hook(EarlyStoppingOptions { strict: false, patience: 1, ..of("m") }));
    rig.metric("val/loss", 1.0);
    for _ in 0..3 {
        assert_eq!(rig.on_train_epoch_end().failure, None);
    }
    assert_eq!(
        texts(&rig),
        ["warning: metric `m` was not logged; logged metrics: `val/loss`; it is not checked"]
    );
    assert!(rig.decisions().is_empty());
}

#[test]
fn checks_are_reported_only_when_verbose() {
    let verbose = EarlyStoppingOptions { verbose: true, patience: 2, ..of("m") };
    assert_eq!(
        said(verbose.clone(), &[2.0, 1.0, 1.5, 1.25]),
        [
            "`m` improved to 2",
            "`m` improved to 1",
            "`m` = 1.5 did not improve, 1 check in a row",
            "`m` has not improved on 1 in 2 checks",
        ]
    );
    let mut delayed = Rig::new(hook(EarlyStoppingOptions { patience: 1, ..verbose.clone() }));
    delayed.run(tenterhook_core::RunInfo { min_epochs: 9, ..Default::default() });
    for value in [1.0, 2.0] {
        delayed.metric("m", value).on_train_epoch_end();
    }
    assert!(
        texts(&delayed)[1].ends_with("; training continues until `min_epochs` = 9"),
        "{:?}",
        texts(&delayed)
    );
    let quiet = EarlyStoppingOptions { verbose: false, ..verbose };
    assert_eq!(said(quiet, &[2.0, 1.0, 1.5, 1.25]), Vec::<String>::new());
}

#[test]
fn nothing_is_checked_in_a_sanity_check_a_dry_run_and_after_an_interruption() {
    type Under = Rig<EarlyStopping>;
    let rests = |set: fn(&mut Under) -> &mut Under| {
        let mut rig = Rig::new(hook(EarlyStoppingOptions { patience: 1, ..of("m") }));
        set(rig.metric("m", 1.0));
        for _ in 0..3 {
            assert_eq!(rig.on_train_epoch_end().failure, None);
        }
        rig.decisions().is_empty()
    };
    assert!(!rests(|rig| rig), "otherwise it stops");
    assert!(rests(|rig| rig.phase(Phase::SanityCheck)));
    assert!(rests(|rig| rig.fast_dev_run(true)));
    assert!(rests(|rig| rig.status(Status::Interrupted)));
}

#[test]
fn patience_survives_a_resume() {
    let options = EarlyStoppingOptions { patience: 2, ..of("m") };
    let mut rig = Rig::new(hook(options.clone()));
    for value in [1.0, 2.0] {
        rig.metric("m", value).on_train_epoch_end();
    }
    let mut resumed = rig.resumed(hook(options));
    resumed.on_train_epoch_end();
    assert_eq!(resumed.stop_reason(), Some("`m` has not improved on 1 in 2 checks"));
}
