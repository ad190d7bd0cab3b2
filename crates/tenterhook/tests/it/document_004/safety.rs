//! Requirement: hook safety.

use tenterhook::{Outcome, RunNotice};

use super::{Ran, train};

/// Several hooks of each kind, including built-in ones. The effects of the update hooks cancel out.
const MANY: &str = r#"
[[hooks]]
use = "document::Watch"
name = "watch_1"
points = "**"
[[hooks]]
use = "document::Times"
name = "halve"
factor = 0.5
[[hooks]]
use = "document::Watch"
name = "watch_2"
points = "linear.*"
[[hooks]]
use = "document::Times"
name = "double"
factor = 2.0
[[hooks]]
use = "gradient_monitor"
log_frequency = 1
[[hooks]]
use = "lr_monitor"
[[hooks]]
use = "throughput"
every_n_steps = 1
"#;

/// The bits of the training and validation losses, with their steps.
fn losses(ran: &Ran) -> Vec<(u64, &'static str, u64)> {
    let of = |line: &serde_json::Value, name: &'static str| {
        let value = line["metrics"][name].as_f64()?;
        Some((line["step"].as_u64()?, name, value.to_bits()))
    };
    let lines = ran.lines("metrics.jsonl");
    lines.iter().flat_map(|line| [of(line, "train/loss"), of(line, "val/loss")]).flatten().collect()
}

fn failures(ran: &Ran) -> Vec<String> {
    let failed = ran.report.notices.iter().filter(|notice| matches!(notice, RunNotice::Contained(_)));
    failed.map(ToString::to_string).collect()
}

#[test]
fn hooks_dont_break_training_step() {
    let root = tempfile::tempdir().unwrap();
    let (hooked, alone) = (train(root.path(), MANY), train(root.path(), ""));
    assert_eq!((hooked.report.outcome.clone(), failures(&hooked)), (Outcome::Completed, Vec::new()));
    assert_eq!(hooked.report.progress, alone.report.progress);
    assert_eq!(hooked.report.progress.step, 4);
    assert!(losses(&alone).len() >= 5, "{:?}", losses(&alone));
    assert_eq!(losses(&hooked), losses(&alone), "losses are computed as ever");
    assert_eq!(hooked.weights(), alone.weights(), "and parameters updated");
}

#[test]
fn multiple_hooks_can_be_active_simultaneously() {
    let root = tempfile::tempdir().unwrap();
    let together = train(root.path(), MANY);
    assert_eq!(together.report.outcome, Outcome::Completed);
    assert!(failures(&together).is_empty());
    for built_in in ["grad_norm", "lr", "throughput"] {
        assert!(
            together.report.metrics.keys().any(|name| name.starts_with(built_in)),
            "{built_in}: {:?}",
            together.report.metrics.keys()
        );
    }
    // Each hook does the same as when it runs alone.
    for (hook, use_) in [
        ("watch_1", "use = \"document::Watch\"\npoints = \"**\""),
        ("watch_2", "use = \"document::Watch\"\npoints = \"linear.*\""),
    ] {
        let alone = train(root.path(), &format!("[[hooks]]\nname = \"{hook}\"\n{use_}\n"));
        let of_hook =
            |ran: &Ran| -> Vec<_> { ran.done.iter().filter(|(by, _)| by == hook).cloned().collect() };
        assert!(!of_hook(&alone).is_empty());
        assert_eq!(of_hook(&together), of_hook(&alone));
        for (name, value) in alone.report.metrics.iter().filter(|(name, _)| name.starts_with(hook)) {
            assert_eq!(together.report.metrics[name].to_bits(), value.to_bits(), "{name}");
        }
    }
    let updates: Vec<_> = together
        .done
        .iter()
        .filter(|(_, what)| what.starts_with("step"))
        .map(|(by, _)| by.as_str())
        .collect();
    assert_eq!(updates, ["halve", "double"].repeat(4));
}
