//! The documented configurations, run by the program.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::tenter::TestDir;

fn documented(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/documented").join(name)
}

/// Trains a few epochs with one of the documented files.
fn trained(dir: &TestDir, name: &str, more: &[&str]) -> (String, String) {
    let file = documented(name);
    let mut arguments = vec!["train", file.to_str().expect("it is text"), "--no-test"];
    arguments.extend(["--set", "trainer.max_epochs=5"]);
    arguments.extend(more);
    let ran = dir.run(&arguments);
    assert_eq!(ran.code, 0, "{name}: {}{}", ran.stdout, ran.stderr);
    (ran.stdout, ran.stderr)
}

fn hooks(dir: &TestDir) -> Vec<String> {
    let run = dir.json("runs/latest/run.json");
    let hooks = run["hooks"].as_array().expect("a list").iter();
    hooks.map(|hook| hook["name"].as_str().expect("a name").to_owned()).collect()
}

/// The steps and values of a metric.
fn curve(dir: &TestDir, metric: &str) -> Vec<(u64, f64)> {
    let lines = dir.lines("runs/latest/metrics.jsonl").into_iter();
    let value = |line: Value| Some((line["step"].as_u64()?, line["metrics"].get(metric)?.as_f64()?));
    lines.filter_map(value).collect()
}

/// The checkpoints of the run, without `latest`.
fn checkpoints(dir: &TestDir) -> Vec<String> {
    let entries = std::fs::read_dir(dir.path().join("runs/latest/checkpoints")).expect("it is there");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name != "latest");
    names.sort();
    names
}

#[test]
fn the_documented_logging_hook_logs_start_epochs_and_end() {
    let dir = TestDir::new();
    let (_, told) = trained(&dir, "logging.toml", &[]);
    assert!(hooks(&dir).contains(&"logging".to_owned()), "{:?}", hooks(&dir));
    for epoch in 1..=5 {
        assert!(told.contains(&format!("epoch {epoch}/5 done")), "{told}");
    }
    assert!(told.contains("val/loss"), "{told}");
}

#[test]
fn the_documented_gradient_monitor_warns_about_layers_that_the_model_lacks() {
    let dir = TestDir::new();
    let (_, told) = trained(&dir, "gradient_monitor.toml", &[]);
    assert!(told.contains("encoder") && told.contains("conv1"), "{told}");
}

#[test]
fn the_documented_gradient_monitor_logs_the_selected_layers() {
    let dir = TestDir::new();
    let filter = "hooks_config.gradient_monitor_config.param_filter=[\"conv1\"]";
    let frequency = "hooks_config.gradient_monitor_config.log_frequency=50";
    trained(&dir, "gradient_monitor.toml", &["--set", filter, "--set", frequency]);
    let norms = curve(&dir, "grad_norm/conv1.weight");
    assert_eq!(norms.iter().map(|(step, _)| *step).collect::<Vec<_>>(), [50, 100, 150]);
    assert!(norms.iter().all(|(_, norm)| *norm > 0.0), "{norms:?}");
    for percentile in ["grad_p10", "grad_p50", "grad_p90"] {
        assert_eq!(curve(&dir, &format!("{percentile}/conv1.weight")).len(), 3);
    }
    assert!(curve(&dir, "grad_norm/conv2.weight").is_empty(), "it was filtered out");
    let histograms = dir.lines("runs/latest/histograms.jsonl");
    assert_eq!(histograms.len(), 3);
    assert!(histograms[0]["histograms"]["grad/conv1.weight"]["counts"].is_array(), "{}", histograms[0]);
}

#[test]
fn the_documented_checkpoints_are_the_three_best_and_the_last() {
    let dir = TestDir::new();
    trained(&dir, "model_checkpoint.toml", &[]);
    let mut scores: Vec<_> = curve(&dir, "val/loss").into_iter().enumerate().collect();
    assert_eq!(scores.len(), 5);
    scores.sort_by(|(_, (_, a)), (_, (_, b))| a.total_cmp(b));
    let best = scores[..3].iter().map(|(epoch, (_, loss))| format!("epoch_{epoch}_loss_{loss:.2}"));
    let mut expected: Vec<_> = best.chain(["last".to_owned()]).collect();
    expected.sort();
    assert_eq!(checkpoints(&dir), expected);
}

#[test]
fn the_documented_early_stopping_waits_ten_checks_and_logs_each() {
    let dir = TestDir::new();
    let set =
        ["--set", "hooks_config.early_stopping_config.min_delta=100.0", "--set", "trainer.max_epochs=30"];
    let (printed, told) = trained(&dir, "early_stopping.toml", &set);
    assert_eq!(dir.json("runs/latest/run.json")["epochs"], 11, "the best check, and ten without improvement");
    assert!(printed.contains("stopped by `early_stopping`") && printed.contains("in 10 checks"), "{printed}");
    assert!(told.contains("improved to") && told.contains("did not improve"), "{told}");
}

#[test]
fn the_documented_lr_monitor_logs_rate_momentum_and_decay_once_an_epoch() {
    let dir = TestDir::new();
    trained(&dir, "lr_monitor.toml", &["--set", "optimizer.use=sgd", "--set", "optimizer.momentum=0.9"]);
    let metrics = dir.json("runs/latest/run.json")["metrics"].clone();
    let names: Vec<_> = metrics.as_object().expect("a table").keys().cloned().collect();
    let beginning = |prefix: &str| names.iter().find(|name| name.starts_with(prefix)).cloned();
    for prefix in ["lr/", "momentum/", "weight_decay/"] {
        let name = beginning(prefix).unwrap_or_else(|| panic!("nothing begins with {prefix}: {names:?}"));
        assert_eq!(curve(&dir, &name).len(), 5, "{name}");
    }
}

#[test]
fn the_documented_console_json_and_checkpoint_hooks_work_as_a_list() {
    let dir = TestDir::new();
    let (_, told) = trained(&dir, "named_hooks.toml", &[]);
    assert_eq!(&hooks(&dir)[..3], ["console_log", "json_log", "checkpoint"]);
    assert!(told.lines().filter(|line| line.contains("loss")).count() > 10, "{told}");
    let lines = dir.lines("runs/latest/json_log.jsonl");
    assert!(lines.iter().any(|line| line["event"] == "batch"), "{lines:?}");
    assert_eq!(checkpoints(&dir).len(), 5, "one per epoch, and all are kept");
}

mod custom {
    use std::process::ExitCode;

    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};
    use tenterhook::prelude::*;
    use tenterhook::toy::ToyTask;
    use tenterhook_app::App;

    use super::*;

    /// The hook of the documented configuration, with its options.
    struct MyCustomHook(f64);

    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct MyOptions {
        /// Losses above this value are high.
        threshold: f64,
    }

    #[hook]
    impl Observer for MyCustomHook {
        fn on_train_start(&mut self, cx: &TrainStart) -> HookResult {
            cx.say(format!("threshold {}", self.0));
            Ok(())
        }
    }

    fn run(more: &[&str]) -> (ExitCode, TestDir) {
        let dir = TestDir::new();
        let app =
            App::new("mine").task(ToyTask).hook("mypackage::hooks::MyCustomHook", |options: MyOptions| {
                Ok::<_, String>(MyCustomHook(options.threshold))
            });
        let (file, runs) =
            (documented("custom_hooks.toml"), format!("runs_dir={}/runs", dir.path().display()));
        let file = file.to_str().expect("it is text");
        let mut arguments = vec!["mine", "train", file, "--quiet", "--set", &runs];
        arguments.extend(more);
        (app.run_with(arguments), dir)
    }

    #[test]
    fn the_documented_class_path_builds_a_custom_hook_with_its_options() {
        let (code, dir) = run(&[]);
        assert_eq!(code, ExitCode::SUCCESS);
        let said = dir.lines("runs/latest/events.jsonl").into_iter().find(|event| event["event"] == "said");
        assert_eq!(said.expect("it says something")["text"], "threshold 5");
    }

    #[test]
    fn an_invalid_option_of_a_custom_hook_is_refused_before_the_run() {
        let wrong = "hooks_config.hook_configs.mypackage::hooks::MyCustomHook.treshold=1.0";
        let (code, dir) = run(&["--set", wrong]);
        assert_eq!(code, ExitCode::from(2));
        assert!(!dir.path().join("runs").exists());
    }
}
