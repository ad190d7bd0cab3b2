//! `tenter train` and its files.

use serde_json::{Value, json};

use crate::tenter::TestDir;

#[test]
fn a_run_directory_records_configuration_metrics_and_events() {
    let dir = TestDir::new();
    let ran = dir.train(&["--json"]).succeeded();
    let summary: Value = serde_json::from_str(&ran.stdout).expect("one line of JSON");
    assert_eq!((&summary["steps"], &summary["epochs"]), (&json!(6), &json!(2)));
    assert!(summary["metrics"]["test/accuracy"].is_number(), "{summary}");

    let latest = std::fs::read_link(dir.path().join("runs/latest")).expect("a link");
    assert_eq!(Some(latest.as_os_str()), summary["run"].as_str().map(AsRef::as_ref));
    let run = dir.json("runs/latest/run.json");
    assert_eq!(run["status"], "completed", "{run}");
    assert_eq!(run["task"], "digits");
    assert!(run["metrics"]["test/accuracy"].is_number(), "{run}");
    let stages: Vec<_> =
        dir.lines("runs/latest/metrics.jsonl").iter().map(|line| line["stage"].clone()).collect();
    assert!(stages.contains(&json!("train")) && stages.contains(&json!("validate")), "{stages:?}");
    assert_eq!(stages.last(), Some(&json!("test")));
    let events = dir.lines("runs/latest/events.jsonl");
    assert!(events.iter().any(|event| event["event"] == "checkpoint"), "{events:?}");
    for file in ["config.toml", "weights.safetensors", "checkpoints"] {
        assert!(dir.path().join("runs/latest").join(file).exists(), "{file}");
    }
}

#[test]
fn the_same_seed_gives_the_same_bits_and_another_one_others() {
    let weights = |more: &[&str]| {
        let dir = TestDir::new();
        dir.train(&[more, &["--quiet"]].concat()).succeeded();
        std::fs::read(dir.path().join("runs/latest/weights.safetensors")).expect("weights")
    };
    let once = weights(&[]);
    assert_eq!(once, weights(&["--set", "loader.threads=3", "--set", "loader.prefetch=1"]));
    assert_ne!(once, weights(&["--set", "trainer.seed=1"]));
}

#[test]
fn quiet_prints_nothing_and_plain_output_has_a_line_per_epoch_and_a_summary() {
    let dir = TestDir::new();
    let quiet = dir.train(&["--quiet"]).succeeded();
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("", ""));
    let plain = dir.train(&[]).succeeded();
    assert!(
        plain.stderr.contains("epoch 1/2  loss ") && plain.stderr.contains("epoch 2/2"),
        "{}",
        plain.stderr
    );
    for hint in ["completed after 2 epochs, 6 steps", "test/accuracy", "the run is in runs/", "next steps"] {
        assert!(plain.stdout.contains(hint), "{}", plain.stdout);
    }
}

#[test]
fn a_run_ends_with_the_costs_of_its_hooks() {
    let dir = TestDir::new();
    let hooks = "[[hooks]]\nuse = \"loss_spike\"\nbudget = \"50%\"\n[[hooks]]\nuse = \"checkpoint\"\n";
    dir.write("a.toml", format!("task = \"digits\"\n{hooks}"));
    let plain = dir.train(&["a.toml"]).succeeded().stdout;
    let table: Vec<_> = plain
        .lines()
        .skip_while(|line| !line.starts_with("hook costs: "))
        .take_while(|line| !line.is_empty())
        .collect();
    assert!(table[1].starts_with("  hook ") && table[1].ends_with("failed  numbers  tensors"), "{plain}");
    let row = |hook: &str| table.iter().find(|line| line.starts_with(&format!("  {hook} "))).expect(hook);
    assert!(row("loss_spike").ends_with(" 6        -"), "it reads every loss: {plain}");
    assert!(row("checkpoint").contains(" % "), "{plain}");
    assert!(table.iter().all(|line| line.chars().count() <= 100), "{plain}");
    assert!(!plain.contains("  on_step_end"), "{plain}");

    let show = dir.run(&["show", "latest"]).succeeded().stdout;
    assert!(show.contains("hook costs: ") && show.contains("budget = \"50%\""), "{show}");
    let costs = &dir.json("runs/latest/run.json")["hook_costs"];
    let hooks = costs["hooks"].as_array().expect("hooks");
    let spike = hooks.iter().find(|hook| hook["hook"] == "loss_spike").expect("its account");
    assert_eq!((&spike["read"]["scalars"], &spike["estimated"]), (&json!(6), &json!(false)));
    assert!(spike["by_event"].as_array().is_some_and(|events| !events.is_empty()), "{costs}");
    assert!(dir.run(&["plan", "a.toml"]).succeeded().stdout.contains("budget = \"50%\""));

    let profiled = dir.train(&["a.toml", "--profile-hooks"]).succeeded().stdout;
    assert!(profiled.contains("\n    on_train_epoch_end "), "{profiled}");
    let json = dir.train(&["a.toml", "--json"]).succeeded().stdout;
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert!(json["hook_costs"]["hooks"].as_array().is_some_and(|hooks| hooks.len() > 2), "{json}");
    let off = ["--set", "trainer.account_hooks=false", "--set", "task=digits"];
    let without = dir.train(&off).succeeded().stdout;
    assert!(!without.contains("hook costs"), "{without}");
}

#[test]
fn the_printed_configuration_runs_and_prints_itself() {
    let dir = TestDir::new();
    for task in ["digits", "text"] {
        let set = format!("task={task}");
        let printed = dir.run(&["train", "--print-config", "--set", &set]).succeeded().stdout;
        assert!(printed.contains("# ") && printed.contains("max_epochs = "), "{printed}");
        let file = format!("{task}.toml");
        dir.run(&["init", &file, "--set", &set]).succeeded();
        assert_eq!(dir.read(&file), printed);
        let again = dir.run(&["train", &file, "--print-config"]).succeeded().stdout;
        assert_eq!(again, printed);
        dir.run(&["init", &file]).refused(&["already exists", "--force"]);
    }
    dir.run(&["train", "digits.toml", "--set", "trainer.fast_dev_run=true"]).succeeded();
    assert!(!dir.path().join("runs").exists(), "a dry run leaves no files");
}

#[test]
fn saved_weights_can_be_tested_validated_and_used_for_predictions() {
    let dir = TestDir::new();
    let ran = dir.train(&["--json"]).succeeded();
    let summary: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let best = summary["best"]["path"].as_str().expect("a best checkpoint").to_owned();
    let tested = dir.run(&["test", "--weights", &best, "--json"]).succeeded().stdout;
    let tested: Value = serde_json::from_str(&tested).expect("JSON");
    assert_eq!(tested["metrics"]["test/loss"], summary["metrics"]["test/loss"]);
    dir.run(&["validate", "runs/latest/config.toml", "--weights", "runs/latest"]).succeeded();
    let predicted = dir.run(&["predict", "--weights", "runs/latest"]).succeeded().stdout;
    assert_eq!(predicted.lines().count(), 357, "the test images, one line each");
    dir.run(&["test", "--weights", "nowhere"]).refused(&["nowhere does not exist", "runs/latest"]);
    let other = ["test", "--weights", "runs/latest", "--set", "model.hidden=7"];
    dir.run(&other).refused(&["fc1.weight", "shape"]);
}

#[test]
fn the_language_model_counts_tokens_logs_perplexity_and_writes() {
    let dir = TestDir::new();
    dir.write("book.txt", "the quick brown fox jumps over the lazy dog. ".repeat(200));
    let small = [
        "--set",
        "task=text",
        "--set",
        "data.path=book.txt",
        "--set",
        "model.width=16",
        "--set",
        "model.layers=1",
    ];
    let ran = dir.train(&[&small[..], &["--json"]].concat()).succeeded();
    let summary: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(summary["tokens"], json!(6 * 16 * 64));
    let (loss, perplexity) = (&summary["metrics"]["val/loss"], &summary["metrics"]["val/perplexity"]);
    let (loss, perplexity) = (loss.as_f64().expect("a loss"), perplexity.as_f64().expect("a perplexity"));
    assert!((loss.exp() - perplexity).abs() < 1e-9 * perplexity, "{loss} {perplexity}");
    let write =
        ["predict", "--weights", "runs/latest", "--set", "generate.bytes=20", "--set", "generate.prompt=the"];
    let (once, twice) = (dir.run(&write).succeeded().stdout, dir.run(&write).succeeded().stdout);
    assert!(once.starts_with("the") && once.len() >= 23, "{once}");
    assert_eq!(once, twice);
}

#[test]
fn an_interrupted_run_ends_cleanly_and_says_so() {
    use std::io::{BufRead, BufReader};
    let dir = TestDir::new();
    let mut child = dir.command(&["train", "--set", "trainer.max_epochs=100000"]).spawn().expect("it starts");
    // After the first epoch the program is certainly training.
    let mut lines = BufReader::new(child.stderr.take().expect("standard error")).lines();
    lines.find(|line| line.as_ref().is_ok_and(|line| line.starts_with("epoch 1/")));
    let killed = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(killed.expect("kill runs").success());
    let rest: Vec<_> = lines.map_while(Result::ok).collect();
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(130), "{rest:?}");
    let run = dir.json("runs/latest/run.json");
    assert_eq!(run["status"], "interrupted", "{run}");
    assert!(dir.path().join("runs/latest/weights.safetensors").exists());
}

#[test]
fn a_trace_shows_the_first_batches_as_a_tree_and_leaves_nothing_behind() {
    let dir = TestDir::new();
    dir.write("c.toml", "task = \"digits\"\n");
    let tree = dir.run(&["trace", "c.toml"]).succeeded().stdout;
    for line in [
        "setup ",
        "  on_fit_start",
        "        on_train_batch_start  batch 0 of train",
        "          on_before_forward",
    ] {
        assert!(tree.lines().any(|shown| shown.starts_with(line)), "no `{line}` in:\n{tree}");
    }
    assert!(tree.contains("checkpoint, module"), "{tree}");
    let rows = dir.run(&["trace", "c.toml", "--json", "--batches", "1"]).succeeded().stdout;
    let rows: Vec<Value> = rows.lines().map(|row| serde_json::from_str(row).expect("JSON")).collect();
    let batches = rows.iter().filter(|row| row["event"] == "on_train_batch_start").count();
    assert_eq!(batches, 1);
    assert!(!dir.path().join("runs").exists());
}

#[test]
#[cfg(unix)]
fn arguments_need_not_be_utf_8() {
    use std::os::unix::ffi::OsStrExt;

    let dir = TestDir::new();
    let name = std::ffi::OsStr::from_bytes(b"my\xff.toml");
    std::fs::write(dir.path().join(name), "task = \"toy\"\n[trainer]\nmax_epochs = 1\n")
        .expect("it is written");
    let mut command = dir.command(&["train", "--quiet"]);
    crate::tenter::Ran::from(command.arg(name).output().expect("it runs")).succeeded();
    let command = dir.json("runs/latest/run.json")["command"].clone();
    assert_eq!(command[3], "my\u{fffd}.toml", "{command}");
}

#[test]
fn a_failure_after_the_run_directory_exists_exits_with_1() {
    let dir = TestDir::new();
    let hook = "[[hooks]]\nuse = \"jsonl\"\npath = \"run.json/below\"\non_error = \"abort\"\n";
    dir.write("c.toml", format!("task = \"toy\"\n[trainer]\nmax_epochs = 1\n{hook}"));
    let ran = dir.run(&["train", "c.toml", "--quiet"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert_eq!(dir.json("runs/latest/run.json")["status"], "failed");
}

#[test]
fn a_run_prints_its_environment_at_the_start() {
    for (task, engine) in [("task=toy", "toy"), ("task=digits", "burn 0.22.1")] {
        let dir = TestDir::new();
        let limits = "trainer.max_steps=1 trainer.limit_train_batches=1 trainer.limit_val_batches=1";
        let sets = limits.split(' ').flat_map(|set| ["--set", set]);
        let arguments: Vec<_> = ["train", "--no-test", "--set", task].into_iter().chain(sets).collect();
        let ran = dir.run(&arguments).succeeded();
        let versions =
            ran.stderr.lines().find(|line| line.contains("tenterhook 0.1.0")).expect("the versions");
        assert!(
            versions.contains(engine) && versions.contains("rustc ") && versions.contains(" cpus"),
            "{versions}"
        );
        assert!(ran.stderr.contains(&format!("train --no-test --set {task}")), "{}", ran.stderr);
        let events = dir.lines("runs/latest/events.jsonl");
        let run = events.iter().find(|event| event["event"] == "run").expect("an introduction");
        assert!(run["versions"]["engine"] == engine && run["machine"]["cpus"].is_u64(), "{run}");
        assert_eq!(run["command"][4], task);
    }
}

/// All files below a directory, with their contents.
fn files_of(directory: &std::path::Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(files_of(&path));
        } else {
            files.push((path.clone(), std::fs::read(path).expect("a file")));
        }
    }
    files.sort();
    files
}

#[test]
fn an_evaluation_runs_all_hooks_and_does_not_change_the_run() {
    let dir = TestDir::new();
    dir.write(
        "toy.toml",
        "task = \"toy\"\n[trainer]\nmax_epochs = 1\n[[hooks]]\nuse = \"activation_store\"\npoints = [\"**\"]\n\
         stages = [\"predict\"]\n[[hooks]]\nuse = \"activation_stats\"\nstages = [\"test\"]\n[[hooks]]\nuse = \"jsonl\"\n\
         [[hooks]]\nuse = \"csv\"\n[[hooks]]\nuse = \"tensorboard\"\n[[hooks]]\nuse = \"checkpoint\"\nsave_last = true\n\
         [[hooks]]\nuse = \"early_stopping\"\nmonitor = \"val/loss\"\n[[hooks]]\nuse = \"ema_weights\"\n",
    );
    dir.run(&["train", "toy.toml"]).succeeded();
    let latest = dir.path().join("runs/latest");
    let (link, before) = (std::fs::read_link(&latest).expect("a link"), files_of(&latest));

    let tested = dir.run(&["test", "--weights", "runs/latest", "--json"]).succeeded();
    let metrics: Value = serde_json::from_str(&tested.stdout).expect("JSON");
    assert!(metrics["metrics"]["test/act_mean/prediction"].is_number(), "{metrics}");
    let said = |stderr: &str| {
        let said = stderr.lines().find_map(|line| line.strip_prefix("files of hooks are in "));
        dir.path().join(said.expect("it is said"))
    };
    let files = said(&tested.stderr);
    let lines = std::fs::read_to_string(files.join("json_log.jsonl")).expect("the sink took part");
    assert!(lines.contains("test"), "{lines}");
    assert!(files.join("tensorboard").is_dir() && !files.join("checkpoints").exists());

    dir.run(&["validate", "--weights", "runs/latest"]).succeeded();
    let predicted = dir.run(&["predict", "--weights", "runs/latest", "--json"]).succeeded();
    for line in predicted.stdout.lines() {
        serde_json::from_str::<Value>(line).expect("nothing but predictions");
    }
    let kept = said(&predicted.stderr).join("activations");
    let kept: Vec<_> =
        std::fs::read_dir(kept).expect("it is there").map(|file| file.expect("a file").file_name()).collect();
    assert!(!kept.is_empty() && kept.iter().all(|file| file.to_string_lossy().starts_with("predict-")));

    assert_eq!(std::fs::read_link(&latest).expect("a link"), link);
    assert!(files_of(&latest) == before, "a file of the run has changed");
    let runs = dir.run(&["runs", "--json"]).succeeded();
    let listed: Value = serde_json::from_str(&runs.stdout).expect("JSON");
    assert_eq!(listed["runs"].as_array().map(Vec::len), Some(1), "{listed}");
    assert!(!runs.stderr.contains("evaluations"), "{}", runs.stderr);
}

#[test]
fn a_trace_shows_any_call_of_any_configuration() {
    let dir = TestDir::new();
    dir.write("c.toml", "task = \"toy\"\n[[hooks]]\nuse = \"jsonl\"\n");
    for (stage, event) in [
        ("fit", "on_train_batch_start  batch 0"),
        ("validate", "on_validation_batch_start  batch 0"),
        ("test", "on_test_batch_start  batch 0"),
        ("predict", "on_predict_batch_start  batch 0"),
    ] {
        let tree = dir.run(&["trace", "c.toml", "--stage", stage, "--batches", "1"]).succeeded().stdout;
        assert!(tree.contains(event), "{tree}");
        assert_eq!(tree.contains("on_fit_start"), stage == "fit", "{tree}");
    }
    dir.run(&["trace", "s.json", "--stage", "test"]).refused(&["a scenario contains its own calls"]);
    assert!(!dir.path().join("runs").exists());
}
