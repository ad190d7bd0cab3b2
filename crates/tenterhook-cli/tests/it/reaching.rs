//! `notify`, `heartbeat` and `exec` in the real program: they report the end of a run, and do not reveal the
//! secret address.

use serde_json::Value;

use crate::loopback::{Answer, Server};
use crate::signals::RunningProgram;
use crate::tenter::TestDir;

const TOKEN: &str = "T0K3N-51c9";

/// Writes a configuration with all three hooks.
fn configured(dir: &TestDir, config: &str) {
    let hooks = r#"
[[hooks]]
use = "notify"
url_env = "TENTERHOOK_TEST_WEBHOOK"
notify_on = ["training_end", "exception"]
templates = { training_end = "{outcome} at {step}: {reason}, val/loss {val/loss:.3f}" }
[[hooks]]
use = "heartbeat"
url_env = "TENTERHOOK_TEST_WEBHOOK"
file = "heartbeat.json"
[[hooks]]
use = "exec"
on = ["on_train_end", "teardown"]
command = "cat >> $TENTER_RUN_DIR/told; echo $TENTER_EVENT is told"
"#;
    dir.write("train.toml", [config, hooks].concat());
}

/// The received messages and statuses, in order.
fn heard(server: &Server) -> (Vec<String>, Vec<String>) {
    let (mut texts, mut statuses) = (Vec::new(), Vec::new());
    for request in server.received() {
        assert_eq!(request.line, format!("POST /{TOKEN}"));
        let json: Value = serde_json::from_str(&request.body).expect("it is JSON");
        match (json["text"].as_str(), json["status"].as_str()) {
            (Some(text), None) => texts.push(text.to_owned()),
            (None, Some(status)) => statuses.push(status.to_owned()),
            _ => panic!("{json}"),
        }
    }
    (texts, statuses)
}

/// Checks that the secret is neither in the output nor in any file.
#[track_caller]
fn kept_secret(dir: &TestDir, printed: &[&str]) {
    assert!(printed.iter().all(|text| !text.contains(TOKEN)), "{printed:?}");
    let found =
        std::process::Command::new("grep").args(["-rl", TOKEN]).arg(dir.path()).output().expect("grep runs");
    assert_eq!(found.status.code(), Some(1), "{}", String::from_utf8_lossy(&found.stdout));
}

#[test]
fn the_end_of_a_training_is_reported() {
    let (dir, server) = (TestDir::new(), Server::start(&[Answer::Status(200)]));
    configured(
        &dir,
        "task = \"digits\"\n[trainer]\nmax_steps = 3\nlimit_val_batches = 2\nval_check_interval = 2\n",
    );
    let mut command = dir.command(&["train", "train.toml"]);
    let output =
        command.env("TENTERHOOK_TEST_WEBHOOK", server.url(&format!("/{TOKEN}"))).output().expect("it runs");
    let ran = crate::tenter::Ran::from(output).succeeded();
    let (texts, statuses) = heard(&server);
    let [text] = &texts[..] else { panic!("{texts:?}") };
    assert!(text.starts_with("completed at 3: all epochs or steps are done, val/loss "), "{text}");
    assert!(!text.ends_with("n/a"), "{text}");
    assert_eq!(statuses, ["running", "completed"]);
    assert_eq!(dir.json("runs/latest/heartbeat.json")["status"], "completed");
    let told = dir.lines("runs/latest/told");
    assert_eq!(told[0]["event"], "on_train_end");
    assert_eq!((&told[0]["outcome"], &told[0]["step"]), (&"completed".into(), &3.into()));
    assert!(ran.stderr.contains("on_train_end is told"), "{}", ran.stderr);
    let sinks = dir.json("runs/latest/run.json")["sinks"].clone();
    let sent: Vec<_> =
        sinks.as_array().expect("a list").iter().map(|sink| (&sink["hook"], &sink["delivered"])).collect();
    // The command also ran at the teardown of training, and of the test after it.
    assert_eq!(
        sent,
        [(&"notify".into(), &1.into()), (&"heartbeat".into(), &2.into()), (&"exec".into(), &3.into())]
    );
    assert!(dir.read("runs/latest/config.toml").contains("TENTERHOOK_TEST_WEBHOOK"));
    kept_secret(&dir, &[&ran.stdout, &ran.stderr]);
}

#[test]
fn an_interrupt_is_reported_before_the_program_exits() {
    let (dir, server) = (TestDir::new(), Server::start(&[Answer::Status(503), Answer::Status(200)]));
    configured(&dir, "task = \"toy\"\n[trainer]\nmax_epochs = 100000000\n");
    let mut command = dir.command(&["train", "train.toml"]);
    command.env("TENTERHOOK_TEST_WEBHOOK", server.url(&format!("/{TOKEN}")));
    let mut run = RunningProgram::of(&mut command);
    run.wait_for("epoch 1/");
    run.signal("INT");
    let (code, said, printed) = run.ended();
    assert_eq!(code, Some(130), "{said}");
    let (texts, statuses) = heard(&server);
    let [text] = &texts[..] else { panic!("{texts:?}: {said}") };
    assert!(text.starts_with("interrupted at ") && text.contains(": SIGINT, val/loss "), "{text}");
    // The first heartbeat was rejected, and that was reported.
    assert_eq!(statuses, ["running", "interrupted"]);
    assert!(said.contains(
        "the heartbeat did not get to the address in `TENTERHOOK_TEST_WEBHOOK`: the server answered 503"
    ));
    let told = dir.lines("runs/latest/told");
    let ends: Vec<_> = told.iter().map(|told| (&told["event"], &told["signal"])).collect();
    assert_eq!(ends, [(&"on_train_end".into(), &"SIGINT".into()), (&"teardown".into(), &"SIGINT".into())]);
    kept_secret(&dir, &[&said, &printed]);
}
