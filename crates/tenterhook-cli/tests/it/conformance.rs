//! The order of events, compared with recordings of Lightning 2.6.6.
//!
//! `lightning/` has the scenarios with their expected order. `more_from_lightning.jsonl` has further recorded
//! scenarios, one per line. They exclude intended differences: the mean over several evaluation loaders,
//! ending an epoch from a controller, monitors after all user hooks, no update without a loss, checkpoints
//! that wait for the metric of their own step, early stopping that checks a value once, `last` at the end of
//! every epoch and of training, and dry runs without checkpoints.

use std::path::Path;

use serde_json::Value;

use crate::{files, tenter, text};

/// Compares the rows of a scenario with the expected ones.
fn check(scenario: &Value, file: &Path, directory: &Path) -> Result<(), String> {
    let output = tenter(&["trace", &file.display().to_string(), "--json"], directory);
    let rows: Vec<Value> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).map_err(|error| format!("{line:?} is not a row: {error}")))
        .collect::<Result<_, _>>()?;
    let expected = scenario["expect"].as_array().ok_or("the scenario expects nothing")?;
    // Unlike Lightning, all receivers are torn down after a failure.
    let until_exception = scenario["until"] == "exception";
    let compared = if until_exception { &rows[..rows.len().min(expected.len())] } else { &rows[..] };
    let differs = expected.iter().zip(compared).position(|(expected, row)| expected != row);
    let differs = differs.or((expected.len() != compared.len()).then(|| expected.len().min(compared.len())));
    if let Some(at) = differs {
        let (expected, row) = (expected.get(at), compared.get(at));
        return Err(format!("row {at}: expected {expected:?}, got {row:?}\n{}", text(&output.stderr)));
    }
    if until_exception {
        check_clean_up(&rows, &rows[compared.len()..])?;
    }
    Ok(())
}

/// Checks that only clean-up follows a failure, and that each receiver is torn down exactly once.
fn check_clean_up(rows: &[Value], rest: &[Value]) -> Result<(), String> {
    if let Some(row) = rest.iter().find(|row| row[1] != "teardown" && row[1] != "on_exception") {
        return Err(format!("{row} after the failure"));
    }
    let torn_down =
        |source: &Value| rows.iter().filter(|row| row[0] == *source && row[1] == "teardown").count();
    let mut sources: Vec<_> = rows.iter().map(|row| row[0].clone()).collect();
    sources.extend(["strategy", "data", "module"].map(Value::from));
    match sources.iter().find(|source| torn_down(source) != 1) {
        Some(source) => Err(format!("{source} was torn down {} times", torn_down(source))),
        None => Ok(()),
    }
}

#[test]
fn every_scenario_has_the_order_of_lightning() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut paths: Vec<_> = std::fs::read_dir(files().join("lightning"))
        .expect("scenarios")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    assert_eq!(paths.len(), 24);
    let mut wrong = Vec::new();
    for path in paths {
        let scenario: Value =
            serde_json::from_str(&std::fs::read_to_string(&path).expect("it reads")).expect("JSON");
        if let Err(problem) = check(&scenario, &path, directory.path()) {
            wrong.push(format!("{}: {problem}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let left = std::fs::read_dir(directory.path()).expect("it lists").count();
    assert_eq!(left, 0, "tracing leaves no files");
}

#[test]
fn every_further_scenario_has_the_order_of_lightning() {
    let directory = tempfile::tempdir().expect("a directory");
    let lines = std::fs::read_to_string(files().join("more_from_lightning.jsonl")).expect("it reads");
    assert!(lines.lines().count() > 300);
    let mut wrong = Vec::new();
    for line in lines.lines() {
        let scenario: Value = serde_json::from_str(line).expect("JSON");
        let path = directory.path().join("scenario.json");
        std::fs::write(&path, line).expect("it writes");
        if let Err(problem) = check(&scenario, &path, directory.path()) {
            wrong.push(format!("{} ({}): {problem}", scenario["name"], scenario["note"]));
        }
    }
    assert!(wrong.is_empty(), "{} of them:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn an_invalid_scenario_is_refused_with_its_place() {
    let directory = tempfile::tempdir().expect("a directory");
    for (content, hint) in [
        (None, "cannot read"),
        (Some("{"), "is not a scenario"),
        (Some(r#"{"entry":"fit","trainer":{"max_epoch":1}}"#), "max_epochs"),
        (Some(r#"{"entry":"train"}"#), "unknown variant `train`"),
    ] {
        let path = directory.path().join("wrong.json");
        match content {
            Some(content) => std::fs::write(&path, content).expect("it writes"),
            None => assert!(!path.exists()),
        }
        let output = tenter(&["trace", "wrong.json"], directory.path());
        assert_eq!(output.status.code(), Some(2));
        assert!(output.stdout.is_empty());
        assert!(text(&output.stderr).contains(hint), "{}", text(&output.stderr));
    }
}
