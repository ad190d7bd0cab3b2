//! Requirement: run logging with hook information.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::train;

#[test]
fn run_id_is_generated_and_logged() {
    let root = tempfile::tempdir().unwrap();
    let (first, second) = (train(root.path(), ""), train(root.path(), ""));
    let ids = [&first, &second].map(|ran| ran.run_json()["id"].as_str().unwrap().to_owned());
    assert_ne!(ids[0], ids[1], "unique");
    for (ran, id) in [&first, &second].into_iter().zip(&ids) {
        assert_eq!(ran.directory.file_name().unwrap().to_str(), Some(id.as_str()));
        assert_eq!(ran.introduction()["run"], id.as_str(), "in the journal, before the first step");
        let told = ran.told.iter().position(|text| text.starts_with(&format!("run {id}\n")));
        assert_eq!(told, Some(0), "and to people, before anything else: {:?}", ran.told);
    }
}

/// The environment variable with the run directory of the next test's child process.
const RUNS: &str = "TENTERHOOK_TEST_OF_GIT";

fn git(directory: &Path, arguments: &[&str]) -> String {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]);
    let output = git.args(arguments).current_dir(directory).output().expect("git is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// The current directory belongs to the whole process, so the training runs in a child process.
#[test]
fn git_commit_is_logged() {
    if let Some(root) = std::env::var_os(RUNS) {
        train(Path::new(&root), "");
        return;
    }
    let commit_in = |directory: &Path| {
        let root = tempfile::tempdir().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "document_004::runs::git_commit_is_logged"]).current_dir(directory);
        // Git must not search the directories above this one.
        child.env("GIT_CEILING_DIRECTORIES", directory.parent().unwrap()).env(RUNS, root.path());
        for variable in ["GIT_DIR", "GIT_WORK_TREE"] {
            child.env_remove(variable);
        }
        let output = child.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let run = crate::run_directory::latest(root.path());
        let events = std::fs::read_to_string(run.join("events.jsonl")).unwrap();
        let introduced = events.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let introduced = introduced.into_iter().find(|line| line["event"] == "run").unwrap();
        let logged = crate::run_directory::run_json(&run)["git"].clone();
        assert_eq!(introduced["git"], logged);
        logged
    };
    let place = tempfile::tempdir().unwrap();
    let place = place.path().canonicalize().unwrap();
    assert_eq!(commit_in(&place), json!({ "commit": "not a git repository", "dirty": null }));

    let repository = place.join("repository");
    std::fs::create_dir(&repository).unwrap();
    git(&repository, &["init", "--quiet"]);
    git(&repository, &["commit", "--quiet", "--allow-empty", "--message", "first"]);
    let commit = git(&repository, &["rev-parse", "HEAD"]);
    assert_eq!(commit_in(&repository), json!({ "commit": commit, "dirty": false }));
}

#[test]
fn config_hash_is_computed_and_logged() {
    let root = tempfile::tempdir().unwrap();
    let hash = |text: &str| {
        let ran = train(root.path(), text);
        let hash = ran.run_json()["config_hash"].as_str().unwrap().to_owned();
        assert_eq!(ran.introduction()["config_hash"], hash.as_str(), "in the journal, too");
        assert!(ran.told[0].contains(&hash), "and to people: {:?}", ran.told);
        hash
    };
    let plain = hash("");
    assert!(plain.starts_with("blake3:") && plain.len() == "blake3:".len() + 64, "{plain}");
    assert_eq!(hash("# what is no setting counts for nothing"), plain);
    assert_ne!(hash("[optimizer]\nlr = 0.05\n"), plain);
    let watching = "[[hooks]]\nuse = \"document::Watch\"\npoints = \"prediction\"\n";
    assert_ne!(hash(watching), plain, "hooks are part of it");
    assert_ne!(hash(&format!("{watching}enabled = false\n")), hash(watching));
}

#[test]
fn hook_list_is_logged() {
    let root = tempfile::tempdir().unwrap();
    let ran = train(
        root.path(),
        r#"
[[hooks]]
use = "document::Watch"
points = "**"
[[hooks]]
use = "document::Watch"
name = "resting"
points = "**"
enabled = false
[[hooks]]
use = "document::Times"
factor = 1.0
"#,
    );
    let expected = json!([
        { "name": "watch", "enabled": true },
        { "name": "resting", "enabled": false },
        { "name": "times", "enabled": true },
    ]);
    assert_eq!(ran.introduction()["hooks"], expected);
    assert!(ran.told[0].ends_with("hooks: watch, resting (disabled), times"), "{}", ran.told[0]);
    let run = ran.run_json();
    let hooks = run["hooks"].as_array().unwrap().iter();
    let listed: Vec<_> = hooks.map(|hook| json!([hook["name"], hook["kind"], hook["enabled"]])).collect();
    assert_eq!(
        json!(listed),
        json!([["watch", "forward", true], ["resting", "forward", false], ["times", "update", true]])
    );
    let none = train(root.path(), "");
    assert_eq!(none.introduction()["hooks"], json!([{ "name": "identity", "enabled": true }]));
}
