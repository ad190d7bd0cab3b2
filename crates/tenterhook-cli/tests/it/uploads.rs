//! The way back from where `upload` put checkpoints, as docs/checkpoints.md says it.

use std::fs;

use crate::tenter::Place;

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
fn what_was_uploaded_verifies_and_a_run_goes_on_from_it_to_the_same_weights() {
    let place = Place::new();
    place.write("c.toml", CONFIG);
    place.run(&["train", "c.toml"]).succeeded();
    let weights = || fs::read(place.path().join("runs/latest/weights.safetensors")).expect("weights");
    let (ended, run) = (weights(), place.json("runs/latest/run.json"));
    let sink = run["sinks"].as_array().expect("sinks").iter().find(|sink| sink["hook"] == "upload");
    let sink = sink.expect("the hook's");
    assert_eq!((&sink["sent"], &sink["delivered"]), (&2.into(), &2.into()), "{run}");

    let saved = format!("backup/{}/epoch=0-step=8", run["id"].as_str().expect("an id"));
    place.run(&["checkpoints", "verify", &saved]).succeeded();
    fs::remove_dir_all(place.path().join("runs")).expect("it was there");
    place.run(&["train", "c.toml", "--resume", &saved]).succeeded();
    assert_eq!(weights(), ended);
    assert!(place.json("runs/latest/run.json")["resumed_from"].is_string());

    // One that has no manifest did not arrive whole, and nobody takes it for that.
    fs::remove_file(place.path().join(&saved).join("manifest.json")).expect("it was there");
    assert_eq!(place.run(&["checkpoints", "verify", &saved]).code, 1);
    place.run(&["train", "c.toml", "--resume", &saved]).refused(&["manifest.json"]);
}
