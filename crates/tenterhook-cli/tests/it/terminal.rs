//! Untrusted text cannot control or flood the terminal.

use tenterhook::printable::is_harmful;

use crate::tenter::{Ran, TestDir};

/// Sets a colour, clears the screen, changes the text direction, and moves the cursor.
const ORDERS: &str = "\u{1b}[31m\u{9b}2J\u{202e}\r\u{8}";

/// Checks that the output contains a text, no control characters, and is short.
#[track_caller]
fn is_harmless(ran: &Ran, shown: &str) {
    for text in [&ran.stdout, &ran.stderr] {
        assert!(!text.chars().any(|c| is_harmful(c) && !matches!(c, '\n' | '\t')), "{text:?}");
        assert!(text.len() < 20_000, "{} bytes", text.len());
    }
    let all = format!("{}{}", ran.stdout, ran.stderr);
    assert!(all.contains(shown), "no `{shown}` in:\n{all}");
}

#[test]
fn texts_from_files_and_commands_are_escaped_and_shortened() {
    let dir = TestDir::new();
    let many = "9".repeat(3_000_000);
    for (config, shown) in [
        (format!("x = {ORDERS}{many}\n"), "c.toml:1:"),
        (format!("\"a\\u001b[2J\\u202e{many}\" = 1\n"), "unknown key `a\\u{1b}[2J"),
        (format!("[model]\nhidden = \"\\u001b[31m{many}\"\n"), "c.toml:2:"),
        (format!("task = \"{}\"\n", "x".repeat(3_000_000)), "there is no task named `xxx"),
        (format!("[[hooks]]\nuse = \"exec\"\ncommand = [\"x\"]\n{}", "y = 1\n".repeat(3)), "c.toml:"),
    ] {
        dir.write("c.toml", config);
        let ran = dir.run(&["train", "c.toml"]);
        ran.refused(&[]);
        is_harmless(&ran, shown);
    }
    dir.write("c.toml", "[data]\npath = \"d.csv\"\n");
    dir.write("d.csv", format!("1,2,0\n{ORDERS}{many},2,0\n"));
    is_harmless(&dir.run(&["train", "c.toml"]), "line 2");
    is_harmless(&dir.run(&["show", "--dir", &format!("{ORDERS}x")]), "\\u{1b}[31m");
    is_harmless(&dir.run(&["train", &format!("--{ORDERS}")]), "\\u{202e}");
}

#[test]
fn names_in_a_foreign_run_and_outputs_of_commands_are_escaped() {
    let dir = TestDir::new();
    let exec =
        "[[hooks]]\nuse = \"exec\"\non = [\"on_train_end\"]\ncommand = [\"printf\", \"\\\\033[31mred\"]\n";
    dir.write("c.toml", format!("task = \"toy\"\n[trainer]\nmax_epochs = 2\n{exec}"));
    let ran = dir.run(&["train", "c.toml"]).succeeded();
    is_harmless(&ran, "\\u{1b}[31mred");
    let run = std::fs::read_dir(dir.path().join("runs")).expect("runs").flatten();
    let run = run.map(|entry| entry.path()).find(|path| !path.is_symlink()).expect("a run");
    let foreign = dir.path().join("runs").join(format!("evil{ORDERS}"));
    std::fs::rename(run, &foreign).expect("it is renamed");
    for file in ["metrics.jsonl", "run.json", "events.jsonl"] {
        let text = std::fs::read_to_string(foreign.join(file)).expect("it is read");
        let name = "val/loss\\u001b[2J\\u202e\\u009b";
        std::fs::write(foreign.join(file), text.replace("val/loss", name)).expect("it is written");
    }
    for (arguments, shown) in [
        (&["runs"][..], "evil"),
        (&["show", "evil"], "val/loss\\u{1b}[2J"),
        (&["show", "evil", "--json"], "val/loss\\u001b[2J\\u202e\\u009b"),
        (&["compare", "evil", "evil", "--all"], "val/loss\\u{1b}[2J"),
    ] {
        is_harmless(&dir.run(arguments).succeeded(), shown);
    }
    std::fs::write(foreign.join("run.json"), "{").expect("it is damaged");
    is_harmless(&dir.run(&["runs"]), "evil");
}
