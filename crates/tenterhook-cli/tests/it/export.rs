//! `tenter export`, and `tenter train --init-from`.

use std::fs;

use serde_json::Value;

use crate::tenter::TestDir;

const CONFIG: &str = "task = \"toy\"\n[trainer]\nmax_epochs = 2\n[[hooks]]\nuse = \"checkpoint\"\n\
                      [[hooks]]\nuse = \"ema_weights\"\ndecay = 0.5\n";
const CHECKPOINT: &str = "runs/latest/checkpoints/epoch=1-step=16";

fn trained() -> TestDir {
    let dir = TestDir::new();
    dir.write("c.toml", CONFIG);
    dir.run(&["train", "c.toml", "--quiet"]).succeeded();
    dir
}

#[test]
fn evaluated_weights_are_exported_or_trained_ones_with_raw() {
    let dir = trained();
    let read = |file: &str| fs::read(dir.path().join(file)).expect(file);
    let said = dir.run(&["export", CHECKPOINT]).succeeded().stdout;
    assert!(said.contains("wrote epoch=1-step=16.safetensors: 2 tensors, 3 parameters, "), "{said}");
    assert!(said.contains("weights = load_file(\"epoch=1-step=16.safetensors\")"), "{said}");
    let written = dir.run(&["export", CHECKPOINT, "--raw", "-o", "raw.st", "--json"]).succeeded().stdout;
    let written: Value = serde_json::from_str(&written).expect("one line of JSON");
    assert_eq!(
        (&written["parameters"], &written["tensors"]),
        (&Value::from(3), &Value::from(2)),
        "{written}"
    );
    assert_eq!(read("raw.st"), read(&format!("{CHECKPOINT}/weights.safetensors")));
    let average = read("epoch=1-step=16.safetensors");
    assert_ne!(average, read("raw.st"));
    dir.run(&["export", "latest", "-o", "run.st"]).succeeded();
    assert_eq!(read("run.st"), average, "the run saved the average");
    dir.run(&["export", "latest", "--raw", "-o", "raw.st"]).refused(&["raw.st already exists", "--force"]);
    dir.run(&["export", "latest", "--raw", "-o", "raw.st", "--force"]).succeeded();
    assert_ne!(read("raw.st"), average);
}

#[test]
fn a_damaged_checkpoint_is_not_exported() {
    let dir = trained();
    let state = dir.path().join(CHECKPOINT).join("hooks.safetensors");
    fs::write(&state, &fs::read(&state).expect("tensors")[1..]).expect("it is written");
    for raw in [&[][..], &["--raw"]] {
        dir.run(&[&["export", CHECKPOINT], raw].concat()).refused(&["hooks.safetensors is damaged"]);
    }
    assert!(!dir.path().join("epoch=1-step=16.safetensors").exists());
    dir.run(&["export", "nowhere"]).refused(&["nowhere does not exist"]);
}

#[test]
fn a_run_that_was_killed_is_exported_from_its_newest_checkpoint() {
    let dir = trained();
    let mut record = dir.json("runs/latest/run.json");
    record["status"] = "running".into();
    dir.write("runs/latest/run.json", record.to_string());
    dir.write("runs/latest/weights.safetensors", "of an earlier end");
    let said = dir.run(&["export", "latest"]).succeeded().stdout;
    assert!(said.contains("epoch=1-step=16"), "{said}");
}

#[test]
fn fine_tuning_loads_matching_weights_and_lists_the_others() {
    let dir = TestDir::new();
    dir.train(&["--quiet", "--no-test"]).succeeded();
    let again = |more: &[&str]| {
        let few =
            ["train", "--no-test", "--set", "trainer.max_epochs=1", "--set", "trainer.limit_train_batches=1"];
        dir.run(&[&few, more].concat())
    };
    let from = dir.path().join("runs/latest").canonicalize().expect("a run");
    let from = from.to_str().expect("text");
    let ran = again(&["--init-from", from, "--set", "model.hidden=7", "--json"]).succeeded();
    assert!(ran.stderr.contains("loaded 5 of 8 parameters from "), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("3 of another shape") && ran.stderr.contains("`fc1.weight` has the shape"),
        "{}",
        ran.stderr
    );
    let summary: Value = serde_json::from_str(&ran.stdout).expect("one line of JSON");
    let report = &summary["init_from"];
    assert_eq!(
        (report["loaded"].as_array().map(Vec::len), report["mismatched"].as_array().map(Vec::len)),
        (Some(5), Some(3))
    );
    assert_eq!(summary["resumed_from"], Value::Null);
    let ran = again(&["--init-from", from, "--set", "optimizer.lr=0.0"]).succeeded();
    assert!(ran.stderr.contains("loaded 8 of 8 parameters from "), "{}", ran.stderr);
    let read = |file: &str| fs::read(file).expect(file);
    let now = dir.path().join("runs/latest/weights.safetensors");
    assert_eq!(
        read(now.to_str().expect("text")),
        read(&format!("{from}/weights.safetensors")),
        "a learning rate of 0 does not change them"
    );
    let runs = fs::read_dir(dir.path().join("runs")).expect("runs").count();
    again(&["--init-from", from, "--set", "task=toy"]).refused(&[
        "no parameter matches",
        "weight, bias",
        "conv1.weight",
    ]);
    assert_eq!(fs::read_dir(dir.path().join("runs")).expect("runs").count(), runs);
}

#[cfg(unix)]
#[test]
fn an_unreadable_file_is_not_treated_as_missing() {
    let dir = trained();
    let lead_nowhere = |name: &str| {
        let path = dir.path().join(name);
        let _ = fs::remove_file(&path);
        std::os::unix::fs::symlink(&path, &path).expect("a link to itself");
    };
    lead_nowhere("loop");
    dir.run(&["export", "loop"]).refused(&["cannot read loop: ", "symbolic links"]);
    lead_nowhere("runs/latest/checkpoints/loop");
    dir.run(&["show", "latest"]).refused(&["checkpoints/loop: ", "symbolic links"]);
    fs::remove_file(dir.path().join("runs/latest/checkpoints/loop")).expect("it is removed");
    let record = dir.read("runs/latest/run.json");
    dir.write("runs/latest/run.json", &record[1..]);
    dir.run(&["export", "latest", "-o", "w.st"]).refused(&["run.json is damaged: "]);
    dir.run(&["export", "runs/latest", "-o", "w.st"])
        .refused(&["run.json is damaged: ", "give its weights.safetensors or one of"]);
    dir.write("runs/latest/run.json", record);
    lead_nowhere("runs/latest/weights.safetensors");
    dir.run(&["export", "latest", "-o", "w.st"]).refused(&["weights.safetensors: ", "symbolic links"]);
    lead_nowhere("runs/latest/run.json");
    let path = dir.path().join("runs/latest").canonicalize().expect("a run");
    let path = path.to_str().expect("UTF-8");
    dir.run(&["export", path, "-o", "w.st"]).refused(&["run.json: ", "symbolic links"]);
    assert!(!dir.path().join("w.st").exists());
}
