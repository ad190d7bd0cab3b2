//! Resuming from an uploaded checkpoint, as described in docs/guide/resume.md.

use std::fs;

use crate::tenter::TestDir;

const CONFIG: &str = r#"
task = "toy"
[trainer]
max_epochs = 2
[[hooks]]
use = "checkpoint"
save_top_k = -1
[[hooks]]
use = "upload"
to = "backup"
"#;

#[test]
fn an_uploaded_checkpoint_verifies_and_resumes_to_the_same_weights() {
    let dir = TestDir::new();
    dir.write("c.toml", CONFIG);
    dir.run(&["train", "c.toml"]).succeeded();
    let weights = || fs::read(dir.path().join("runs/latest/weights.safetensors")).expect("weights");
    let (ended, run) = (weights(), dir.json("runs/latest/run.json"));
    let sink = run["sinks"].as_array().expect("sinks").iter().find(|sink| sink["hook"] == "upload");
    let sink = sink.expect("the hook's");
    assert_eq!((&sink["sent"], &sink["delivered"]), (&2.into(), &2.into()), "{run}");

    let saved = format!("backup/{}/epoch=0-step=8", run["id"].as_str().expect("an id"));
    dir.run(&["checkpoints", "verify", &saved]).succeeded();
    fs::remove_dir_all(dir.path().join("runs")).expect("it was there");
    dir.run(&["train", "c.toml", "--resume", &saved]).succeeded();
    assert_eq!(weights(), ended);
    assert!(dir.json("runs/latest/run.json")["resumed_from"].is_string());

    // A checkpoint without a manifest is incomplete, and refused.
    fs::remove_file(dir.path().join(&saved).join("manifest.json")).expect("it was there");
    assert_eq!(dir.run(&["checkpoints", "verify", &saved]).code, 1);
    dir.run(&["train", "c.toml", "--resume", &saved]).refused(&["manifest.json"]);
}
