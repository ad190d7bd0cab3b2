//! Excessive sizes are refused before anything is allocated, with their key and a fix.

use crate::tenter::TestDir;

const MOST: &str = "9223372036854775807";

#[test]
fn sizes_beyond_any_machine_are_refused_with_their_key() {
    let dir = TestDir::new();
    dir.write("digits.toml", "task = \"digits\"\n");
    dir.write("text.toml", "task = \"text\"\n");
    for (file, key, size) in [
        ("digits.toml", "model.hidden", MOST),
        ("digits.toml", "model.hidden", "100000000000"),
        ("digits.toml", "model.channels", "[9223372036854775807, 9223372036854775807]"),
        ("digits.toml", "loader.threads", MOST),
        ("text.toml", "model.layers", MOST),
        ("text.toml", "model.layers", "10000001"),
        ("text.toml", "model.width", "9223372036854775804"),
        ("text.toml", "model.context", MOST),
        ("text.toml", "generate.count", MOST),
        ("text.toml", "generate.bytes", MOST),
    ] {
        let set = format!("{key}={size}");
        dir.run(&["plan", file, "--set", &set]).refused(&[&set]);
    }
    let one = ["plan", "digits.toml", "--set", "model.hidden=100000000000"];
    dir.run(&one).refused(&["of memory", "this machine has", "`allow_large = true` in [trainer]"]);
    // With `allow_large`, only sizes beyond any machine are refused.
    let set = format!("model.hidden={MOST}");
    dir.run(&["plan", "digits.toml", "--set", &set, "--set", "trainer.allow_large=true"])
        .refused(&["of memory"]);
}

#[test]
fn large_numbers_that_allocate_nothing_are_no_problem() {
    let dir = TestDir::new();
    dir.write("digits.toml", "task = \"digits\"\n");
    for key in ["loader.batch_size", "loader.prefetch", "trainer.log_every_n_steps", "trainer.max_epochs"] {
        let set = format!("{key}={MOST}");
        let quick = ["train", "digits.toml", "--set", "trainer.fast_dev_run=true", "--quiet", "--set", &set];
        dir.run(&quick).succeeded();
    }
}

/// Hooks whose examples contact servers or run programs.
const REACHING_OUT: [&str; 4] = ["exec", "heartbeat", "notify", "upload"];

#[test]
fn no_numeric_option_of_a_hook_causes_a_panic() {
    let dir = TestDir::new();
    let listed = dir.run(&["hooks", "--json"]).succeeded();
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).expect("JSON");
    let mut tried = 0;
    for hook in listed["hooks"].as_array().expect("a list") {
        let (name, example) =
            (hook["name"].as_str().expect("a name"), hook["example"].as_str().expect("an example"));
        let options = hook["options"].as_array().expect("a list").iter();
        let numbers = options
            .filter(|option| option["kind"].as_str().is_some_and(|kind| kind.contains("whole number")));
        for number in numbers.filter_map(|option| option["key"].as_str()) {
            let others = example.lines().filter(|line| line.split(" = ").next() != Some(number));
            let others = others.collect::<Vec<_>>().join("\n");
            let config = format!("task = \"toy\"\n[trainer]\nmax_epochs = 1\n{others}\n{number} = {MOST}\n");
            dir.write("c.toml", &config);
            let command = if REACHING_OUT.contains(&name) { "plan" } else { "train" };
            let ran = dir.run(&[command, "c.toml"]);
            assert!(ran.code == 0 || ran.code == 2, "{config}\n{}\n{}", ran.code, ran.stderr);
            assert!(!ran.stderr.contains("panicked"), "{config}\n{}", ran.stderr);
            tried += 1;
        }
    }
    assert!(tried > 20, "{tried}");
}
