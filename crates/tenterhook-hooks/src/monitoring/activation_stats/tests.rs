use tenterhook_core::plan::{RunFacts, check};
use tenterhook_core::{Hook, NamedTensors, Phase, Progress, RunInfo};
use tenterhook_testkit::Rig;

use super::*;

mod cost;

fn every_step() -> ActivationStatsOptions {
    ActivationStatsOptions { log_frequency: 1, ..ActivationStatsOptions::default() }
}

fn only(statistic: ActivationStatistic) -> ActivationStatsOptions {
    ActivationStatsOptions { statistics: vec![statistic], ..every_step() }
}

fn at(points: &[&str]) -> ActivationStatsOptions {
    ActivationStatsOptions {
        points: points.iter().map(|point| (*point).to_owned()).collect(),
        ..every_step()
    }
}

fn hook(options: ActivationStatsOptions) -> ActivationStats {
    ActivationStats::new(options).expect("they fit")
}

fn rig(options: ActivationStatsOptions) -> Rig<ActivationStats> {
    Rig::new(hook(options))
}

fn said(rig: &Rig<ActivationStats>) -> Vec<String> {
    rig.said().into_iter().map(|(_, text)| text).collect()
}

#[test]
fn every_statistic_is_logged_under_its_name() {
    let mut rig = rig(every_step());
    rig.shaped_activation("a.b", [2, 2], [1.0, 0.0, 3.0, 0.0]);
    let expected = [
        ("act_dead/a.b", 0.5),
        ("act_max/a.b", 3.0),
        ("act_mean/a.b", 1.0),
        ("act_min/a.b", 0.0),
        ("act_non_finite/a.b", 0.0),
        ("act_norm/a.b", 10_f64.sqrt()),
        ("act_std/a.b", 1.5_f64.sqrt()),
        ("act_zeros/a.b", 0.5),
    ];
    let logged = rig.metrics().to_map();
    assert_eq!(logged.keys().collect::<Vec<_>>(), expected.map(|(name, _)| name));
    for (name, value) in expected {
        assert!((logged[name] - value).abs() < 1e-12, "{name}: {}", logged[name]);
    }
    assert!(rig.failures().is_empty() && said(&rig).is_empty());
}

#[test]
fn only_the_selected_statistics_are_logged() {
    for statistic in ActivationStatistic::ALL {
        let mut rig = rig(only(statistic));
        rig.activation("x", [1.0, 2.0]);
        assert_eq!(rig.metrics().names(), [format!("{}/x", statistic.metric())]);
    }
}

#[test]
fn non_finite_values_are_counted_and_left_out_of_the_mean() {
    let mut rig = rig(every_step());
    rig.activation("x", [1.0, f32::NAN, 3.0, f32::INFINITY]).activation("y", [f32::NAN]);
    let metrics = rig.metrics();
    assert_eq!((metrics.get("act_mean/x"), metrics.get("act_non_finite/x")), (Some(2.0), Some(0.5)));
    assert!(metrics.get("act_norm/x").is_some_and(|norm| !norm.is_finite()));
    assert!(metrics.get("act_mean/y").is_some_and(f64::is_nan));
    assert_eq!(metrics.get("act_dead/y"), Some(0.0), "a NaN is no sign of death");
}

#[test]
fn in_training_steps_that_are_multiples_are_logged() {
    let mut rig = rig(ActivationStatsOptions { log_frequency: 3, ..only(ActivationStatistic::Mean) });
    for step in 0_u16..7 {
        rig.step(step.into()).activation("x", [f32::from(step + 1)]);
    }
    assert_eq!(rig.metrics().get("act_mean/x"), Some(6.0), "steps 3 and 6");
    let counted = Progress { step: 9, step_counted: true, ..Progress::default() };
    rig.progress(counted).activation("x", [0.5]);
    assert_eq!(rig.metrics().get("act_mean/x"), Some(0.5), "step 9 is being worked on");
}

#[test]
fn only_the_points_that_match_are_logged() {
    let mut rig = rig(ActivationStatsOptions {
        statistics: vec![ActivationStatistic::Mean],
        ..at(&["blocks.*.mlp", "head"])
    });
    for point in ["blocks.0.mlp", "blocks.0.attn", "head", "head.out"] {
        rig.activation(point, [1.0]);
    }
    assert_eq!(rig.metrics().names(), ["act_mean/blocks.0.mlp", "act_mean/head"]);
}

#[test]
fn an_unmatched_pattern_is_reported_once_after_the_first_logged_batch() {
    let mut rig = rig(ActivationStatsOptions { log_frequency: 2, ..at(&["head", "tail"]) });
    rig.step(0).on_train_batch_end();
    assert!(said(&rig).is_empty(), "nobody was asked in a step that is not looked at");
    for step in [1, 3] {
        rig.step(step).activation("hed", [1.0]).activation("tail", [1.0]).on_train_batch_end();
    }
    assert_eq!(said(&rig), ["`points`: no hook point matches `head`; there are: `hed`, `tail`"]);
}

#[test]
fn nothing_is_logged_in_a_sanity_check_and_in_other_stages() {
    let mut rig = rig(ActivationStatsOptions { stages: vec![ActivationStage::Validate], ..every_step() });
    for phase in [Phase::SanityCheck, Phase::Train, Phase::Test, Phase::Predict] {
        rig.phase(phase).activation("x", [1.0]);
    }
    rig.phase(Phase::Train).on_train_epoch_end();
    assert!(rig.metrics().names().is_empty());
    // The trainer's tests cover the logged metrics of evaluations.
}

#[test]
fn units_are_dead_when_all_their_values_are_zero() {
    let dead = |shape: &[usize], values: &[f32], unit_axis| {
        let mut rig = rig(ActivationStatsOptions { unit_axis, ..only(ActivationStatistic::Dead) });
        rig.shaped_activation("x", shape, values);
        rig.metrics().get("act_dead/x")
    };
    // The last feature is zero in both samples (-0 counts as 0), the first only in one.
    assert_eq!(dead(&[2, 4], &[-0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0, -0.0], None), Some(0.25));
    assert_eq!(dead(&[2, 2], &[0.0, 0.0, 0.0, 0.0], None), Some(1.0));
    assert_eq!(dead(&[2, 2], &[0.0, 1.0, 1.0, 0.0], None), Some(0.0), "zeros enough, but not of one unit");
    assert_eq!(dead(&[], &[0.0], None), Some(1.0));
    // Two samples of two 1×2 channels: the first channel is zero only in the first sample.
    let channels = [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0];
    assert_eq!(dead(&[2, 2, 1, 2], &channels, None), Some(0.5));
    assert_eq!(dead(&[2, 2, 1, 2], &channels, Some(-1)), Some(0.5));
    assert_eq!(dead(&[2, 2, 1, 2], &channels, Some(0)), Some(0.5));
    assert_eq!(dead(&[2, 2, 1, 2], &channels, Some(2)), Some(0.0));
    assert_eq!(dead(&[3, 1], &[0.0, 1.0, 0.0], Some(0)), Some(2.0 / 3.0));
}

#[test]
fn a_point_without_the_unit_dimension_is_reported_once_and_keeps_its_other_statistics() {
    let mut rig = rig(ActivationStatsOptions { unit_axis: Some(2), ..every_step() });
    rig.shaped_activation("x", [1, 2], [0.0, 0.0]).shaped_activation("x", [1, 2], [0.0, 0.0]);
    assert_eq!(
        said(&rig),
        [
            "`unit_axis` is 2, and `x` of shape [1, 2] has no such dimension, so its dead units are not counted"
        ]
    );
    assert_eq!((rig.metrics().get("act_dead/x"), rig.metrics().get("act_zeros/x")), (None, Some(1.0)));
}

#[test]
fn all_tensors_of_a_point_are_logged() {
    let mut rig = rig(ActivationStatsOptions { unit_axis: Some(1), ..every_step() });
    let shown = NamedTensors::default().with("a", [1, 1], [1.0]).with("b", [0], []).with("c", [1], [5.0]);
    rig.show("x", shown);
    let mean = |name: &str| rig.metrics().get(&format!("act_mean/{name}"));
    assert_eq!([mean("x"), mean("x#2"), mean("x#3")], [Some(1.0), None, Some(5.0)]);
    assert!(said(&rig)[0].contains("`x#3` of shape [1]"), "{:?}", said(&rig));
}

#[test]
fn histograms_are_declared_and_their_bins_limited() {
    let with = |histogram_bins| ActivationStatsOptions { histogram_bins, ..at(&["x"]) };
    let declares = |bins| hook(with(bins)).spec().writes.contains(&"act/x".to_owned());
    assert!(declares(10_000) && !declares(0));
    let error = ActivationStats::new(with(10_001)).expect_err("too many").to_string();
    assert_eq!(error, "`histogram_bins` must be 10000 or less");
}

#[test]
fn a_histogram_is_logged_if_it_has_bins() {
    let mut rig = rig(every_step());
    rig.activation("x", [0.0, 4.0]);
    assert!(!rig.metrics().has_histograms());
    let mut rig =
        super::tests::rig(ActivationStatsOptions { histogram_bins: 2, statistics: vec![], ..every_step() });
    rig.activation("x", [0.0, 1.0, 4.0]);
    assert_eq!(rig.metrics().take_histograms()["act/x"].counts, [2, 1]);
    assert!(rig.metrics().names().is_empty());
}

#[test]
fn an_empty_tensor_has_no_statistics() {
    let mut rig = rig(ActivationStatsOptions { histogram_bins: 2, ..every_step() });
    rig.shaped_activation("x", [0, 3], []);
    assert!(rig.metrics().names().is_empty() && rig.failures().is_empty());
}

#[test]
fn the_log_frequency_is_declared_as_the_needed_run_length() {
    for log_frequency in [50, ActivationStatsOptions::default().log_frequency] {
        let access = hook(ActivationStatsOptions { log_frequency, ..every_step() }).spec();
        assert_eq!(access.every, [Cadence::Steps(log_frequency)]);
    }
}

#[test]
fn two_hooks_on_different_points_do_not_conflict_and_can_be_monitored() {
    let refused = |one: &[&str], other: &[&str], monitored: &str| {
        let stages = vec![ActivationStage::Train, ActivationStage::Validate];
        let of = |points| hook(ActivationStatsOptions { stages: stages.clone(), ..at(points) }).spec();
        let monitor = HookSpec::observer("stop").monitors(monitored);
        let hooks = [of(one).name("one"), of(other).name("other"), monitor];
        let world = RunFacts { metrics: Some(Vec::new()), ..RunFacts::default() };
        check(&hooks, &world).len()
    };
    assert_eq!(refused(&["blocks.*.mlp"], &["head"], "act_dead/blocks.3.mlp"), 0);
    assert_eq!(refused(&["**.mlp"], &["head"], "val/act_mean/mlp"), 0);
    assert_eq!(refused(&["tail"], &["head.**"], "val/act_mean/head/first_loader"), 0);
    assert_eq!(refused(&["a.**.b"], &["head"], "act_std/a.b"), 0);
    assert_eq!(refused(&["a"], &["head"], "act_mean/b"), 1);
    assert_eq!(refused(&["**"], &["head"], "act_mean/x"), 1, "both write those of the head");
}

#[test]
fn wrong_options_are_refused_by_their_key() {
    let default = ActivationStatsOptions::default;
    for (options, key) in [
        (ActivationStatsOptions { points: vec![], ..default() }, "`points`"),
        (ActivationStatsOptions { points: vec!["a..b".into()], ..default() }, "`points`"),
        (ActivationStatsOptions { log_frequency: 0, ..default() }, "`log_frequency`"),
        (ActivationStatsOptions { stages: vec![], ..default() }, "`stages`"),
        (ActivationStatsOptions { statistics: vec![], ..default() }, "`statistics`"),
    ] {
        let error = ActivationStats::new(options).expect_err(key).to_string();
        assert!(error.starts_with(key), "{error}");
    }
    let wrong = "statistics = [\"median\"]".parse::<toml::Table>().expect("toml");
    let error = wrong.try_into::<ActivationStatsOptions>().expect_err("no such statistic").to_string();
    assert!(error.contains("median") && error.contains("non_finite"), "{error}");
}
