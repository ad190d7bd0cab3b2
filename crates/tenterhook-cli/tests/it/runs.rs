//! `tenter runs`, `show` and `compare`.

use serde_json::{Value, json};

use crate::tenter::{Ran, TestDir};

/// Trains the toy for three epochs, and returns the id of the run.
fn train(dir: &TestDir, more: &[&str]) -> String {
    let few = ["train", "--json", "--set", "task=toy", "--set", "trainer.max_epochs=3"];
    let summary = dir.run(&[&few, more].concat()).succeeded().stdout;
    let summary: Value = serde_json::from_str(&summary).expect("one line of JSON");
    summary["run"].as_str().expect("an id").to_owned()
}

fn document(ran: Ran) -> Value {
    serde_json::from_str(&ran.succeeded().stdout).expect("one JSON document")
}

/// The ids that `tenter runs --json` lists.
fn listed(dir: &TestDir, more: &[&str]) -> Vec<String> {
    let all = document(dir.run(&[&["runs", "--json"], more].concat()));
    let ids = all["runs"].as_array().expect("a list").iter();
    ids.map(|run| run["id"].as_str().expect("an id").to_owned()).collect()
}

#[test]
fn runs_are_listed_filtered_and_sorted() {
    let dir = TestDir::new();
    let good = train(&dir, &[]);
    let slow = train(&dir, &["--set", "optimizer.lr=0.01", "--set", "trainer.seed=3"]);
    let wild = train(&dir, &["--set", "optimizer.lr=1000.0"]);
    assert_eq!(document(dir.run(&["show", "--json"]))["run"]["metrics"]["val/loss"], "nan");
    let summary = dir.run(&["train", "--json", "--set", "task=toy", "--set", "optimizer.lr=1000.0"]);
    assert_eq!(document(summary)["metrics"]["val/loss"], "nan", "the spelling is the same everywhere");
    let last = std::fs::canonicalize(dir.path().join("runs/latest")).expect("a run");
    std::fs::remove_dir_all(last).expect("it is there");
    let all = |more: &[&str]| listed(&dir, more);
    assert_eq!(all(&[]), [&*wild, &slow, &good], "newest first");
    assert_eq!(all(&["--reverse"]), [&*good, &slow, &wild]);
    assert_eq!(all(&["--sort", "val/loss"]), [&*good, &slow, &wild], "NaN comes last");
    assert_eq!(all(&["--sort", "val/loss", "--reverse"]), [&*slow, &good, &wild]);
    assert_eq!(all(&["--sort", "optimizer.lr", "--limit", "1"]), [&*slow]);
    assert_eq!(all(&["--sort", "seed", "--reverse", "--limit", "1"]), [&*slow]);
    assert_eq!(all(&["--filter", "optimizer.lr == 0.01"]), [&*slow]);
    assert_eq!(all(&["--filter", "status == completed", "--filter", "val/loss < 100"]), [&*slow, &good]);
    assert_eq!(all(&["--filter", "seed > 100"]), [""; 0]);

    let table = dir.run(&["runs"]).succeeded().stdout;
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines.len(), 4, "{table}");
    for column in ["when (UTC)", "status", "task", "epochs", "steps", "time", "val/loss", "test/loss"] {
        assert!(lines[0].contains(column), "{table}");
    }
    assert!(
        lines[1].contains("completed") && lines[1].contains("toy") && lines[1].contains("NaN"),
        "{table}"
    );
    let short = lines[3].split(' ').next().expect("a name");
    assert!(short.len() < good.len() && good.ends_with(short), "{table}");
    assert_eq!(document(dir.run(&["show", short, "--json"]))["run"]["id"], json!(good));
    let sorted = dir.run(&["runs", "--sort", "optimizer.lr", "--limit", "2"]).succeeded().stdout;
    assert!(sorted.lines().next().is_some_and(|head| head.ends_with("  optimizer.lr")), "{sorted}");
    assert!(sorted.ends_with("2 of 3 runs in runs\n"), "{sorted}");
}

#[test]
fn a_run_is_shown_with_its_curves() {
    let dir = TestDir::new();
    let hooks = "[[hooks]]\nuse = \"early_stopping\"\nname = \"stop\"\nmonitor = \"val/loss\"\nstopping_threshold = 100.0\n\
                 [[hooks]]\nuse = \"checkpoint\"\nsave_last = \"link\"\n";
    dir.write(
        "c.toml",
        format!("task = \"toy\"\n[trainer]\nmax_epochs = 9\nmin_epochs = 3\nseed = 7\n{hooks}"),
    );
    dir.run(&["train", "c.toml", "--quiet"]).succeeded();
    let shown = dir.run(&["show"]).succeeded().stdout;
    for hint in [
        "outcome      stopped by `stop`: ",
        "done         3 epochs, 24 steps",
        "task         toy",
        "seed         7",
        "commit       ",
        "config hash  ",
        "tenterhook 0.1.0",
        "train c.toml --quiet",
        "  stop             controller  enabled  on_error = \"abort\"",
        "checkpoints/last                      link to epoch=2-step=24",
        "step 8: `stop` in on_train_epoch_end: stop: ",
        "  ⠒ train/loss  ",
        "  × val/loss    ",
        "└───",
    ] {
        assert!(shown.contains(hint), "no `{hint}` in:\n{shown}");
    }
    assert!(!shown.contains('\x1b'), "no colours for a file");
    for ascii in [
        dir.run(&["show", "--ascii"]).succeeded().stdout,
        dir.command(&["show"]).env("TERM", "dumb").output().map(Ran::from).expect("it runs").stdout,
    ] {
        assert!(
            ascii.is_ascii() && ascii.contains("  * train/loss") && ascii.contains("  o val/loss"),
            "{ascii}"
        );
    }
    let small =
        dir.run(&["show", "--metric", "val/loss", "--width", "40", "--height", "4"]).succeeded().stdout;
    let chart: Vec<_> = small.lines().skip_while(|line| *line != "loss").skip(1).collect();
    assert_eq!(chart.len(), 4 + 2 + 1, "{small}");
    assert!(chart[4].contains('└') && chart[4].chars().count() == 40, "{small}");

    let document = document(dir.run(&["show", "latest", "--json", "--metric", "val/loss"]));
    assert_eq!(document["run"]["status"], "stopped");
    let curves = document["curves"].as_object().expect("curves");
    assert_eq!(curves.keys().collect::<Vec<_>>(), ["val/loss"]);
    assert_eq!(document["curves"]["val/loss"]["step"], json!([8, 16, 24]));
    assert!(document["checkpoints"].as_array().is_some_and(|all| !all.is_empty()), "{document}");
    assert_eq!(document["decisions"][0]["by"], "stop", "{document}");
}

#[test]
fn runs_are_compared_in_configuration_and_result() {
    let dir = TestDir::new();
    let hook = |patience: u32, first: &str, second: &str| {
        let stop = format!(
            "[[hooks]]\nuse = \"early_stopping\"\nname = \"stop\"\nmonitor = \"val/loss\"\npatience = {patience}\n"
        );
        let hooks = [stop.as_str(), "[[hooks]]\nuse = \"checkpoint\"\n"];
        let order = |which: &str| if which == "stop" { hooks[0] } else { hooks[1] };
        format!("task = \"toy\"\n[trainer]\nmax_epochs = 2\n{}{}", order(first), order(second))
    };
    dir.write("a.toml", hook(5, "stop", "checkpoint"));
    dir.write("b.toml", hook(6, "checkpoint", "stop"));
    for config in ["a.toml", "a.toml", "b.toml"] {
        dir.run(&["train", config, "--quiet"]).succeeded();
    }
    let equal = dir.run(&["compare", "latest~1", "latest~2"]).succeeded().stdout;
    assert!(equal.contains("config: equal hashes"), "{equal}");
    let metrics = equal.split("metrics, with the difference").nth(1).expect("a section");
    assert!(metrics.contains("no differences"), "the same seed gives the same bits: {equal}");

    let other = dir.run(&["compare", "latest~2", "latest"]).succeeded().stdout;
    assert!(other.contains("config: different hashes"), "{other}");
    let row = other.lines().find(|line| line.contains("hooks.stop.patience")).expect("the key differs");
    assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["hooks.stop.patience", "5", "6"]);
    assert!(!other.contains("hooks.checkpoint"), "hooks are compared by name: {other}");
    let order = other.lines().find(|line| line.contains("hooks (order)")).expect("the order differs");
    assert!(order.contains("stop, checkpoint") && order.contains("checkpoint, stop"), "{other}");
    assert!(!equal.contains("hooks (order)"), "{equal}");
    let all = dir.run(&["compare", "latest~2", "latest", "--all"]).succeeded().stdout;
    assert!(all.contains("hooks.checkpoint.use") && all.contains("trainer.max_epochs"), "{all}");

    train(&dir, &["--set", "optimizer.lr=0.02"]);
    let document = document(dir.run(&["compare", "latest~3", "latest", "latest~2", "--json"]));
    assert_eq!(document["runs"].as_array().map(Vec::len), Some(3));
    assert_eq!(document["same_config_hash"], false);
    assert_eq!(document["config"]["optimizer.lr"], json!([0.1, 0.02, 0.1]));
    assert_eq!(document["config"]["hooks.stop.patience"], json!([5, null, 5]));
    assert_eq!(document["result"]["epochs"], json!([2, 3, 2]));
    let loss = &document["metrics"]["val/loss"];
    let number = |list: &str, run: usize| loss[list][run].as_f64().expect("a number");
    let difference = number("values", 1) - number("values", 0);
    assert!((number("differences", 1) - difference).abs() < 1e-12 && difference != 0.0, "{document}");
}

#[test]
fn a_killed_run_is_shown_as_far_as_it_was_written() {
    let dir = TestDir::new();
    let id = train(&dir, &[]);
    let run = dir.path().join("runs").join(&id);
    let mut record = dir.json("runs/latest/run.json");
    for key in ["status", "ended", "seconds", "steps", "epochs", "metrics"] {
        record.as_object_mut().expect("an object").remove(key);
    }
    record["status"] = json!("running");
    std::fs::write(run.join("run.json"), record.to_string()).expect("it is written");
    let metrics = dir.read("runs/latest/metrics.jsonl");
    std::fs::write(run.join("metrics.jsonl"), &metrics[..metrics.len() * 2 / 3]).expect("it is written");
    std::fs::remove_file(run.join("events.jsonl")).expect("it was there");
    let shown = dir.run(&["show"]).succeeded();
    assert!(
        shown.stdout.contains("killed: its process is gone") && shown.stdout.contains("train/loss"),
        "{}",
        shown.stdout
    );
    assert_eq!(shown.stderr, "", "an incomplete line is not an error");
    let listed = document(dir.run(&["runs", "--json", "--filter", "status == killed and steps > 0"]));
    assert_eq!(listed["runs"][0]["status"], "killed");
    assert_eq!(dir.json("runs/latest/run.json")["status"], "running", "the file is unchanged");
    assert!(listed["runs"][0]["metrics"]["val/loss"].is_number(), "{listed}");
}

#[test]
fn a_damaged_run_is_reported_and_does_not_hide_others() {
    let dir = TestDir::new();
    let id = train(&dir, &[]);
    for (name, text) in [("broken", "{\"format\":1,"), ("newer", "{\"format\":99}")] {
        std::fs::create_dir(dir.path().join("runs").join(name)).expect("it is made");
        dir.write(&format!("runs/{name}/run.json"), text);
    }
    let listed = dir.run(&["runs"]).succeeded();
    assert_eq!(listed.stdout.lines().count(), 2, "{}", listed.stdout);
    for hint in ["runs/broken/run.json is damaged", "runs/newer/run.json is of format 99"] {
        assert!(listed.stderr.contains(hint), "{}", listed.stderr);
    }
    dir.run(&["show", "broken"]).refused(&["runs/broken/run.json is damaged"]);
    dir.run(&["show", "runs/newer"]).refused(&["format 99", "use a newer one"]);
    dir.run(&["compare", "latest", "newer"]).refused(&["format 99"]);
    dir.write(&format!("runs/{id}/config.toml"), "= 1");
    dir.run(&["train", "--quiet", "--set", "task=toy"]).succeeded();
    let other = dir.json("runs/latest/run.json")["id"].as_str().expect("an id").to_owned();
    let compared = dir.run(&["compare", &id, &other]).succeeded();
    assert!(compared.stderr.contains("config.toml is damaged"), "{}", compared.stderr);
    assert!(compared.stdout.contains("trainer.max_epochs"), "{}", compared.stdout);
    assert!(!compared.stdout.contains("progress"), "what only shows is no result: {}", compared.stdout);
    std::fs::remove_file(dir.path().join("runs").join(&other).join("config.toml")).expect("it was there");
    let compared = dir.run(&["compare", &id, &other]).succeeded();
    assert!(compared.stderr.contains("there is no runs/"), "{}", compared.stderr);
    let listed = dir.run(&["runs"]).succeeded();
    assert!(listed.stderr.contains("config.toml is damaged"), "{}", listed.stderr);
}

#[test]
fn invalid_arguments_get_clear_errors() {
    let dir = TestDir::new();
    for command in [&["runs"][..], &["show"], &["compare", "latest", "latest~1"]] {
        dir.run(command).refused(&["there is no directory runs", "--dir"]);
    }
    std::fs::create_dir(dir.path().join("runs")).expect("it is made");
    dir.run(&["runs"]).refused(&["there are no runs in runs"]);
    assert_eq!(listed(&dir, &["--filter", "val/loss < 1"]), [""; 0], "an empty list is not an error in JSON");
    dir.run(&["show"]).refused(&["there are no runs in runs"]);
    let id = train(&dir, &[]);
    dir.run(&["runs", "--sort", "val/los"]).refused(&["--sort val/los", "did you mean `val/loss`?"]);
    dir.run(&["runs", "--filter", "optimiser.lr > 0"]).refused(&["did you mean `optimizer.lr`?"]);
    dir.run(&["runs", "--filter", "val/loss <"]).refused(&["`val/loss <`", "at its end"]);
    dir.run(&["runs", "--filter", "zzz == 1"]).refused(&["fields: ", "val/loss"]);
    for filter in ["status == 3", "val/loss < low", "config_hash == 12"] {
        dir.run(&["runs", "--filter", filter]).refused(&[filter, "compares a number with text"]);
    }
    let run = document(dir.run(&["show", "--json"]));
    let hash = run["run"]["config_hash"].as_str().expect("a hash");
    let begins = format!("config_hash == {}", &hash[..16]);
    assert_eq!(listed(&dir, &["--filter", &begins]), [&*id], "{begins}");
    assert_eq!(listed(&dir, &["--filter", "config_hash == blake3:none"]), [""; 0]);
    dir.run(&["show", "zzz"]).refused(&["no run is called `zzz`", &id]);
    dir.run(&["show", "./runs"]).refused(&["./runs is not a tenterhook run"]);
    dir.run(&["show", "latest~1"]).refused(&["`latest~1`", &id]);
    dir.run(&["show", "--metric", "val/los"]).refused(&["`val/los`", "did you mean `val/loss`?"]);
    dir.run(&["show", "--width", "3"]).refused(&["--width"]);
    dir.run(&["compare", "latest"]).refused(&["RUN"]);
    std::fs::write(dir.path().join("runs/latest/metrics.jsonl"), "").expect("it is written");
    dir.run(&["show", "--metric", "val/loss"]).refused(&["no metrics were logged"]);
    assert!(dir.run(&["show"]).succeeded().stdout.contains("no metrics were logged"));
}

#[test]
fn a_closed_pipe_is_not_a_failure() {
    let dir = TestDir::new();
    train(&dir, &[]);
    for command in [&["runs"][..], &["show"], &["show", "--json"], &["compare", "latest", "latest", "--all"]]
    {
        let mut child = dir.command(command).spawn().expect("it starts");
        drop(child.stdout.take());
        let ran = Ran::from(child.wait_with_output().expect("it ends"));
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{command:?}");
    }
}

#[test]
fn a_damaged_or_missing_latest_run_is_reported() {
    let dir = TestDir::new();
    let first = train(&dir, &[]);
    let second = train(&dir, &[]);
    let record = format!("runs/{second}/run.json");
    dir.write(&record, "{\"format\":99}");
    dir.run(&["show"]).refused(&[&record, "format 99"]);
    dir.run(&["compare", &first, "latest"]).refused(&["format 99"]);
    std::fs::remove_dir_all(dir.path().join("runs").join(&second)).expect("it was there");
    let shown = dir.run(&["show"]).succeeded();
    assert!(shown.stdout.contains(&first), "{}", shown.stdout);
    assert!(shown.stderr.contains("which does not exist; using the newest run"), "{}", shown.stderr);
}

#[test]
#[cfg(target_os = "linux")]
fn output_that_cannot_be_written_is_a_failure() {
    let dir = TestDir::new();
    train(&dir, &[]);
    for command in [&["runs"][..], &["show"], &["compare", "latest", "latest"], &["hooks"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("it opens");
        let ran = Ran::from(dir.command(command).stdout(full).output().expect("it runs"));
        assert_eq!(ran.code, 1, "{command:?}: {}", ran.stderr);
        assert_eq!(ran.stderr.matches("cannot write to standard output").count(), 1, "{}", ran.stderr);
    }
}
