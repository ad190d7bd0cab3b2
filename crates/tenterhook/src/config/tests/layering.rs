use tenterhook_core::OnError;

use super::*;

#[test]
fn every_layer_overrides_the_one_below() {
    let nothing = works("", &[], &[]);
    assert_eq!((nothing.task.as_str(), nothing.device.as_str()), ("lab", "cpu"));
    assert_eq!((nothing.trainer.max_epochs, nothing.trainer.max_steps), (Some(7), -1));
    let file = "device = \"gpu\"\n[trainer]\nmax_epochs = 1\nmax_steps = 1\nmin_epochs = 1\nseed = 1";
    let resolved = works(
        file,
        &[("TENTER__TRAINER__MAX_STEPS", "2"), ("TENTER__TRAINER__MIN_EPOCHS", "2"), ("HOME", "[")],
        &["trainer.min_epochs=3", "runs_dir=elsewhere"],
    );
    let trainer = &resolved.trainer;
    assert_eq!((trainer.log_every_n_steps, trainer.max_epochs), (5, Some(1)), "task, file");
    assert_eq!(
        (trainer.max_steps, trainer.min_epochs, trainer.seed),
        (2, Some(3), 1),
        "environment, set, file"
    );
    assert_eq!((resolved.device.as_str(), resolved.runs_dir.to_str()), ("gpu", Some("elsewhere")));
}

#[test]
fn a_table_of_another_kind_replaces_the_old_one() {
    let lr = |resolved: Config| resolved.options["optimizer"].clone();
    let kept = lr(works("[optimizer]\nlr = 0.5", &[], &[]));
    assert_eq!(kept.get("betas").and_then(|betas| betas.get(0)).and_then(toml::Value::as_float), Some(0.9));
    let sgd: toml::Value = toml::from_str("use = \"sgd\"\nlr = 0.5\nmomentum = 0.0").expect("TOML");
    assert_eq!(lr(works("[optimizer]\nuse = \"sgd\"\nlr = 0.5", &[], &[])), sgd);
    assert_eq!(lr(works("", &[], &["optimizer.lr=0.5", "optimizer.use=sgd"])), sgd, "in either order");
    assert_eq!(lr(works("", &[("TENTER__OPTIMIZER__USE", "sgd")], &["optimizer.lr=0.5"])), sgd);
    let wrong = error("[optimizer]\nuse = \"sgd\"", &[], &[]);
    assert!(
        wrong.contains("missing key `lr` in [optimizer]"),
        "the learning rate of Adam must not leak: {wrong}"
    );
}

#[test]
fn elements_are_set_by_number_by_name_and_by_use() {
    let file = "[[hooks]]\nuse = \"checkpoint\"\nname = \"best\"\n[[hooks]]\nuse = \"early_stopping\"\nmonitor = \"m\"";
    let sets = [
        "hooks.best.save_top_k=-1",
        "hooks.1.patience=9",
        "hooks.early_stopping.mode=max",
        "hooks.2.use=checkpoint",
    ];
    let resolved = works(file, &[("TENTER__HOOKS__EARLY_STOPPING__ON_ERROR", "warn")], &sets);
    assert_eq!(resolved.hooks[0].options["save_top_k"].as_integer(), Some(-1));
    assert_eq!(resolved.hooks[1].options["patience"].as_integer(), Some(9));
    assert_eq!(resolved.hooks[1].options["mode"].as_str(), Some("max"));
    assert_eq!(resolved.hooks[1].common.on_error, Some(OnError::Warn));
    assert_eq!(resolved.hooks[2].common.use_, "checkpoint");
    let fresh = works("hooks = []", &[], &["hooks.0.use=checkpoint"]);
    assert_eq!(fresh.hooks.len(), 1);
}

#[test]
fn the_value_of_set_is_toml_or_else_text() {
    let resolved =
        works("", &[], &["model.hidden=[8, 4]", "note=two words", "trainer.max_time=90 min", "device=\"x\""]);
    assert_eq!(resolved.options["model"]["hidden"].as_array().map(Vec::len), Some(2));
    assert_eq!(resolved.options["note"].as_str(), Some("two words"));
    assert_eq!(resolved.device, "x");
    assert_eq!(resolved.trainer.max_time, Some("00:01:30:00".parse().expect("a time")));
}

#[test]
fn a_list_of_hooks_replaces_the_tasks() {
    assert_eq!(works("", &[], &[]).hooks[0].common.use_, "early_stopping");
    assert_eq!(works("[[hooks]]\nuse = \"checkpoint\"", &[], &[]).hooks[0].common.use_, "checkpoint");
    assert!(works("hooks = []", &[], &[]).hooks.is_empty());
}

#[test]
fn another_task_brings_its_own_defaults_and_keys() {
    let toy = works("task = \"toy\"\n[optimizer]\nlr = 0.2", &[], &[]);
    assert_eq!((toy.trainer.max_epochs, toy.hooks.len()), (Some(30), 0));
    assert_eq!(works("", &[("TENTER__TASK", "toy")], &[]).task, "toy");
    assert_eq!(works("task = \"toy\"", &[], &["task=lab"]).trainer.max_epochs, Some(7));
}

#[test]
fn trainer_and_program_are_built_and_run() {
    let registry = Registry::default();
    let resolved = works(
        "task = \"toy\"\n[trainer]\nmax_epochs = 2\n[data]\ntrain = [3]\npredict = [1]\n\
         [[hooks]]\nuse = \"early_stopping\"\nname = \"stop\"\nmonitor = \"val/loss\"\nenabled = false",
        &[],
        &[],
    );
    let mut trainer = resolved.bare_trainer(&registry).expect("a trainer");
    let (tasks, hooks) = (tasks(), trainer.list_hooks());
    assert_eq!((hooks[0].name.as_str(), hooks[0].enabled), ("stop", false));
    let mut program = resolved.program(&tasks, &registry).expect("a program");
    assert!(program.plan_errors(&mut trainer).expect("a plan").is_empty());
    let report = program.fit(&mut trainer).expect("it trains");
    assert_eq!(report.progress.step, 6);
    assert!(program.validate(&mut trainer).expect("it validates").metrics.contains_key("val/loss"));
    assert!(program.test(&mut trainer).expect("it tests").metrics.contains_key("test/loss"));
    let (_, predictions) = program.predict(&mut trainer).expect("it predicts");
    assert_eq!(predictions.len(), 4);
    assert!(predictions[0]["y"].is_number(), "{predictions:?}");
}

#[test]
fn a_second_hook_of_a_kind_is_numbered() {
    let resolved = works("[[hooks]]\nuse = \"checkpoint\"\n[[hooks]]\nuse = \"checkpoint\"", &[], &[]);
    let trainer = resolved.bare_trainer(&Registry::default()).expect("it works");
    let names: Vec<_> = trainer.list_hooks().into_iter().map(|hook| hook.name).collect();
    assert_eq!(names, ["checkpoint", "checkpoint_2", "identity"]);
}

#[test]
fn a_file_without_a_task_is_read_too() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("simple.toml");
    std::fs::write(&path, "[trainer]\nmax_epochs = 2\n[[hooks]]\nuse = \"checkpoint\"").expect("it writes");
    let config = Config::read(&path).expect("it reads");
    assert_eq!(config.bare_trainer(&Registry::default()).expect("it works").list_hooks().len(), 2);
    std::fs::write(&path, "[trainr]\nmax_epochs = 2").expect("it writes");
    let error = Config::read(&path).expect_err("a wrong key").to_string();
    assert!(error.contains("did you mean `trainer`?"), "{error}");
}
