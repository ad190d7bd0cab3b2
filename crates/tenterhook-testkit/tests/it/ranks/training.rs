//! Gradients, losses and metrics; hooks that run on some ranks; checkpoints.

use tenterhook::settings::OnSaveError;
use tenterhook::toy::{Toy, ToyData};
use tenterhook::{
    CheckpointSaved, HookResult, Observer, Settings, StepEnd, Strategy, TrainBatchStart, TrainEpochEnd,
    closure, hook,
};
use tenterhook_testkit::ranks::on_threads;

use super::{SharedVec, alike, fit, fit_on, settings, trainer};

fn several_optimizers() -> (Settings, Toy) {
    let settings = Settings { accumulate_grad_batches: 2, gradient_clip_val: Some(0.5), ..settings() };
    (settings, Toy::new(2))
}

#[test]
fn ranks_that_share_each_batch_train_as_one_process_does() {
    for make in [|| (settings(), Toy::default()), several_optimizers] {
        let (settings, toy) = make();
        let alone = fit(trainer(settings), toy);
        for ranks in [2, 4] {
            let ended = fit_on(ranks, None, |_| {
                let (settings, toy) = make();
                (trainer(settings), toy)
            });
            assert!(alike(&ended), "{ended:?}");
            assert_eq!(ended[0].report().progress, alone.report().progress, "samples of all ranks count");
            for (bits, alone) in ended[0].bits.iter().zip(&alone.bits) {
                let (value, alone) = (f32::from_bits(*bits), f32::from_bits(*alone));
                assert!((value - alone).abs() < 1e-5, "{value} on {ranks} ranks, {alone} on one");
            }
            for name in ["train/loss", "val/loss"] {
                let (value, alone) = (ended[0].report().metrics[name], alone.report().metrics[name]);
                assert!((value - alone).abs() < 1e-5, "{name} is {value} on {ranks} ranks, {alone} on one");
            }
        }
    }
}

#[test]
fn ranks_differ_without_the_collectives_of_gradients_loss_and_metrics() {
    let skipped = |site| fit_on(2, Some(site), |_| (trainer(settings()), Toy::default()));
    assert!(alike(&skipped("no such site")));
    let gradients = skipped("gradients");
    assert_ne!(gradients[0].bits, gradients[1].bits);
    let loss = skipped("loss");
    assert_eq!(loss[0].bits, loss[1].bits);
    assert_ne!(loss[0].metric("train/loss"), loss[1].metric("train/loss"));
    let metrics = skipped("metrics");
    assert_eq!(metrics[0].metric("train/loss"), metrics[1].metric("train/loss"));
    assert_ne!(metrics[0].metric("val/loss"), metrics[1].metric("val/loss"));
}

/// Counts the events that it receives.
macro_rules! counting {
    ($Hook:ident $ranks:tt) => {
        struct $Hook(usize, SharedVec<&'static str>);

        #[hook(ranks = $ranks)]
        impl Observer for $Hook {
            fn on_train_batch_start(&mut self, _: &TrainBatchStart) -> HookResult {
                self.1.push(self.0, "batch");
                Ok(())
            }
            fn on_step_end(&mut self, cx: &StepEnd) -> HookResult {
                // Reading on some ranks only must not be a collective.
                assert!(cx.loss.value().is_finite());
                self.1.push(self.0, "step");
                Ok(())
            }
            fn on_train_epoch_end(&mut self, _: &TrainEpochEnd) -> HookResult {
                self.1.push(self.0, "epoch");
                Ok(())
            }
        }
    };
}

counting!(Everywhere "all");
counting!(OnMain "main");
counting!(OnLocalMain "local_main");

#[test]
fn a_hook_receives_events_on_its_ranks_only() {
    let (all, main, local_main) = (SharedVec::on(4), SharedVec::on(4), SharedVec::on(4));
    on_threads(4, |rank| {
        let number = rank.world().rank;
        let mut trainer = trainer(settings()).with_strategy(rank.with_ranks_per_machine(2));
        trainer.add_hook(Everywhere(number, all.clone())).unwrap();
        trainer.add_hook(OnMain(number, main.clone())).unwrap();
        trainer.add_hook(OnLocalMain(number, local_main.clone())).unwrap();
        trainer.fit(&mut Toy::default(), &mut ToyData::default()).unwrap();
    });
    let counts = |seen: &SharedVec<&'static str>| seen.all().iter().map(Vec::len).collect::<Vec<_>>();
    let whole = 2 * (8 + 8 + 1);
    assert_eq!(counts(&all), [whole; 4]);
    assert_eq!(counts(&main), [whole, 0, 0, 0]);
    assert_eq!(counts(&local_main), [whole, 0, whole, 0]);
    assert_eq!(all.all()[3], all.all()[0], "in the same order");
}

struct Saved(usize, SharedVec<u64>);

#[hook]
impl Observer for Saved {
    fn on_checkpoint_saved(&mut self, cx: &CheckpointSaved) -> HookResult {
        self.1.push(self.0, cx.saved_step);
        Ok(())
    }
}

#[test]
fn rank_0_writes_checkpoints_and_all_ranks_learn_that_they_are_durable() {
    for background_saves in [false, true] {
        let (dir, saved) = (tempfile::tempdir().unwrap(), SharedVec::on(2));
        let ended = fit_on(2, None, |rank| {
            let place = dir.path().join(rank.to_string());
            let mut trainer = trainer(Settings { background_saves, ..settings() }).with_checkpoints_in(place);
            trainer.add_checkpointing(1).unwrap();
            trainer.add_hook(Saved(rank, saved.clone())).unwrap();
            (trainer, Toy::default())
        });
        assert!(alike(&ended), "{ended:?}");
        assert_eq!(saved.all(), vec![vec![8, 16]; 2]);
        assert!(dir.path().join("0/latest").exists() && !dir.path().join("1").exists());
    }
}

#[test]
fn a_checkpoint_that_cannot_be_written_fails_on_all_ranks() {
    for background_saves in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let checkpoints = dir.path().join("checkpoints");
        let ended = fit_on(2, None, |rank| {
            let settings = Settings { background_saves, on_save_error: OnSaveError::Stop, ..settings() };
            let mut trainer = trainer(settings).with_checkpoints_in(&checkpoints);
            trainer.add_checkpointing(1).unwrap();
            let blocked = checkpoints.clone();
            let block = closure::on_train_batch_start("block", move |cx| {
                if rank == 0 && cx.total_batches == 2 {
                    std::fs::write(&blocked, "a file where the directory would be").unwrap();
                }
            });
            trainer.add_hook(block).unwrap();
            (trainer, Toy::default())
        });
        assert!(ended[0].error().contains("checkpoints"), "{}", ended[0].error());
        assert!(ended[1].error().contains("rank 0"), "{}", ended[1].error());
    }
}
