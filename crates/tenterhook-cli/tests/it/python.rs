//! What we write is read by those it is written for.

use std::process::Command;

use crate::tenter::Place;

/// A Python that has `safetensors` and `numpy`; CI installs one and names it.
fn python() -> Option<String> {
    let python = std::env::var("TENTERHOOK_PYTHON").unwrap_or_else(|_| "python3".into());
    let has_it = Command::new(&python).args(["-c", "import safetensors.numpy"]).output();
    if has_it.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    assert!(std::env::var_os("CI").is_none(), "CI must have a Python with safetensors and numpy");
    eprintln!("SKIPPED: there is no Python with safetensors and numpy (name one in TENTERHOOK_PYTHON)");
    None
}

#[test]
fn weights_and_optimizer_state_are_read_by_python() {
    let Some(python) = python() else { return };
    let place = Place::new();
    place.train(&["--quiet"]).succeeded();
    let script = r#"
import glob, numpy
from safetensors.numpy import load_file
weights = load_file("runs/latest/weights.safetensors")
assert sorted(weights) == sorted(
    f"{layer}.{part}" for layer in ["conv1", "conv2", "fc1", "fc2"] for part in ["weight", "bias"]), sorted(weights)
assert weights["conv1.weight"].shape == (16, 1, 3, 3), weights["conv1.weight"].shape
assert all(numpy.isfinite(values).all() and values.std() > 0 for values in weights.values())
[state] = glob.glob("runs/latest/checkpoints/*/optimizer.safetensors")
moments = load_file(state)
assert {name.rsplit(".", 1)[1] for name in moments} == {"moment_1", "moment_2"}, sorted(moments)
assert moments["fc1.weight.momentum.moment_1"].shape == weights["fc1.weight"].shape
print("read")
"#;
    let output =
        Command::new(python).args(["-c", script]).current_dir(place.path()).output().expect("python runs");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "read\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
