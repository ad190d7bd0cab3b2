//! Decisions of controllers, and their effect on the loop.

use tenterhook::settings::BatchLimit;
use tenterhook::toy::Toy;
use tenterhook::{
    Decision, Flow, LrChange, OnError, Origin, Outcome, Policy, Registration, Request, RunError, RunNotice,
    Settings, Status, Trainer, closure,
};

use crate::call_log::{CallLog, Recorder, SharedVec};
use crate::lab::{Lab, LabData, bits, data, epochs, trainer};

/// Stops at the end of this step.
fn stop_at(trainer: &mut Trainer, step: u64) {
    trainer
        .add_hook(closure::on_step_end("stopper", move |cx| {
            if cx.step == step { Decision::stop("enough") } else { Decision::CONTINUE }
        }))
        .unwrap();
}

fn stopped(by: &str, reason: &str) -> Outcome {
    Outcome::Stopped { by: by.into(), reason: reason.into() }
}

#[test]
fn a_stop_completes_the_batch_validates_and_ends_the_epoch() {
    let call_log = CallLog::default();
    let mut trainer = trainer(epochs(3));
    trainer.add_hook(Recorder::new("all", &call_log)).unwrap();
    stop_at(&mut trainer, 2);
    let report = trainer.fit(&mut Toy::default(), &mut data(4, 1)).unwrap();
    let places = call_log.places("hook:all");
    let second = places.iter().enumerate().filter(|(_, place)| **place == "on_step_end").nth(1).unwrap().0;
    assert_eq!(
        places[second + 1..],
        [
            "on_train_batch_end",
            "on_validation_start",
            "on_validation_epoch_start",
            "on_validation_batch_start",
            "on_activation",
            "on_activation",
            "on_validation_batch_end",
            "on_validation_epoch_end",
            "on_validation_end",
            "on_log",
            "on_train_epoch_end",
            "on_log",
            "on_train_end",
            "on_fit_end",
            "teardown",
        ]
    );
    assert_eq!(report.outcome, stopped("stopper", "enough"));
    assert_eq!((report.progress.step, report.progress.epochs_done), (2, 1));
}

#[test]
fn the_outcome_is_in_on_train_end_and_in_teardown() {
    let ends = |stop: Option<u64>| {
        let mut trainer = trainer(epochs(1));
        let seen = SharedVec::new();
        let (train, fit, teardown) = (seen.clone(), seen.clone(), seen.clone());
        trainer
            .add_hook(closure::on_train_end("a", move |cx| train.push((cx.outcome.clone(), cx.status))))
            .unwrap();
        trainer
            .add_hook(closure::on_fit_end("b", move |cx| fit.push((cx.outcome.clone(), cx.status))))
            .unwrap();
        trainer
            .add_hook(closure::teardown("c", move |cx| teardown.push((cx.outcome.clone(), cx.status))))
            .unwrap();
        if let Some(step) = stop {
            stop_at(&mut trainer, step);
        }
        let report = trainer.fit(&mut Toy::default(), &mut data(2, 0)).unwrap();
        (seen.take(), report.outcome)
    };
    for (stop, outcome) in [(None, Outcome::Completed), (Some(1), stopped("stopper", "enough"))] {
        let (seen, reported) = ends(stop);
        assert_eq!(seen, vec![(outcome.clone(), Status::Completed); 3]);
        assert_eq!(reported, outcome);
    }
}

#[test]
fn a_stop_waits_for_the_least_steps_and_epochs() {
    let trained = |settings: Settings| {
        let mut trainer = trainer(settings);
        stop_at(&mut trainer, 1);
        let report = trainer.fit(&mut Toy::default(), &mut data(4, 0)).unwrap();
        assert_eq!(report.outcome, stopped("stopper", "enough"));
        (report.progress.step, report.progress.epochs_done)
    };
    assert_eq!(trained(epochs(5)), (1, 1));
    assert_eq!(trained(Settings { min_steps: Some(6), ..epochs(5) }), (6, 2));
    assert_eq!(trained(Settings { min_epochs: Some(3), ..epochs(5) }), (12, 3));
}

#[test]
fn a_stop_that_never_took_effect_is_not_the_outcome() {
    let mut trainer = trainer(Settings { min_steps: Some(100), ..epochs(2) });
    stop_at(&mut trainer, 1);
    let report = trainer.fit(&mut Toy::default(), &mut data(2, 0)).unwrap();
    assert_eq!((report.outcome, report.progress.step), (Outcome::Completed, 4));
}

#[test]
fn a_stop_before_training_trains_nothing_and_says_so() {
    let mut trainer = trainer(epochs(2));
    trainer.add_hook(closure::on_fit_start("never", |_| Decision::stop("not today"))).unwrap();
    let call_log = CallLog::default();
    trainer.add_hook(Recorder::new("all", &call_log)).unwrap();
    let report = trainer.fit(&mut Toy::default(), &mut data(2, 0)).unwrap();
    assert_eq!(call_log.places("hook:all"), ["setup", "on_fit_start", "on_fit_end", "teardown"]);
    assert_eq!((report.outcome, report.progress.step), (stopped("never", "not today"), 0));
}

#[test]
fn the_module_can_stop_and_end_an_epoch_too() {
    let mut module = Lab::new(Toy::default(), &CallLog::default()).with_handler(|place, cx| {
        if place == "on_train_batch_end" && cx.epoch() == 0 && cx.batch_index() == 1 {
            cx.end_epoch();
        }
        if place == "on_step_end" && cx.progress().step == 5 {
            cx.stop("far enough");
        }
    });
    let report = trainer(epochs(9)).fit(&mut module, &mut data(4, 0)).unwrap();
    assert_eq!(report.outcome, stopped("module", "far enough"));
    assert_eq!((report.progress.step, report.progress.epochs_done), (5, 2));
}

/// The number of batches trained on in each of two epochs of four batches, with these hooks.
fn trained(add: impl FnOnce(&mut Trainer)) -> Vec<u64> {
    let mut trainer = trainer(epochs(2));
    let seen = SharedVec::new();
    let batches = seen.clone();
    trainer.add_hook(closure::on_after_forward("count", move |cx| batches.push(cx.epoch))).unwrap();
    add(&mut trainer);
    trainer.fit(&mut Toy::default(), &mut data(4, 1)).unwrap();
    let seen = seen.take();
    (0..2).map(|epoch| seen.iter().filter(|at| **at == epoch).count() as u64).collect()
}

#[test]
fn an_epoch_ends_at_once_when_requested_at_the_start_of_a_batch() {
    let batches = trained(|trainer| {
        trainer
            .add_hook(closure::on_train_batch_start("end", |cx| {
                if cx.epoch == 0 && cx.batch.index == 2 { Decision::end_epoch() } else { Decision::CONTINUE }
            }))
            .unwrap();
    });
    assert_eq!(batches, [2, 4]);
}

#[test]
fn requested_elsewhere_the_epoch_ends_after_the_batch() {
    let batches = trained(|trainer| {
        trainer
            .add_hook(closure::on_before_forward("end", |cx| {
                if cx.epoch == 0 && cx.batch.index == 2 { Decision::end_epoch() } else { Decision::CONTINUE }
            }))
            .unwrap();
    });
    assert_eq!(batches, [3, 4]);
    let batches = trained(|trainer| {
        trainer
            .add_hook(closure::on_train_epoch_start("end", |cx| {
                if cx.epoch == 0 { Decision::end_epoch() } else { Decision::CONTINUE }
            }))
            .unwrap();
    });
    assert_eq!(batches, [0, 4], "nothing of this epoch");
}

#[test]
fn requested_after_the_epoch_it_does_not_end_the_next_one() {
    let batches = trained(|trainer| {
        trainer.add_hook(closure::on_train_epoch_end("end", |_| Decision::end_epoch())).unwrap();
    });
    assert_eq!(batches, [4, 4]);
    let batches = trained(|trainer| {
        trainer.add_hook(closure::on_validation_end("end", |_| Decision::end_epoch())).unwrap();
    });
    assert_eq!(batches, [4, 4], "the validation comes after the last batch");
}

#[test]
fn a_validation_can_be_asked_for_at_any_time() {
    let validated_after = |settings: Settings, validate| {
        let mut trainer = trainer(settings);
        let seen = SharedVec::new();
        let steps = seen.clone();
        trainer
            .add_hook(closure::on_validation_start("seen", move |cx| steps.push((cx.epoch, cx.batches))))
            .unwrap();
        trainer
            .add_hook(closure::on_step_end("ask", |cx| {
                if cx.step == 2 { Decision::validate_now() } else { Decision::CONTINUE }
            }))
            .unwrap();
        trainer.fit(&mut Toy::default(), &mut data(4, validate)).unwrap();
        seen.take()
    };
    assert_eq!(validated_after(epochs(1), 1), [(0, 2), (0, 4)]);
    let in_second = Settings { check_val_every_n_epoch: Some(2), ..epochs(2) };
    assert_eq!(validated_after(in_second, 1), [(0, 2), (1, 4)], "also in an epoch without one");
    assert_eq!(validated_after(epochs(1), 0), [], "not without data");
    let off = Settings { limit_val_batches: Some(BatchLimit::Count(0)), ..epochs(1) };
    assert_eq!(validated_after(off, 1), []);
}

#[test]
fn a_save_is_carried_out_when_the_batch_has_reached_all_hooks() {
    let directory = tempfile::tempdir().unwrap();
    let call_log = CallLog::default();
    let mut trainer = trainer(epochs(1)).with_checkpoints_in(directory.path());
    trainer
        .add_hook(closure::on_step_end("saver", |cx| {
            if cx.step == 2 { Decision::save_now() } else { Decision::CONTINUE }
        }))
        .unwrap();
    trainer.add_hook(Recorder::new("after", &call_log)).unwrap();
    let (mut lab, mut data) = (Lab::new(Toy::default(), &call_log), LabData::new(data(3, 0), &call_log));
    trainer.fit(&mut lab, &mut data).unwrap();
    let rows = call_log.rows();
    let save = rows.iter().position(|(_, place)| *place == "state_dict").unwrap();
    let around: Vec<_> = rows[save - 1..save + 8].iter().map(|(of, place)| format!("{of} {place}")).collect();
    assert_eq!(
        around,
        [
            "hook:after on_train_batch_end",
            "hook:after state_dict",
            "hook:after on_save_checkpoint",
            "module on_save_checkpoint",
            "module weights",
            "module optimizer_state",
            "module on_train_batch_end",
            "hook:after on_checkpoint_saved",
            "data next",
        ]
    );
    assert!(directory.path().join("epoch=0-step=2/state.json").is_file());
}

/// The learning rates of the updates in five steps, with these hooks.
fn rates(optimizers: usize, add: impl FnOnce(&mut Trainer)) -> Vec<(f64, f64)> {
    let mut trainer = trainer(epochs(1));
    add(&mut trainer);
    let seen = SharedVec::new();
    let rates = seen.clone();
    trainer
        .add_hook(closure::on_step_end("rates", move |cx| {
            let last = cx.optimizers().count() - 1;
            rates.push((cx.lr, cx.optimizers().groups(last)[0].lr));
        }))
        .unwrap();
    trainer.fit(&mut Toy::new(optimizers), &mut data(3, 0)).unwrap();
    seen.take()
}

#[test]
fn rates_are_set_and_scaled_from_the_next_update_on() {
    let set = rates(2, |trainer| {
        trainer
            .add_hook(closure::on_step_end("set", |cx| {
                if cx.step == 1 { Decision::set_lr(0.5) } else { Decision::CONTINUE }
            }))
            .unwrap();
    });
    assert_eq!(set, [(0.1, 0.1), (0.5, 0.5), (0.5, 0.5)]);
    let scaled = rates(1, |trainer| {
        trainer.add_hook(closure::on_train_batch_end("scale", |_| Decision::scale_lr(0.5))).unwrap();
    });
    assert_eq!(scaled, [(0.1, 0.1), (0.05, 0.05), (0.025, 0.025)]);
    let one_of_two = rates(2, |trainer| {
        trainer
            .add_hook(closure::on_train_start("one", |_| {
                Decision::CONTINUE.request(Request::Lr { optimizer: Some(1), change: LrChange::Set(0.3) })
            }))
            .unwrap();
    });
    assert_eq!(one_of_two, [(0.1, 0.3); 3]);
}

#[test]
fn a_rate_that_cannot_be_set_is_a_failure_of_the_requesting_hook() {
    let disable = Policy { on_error: OnError::Disable, max_failures: 2 };
    for (wrong, why) in [
        (Request::Lr { optimizer: None, change: LrChange::Set(f64::NAN) }, "must be a number of 0 or more"),
        (Request::Lr { optimizer: Some(7), change: LrChange::Scale(0.5) }, "there is no optimizer 7"),
    ] {
        let of = |policy: Option<Policy>| {
            let mut trainer = trainer(epochs(1));
            let wrong = wrong.clone();
            let asks = closure::on_step_end("asks", move |_| Decision::CONTINUE.request(wrong.clone()));
            trainer.register(asks, Registration { policy, ..Registration::default() }).unwrap();
            let fitted = trainer.fit(&mut Toy::default(), &mut data(3, 0));
            (fitted, trainer.list_hooks()[0].clone())
        };
        let (Err(RunError::Failed { failure, .. }), info) = of(None) else { panic!("a controller aborts") };
        assert_eq!((&failure.origin, failure.place), (&Origin::Hook("asks".into()), "on_step_end"));
        assert!(failure.to_string().contains(why) && failure.step == 1, "{failure}");
        assert_eq!(info.failures, 1, "it is counted");
        let (fitted, info) = of(Some(Policy::WARN));
        assert_eq!((fitted.unwrap().outcome, info.failures, info.enabled), (Outcome::Completed, 3, true));
        let (fitted, info) = of(Some(disable));
        let kinds = fitted.unwrap().failures.kinds;
        assert_eq!((kinds[0].count, kinds[0].disabled, info.enabled), (2, true, false), "{kinds:?}");
    }
}

#[test]
fn a_rate_set_just_before_the_update_is_the_one_it_uses_and_shows() {
    let seen = rates(1, |trainer| {
        trainer.add_hook(closure::on_before_optimizer_step("zero", |_| Decision::set_lr(0.0))).unwrap();
    });
    assert_eq!(seen, [(0.0, 0.0); 3]);
    let mut trainer = trainer(epochs(1));
    trainer.add_hook(closure::on_before_optimizer_step("zero", |_| Decision::set_lr(0.0))).unwrap();
    let mut toy = Toy::default();
    trainer.fit(&mut toy, &mut data(3, 0)).unwrap();
    assert_eq!(bits(&toy), bits(&Toy::default()));
}

/// The decisions in the notices, with their hooks.
fn decisions(notices: &[RunNotice]) -> Vec<(&str, &Flow)> {
    let decided = notices.iter().filter_map(|notice| match notice {
        RunNotice::Decided { decided, .. } => Some((decided.hook.as_str(), decided.decision.flow())),
        _ => None,
    });
    decided.collect()
}

#[test]
fn when_controllers_disagree_the_stronger_wins_and_both_are_noted() {
    let mut trainer = trainer(epochs(2));
    trainer.add_hook(closure::on_train_batch_start("skip", |_| Decision::skip_batch())).unwrap();
    trainer.add_hook(closure::on_train_batch_start("end", |_| Decision::end_epoch())).unwrap();
    let report = trainer.fit(&mut Toy::default(), &mut data(4, 0)).unwrap();
    assert_eq!(report.progress.total_batches, 2, "each epoch was left at its first batch");
    let skip_and_end = [("skip", &Flow::SkipBatch), ("end", &Flow::EndEpoch)];
    assert_eq!(decisions(&report.notices), [skip_and_end, skip_and_end].concat());

    let mut trainer = crate::lab::trainer(epochs(5));
    trainer.add_hook(closure::on_step_end("end", |_| Decision::end_epoch())).unwrap();
    trainer.add_hook(closure::on_step_end("stop", |_| Decision::stop("first"))).unwrap();
    trainer.add_hook(closure::on_step_end("stop_too", |_| Decision::stop("second"))).unwrap();
    let report = trainer.fit(&mut Toy::default(), &mut data(4, 0)).unwrap();
    assert_eq!(report.outcome, stopped("stop", "first"));
    let stop = |reason: &str| Flow::Stop { reason: reason.into() };
    let expected = [("end", &Flow::EndEpoch), ("stop", &stop("first")), ("stop_too", &stop("second"))];
    assert_eq!(decisions(&report.notices), expected);
    assert_eq!(report.progress.step, 1);
}
