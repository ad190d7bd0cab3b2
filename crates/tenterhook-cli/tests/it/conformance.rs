//! The order of everything, against what Lightning 2.6.6 really does.
//!
//! `lightning/` is the order contract as data. `more_from_lightning.jsonl` holds further scenarios of
//! the same form, recorded by running Lightning 2.6.6, one per line. Not among them is what we do
//! otherwise on purpose: several evaluation loaders have their mean under the plain name, a
//! controller may end an epoch, monitors come after all user hooks, a step without a loss updates
//! nothing, a checkpoint waits for the monitored metric of its own step where Lightning judges it by
//! an older one, early stopping checks a value once, `last` is written at the end of every epoch and of
//! training, and a dry run saves nothing.

use std::path::Path;

use serde_json::Value;

use crate::{files, tenter, text};

/// The rows that a scenario gives, compared with those it expects.
fn check(scenario: &Value, file: &Path, directory: &Path) -> Result<(), String> {
    let output = tenter(&["trace", &file.display().to_string(), "--json"], directory);
    let rows: Vec<Value> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).map_err(|error| format!("{line:?} is not a row: {error}")))
        .collect::<Result<_, _>>()?;
    let expected = scenario["expect"].as_array().ok_or("the scenario expects nothing")?;
    // After a failure we go further than Lightning: everybody is torn down.
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

/// After a failure nothing but clean-up happens, and over the whole run everybody is torn down exactly once.
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
fn every_given_scenario_comes_out_equal() {
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
    assert_eq!(left, 0, "tracing leaves nothing behind");
}

#[test]
fn every_further_scenario_comes_out_equal() {
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
fn a_wrong_scenario_is_refused_with_its_place() {
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
