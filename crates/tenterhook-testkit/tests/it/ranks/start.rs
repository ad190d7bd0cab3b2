//! Decisions and checks across ranks at the start of a call.

use std::path::Path;

use tenterhook::toy::{Toy, ToyData};
use tenterhook::{Settings, Strategy, closure};
use tenterhook_testkit::ranks::on_threads;

use super::{SharedVec, fit, fit_on, settings, trainer};

#[test]
fn rank_0_decides_the_id_and_the_seed_of_the_run() {
    let seen = SharedVec::on(2);
    let ended = fit_on(2, None, |rank| {
        let mut trainer = trainer(Settings { seed: 7 + rank as u64, ..settings() });
        let seen = seen.clone();
        let draw = closure::on_train_start("draw", move |cx| {
            seen.push(rank, (cx.run.id.clone(), cx.rng().uniform().to_bits()));
        });
        trainer.add_hook(draw).unwrap();
        (trainer, Toy::default())
    });
    assert!(ended.iter().all(|ended| ended.result.is_ok()), "{ended:?}");
    let seen = seen.all();
    assert_eq!((seen[0].len(), &seen[0]), (1, &seen[1]));
}

#[test]
fn rank_0_decides_which_checkpoint_is_resumed() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = trainer(Settings { max_epochs: Some(1), ..settings() }).with_checkpoints_in(dir.path());
    first.add_checkpointing(1).unwrap();
    first.fit(&mut Toy::default(), &mut ToyData::default()).unwrap();
    let ended = fit_on(2, None, |rank| {
        let mut trainer = trainer(settings()).with_checkpoints_in(dir.path().join(rank.to_string()));
        trainer.add_checkpointing(1).unwrap();
        if rank == 0 {
            trainer = trainer.restoring(dir.path().join("latest")).with_checkpoints_in(dir.path());
        }
        (trainer, Toy::default())
    });
    assert!(super::alike(&ended), "{ended:?}");
    assert_eq!(ended[1].report().progress.step, 16, "8 of them before the resume");
    assert!(!dir.path().join("1").exists(), "rank 1 has written nothing");
}

fn errors(make: impl Fn(usize) -> (tenterhook::Trainer, Toy) + Sync) -> Vec<String> {
    fit_on(2, None, make).iter().map(|ended| ended.error().to_owned()).collect()
}

#[test]
fn a_difference_of_the_configuration_is_an_error_that_names_both_values() {
    for error in errors(|rank| {
        (trainer(Settings { max_epochs: Some(if rank == 0 { 2 } else { 3 }), ..settings() }), Toy::default())
    }) {
        assert!(error.contains("`trainer.max_epochs` is 2 on rank 0, and 3 on rank 1"), "{error}");
    }
}

#[test]
fn a_difference_of_the_hooks_is_an_error_that_names_both() {
    for error in errors(|rank| {
        let mut trainer = trainer(settings());
        let name = ["one", "other"][rank];
        trainer.add_hook(closure::on_step_end(name, |_| ())).unwrap();
        (trainer, Toy::default())
    }) {
        let expected =
            "hook 1 is `one` (observer, all ranks) on rank 0, and `other` (observer, all ranks) on rank 1";
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn another_length_of_an_epoch_is_an_error_that_names_both() {
    let errors = on_threads(2, |rank| {
        let mut data = ToyData { train: vec![8 - rank.world().rank as u64], ..ToyData::default() };
        let mut trainer = trainer(settings()).with_strategy(rank);
        trainer.fit(&mut Toy::default(), &mut data).unwrap_err().to_string()
    });
    for error in errors {
        assert!(error.contains("number of batches is 8 on rank 0, and 7 on rank 1"), "{error}");
    }
}

#[test]
fn data_that_ends_earlier_on_one_rank_is_an_error_that_names_both() {
    let errors = on_threads(2, |rank| {
        let train = vec![8 - rank.world().rank as u64];
        let mut data = ToyData { train, sized: false, ..ToyData::default() };
        let mut trainer = trainer(settings()).with_strategy(rank);
        trainer.fit(&mut Toy::default(), &mut data).unwrap_err().to_string()
    });
    let expected = "rank 0 has a batch that is not the last, and rank 1 has the last batch";
    assert!(errors.iter().any(|error| error.contains(expected)), "{errors:?}");
}

#[test]
fn only_rank_0_keeps_a_run_directory_and_all_ranks_know_it() {
    let dir = tempfile::tempdir().unwrap();
    let directories = on_threads(2, |rank| {
        let plan = tenterhook::run::RunDirectoryOptions {
            runs_dir: dir.path().join(rank.world().rank.to_string()),
            ..Default::default()
        };
        let mut trainer = trainer(settings()).with_run_directory(plan).with_strategy(rank);
        trainer.fit(&mut Toy::default(), &mut ToyData::default()).unwrap();
        trainer.run_info().directory.clone().unwrap()
    });
    assert_eq!(directories[0], directories[1]);
    assert!(directories[0].join("metrics.jsonl").is_file());
    let runs = |of: &str| -> usize { std::fs::read_dir(dir.path().join(of)).map_or(0, Iterator::count) };
    assert!(runs("0") > 0);
    assert_eq!(runs("1"), 0);
    assert!(Path::new(&directories[0]).starts_with(dir.path().join("0")));
}

#[test]
fn a_strategy_of_one_rank_changes_nothing() {
    let alone = fit(trainer(settings()), Toy::default());
    let ended = fit_on(1, None, |_| (trainer(settings()), Toy::default()));
    assert_eq!(ended[0].bits, alone.bits);
    assert_eq!(ended[0].report().metrics, alone.report().metrics);
}
