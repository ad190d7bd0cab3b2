use tenterhook_core::{Cadence, ClipRule, Hook};
use tenterhook_testkit::{NamedTensors, Rig};

use super::*;

mod cost;

fn every_step() -> GradientMonitorOptions {
    GradientMonitorOptions { log_frequency: 1, ..GradientMonitorOptions::default() }
}

fn hook(options: GradientMonitorOptions) -> GradientMonitor {
    GradientMonitor::new(options).expect("they fit")
}

fn rig(options: GradientMonitorOptions) -> Rig<GradientMonitor> {
    let mut rig = Rig::new(hook(options));
    rig.gradients([("encoder.weight", vec![3.0, 4.0]), ("head.bias", vec![12.0])]);
    rig.params([("encoder.weight", vec![1.0, 1.0]), ("head.bias", vec![2.0])]);
    rig
}

fn said(rig: &Rig<GradientMonitor>) -> Vec<String> {
    rig.said().into_iter().map(|(_, text)| text).collect()
}

/// Runs a step that leaves these parameters.
fn step(rig: &mut Rig<GradientMonitor>, step: u64, after: impl Into<NamedTensors>) {
    rig.step(step - 1).on_before_optimizer_step();
    rig.on_gradient_clip();
    rig.params(after);
    let counted = tenterhook_core::Progress { step, step_counted: true, ..Default::default() };
    rig.progress(counted).on_step_end();
    rig.progress(tenterhook_core::Progress { step, ..Default::default() });
}

fn names(rig: &Rig<GradientMonitor>) -> Vec<String> {
    rig.metrics().names()
}

#[test]
fn norms_are_logged_by_name_and_in_total() {
    let mut rig = rig(every_step());
    rig.on_before_optimizer_step();
    let metrics = rig.metrics();
    assert_eq!(metrics.get("grad_norm/encoder.weight"), Some(5.0));
    assert_eq!(metrics.get("grad_norm/head.bias"), Some(12.0));
    assert_eq!(metrics.get("grad_norm/total"), Some(13.0));
}

#[test]
fn norms_can_be_disabled() {
    let mut rig = rig(GradientMonitorOptions { log_norm: false, ..every_step() });
    rig.on_before_optimizer_step();
    assert_eq!(names(&rig), ["grad_exploding", "grad_vanishing"]);
}

#[test]
fn the_total_is_over_all_optimizers_of_a_step_and_begins_anew_with_the_next() {
    let mut rig = Rig::new(hook(every_step()));
    for at in [0, 1] {
        rig.step(at).optimizer(0).gradients([("a", vec![3.0])]).on_before_optimizer_step();
        rig.optimizer(1).gradients([("b", vec![4.0])]).on_before_optimizer_step();
        assert_eq!(rig.metrics().get("grad_norm/total"), Some(5.0));
    }
    let tried_again = tenterhook_core::Progress { step: 1, total_batches: 7, ..Default::default() };
    rig.progress(tried_again).optimizer(0).gradients([("a", vec![3.0])]).on_before_optimizer_step();
    assert_eq!(
        rig.metrics().get("grad_norm/total"),
        Some(3.0),
        "the update was skipped, another batch tries"
    );
}

#[test]
fn the_total_is_over_all_gradients_whatever_the_filter() {
    for log_histogram in [false, true] {
        let param_filter = vec!["a".to_owned()];
        let mut rig = Rig::new(hook(GradientMonitorOptions { log_histogram, param_filter, ..every_step() }));
        rig.gradients([("a", vec![3.0]), ("b", vec![4.0])]).on_before_optimizer_step();
        assert_eq!(rig.metrics().get("grad_norm/total"), Some(5.0));
        assert_eq!(rig.metrics().get("grad_norm/b"), None);
    }
}

#[test]
fn the_log_frequency_is_declared_as_the_needed_run_length() {
    for log_frequency in [50, GradientMonitorOptions::default().log_frequency] {
        let access = hook(GradientMonitorOptions { log_frequency, ..every_step() }).spec();
        assert_eq!(access.every, [Cadence::Steps(log_frequency)]);
    }
}

#[test]
fn gradients_are_read_only_every_n_steps() {
    let mut rig = rig(GradientMonitorOptions { log_frequency: 3, ..every_step() });
    let looked: Vec<_> = (1..=7)
        .filter(|at| {
            rig.metrics().restore(tenterhook_core::metrics::MetricsState::default());
            step(&mut rig, *at, [("encoder.weight", vec![1.0, 2.0])]);
            !rig.metrics().names().is_empty()
        })
        .collect();
    assert_eq!(looked, [3, 6]);
}

#[test]
fn percentiles_are_exact_and_ignore_non_finite_values() {
    let mut rig = Rig::new(hook(GradientMonitorOptions {
        percentiles: vec![0.0, 10.0, 50.0, 62.5, 99.9, 100.0],
        ..every_step()
    }));
    rig.gradients([("w", vec![4.0, f32::NAN, -1.0, 3.0, f32::INFINITY, 0.0, 2.0]), ("none", vec![f32::NAN])]);
    rig.on_before_optimizer_step();
    // Of -1, 0, 2, 3, 4.
    for (name, expected) in
        [("0", -1.0), ("10", -0.6), ("50", 2.0), ("62.5", 2.5), ("99.9", 3.996), ("100", 4.0)]
    {
        let found = rig.metrics().get(&format!("grad_p{name}/w")).expect("it is logged");
        assert!((found - expected).abs() < 1e-9, "{name}: {found}");
    }
    assert_eq!(rig.metrics().get("grad_p50/none"), None);
    assert!(rig.metrics().get("grad_norm/w").is_some_and(f64::is_nan));
}

#[test]
fn histograms_have_as_many_bins_as_wanted_and_only_on_request() {
    let mut rig = rig(GradientMonitorOptions { log_histogram: true, histogram_bins: 5, ..every_step() });
    rig.on_before_optimizer_step();
    let histograms = rig.metrics().take_histograms();
    assert_eq!(histograms.keys().collect::<Vec<_>>(), ["grad/encoder.weight", "grad/head.bias"]);
    assert_eq!(histograms["grad/encoder.weight"].counts, [1, 0, 0, 0, 1]);
    let mut rig = self::rig(every_step());
    rig.on_before_optimizer_step();
    assert!(!rig.metrics().has_histograms());
}

#[test]
fn a_norm_is_the_same_to_the_bit_however_it_was_read() {
    let values: Vec<f32> = (0..1000).map(|at| (at as f32).sin() / 7.0).collect();
    let norm = |options| {
        let mut rig = Rig::new(hook(options));
        rig.gradients([("w", values.clone())]).on_before_optimizer_step();
        rig.metrics().get("grad_norm/w").map(f64::to_bits)
    };
    assert_eq!(norm(every_step()), norm(GradientMonitorOptions { log_histogram: true, ..every_step() }));
}

#[test]
fn a_filter_is_a_part_of_a_name_or_a_pattern() {
    let watched = |filters: &[&str]| {
        let param_filter = filters.iter().map(|filter| (*filter).to_owned()).collect();
        let mut rig = rig(GradientMonitorOptions { param_filter, ..every_step() });
        rig.on_before_optimizer_step();
        let norms = names(&rig).into_iter();
        norms.filter_map(|name| Some(name.strip_prefix("grad_norm/")?.to_owned())).collect::<Vec<_>>()
    };
    assert_eq!(watched(&["coder"]), ["encoder.weight", "total"]);
    assert_eq!(watched(&["*.bias"]), ["head.bias", "total"]);
    assert_eq!(watched(&["head", "**.weight"]), ["encoder.weight", "head.bias", "total"]);
    assert_eq!(watched(&["enc*"]), ["encoder.weight", "total"], "what lies below is chosen too");
    assert_eq!(watched(&["*"]), ["encoder.weight", "head.bias", "total"]);
    assert_eq!(watched(&["*coders"]), ["total"]);
    assert_eq!(watched(&["decoder"]), ["total"], "which is over all gradients");
}

#[test]
fn the_documented_filters_run_on_any_model_and_unmatched_ones_are_reported_once() {
    let param_filter = vec!["encoder".to_owned(), "decoder".to_owned()];
    let mut rig = rig(GradientMonitorOptions { param_filter, ..every_step() });
    rig.on_train_start();
    rig.on_before_optimizer_step();
    let expected = "`param_filter`: no parameter matches `decoder`; there are: `encoder.weight`, `head.bias`";
    assert_eq!(said(&rig), [expected]);
    assert!(rig.failures().is_empty());
}

#[test]
fn the_update_ratio_is_the_change_over_the_norm_before() {
    let mut rig = rig(GradientMonitorOptions { log_frequency: 2, ..every_step() });
    rig.params([("encoder.weight", vec![3.0, 4.0]), ("head.bias", vec![0.0]), ("frozen", vec![1.0])]);
    let after = || [("encoder.weight", vec![3.0, 3.0]), ("head.bias", vec![1.0]), ("frozen", vec![1.0])];
    step(&mut rig, 1, after());
    rig.params([("encoder.weight", vec![3.0, 4.0]), ("head.bias", vec![0.0]), ("frozen", vec![1.0])]);
    step(&mut rig, 2, after());
    assert_eq!(rig.metrics().get("update_ratio/encoder.weight"), Some(0.2));
    assert_eq!(rig.metrics().get("update_ratio/head.bias"), None, "nothing has no share");
    assert_eq!(rig.metrics().get("update_ratio/frozen"), None, "it has no gradient");
    let mut rig = self::rig(GradientMonitorOptions { log_update_ratio: false, ..every_step() });
    step(&mut rig, 1, after());
    assert!(!names(&rig).iter().any(|name| name.starts_with("update_ratio")));
}

#[test]
fn gradients_that_begin_to_vanish_or_explode_are_counted_and_reported_by_name() {
    let mut rig = Rig::new(hook(GradientMonitorOptions {
        vanishing_threshold: 0.5,
        exploding_threshold: 10.0,
        ..every_step()
    }));
    let counts = |rig: &mut Rig<GradientMonitor>, at: u64, a: f32, b: f32| {
        rig.step(at - 1).gradients([("a", vec![a]), ("b", vec![b])]).on_before_optimizer_step();
        ["grad_vanishing", "grad_exploding"].map(|name| rig.metrics().get(name))
    };
    assert_eq!(counts(&mut rig, 1, 0.5, 10.0), [0.0, 0.0].map(Some));
    assert_eq!(counts(&mut rig, 2, 0.1, 0.0), [2.0, 0.0].map(Some));
    assert_eq!(counts(&mut rig, 3, 0.1, 11.0), [1.0, 1.0].map(Some));
    assert_eq!(counts(&mut rig, 4, 1.0, f32::NAN), [0.0, 1.0].map(Some));
    assert_eq!(counts(&mut rig, 5, 0.1, 1.0), [1.0, 0.0].map(Some));
    assert_eq!(
        said(&rig),
        [
            "at step 2 the gradient norm vanishes (below 0.5) in: `a`, `b`",
            "at step 3 the gradient norm explodes (above 10.0, or not finite) in: `b`",
            "at step 5 the gradient norm vanishes (below 0.5) in: `a`",
        ]
    );
}

#[test]
fn clipping_is_logged_with_the_share_of_clipped_steps() {
    let mut rig = rig(GradientMonitorOptions { log_frequency: 2, ..every_step() });
    rig.clip_rule(Some(ClipRule::Norm(1.0)));
    let mut logged = Vec::new();
    for (at, before, after) in [(1, 9.0, 1.0), (2, 4.0, 1.0), (3, 9.0, 1.0), (4, 0.5, 0.5), (6, 0.5, 0.5)] {
        rig.step(at - 1).norms(before, after).on_gradient_clip();
        let metrics = rig.metrics();
        let of = ["norm_before", "norm_after", "clipped", "share"];
        logged.push(of.map(|what| metrics.get(&format!("grad_clip/{what}"))));
    }
    let now = |before, after, clipped, share| [before, after, clipped, share].map(Some);
    let third = 1.0 / 3.0;
    let expected = [
        [None; 4],
        now(4.0, 1.0, 1.0, 1.0),
        now(4.0, 1.0, 1.0, 1.0),
        now(0.5, 0.5, 0.0, 0.5),
        now(0.5, 0.5, 0.0, third),
    ];
    assert_eq!(logged, expected);
}

#[test]
fn optimizers_clipped_separately_make_one_step() {
    let mut rig = rig(every_step());
    rig.clip_rule(Some(ClipRule::Norm(1.0)));
    rig.optimizer(0).norms(3.0, 1.0).on_gradient_clip();
    rig.optimizer(1).norms(4.0, 1.0).on_gradient_clip();
    rig.step(1).optimizer(0).norms(0.5, 0.5).on_gradient_clip();
    assert_eq!(rig.metrics().get("grad_clip/share"), Some(0.5));
    rig.optimizer(1).norms(3.0, 1.0).on_gradient_clip();
    assert_eq!(rig.metrics().get("grad_clip/share"), Some(1.0));
    rig.step(2).optimizer(0).norms(3.0, 3.0).on_gradient_clip();
    rig.optimizer(1).norms(4.0, 4.0).on_gradient_clip();
    assert_eq!(rig.metrics().get("grad_clip/norm_before"), Some(5.0));
}

#[test]
fn clipping_is_not_logged_without_clipping_or_option() {
    let clip = |log_clipping, rule| {
        let mut rig = rig(GradientMonitorOptions { log_clipping, ..every_step() });
        rig.clip_rule(rule).norms(4.0, 1.0).on_gradient_clip();
        !names(&rig).is_empty()
    };
    assert!(clip(true, Some(ClipRule::Value(0.1))));
    assert!(!clip(true, None));
    assert!(!clip(false, Some(ClipRule::Value(0.1))));
}

#[test]
fn reports_and_counts_survive_a_resume() {
    let mut rig = rig(GradientMonitorOptions { exploding_threshold: 10.0, ..every_step() });
    rig.clip_rule(Some(ClipRule::Norm(1.0))).norms(4.0, 1.0).on_before_optimizer_step();
    rig.on_gradient_clip();
    assert_eq!(said(&rig).len(), 1);
    let mut resumed = rig.resumed(hook(GradientMonitorOptions { exploding_threshold: 10.0, ..every_step() }));
    resumed.step(1).clip_rule(Some(ClipRule::Norm(1.0))).norms(0.5, 0.5).on_before_optimizer_step();
    resumed.on_gradient_clip();
    assert_eq!(said(&resumed), Vec::<String>::new(), "it is not news");
    assert_eq!(resumed.metrics().get("grad_clip/share"), Some(0.5));
}

#[test]
fn invalid_values_are_refused_by_key() {
    let filter = |text: &str| vec![text.to_owned()];
    for (options, begins) in [
        (GradientMonitorOptions { log_frequency: 0, ..every_step() }, "`log_frequency` must be 1"),
        (
            GradientMonitorOptions { histogram_bins: 10_001, ..every_step() },
            "`histogram_bins` must be 10000 or less",
        ),
        (GradientMonitorOptions { histogram_bins: 0, ..every_step() }, "`histogram_bins` must be 1"),
        (
            GradientMonitorOptions { percentiles: vec![50.0, 101.0], ..every_step() },
            "`percentiles` holds 101",
        ),
        (GradientMonitorOptions { percentiles: vec![f64::NAN], ..every_step() }, "`percentiles` holds NaN"),
        (GradientMonitorOptions { vanishing_threshold: -1.0, ..every_step() }, "`vanishing_threshold` is -1"),
        (GradientMonitorOptions { exploding_threshold: 0.0, ..every_step() }, "`exploding_threshold` is 0"),
        (
            GradientMonitorOptions { param_filter: filter(""), ..every_step() },
            "`param_filter` holds an empty",
        ),
        (
            GradientMonitorOptions { param_filter: filter("a..*"), ..every_step() },
            "`param_filter`: `a..*` is not",
        ),
    ] {
        let error = GradientMonitor::new(options).expect_err("refused").to_string();
        assert!(error.starts_with(begins), "{error}");
    }
    for wrong in ["log_norm = 1", "log_clipping = \"yes\"", "log_update_ratios = true", "percentiles = 10"] {
        assert!(toml::from_str::<GradientMonitorOptions>(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn it_declares_what_it_writes() {
    let clip = GradientMonitorOptions { log_update_ratio: false, log_norm: false, ..every_step() };
    assert_eq!(hook(clip).spec().writes.len(), 6);
    let few = GradientMonitorOptions { log_clipping: false, percentiles: vec![62.5], ..every_step() };
    assert_eq!(
        hook(few).spec().writes,
        [
            "grad_vanishing",
            "grad_exploding",
            "grad_norm/total",
            "grad_norm/*",
            "update_ratio/*",
            "grad_p62.5/*"
        ]
    );
}
