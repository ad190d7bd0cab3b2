//! The gradient monitor in a real run: its values at each step, and its cost between them.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use tenterhook::hooks::{GradientMonitor, GradientMonitorOptions};
use tenterhook::registry::Registry;
use tenterhook::toy::Toy;
use tenterhook::{RunNotice, Settings, Trainer, closure};

use crate::call_log::SharedVec;
use crate::lab::{data, epochs, trainer};
use crate::line::{Batches, Line, points};
use crate::run_directory::{latest, recorded};

fn lines(root: &Path, file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(latest(root).join(file)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn names(of: &Value) -> Vec<&str> {
    of.as_object().unwrap().keys().map(String::as_str).collect()
}

/// The names of the monitor's metrics, by step.
fn logged(root: &Path) -> BTreeMap<u64, Vec<String>> {
    let mut logged = BTreeMap::new();
    for line in lines(root, "metrics.jsonl") {
        let names = names(&line["metrics"]).into_iter().filter(|name| *name != "train/loss");
        let names: Vec<_> = names.map(str::to_owned).collect();
        if !names.is_empty() {
            let before = logged.insert(line["step"].as_u64().unwrap(), names);
            assert_eq!(before, None, "all values of one step stand on one line");
        }
    }
    logged
}

fn add(trainer: &mut Trainer, options: GradientMonitorOptions) {
    trainer.add_hook(GradientMonitor::new(options).unwrap()).unwrap();
}

#[test]
fn the_documented_configuration_runs_on_any_model() {
    let documented = |filter: &str| {
        let options = format!(
            "log_frequency = 100\nlog_histogram = true\nlog_norm = true\nparam_filter = {filter}\n\
             percentiles = [10, 50, 90]"
        );
        let options: toml::Table = toml::from_str(&options).unwrap();
        Registry::default().hook("gradient_monitor", options).unwrap()
    };
    let root = tempfile::tempdir().unwrap();
    let mut trainer = recorded(root.path(), epochs(4));
    trainer.add_hook(documented("[\"encoder\", \"decoder\"]")).unwrap();
    let report = trainer.fit(&mut Toy::default(), &mut data(50, 0)).unwrap();
    let total = || vec!["grad_norm/total".to_owned()];
    assert_eq!(logged(root.path()), BTreeMap::from([(100, total()), (200, total())]), "the toy has neither");
    let said: Vec<_> =
        report.notices.iter().filter(|notice| matches!(notice, RunNotice::Said { .. })).collect();
    let expected = "gradient_monitor: `param_filter`: no parameter matches `encoder`, `decoder`; there are: `weight`, `bias`";
    assert_eq!(said.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);

    let root = tempfile::tempdir().unwrap();
    let mut trainer = recorded(root.path(), epochs(4));
    trainer.add_hook(documented("[\"wei\"]")).unwrap();
    trainer.fit(&mut Toy::default(), &mut data(50, 0)).unwrap();
    let of_a_step = [
        "grad_exploding",
        "grad_norm/total",
        "grad_norm/weight",
        "grad_p10/weight",
        "grad_p50/weight",
        "grad_p90/weight",
        "grad_vanishing",
        "update_ratio/weight",
    ]
    .map(str::to_owned)
    .to_vec();
    assert_eq!(logged(root.path()), BTreeMap::from([(100, of_a_step.clone()), (200, of_a_step)]));
    let histograms = lines(root.path(), "histograms.jsonl");
    let of = |line: &Value| (line["step"].as_u64().unwrap(), names(&line["histograms"]).join(" "));
    let expected = [(100, "grad/weight".to_owned()), (200, "grad/weight".to_owned())];
    assert_eq!(histograms.iter().map(of).collect::<Vec<_>>(), expected);
}

#[test]
fn it_sees_whole_windows_before_they_are_clipped() {
    let root = tempfile::tempdir().unwrap();
    let settings = Settings {
        accumulate_grad_batches: 2,
        gradient_clip_val: Some(0.5),
        log_every_n_steps: 0,
        ..epochs(1)
    };
    let mut trainer = recorded(root.path(), settings);
    add(&mut trainer, GradientMonitorOptions { log_frequency: 2, ..GradientMonitorOptions::default() });
    let norms = SharedVec::new();
    let seen = norms.clone();
    trainer
        .add_hook(closure::on_before_optimizer_step("norm", move |cx| seen.push(cx.gradients.norm())))
        .unwrap();
    trainer.fit(&mut Toy::default(), &mut data(9, 0)).unwrap();
    let norms = norms.take();
    assert_eq!(norms.len(), 5, "four windows and a short one");
    let logged = lines(root.path(), "metrics.jsonl");
    let logged: Vec<_> = logged.iter().filter(|line| !line["metrics"]["grad_norm/total"].is_null()).collect();
    for (line, step) in logged.iter().zip([2, 4]) {
        let metric = |name: &str| line["metrics"][name].as_f64().unwrap();
        assert_eq!(line["step"], step, "{line}");
        let norm = norms[usize::try_from(step).unwrap() - 1];
        assert!((metric("grad_norm/total") - norm).abs() < 1e-12, "{line}");
        assert!((metric("grad_clip/norm_before") - norm).abs() < 1e-6, "{line}");
        assert!((metric("grad_clip/norm_after") - norm.min(0.5)).abs() < 1e-6, "{line}");
        assert!(metric("update_ratio/weight") > 0.0);
        assert_eq!(metric("grad_clip/clipped") > 0.5, norm > 0.5, "{line}");
    }
    assert_eq!(logged.len(), 2);
}

#[test]
fn several_optimizers_have_one_total() {
    let total = |optimizers: usize| {
        let mut trainer = trainer(epochs(1));
        add(&mut trainer, GradientMonitorOptions { log_frequency: 3, ..GradientMonitorOptions::default() });
        trainer.fit(&mut Toy::new(optimizers), &mut data(3, 0)).unwrap().metrics["grad_norm/total"]
    };
    assert!((total(1) - total(2)).abs() < 1e-9);
}

#[test]
fn between_its_steps_the_monitor_costs_nothing() {
    let batches = || Batches::of(vec![points(&[(1.0, 2.0)]); 5]);
    let fit = |options: Option<GradientMonitorOptions>| {
        let mut trainer = trainer(epochs(1));
        if let Some(options) = options {
            add(&mut trainer, options);
        }
        let mut line = Line::new(0.1);
        trainer.fit(&mut line, &mut batches()).unwrap();
        line
    };
    let options = GradientMonitorOptions { log_frequency: 3, ..GradientMonitorOptions::default() };
    let (alone, watched) = (fit(None), fit(Some(options.clone())));
    assert_eq!(alone.norms(), 0);
    assert_eq!(watched.norms(), 1, "in step 3 of 5; nobody clips, so it is the one after, too");
    assert_eq!(watched.norm_reads(), 0, "nobody clips, so nobody reads them");
    assert_eq!(watched.loss_reads(), alone.loss_reads());
    assert!(watched.gradient().is_nan(), "the last step did not keep its gradients");
    assert_eq!(watched.w().to_bits(), alone.w().to_bits());
    let less = GradientMonitorOptions { log_update_ratio: false, log_clipping: false, ..options };
    assert_eq!(fit(Some(less)).norms(), 0, "one pass over the gradients is its own");
    assert_eq!(fit(Some(GradientMonitorOptions::default())).norms(), 0, "too few steps for the default");
}
