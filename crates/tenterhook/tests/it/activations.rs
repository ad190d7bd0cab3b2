//! The hooks `activation_stats` and `activation_store` in real runs: they work in every stage and do not
//! change training.

use std::path::Path;
use std::process::Command;

use tenterhook::hooks::{
    ActivationStage, ActivationStatistic, ActivationStats, ActivationStatsOptions, ActivationStore,
    ActivationStoreOptions, ActivationTarget, ByteSize,
};
use tenterhook::toy::{Toy, ToyData};
use tenterhook::{Phase, Report, RunNotice, Settings, TensorMap, Trainer};

use crate::lab::{bits, data, epochs, trainer};
use crate::nan_guard::python;
use crate::run_directory::{latest, recorded};

fn stats(options: ActivationStatsOptions) -> ActivationStats {
    ActivationStats::new(options).unwrap()
}

fn everywhere() -> ActivationStatsOptions {
    ActivationStatsOptions {
        log_frequency: 1,
        stages: ActivationStage::ALL.into(),
        ..ActivationStatsOptions::default()
    }
}

fn in_memory(stages: &[ActivationStage]) -> ActivationStoreOptions {
    ActivationStoreOptions {
        to: ActivationTarget::Memory,
        stages: stages.into(),
        ..ActivationStoreOptions::new(["**"])
    }
}

fn add_store(trainer: &mut Trainer, options: ActivationStoreOptions) {
    trainer.add_hook(ActivationStore::new(options).unwrap()).unwrap();
}

fn store(trainer: &Trainer) -> &ActivationStore {
    trainer.hook("activation_store").unwrap()
}

fn contained(report: &Report) -> Vec<String> {
    let contained = report.notices.iter().filter(|notice| matches!(notice, RunNotice::Contained(_)));
    contained.map(ToString::to_string).collect()
}

/// The activation metrics of a report, without the point's name.
fn kinds(report: &Report) -> Vec<&str> {
    let names = report.metrics.keys().filter_map(|name| name.strip_suffix("/linear.product"));
    names.filter(|name| name.ends_with("act_mean")).collect()
}

#[test]
fn statistics_are_logged_in_every_stage_under_its_own_names() {
    let run = |stages: &[ActivationStage]| {
        let mut trainer = trainer(epochs(1));
        trainer.add_hook(stats(ActivationStatsOptions { stages: stages.into(), ..everywhere() })).unwrap();
        let (mut toy, mut data) = (Toy::default(), ToyData::default());
        let mut found = vec![trainer.fit(&mut toy, &mut data).unwrap()];
        found.push(trainer.validate(&mut toy, &mut data).unwrap());
        found.push(trainer.test(&mut toy, &mut data).unwrap());
        found.push(trainer.predict(&mut toy, &mut data).unwrap().0);
        found
    };
    let all = run(&ActivationStage::ALL);
    assert_eq!(kinds(&all[0]), ["act_mean", "val/act_mean"]);
    assert!(kinds(&all[1]).contains(&"val/act_mean"));
    assert!(kinds(&all[2]).contains(&"test/act_mean"));
    assert!(kinds(&all[3]).contains(&"predict/act_mean"));
    assert_eq!(all[0].metrics.keys().filter(|name| name.starts_with("act_")).count(), 16, "two points");
    let some = run(&[ActivationStage::Test]);
    assert!(kinds(&some[0]).is_empty() && kinds(&some[1]).is_empty());
    assert!(kinds(&some[2]).contains(&"test/act_mean") && !kinds(&some[3]).contains(&"predict/act_mean"));
}

#[test]
fn an_evaluation_logs_mean_minimum_and_maximum() {
    let mut trainer = trainer(epochs(1));
    trainer.add_hook(stats(everywhere())).unwrap();
    add_store(&mut trainer, in_memory(&[ActivationStage::Test]));
    let mut toy = Toy::default();
    trainer.fit(&mut toy, &mut data(4, 0)).unwrap();
    let report = trainer.test(&mut toy, &mut ToyData { test: vec![3], ..ToyData::default() }).unwrap();
    let stored: Vec<_> = store(&trainer).stored().filter(|stored| stored.name == "prediction").collect();
    assert_eq!(stored.len(), 3);
    let values: Vec<f64> =
        stored.iter().flat_map(|stored| stored.values).map(|value| f64::from(*value)).collect();
    let metric = |what: &str| report.metrics[&format!("test/act_{what}/prediction")];
    assert!((metric("mean") - values.iter().sum::<f64>() / values.len() as f64).abs() < 1e-6);
    assert_eq!(Some(metric("min")), values.iter().copied().min_by(f64::total_cmp));
    assert_eq!(Some(metric("max")), values.iter().copied().max_by(f64::total_cmp));
}

#[test]
fn several_loaders_have_separate_statistics() {
    let mut trainer = trainer(epochs(1));
    let statistics = vec![ActivationStatistic::Mean];
    trainer.add_hook(stats(ActivationStatsOptions { statistics, ..everywhere() })).unwrap();
    let mut two = ToyData { validate: vec![1, 2], ..ToyData::default() };
    let report = trainer.validate(&mut Toy::default(), &mut two).unwrap();
    let of_validation: Vec<_> =
        report.metrics.keys().filter(|name| name.starts_with("val/act_mean/prediction")).collect();
    let expected = ["", "/val0", "/val1"].map(|loader| format!("val/act_mean/prediction{loader}"));
    assert_eq!(of_validation, expected.each_ref());
}

#[test]
fn statistics_and_histograms_are_logged_at_the_steps_of_the_cadence() {
    let root = tempfile::tempdir().unwrap();
    let mut trainer = recorded(root.path(), epochs(1));
    let options = ActivationStatsOptions {
        log_frequency: 3,
        points: vec!["linear.*".into()],
        statistics: vec![ActivationStatistic::Std],
        histogram_bins: 4,
        ..ActivationStatsOptions::default()
    };
    trainer.add_hook(stats(options)).unwrap();
    trainer.fit(&mut Toy::default(), &mut data(8, 0)).unwrap();
    let steps = |file: &str, name: &str| -> Vec<u64> {
        let text = std::fs::read_to_string(latest(root.path()).join(file)).unwrap();
        let lines = text.lines().filter(|line| line.contains(name));
        let lines = lines.map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        lines.map(|line| line["step"].as_u64().unwrap()).collect()
    };
    assert_eq!(steps("metrics.jsonl", "\"act_std/linear.product\""), [3, 6]);
    assert_eq!(steps("histograms.jsonl", "\"act/linear.product\""), [3, 6]);
    assert!(steps("metrics.jsonl", "prediction").is_empty());
}

#[test]
fn the_store_keeps_every_stage_in_memory_and_a_sanity_check_in_none() {
    let mut trainer = trainer(Settings { num_sanity_val_steps: 2, ..epochs(2) });
    add_store(&mut trainer, in_memory(&ActivationStage::ALL));
    let mut toy = Toy::default();
    let mut data = ToyData { train: vec![3], validate: vec![1], test: vec![2], ..ToyData::default() };
    trainer.fit(&mut toy, &mut data).unwrap();
    trainer.test(&mut toy, &mut data).unwrap();
    let (_, predictions) = trainer.predict(&mut toy, &mut data).unwrap();
    let of = |phase: Phase| -> Vec<(u64, u64, u64)> {
        let stored = store(&trainer).stored();
        let own = stored.filter(|stored| stored.phase == phase && stored.name == "prediction");
        own.map(|stored| (stored.epoch, stored.batch, stored.step)).collect()
    };
    let train = [(0, 0, 1), (0, 1, 2), (0, 2, 3), (1, 0, 4), (1, 1, 5), (1, 2, 6)];
    assert_eq!(of(Phase::Train), train);
    assert_eq!(of(Phase::Validate), [(0, 0, 3), (1, 0, 6)], "of the sanity check nothing is kept");
    assert_eq!(of(Phase::Test).len(), 2);
    let predicted = store(&trainer).stored().find(|stored| stored.phase == Phase::Predict);
    let product = predicted.unwrap();
    assert_eq!((product.name, product.shape), ("linear.product", &[product.values.len()][..]));
    let last = store(&trainer).stored().last().unwrap();
    assert_eq!(last.values, predictions[0][0], "what it keeps is what the module computed");
}

/// Trains the toy for one epoch of eight batches, with activations stored in files.
fn train_with_files(root: &Path, max_bytes: u64) -> (Trainer, Toy, Report) {
    let mut trainer = recorded(root, epochs(1));
    let options = ActivationStoreOptions {
        max_bytes: ByteSize(max_bytes),
        stages: vec![ActivationStage::Train, ActivationStage::Validate],
        ..ActivationStoreOptions::new(["**"])
    };
    add_store(&mut trainer, options);
    let mut toy = Toy::default();
    let report = trainer.fit(&mut toy, &mut data(8, 1)).unwrap();
    (trainer, toy, report)
}

#[test]
fn a_full_store_is_disabled_with_complete_files_and_training_continues() {
    let root = tempfile::tempdir().unwrap();
    let (trainer, toy, report) = train_with_files(root.path(), 1500);
    let files = store(&trainer).files();
    assert!((1..8).contains(&files.len()), "{files:?}");
    assert!(store(&trainer).stored_bytes() <= 1500);
    for file in &files {
        assert_eq!(
            TensorMap::read(file).unwrap().names().collect::<Vec<_>>(),
            ["linear.product", "prediction"]
        );
    }
    let on_disk = std::fs::read_dir(latest(root.path()).join("activations")).unwrap();
    assert_eq!(on_disk.count(), files.len(), "and nothing else");
    let contained = contained(&report);
    assert_eq!(contained.len(), 1, "{contained:?}");
    assert!(contained[0].contains("`max_bytes` is 1,500 bytes: batch "), "{contained:?}");
    let mut alone = Toy::default();
    crate::lab::trainer(epochs(1)).fit(&mut alone, &mut data(8, 1)).unwrap();
    assert_eq!((bits(&toy), report.progress.step), (bits(&alone), 8));
}

#[test]
fn python_reads_the_files_with_their_metadata() {
    let Some(python) = python() else { return };
    let root = tempfile::tempdir().unwrap();
    let (trainer, ..) = train_with_files(root.path(), 1 << 20);
    assert_eq!(store(&trainer).files().len(), 9);
    let script = r#"
import pathlib, sys
from safetensors import safe_open
from safetensors.numpy import load_file
root = pathlib.Path(sys.argv[1])
names = sorted(path.name for path in root.iterdir())
assert names[0] == "train-00000001.safetensors" and len(names) == 9, names
assert names[8] == "validate-00000008-0-00000000.safetensors", names
batch = load_file(root / names[7])
assert sorted(batch) == ["linear.product", "prediction"], batch
assert batch["prediction"].dtype == "float32" and batch["prediction"].ndim == 1, batch
bias = (batch["prediction"] - batch["linear.product"]).mean()
assert abs(bias) > 1e-3, bias
with safe_open(root / names[7], framework="numpy") as file:
    said = file.metadata()
assert said["run"] == sys.argv[2] and said["phase"] == "train", said
assert (said["step"], said["epoch"], said["batch"], said["loader"]) == ("8", "0", "7", "train0"), said
print("read")
"#;
    let (directory, id) = (latest(root.path()).join("activations"), trainer.run_info().id.clone());
    let output = Command::new(python).args(["-c", script]).arg(directory).arg(id).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "read\n", "{stderr}");
}

#[test]
fn the_python_of_the_recipe_reads_a_run() {
    let Some(python) = python() else { return };
    let recipes = include_str!("../../../../docs/hooks/recipes.md");
    let script = recipes.split_once("```python\n").unwrap().1.split_once("```").unwrap().0;
    let root = tempfile::tempdir().unwrap();
    train_with_files(root.path(), 1 << 20);
    let output = Command::new(python).args(["-c", script]).current_dir(root.path()).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let lines: Vec<_> = stdout.lines().collect();
    assert_eq!(lines.len(), 16, "{stderr}");
    assert!(lines[0].starts_with("1 ") && lines[15].starts_with("8 "), "{stdout}");
    assert!(lines.iter().filter(|line| line.contains(" prediction (")).count() == 8, "{stdout}");
}

#[test]
fn both_monitors_do_not_change_training() {
    let trained = |watched: bool| {
        let mut trainer = trainer(epochs(2));
        if watched {
            trainer.add_hook(stats(ActivationStatsOptions { histogram_bins: 8, ..everywhere() })).unwrap();
            add_store(&mut trainer, in_memory(&ActivationStage::ALL));
        }
        let mut toy = Toy::default();
        let report = trainer.fit(&mut toy, &mut data(8, 2)).unwrap();
        assert!(contained(&report).is_empty());
        (bits(&toy), report.metrics["train/loss"].to_bits())
    };
    assert_eq!(trained(true), trained(false));
}

#[test]
fn a_run_that_is_too_short_for_the_monitor_is_reported() {
    let told = |settings: Settings| {
        let mut trainer = trainer(settings);
        trainer.add_hook(stats(ActivationStatsOptions::default())).unwrap();
        let report = trainer.fit(&mut Toy::default(), &mut data(40, 0)).unwrap();
        let told = report
            .notices
            .iter()
            .map(ToString::to_string)
            .find(|said| said.contains("`activation_stats` fires every"));
        told.and_then(|said| Some(said.split("this run has ").nth(1)?.split(',').next()?.to_owned()))
    };
    let by_steps = |max_steps| Settings { max_steps, ..epochs(9) };
    assert_eq!(told(by_steps(50)).as_deref(), Some("only 50 steps"));
    assert_eq!(told(by_steps(100)), None);
    let accumulated = Settings { accumulate_grad_batches: 4, ..epochs(9) };
    assert_eq!(told(accumulated).as_deref(), Some("only 90 steps"));
}

#[test]
fn a_run_with_fewer_batches_than_every_n_batches_is_reported() {
    let mut trainer = trainer(epochs(1));
    let train = [ActivationStage::Train];
    add_store(&mut trainer, ActivationStoreOptions { every_n_batches: 5, ..in_memory(&train) });
    let mut told = |batches| {
        let report = trainer.fit(&mut Toy::default(), &mut data(batches, 0)).unwrap();
        report.notices.iter().any(|notice| notice.to_string().contains("`every_n_batches`"))
    };
    assert_eq!([told(4), told(5)], [true, false]);
}
