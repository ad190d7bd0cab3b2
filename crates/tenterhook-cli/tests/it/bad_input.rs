//! Invalid input: a clear error, exit code 2, no panic, no files.

use crate::tenter::TestDir;

/// Trains with this configuration and these files, and expects an error with all of these texts.
#[track_caller]
fn refuses(config: &str, files: &[(&str, &[u8])], hints: &[&str]) {
    let dir = TestDir::new();
    for (name, bytes) in files {
        dir.write(name, bytes);
    }
    dir.write("c.toml", config);
    dir.run(&["train", "c.toml"]).refused(hints);
    assert!(!dir.path().join("runs").exists(), "a run directory was created");
}

#[test]
fn wrong_keys_types_and_values_are_all_named_at_once_with_their_lines() {
    refuses(
        "[trainer]\nmax_epoch = 3\nseed = \"x\"\naccumulate_grad_batches = 0\n[model]\ndropout = 2.0\n[modle]\n",
        &[],
        &["c.toml:2:1", "did you mean `max_epochs`?", "c.toml:3:", "c.toml:4:", "did you mean `model`?"],
    );
    refuses("[model]\ndropout = 2.0\n", &[], &["c.toml:2:", "dropout", "below 1"]);
    refuses("[optimizer]\nlr = -1.0\nmomentum = 0.9\n", &[], &["c.toml:2:", "c.toml:3:", "sgd"]);
    refuses("[[schedulers]]\nuse = \"cosin\"\n", &[], &["cosine"]);
    refuses("device = \"cuda\"\n", &[], &["c.toml:1:", "--features cuda", "cpu"]);
    refuses("task = \"digit\"\n", &[], &["c.toml:1:", "digits"]);
    refuses("[trainer\n", &[], &["c.toml:1"]);
}

#[test]
fn wrong_hooks_are_named_with_their_lines() {
    refuses("[[hooks]]\nuse = \"early_stoping\"\n", &[], &["c.toml:2:", "did you mean `early_stopping`?"]);
    refuses(
        "[[hooks]]\nuse = \"checkpoint\"\nname = \"a\"\n[[hooks]]\nuse = \"early_stopping\"\nname = \"a\"\nmonitor = \"val/loss\"\n",
        &[],
        &["c.toml:6:", "`a`"],
    );
    refuses(
        "[[hooks]]\nuse = \"early_stopping\"\nmonitor = \"val/los\"\n",
        &[],
        &["c.toml:3:", "val/los", "val/loss"],
    );
}

#[test]
fn missing_and_broken_data_name_the_file_and_the_fix() {
    refuses("[data]\npath = \"no.csv\"\n", &[], &["c.toml:2:", "no.csv"]);
    refuses(
        "[data]\npath = \"r.csv\"\n",
        &[("r.csv", b"1,2,3,4,0\n1,2,3,1\n")],
        &["c.toml:2:", "r.csv", "line 2"],
    );
    refuses("[data]\npath = \"e.csv\"\n", &[("e.csv", b"")], &["c.toml:2:", "e.csv", "empty"]);
    let mut images = vec![0, 0, 8, 3];
    for size in [10_u32, 4, 4] {
        images.extend(size.to_be_bytes());
    }
    images.extend([7; 100]);
    let mut labels = vec![0, 0, 8, 1];
    labels.extend(10_u32.to_be_bytes());
    labels.extend([0, 1, 0, 1, 0, 1, 0, 1, 0, 1]);
    refuses(
        "[data]\npath = \"x-images-idx3-ubyte\"\n",
        &[("x-images-idx3-ubyte", &images), ("x-labels-idx1-ubyte", &labels)],
        &["c.toml:2:", "x-images-idx3-ubyte", "bytes"],
    );
    refuses(
        "task = \"text\"\n[data]\npath = \"t.txt\"\n",
        &[("t.txt", b"short")],
        &["c.toml:3:", "t.txt", "5"],
    );
    refuses("task = \"text\"\n[data]\npath = \"no.txt\"\n", &[], &["c.toml:3:", "no.txt"]);
}

#[test]
fn a_missing_configuration_and_wrong_settings_on_the_command_line_are_refused() {
    let dir = TestDir::new();
    dir.run(&["train", "no.toml"]).refused(&["no.toml"]);
    dir.run(&["train", "--set", "trainer.max_epochs"]).refused(&["trainer.max_epochs", "="]);
    dir.run(&["train", "--set", "trainer.max_epochs=many"]).refused(&["--set trainer.max_epochs=many"]);
    dir.run(&["trian"]).refused(&["train"]);
    let mut command = dir.command(&["train"]);
    command.env("TENTER__TRAINER__MAX_EPOCHS", "x");
    let ran: crate::tenter::Ran = command.output().expect("it runs").into();
    ran.refused(&["TENTER__TRAINER__MAX_EPOCHS"]);
    assert!(!dir.path().join("runs").exists());
}
