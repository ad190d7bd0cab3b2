//! All errors with their places, although serde stops at the first one and reports no place in tagged and
//! flattened types.

use super::*;

#[test]
fn the_place_within_a_tagged_table_is_found() {
    for (table, place, hint) in [
        ("use = \"sgd\"\nlr = \"x\"", "train.toml:3:6", "expected a number"),
        ("use = \"sgd\"\nlr = 0.1\nmomentm = 0.9", "train.toml:4:1", "did you mean `momentum`?"),
        ("use = \"adm\"\nlr = 0.1\nbetas = [0.9, 0.9]", "train.toml:2:7", "did you mean `adam`?"),
        ("use = \"adam\"\nlr = 0.1\nbetas = [0.9, \"x\"]", "train.toml:4:15", "expected a number"),
    ] {
        let shown = error(&format!("[optimizer]\n{table}"), &[], &[]);
        assert!(shown.starts_with("1 problem in"), "{table}\n{shown}");
        assert!(shown.contains(place) && shown.contains(hint), "{table}\n{shown}");
    }
}

#[test]
fn two_equal_mistakes_are_both_found() {
    let shown = error("[optimizer]\nuse = \"sgd\"\nlr = \"x\"\nmomentum = \"x\"", &[], &[]);
    assert!(shown.starts_with("2 problems"), "{shown}");
    assert!(shown.contains("train.toml:3:6") && shown.contains("train.toml:4:12"), "{shown}");
}

#[test]
fn repaired_options_are_not_reported_missing() {
    let shown = error("[[hooks]]\nuse = \"early_stopping\"\nmonitor = 3\npatience = \"x\"", &[], &[]);
    assert!(shown.starts_with("2 problems"), "{shown}");
    assert!(!shown.contains("missing"), "{shown}");
    let shown = error("[optimizer]\nuse = \"sgd\"\nlr = true", &[], &[]);
    assert!(shown.starts_with("1 problem "), "{shown}");
}

#[test]
fn repaired_options_are_not_rejected_again() {
    let shown = error("[[hooks]]\nuse = \"checkpoint\"\nsave_top_k = 3\nmonitr = \"m\"", &[], &[]);
    assert!(shown.starts_with("1 problem ") && shown.contains("did you mean `monitor`?"), "{shown}");
}

#[test]
fn a_missing_key_of_an_element_points_at_the_element() {
    let shown = error("[[schedulers]]\nuse = \"a\"\n[[schedulers]]\nfrom = 1", &[], &[]);
    assert!(shown.contains("train.toml:3:1: missing key `use` in [schedulers.1]"), "{shown}");
}
