//! `tenter points`.

use serde_json::Value;

use crate::tenter::TestDir;

#[test]
fn the_points_of_a_module_are_listed_in_the_order_of_its_forward_pass() {
    let dir = TestDir::new();
    let ran = dir.run(&["points"]).succeeded();
    let lines: Vec<Vec<&str>> = ran
        .stdout
        .lines()
        .map(|line| line.split("  ").filter(|cell| !cell.is_empty()).map(str::trim).collect())
        .collect();
    let all = "train, validate, test, predict";
    assert_eq!(lines[0], ["point", "shape", "elements", "phases"]);
    assert_eq!(lines[2], ["conv1", "[32, 16, 8, 8]", "32768", all]);
    let names: Vec<_> = lines[1..].iter().map(|line| line[0]).collect();
    assert_eq!(names, ["images", "conv1", "conv2", "features", "fc1", "logits"]);
    assert_eq!(std::fs::read_dir(dir.path()).expect("it is there").count(), 0, "nothing is written");
}

#[test]
fn the_trace_names_each_point_and_the_hooks_that_want_it() {
    let dir = TestDir::new();
    dir.write("c.toml", "task = \"digits\"\n[[hooks]]\nuse = \"activation_store\"\npoints = [\"conv*\"]\n");
    let ran = dir.run(&["trace", "c.toml", "--stage", "validate", "--batches", "1", "--json"]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let rows = ran.stdout.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let seen: Vec<_> = rows
        .filter(|row| row["event"] == "on_activation")
        .map(|row| {
            (row["point"].as_str().unwrap_or_default().to_owned(), row["receivers"] != serde_json::json!([]))
        })
        .collect();
    let expected = [
        ("images", false),
        ("conv1", true),
        ("conv2", true),
        ("features", false),
        ("fc1", false),
        ("logits", false),
    ];
    assert_eq!(seen, expected.map(|(point, wanted)| (point.to_owned(), wanted)));
}

#[test]
fn a_pattern_selects_points_and_the_hooks_that_want_them_are_named() {
    let dir = TestDir::new();
    dir.write(
        "c.toml",
        "task = \"text\"\n[model]\nlayers = 2\n[[hooks]]\nuse = \"nan_guard\"\ncheck_activations = true\n\
         [[hooks]]\nuse = \"activation_store\"\npoints = [\"blocks.0.*\"]\n",
    );
    let ran = dir.run(&["points", "c.toml", "--match", "blocks.*.mlp", "--json"]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let document: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let names: Vec<_> =
        document["points"].as_array().expect("a list").iter().map(|point| &point["name"]).collect();
    assert_eq!(names, ["blocks.0.mlp", "blocks.1.mlp"]);
    assert!(
        document["points"][0]["shapes"][0]["phases"]
            .as_array()
            .is_some_and(|phases| phases.contains(&"train".into()))
    );
    assert_eq!(document["points"][0]["hooks"], serde_json::json!(["nan_guard", "activation_store"]));
    assert_eq!(document["points"][1]["hooks"], serde_json::json!(["nan_guard"]));
    let growing = &document["points"][0]["shapes"][1];
    assert_eq!((&growing["phases"][0], &growing["smallest"][0]), (&"predict".into(), &1.into()), "{growing}");
    assert!(growing["smallest"][1].as_u64() < growing["largest"][1].as_u64(), "the text grows: {growing}");
}

#[test]
fn a_pattern_without_matches_gets_a_suggestion() {
    TestDir::new()
        .run(&["points", "--match", "conv3"])
        .refused(&["`conv3` selects none of 6 points", "did you mean `conv"]);
    TestDir::new().run(&["points", "--match", "a..b"]).refused(&["`a..b` is not a pattern"]);
}

#[test]
fn a_phase_without_data_is_reported_and_the_others_are_shown() {
    let dir = TestDir::new();
    let ran = dir.run(&["points", "--set", "task=toy", "--set", "data.predict=[]"]).succeeded();
    let words: Vec<_> = ran.stdout.split_whitespace().collect();
    assert_eq!(words[10..], ["prediction", "[4]", "4", "train,", "validate,", "test"]);
    assert!(ran.stderr.contains("predict: no data"), "{}", ran.stderr);
}

#[test]
fn a_phase_that_fails_is_reported_and_the_others_are_shown() {
    let dir = TestDir::new();
    let ran = dir.run(&["points", "--set", "trainer.val_check_interval=100000"]).succeeded();
    assert!(ran.stderr.contains("train: `val_check_interval = 100000` is more than"), "{}", ran.stderr);
    assert!(ran.stdout.contains("  validate, test, predict"), "{}", ran.stdout);
}
