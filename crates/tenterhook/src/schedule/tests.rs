//! Compares the first values of every schedule with those of PyTorch, recorded with a learning rate of 1.

use serde_json::{Value, json};

use super::{Cosine, Plateau, ScheduleStep, Scheduler};
use crate::registry::Registry;

fn made(name: &str, options: Value) -> Result<Box<dyn Scheduler>, String> {
    Registry::default().scheduler(name, options).map_err(|error| error.to_string())
}

fn factors(scheduler: &mut dyn Scheduler, total: Option<u64>, counts: std::ops::Range<u64>) -> Vec<f64> {
    counts
        .map(|count| scheduler.factor(ScheduleStep { count, total, metric: None }).expect("it has a factor"))
        .collect()
}

fn assert_close(found: &[f64], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() < 1e-12, "{what}: {found} instead of {expected} at {at}");
    }
}

fn check(name: &str, options: &Value, of: Option<u64>, expected: &[f64]) {
    let mut scheduler = made(name, options.clone()).expect("it is made");
    let found = factors(&mut *scheduler, of, 0..expected.len() as u64);
    assert_close(&found, expected, &format!("{name} {options}"));
}

#[test]
fn schedules_without_an_end_are_those_of_pytorch() {
    check("constant", &json!({ "factor": 0.25, "until": 3 }), None, &[0.25, 0.25, 0.25, 1.0, 1.0, 1.0]);
    check("exponential", &json!({ "gamma": 0.9 }), None, &[1.0, 0.9, 0.81, 0.729, 0.6561, 0.59049]);
    check("step", &json!({ "step_size": 2, "gamma": 0.3 }), None, &[1.0, 1.0, 0.3, 0.3, 0.09, 0.09, 0.027]);
    let multi = json!({ "milestones": [2, 3, 5], "gamma": 0.5 });
    check("multi_step", &multi, None, &[1.0, 1.0, 0.5, 0.25, 0.25, 0.125, 0.125]);
    let noam =
        [0.25, 0.5, 0.75, 1.0, 0.894_427_190_999_915_9, 0.816_496_580_927_726, 0.755_928_946_018_454_4];
    check("inverse_sqrt", &json!({ "warmup": 4 }), None, &noam);
}

#[test]
fn schedules_with_an_end_are_those_of_pytorch_and_keep_their_last_value() {
    let line = [0.5, 0.4, 0.3, 0.2, 0.1, 0.1, 0.1];
    check("linear", &json!({ "from": 0.5, "to": 0.1, "steps": 4 }), Some(100), &line);
    check("linear", &json!({ "from": 0.5, "to": 0.1 }), Some(4), &line);
    let cosine = [1.0, 0.939_711_431_702_997_4, 0.775, 0.55, 0.325, 0.160_288_568_297_002_6, 0.1, 0.1];
    check("cosine", &json!({ "min_factor": 0.1 }), Some(6), &cosine);
}

#[test]
fn a_warm_up_is_a_line_before_the_curve_within_the_same_length() {
    let expected = [
        0.1,
        0.4,
        0.7,
        1.0,
        0.905_463_412_215_599,
        0.657_963_412_215_599,
        0.352_036_587_784_401,
        0.104_536_587_784_401_04,
        0.01,
    ];
    check("cosine", &json!({ "min_factor": 0.01, "warmup": 3, "warmup_from": 0.1 }), Some(8), &expected);
    let shorter_than_its_warm_up = json!({ "warmup": 4, "warmup_from": 0.0 });
    check("cosine", &shorter_than_its_warm_up, Some(2), &[0.0, 0.25, 0.5]);
    let to_a_part = json!({ "factor": 0.5, "warmup": 2, "warmup_from": 0.5 });
    check("constant", &to_a_part, None, &[0.25, 0.375, 0.5, 0.5]);
}

#[test]
fn one_cycle_is_that_of_pytorch() {
    let cos = [
        0.04,
        0.52,
        1.0,
        0.950_484_632_013_473_7,
        0.811_745_653_949_763_1,
        0.611_262_021_936_289_3,
        0.388_741_978_063_710_75,
        0.188_258_346_050_236_97,
        0.049_519_367_986_526_286,
        4e-6,
        4e-6,
    ];
    check("one_cycle", &json!({}), Some(10), &cos);
    let linear = [
        0.04,
        0.52,
        1.0,
        0.857_143_428_571_428_6,
        0.714_286_857_142_857_1,
        0.571_430_285_714_285_7,
        0.428_573_714_285_714_34,
        0.285_717_142_857_142_9,
        0.142_860_571_428_571_45,
        4e-6,
    ];
    check("one_cycle", &json!({ "anneal_strategy": "linear", "steps": 10 }), None, &linear);
    let three = [
        0.04,
        0.52,
        1.0,
        0.52,
        0.04,
        0.036_180_721_853_510_2,
        0.026_181_721_853_510_2,
        0.013_822_278_146_489_805,
        0.003_823_278_146_489_803_6,
        4e-6,
    ];
    check("one_cycle", &json!({ "three_phase": true }), Some(10), &three);
    let other = [
        0.1,
        0.231_801_948_466_053_62,
        0.55,
        0.868_198_051_533_946_4,
        1.0,
        0.904_603_988_690_286_2,
        0.654_853_988_690_286_2,
        0.346_146_011_309_713_8,
        0.096_396_011_309_713_8,
        0.001,
    ];
    let options = json!({ "pct_start": 0.5, "div_factor": 10.0, "final_div_factor": 100.0 });
    check("one_cycle", &options, Some(10), &other);
}

#[test]
fn every_length_of_a_cycle_has_finite_factors_up_to_1() {
    for (three_phase, of) in [false, true].into_iter().flat_map(|three| (1..40).map(move |of| (three, of))) {
        let mut cycle = made("one_cycle", json!({ "three_phase": three_phase })).expect("it is made");
        let found = factors(&mut *cycle, Some(of), 0..of + 2);
        assert!(found.iter().all(|factor| (0.0..=1.0).contains(factor)), "{three_phase} {of}: {found:?}");
    }
}

const METRICS: [f64; 15] =
    [1.0, 0.9, 0.9, 0.89995, 0.95, 0.8, 0.8, 0.8, 0.8, 0.8, f64::NAN, 0.1, 0.2, 0.2, 0.2];

fn judged(scheduler: &mut dyn Scheduler, values: &[f64], first: u64) -> Vec<f64> {
    let ticks = values.iter().zip(first..);
    ticks
        .map(|(value, count)| {
            scheduler
                .factor(ScheduleStep { count, total: None, metric: Some(*value) })
                .expect("it has a factor")
        })
        .collect()
}

fn plateaus() -> [(Value, [f64; 15]); 6] {
    let half = |powers: [i32; 15]| powers.map(|power| 0.5_f64.powi(power));
    [
        (json!({ "factor": 0.5, "patience": 1 }), half([0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 3, 3, 4, 4])),
        (
            json!({ "factor": 0.5, "patience": 0, "cooldown": 2 }),
            half([0, 0, 1, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]),
        ),
        (
            json!({ "factor": 0.1, "patience": 1, "min_factor": 0.05 }),
            [1.0, 1.0, 1.0, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05],
        ),
        (
            json!({ "mode": "max", "factor": 0.5, "patience": 2 }),
            half([0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]),
        ),
        (
            json!({ "factor": 0.5, "patience": 1, "threshold": 0.08, "threshold_mode": "abs" }),
            half([0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 3, 3, 4, 4]),
        ),
        (
            json!({
                "mode": "max", "factor": 0.5, "patience": 1, "threshold": 0.01, "threshold_mode": "abs"
            }),
            half([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7]),
        ),
    ]
}

#[test]
fn a_plateau_is_judged_as_pytorch_does() {
    for (options, expected) in plateaus() {
        let mut plateau = made("plateau", options.clone()).expect("it is made");
        assert_close(&factors(&mut *plateau, None, 0..1), &[1.0], "before training");
        assert_close(&judged(&mut *plateau, &METRICS, 1), &expected, &options.to_string());
    }
}

#[test]
fn a_resumed_plateau_continues_exactly() {
    for (options, expected) in plateaus() {
        for at in 0..METRICS.len() {
            let mut first = made("plateau", options.clone()).expect("it is made");
            judged(&mut *first, &METRICS[..at], 1);
            let state = serde_json::from_str(&first.state().to_string()).expect("it is JSON");
            let mut second = made("plateau", options.clone()).expect("it is made");
            second.load_state(&state).expect("it is read");
            let found = judged(&mut *second, &METRICS[at..], at as u64 + 1);
            assert_close(&found, &expected[at..], &format!("{options} from {at}"));
        }
    }
}

#[test]
fn a_plateau_without_a_metric_is_an_error_with_its_fix() {
    let error = Plateau::default()
        .factor(ScheduleStep { count: 1, ..ScheduleStep::default() })
        .expect_err("no metric");
    assert!(error.to_string().contains("`monitor`"), "{error}");
}

#[test]
fn an_unknown_length_is_an_error_with_its_fix() {
    for name in ["linear", "cosine", "one_cycle"] {
        let mut schedule = made(name, json!({})).expect("it is made");
        let error = schedule.factor(ScheduleStep::default()).expect_err(name).to_string();
        assert!(
            error.contains(name) && error.contains("`steps`") && error.contains("`max_epochs`"),
            "{error}"
        );
    }
}

#[test]
fn invalid_options_are_refused_in_configurations_and_in_code() {
    for (name, options, hint) in [
        ("cosine", json!({ "min_factor": -1.0 }), "`min_factor = -1` must be a number of 0 or more"),
        ("cosine", json!({ "warmup_from": 2.0 }), "`warmup_from = 2` must be a fraction between 0 and 1"),
        ("cosine", json!({ "warm_up": 2 }), "unknown key `warm_up` in `cosine`; did you mean `warmup`?"),
        ("exponential", json!({}), "missing key `gamma`"),
        ("step", json!({ "step_size": 0 }), "`step_size = 0` must be at least 1"),
        ("multi_step", json!({ "milestones": [] }), "`milestones` is empty"),
        ("one_cycle", json!({ "pct_start": 0.6, "three_phase": true }), "between 0 and 0.5"),
        ("one_cycle", json!({ "div_factor": 0.0 }), "`div_factor = 0` must be a number above 0"),
        ("inverse_sqrt", json!({ "warmup": 0 }), "`warmup = 0` must be at least 1"),
        ("plateau", json!({ "factor": 1.0 }), "`factor = 1` must be 0 or more and below 1"),
        ("plateau", json!({ "mode": "best" }), "unknown value `best`; there are: min, max"),
    ] {
        let error = made(name, options).err().unwrap_or_else(|| panic!("{name} is refused: {hint}"));
        assert!(error.contains(hint), "{error}");
    }
    let mut wrong = Cosine { min_factor: f64::NAN, ..Cosine::default() };
    let error =
        wrong.factor(ScheduleStep { total: Some(3), ..ScheduleStep::default() }).expect_err("it cannot work");
    assert!(error.to_string().starts_with("`cosine`: `min_factor"), "{error}");
}

#[test]
fn every_schedule_has_a_schema_that_describes_each_option() {
    for built_in in Registry::default().schedulers() {
        let properties = built_in.schema["properties"].as_object().expect("it has options");
        for (name, property) in properties {
            let described = property["description"].as_str().is_some_and(|text| !text.is_empty());
            assert!(described, "`{name}` of `{}`", built_in.name);
        }
        assert_eq!(built_in.schema["additionalProperties"], false, "{}", built_in.name);
    }
}
