//! Python reads the files of tenterhook.

use std::process::Command;

use crate::reader::with;
use crate::tenter::TestDir;

/// Runs a script that prints `done` on success.
fn run(python: String, dir: &TestDir, script: &str) {
    let output =
        Command::new(python).args(["-c", script]).current_dir(dir.path()).output().expect("python runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n", "{said}");
}

#[test]
fn weights_and_optimizer_state_are_read_by_python() {
    let Some(python) = with("numpy, safetensors.numpy") else { return };
    let dir = TestDir::new();
    dir.train(&["--quiet"]).succeeded();
    let script = r#"
import numpy
from safetensors.numpy import load_file
weights = load_file("runs/latest/weights.safetensors")
assert sorted(weights) == sorted(
    f"{layer}.{part}" for layer in ["conv1", "conv2", "fc1", "fc2"] for part in ["weight", "bias"]), sorted(weights)
assert weights["conv1.weight"].shape == (16, 1, 3, 3), weights["conv1.weight"].shape
assert all(numpy.isfinite(values).all() and values.std() > 0 for values in weights.values())
moments = load_file("runs/latest/checkpoints/latest/optimizer.safetensors")
assert {name.rsplit(".", 1)[1] for name in moments} == {"moment_1", "moment_2"}, sorted(moments)
assert moments["fc1.weight.momentum.moment_1"].shape == weights["fc1.weight"].shape
print("done")
"#;
    run(python, &dir, script);
}

#[test]
fn an_export_is_read_by_python() {
    let Some(python) = with("numpy, safetensors.numpy") else { return };
    let dir = TestDir::new();
    dir.train(&["--quiet"]).succeeded();
    let said = dir.run(&["export", "latest", "-o", "my model.safetensors"]).succeeded().stdout;
    // Takes the Python lines from the output of the command.
    let lines: Vec<_> = said.lines().filter_map(|line| line.strip_prefix("  ")).collect();
    let script = format!(
        "{}\nassert weights['conv1.weight'].shape == (16, 1, 3, 3)\nassert len(weights) == 8\nprint('done')\n",
        lines.join("\n")
    );
    run(python, &dir, &script);
}

#[test]
fn a_validator_accepts_the_configurations_that_work_and_no_others() {
    let Some(python) = with("jsonschema, tomllib") else { return };
    let dir = TestDir::new();
    dir.write("schema.json", dir.run(&["schema"]).stdout);
    dir.write("printed.toml", dir.run(&["train", "--print-config"]).stdout);
    dir.write("text.toml", dir.run(&["train", "--set", "task=text", "--print-config"]).stdout);
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let script = r#"
import glob, json, tomllib
from jsonschema import Draft202012Validator
schema = json.load(open("schema.json"))
Draft202012Validator.check_schema(schema)
validator = Draft202012Validator(schema)
files = glob.glob("EXAMPLES/*.toml") + glob.glob("EXAMPLES/documented/*.toml") + ["printed.toml", "text.toml"]
# A hook of a custom program is not in the schema of this one.
files = [file for file in files if not file.endswith("custom_hooks.toml")]
assert len(files) >= 8, files
for file in files:
    errors = [error.message for error in validator.iter_errors(tomllib.load(open(file, "rb")))]
    assert not errors, (file, errors)
wrong = {
    "an unknown table": "[trainr]",
    "an unknown key": "[trainer]\nmax_epoch = 3",
    "a wrong type": "[trainer]\nmax_epochs = 'three'",
    "an unknown hook": "[[hooks]]\nuse = 'cat'",
    "an unknown option": "[[hooks]]\nuse = 'early_stopping'\nmonitor = 'val/loss'\npatients = 3",
    "a missing option": "[[hooks]]\nuse = 'early_stopping'",
    "a wrong policy": "[[hooks]]\nuse = 'checkpoint'\non_error = 'panic'",
    "an option of another hook": "[[hooks]]\nuse = 'checkpoint'\npatience = 3",
    "an unknown task": "task = 'cat'",
    "a key of another task": "task = 'text'\n[model]\nuse = 'cnn'",
    "an unknown flag": "[hooks_config]\nenable_cat = true",
    "a wrong documented option": "[hooks_config]\nenable_lr_monitor = true\n[hooks_config.lr_monitor_config]\nfrequency = 'day'",
}
for what, text in wrong.items():
    assert not validator.is_valid(tomllib.loads(text)), what
print("done")
"#;
    run(python, &dir, &script.replace("EXAMPLES", examples));
}
