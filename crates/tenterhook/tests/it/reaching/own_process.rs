//! A child process with the webhook's address in its environment: the address is never printed or written,
//! even after errors.

use std::path::Path;
use std::process::Command;

use tenterhook::config::Sources;
use tenterhook::registry::Registry;
use tenterhook::run::RunDirectoryOptions;
use tenterhook::task::AnyTask;
use tenterhook::toy::ToyTask;

use super::{TOKEN, secrets};
use crate::loopback::{Answer, Server};

const CHILD: &str = "TENTERHOOK_REACHING_CHILD";

/// The child process: trains by the configuration in the directory of the environment variable.
#[test]
fn in_the_process() {
    let Ok(root) = std::env::var(CHILD) else { return };
    let tasks: Vec<Box<dyn AnyTask>> = vec![Box::new(ToyTask)];
    let registry = Registry::default();
    let resolved = match Sources::file(Path::new(&root).join("train.toml")).resolve(&tasks, &registry) {
        Ok(resolved) => resolved,
        Err(error) => return println!("refused: {error} {error:?}"),
    };
    let config = resolved.to_toml();
    let plan = RunDirectoryOptions { config, ..RunDirectoryOptions::in_dir(&resolved.runs_dir) };
    let mut trainer = resolved.bare_trainer(&registry).unwrap().with_run_directory(plan);
    let mut program = resolved.program(&tasks, &registry).unwrap();
    match program.fit(&mut trainer) {
        Ok(report) => println!("ended: {report:?}\n{:?}", trainer.list_hooks()),
        Err(error) => println!("failed: {error} {error:?}"),
    }
}

/// Everything that the process printed.
fn process(root: &Path, hooks: &str, webhook: Option<&str>) -> String {
    let runs = root.join("runs");
    let text = format!(
        "task = \"toy\"\nruns_dir = \"{}\"\n[trainer]\nmax_epochs = 2\n[data]\ntrain = [4]\nvalidate = [1]\n{hooks}",
        runs.display()
    );
    std::fs::write(root.join("train.toml"), text).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "reaching::own_process::in_the_process", "--nocapture"]);
    command
        .env(CHILD, root)
        .env("XDG_CONFIG_HOME", root.join("home"))
        .env("RUST_BACKTRACE", "1")
        .env_remove("WEBHOOK");
    command.envs(webhook.map(|url| ("WEBHOOK", url)));
    let output = command.output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    assert!(output.status.success(), "{printed}");
    printed
}

const HOOKS: &str = r#"
[[hooks]]
use = "notify"
url_env = "WEBHOOK"
timeout = "1 s"
retries = 0
flush_timeout = "5 s"
[[hooks]]
use = "heartbeat"
url_env = "WEBHOOK"
timeout = "1 s"
flush_timeout = "10 s"
"#;

#[test]
fn the_address_comes_from_the_environment_and_is_never_shown() {
    let url = |server: &Server| server.url(&format!("/services/{TOKEN}"));
    let good = Server::start(&[Answer::Status(200)]);
    let bad = Server::start(&[Answer::Status(403)]);
    let aborting =
        HOOKS.replace("timeout = \"1 s\"\nretries", "on_error = \"abort\"\ntimeout = \"1 s\"\nretries");
    for (hooks, webhook, said) in [
        (HOOKS, url(&good), "ended:"),
        (HOOKS, url(&bad), "the server answered 403"),
        (HOOKS, Server::nobody(TOKEN), "the connection was refused"),
        (HOOKS, format!("http://no-such-host.invalid/{TOKEN}"), "did not get to the address in `WEBHOOK`"),
        (&aborting, url(&bad), "failed: hook `notify` failed"),
        (HOOKS, format!("htp:/{TOKEN}"), "the environment variable `WEBHOOK` holds no valid address"),
        (&aborting, format!("htp:/{TOKEN}"), "failed: hook `notify` failed in setup"),
    ] {
        let root = tempfile::tempdir().unwrap();
        let printed = process(root.path(), hooks, Some(&webhook));
        assert!(printed.contains(said), "{said}: {printed}");
        assert!(!printed.contains(TOKEN), "{printed}");
        if root.path().join("runs").exists() {
            secrets::not_below(root.path());
        }
    }
    assert_eq!(good.received().len(), 3, "the end, and the first and last word of the heart");
}

#[test]
fn an_unset_variable_is_reported_with_a_fix_and_training_continues() {
    let root = tempfile::tempdir().unwrap();
    let printed = process(root.path(), HOOKS, None);
    for hook in ["notify", "heartbeat"] {
        let said = format!(
            "hook `{hook}` failed in setup (epoch 1, step 0): the environment variable `WEBHOOK` is not set"
        );
        assert!(printed.contains(&said), "{printed}");
    }
    assert!(printed.contains("export WEBHOOK=https://…") && printed.contains("ended:"), "{printed}");
}

#[test]
fn an_address_in_the_place_of_the_variable_is_refused_and_not_repeated() {
    let root = tempfile::tempdir().unwrap();
    let hooks = HOOKS.replace("\"WEBHOOK\"", &format!("\"https://hooks.example/{TOKEN}\""));
    let printed = process(root.path(), &hooks, None);
    assert!(
        printed.contains("refused: ")
            && printed.contains("`url_env` must be the name of an environment variable")
    );
    assert!(!printed.contains(TOKEN), "{printed}");
}
