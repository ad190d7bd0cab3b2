//! Promises of the README that changes elsewhere can easily break.

use tenterhook::prelude::*;
use tenterhook::toy::{Toy, ToyData};
use tenterhook::{Flow, LrChange, Outcome};

use crate::lab::epochs;

const LEFT: Key<f64> = Key::new("left");

fn messages(report: &Report) -> Vec<String> {
    report.notices.iter().map(ToString::to_string).collect()
}

fn quiet(settings: Settings) -> Trainer {
    Trainer::new(settings).unwrap().with_notices(|_| ()).without_run_header()
}

#[test]
fn a_hook_cannot_log_a_metric_of_the_module_and_is_warned_once() {
    let mut trainer = quiet(epochs(2));
    trainer.add_hook(closure::on_validation_end("raise", |cx| cx.log("val/loss", 5.0))).unwrap();
    let report = trainer.fit(&mut Toy::default(), &mut ToyData::default()).unwrap();
    let untouched = quiet(epochs(2)).fit(&mut Toy::default(), &mut ToyData::default()).unwrap();
    assert_eq!(report.metrics["val/loss"].to_bits(), untouched.metrics["val/loss"].to_bits());
    assert_eq!(
        messages(&report),
        ["raise: `val/loss` is logged by the module or the trainer, so the value of this hook is ignored"]
    );
}

#[test]
fn a_sanity_check_leaves_no_trace_on_the_board_nor_in_a_wrapper() {
    let mut trainer = quiet(epochs(1));
    let seen = closure::on_validation_end("seen", |cx| {
        assert_eq!(cx.board().get(LEFT), None, "left by the sanity check");
        cx.board().put(LEFT, 1.0);
    });
    trainer.register(seen, Registration { policy: Some(Policy::ABORT), ..Registration::default() }).unwrap();
    trainer
        .add_hook(closure::on_validation_end("once", |cx| cx.log("phase", f64::from(cx.phase as u8))).once())
        .unwrap();
    let report = trainer.fit(&mut Toy::default(), &mut ToyData::default()).unwrap();
    assert_eq!(report.metrics.get("phase"), Some(&f64::from(Phase::Validate as u8)));
}

#[test]
fn an_impossible_learning_rate_is_a_failure_of_the_hook_that_requested_it() {
    for (decision, hint) in [
        (Decision::set_lr(f64::NAN), "must be a number of 0 or more"),
        (
            Decision::CONTINUE.request(Request::Lr { optimizer: Some(1), change: LrChange::Scale(0.5) }),
            "there is no optimizer 1",
        ),
    ] {
        let mut trainer = quiet(epochs(1));
        trainer.add_hook(closure::on_step_end("asks", move |_| decision.clone())).unwrap();
        let error = trainer.fit(&mut Toy::default(), &mut ToyData::default()).unwrap_err().to_string();
        assert!(error.starts_with("hook `asks` failed in on_step_end") && error.contains(hint), "{error}");
    }
}

#[test]
fn an_evaluation_after_training_has_the_progress_of_training() {
    let mut trainer = quiet(epochs(2));
    let (mut toy, mut data) = (Toy::default(), ToyData::default());
    trainer.fit(&mut toy, &mut data).unwrap();
    let report = trainer.test(&mut toy, &mut data).unwrap();
    assert_eq!((report.progress.step, report.progress.epochs_done), (16, 2));
    assert!(report.metrics.contains_key("test/loss"));
}

#[test]
fn two_loaders_of_one_name_are_refused() {
    struct Twins(ToyData);
    impl DataModule<tenterhook::toy::ToyBatch> for Twins {
        fn loaders(
            &mut self,
            split: tenterhook::Split,
        ) -> Result<tenterhook::data::Loaders<tenterhook::toy::ToyBatch>, BoxError> {
            let mut loaders = self.0.loaders(split)?;
            loaders.extend(self.0.loaders(split)?);
            Ok(loaders)
        }
    }
    let error =
        quiet(epochs(1)).fit(&mut Toy::default(), &mut Twins(ToyData::default())).unwrap_err().to_string();
    assert!(error.contains("two train loaders are called `train0`"), "{error}");
}

#[test]
fn the_error_that_main_prints_is_the_display_text() {
    let mut trainer = quiet(epochs(1));
    trainer.add_hook(closure::on_step_end("reader", |_| ()).reads("val/los")).unwrap();
    let error = trainer.fit(&mut Toy::default(), &mut ToyData::default()).unwrap_err();
    assert_eq!(
        format!("{error:?}"),
        "refused before step 1: hook `reader` reads `val/los`, which nothing writes; did you mean `val/loss`?"
    );
}

#[test]
fn a_hook_can_be_inspected_after_the_run() {
    struct Steps(u64);
    #[hook]
    impl Observer for Steps {
        fn on_step_end(&mut self, _cx: &StepEnd) -> HookResult {
            self.0 += 1;
            Ok(())
        }
    }
    let mut trainer = quiet(epochs(2));
    trainer.add_hook(Steps(0).every("4 steps").unwrap()).unwrap();
    trainer.fit(&mut Toy::default(), &mut ToyData::default()).unwrap();
    assert_eq!(trainer.hook::<Steps>("steps").map(|steps| steps.0), Some(4));
}

#[test]
fn an_epoch_that_is_ended_after_a_batch_is_an_epoch_for_its_scheduler() {
    use tenterhook::module::{Interval, SchedulerPlan};

    let fit = |end: bool| {
        let mut trainer = quiet(epochs(1));
        let decide = move || if end { Decision::end_epoch() } else { Decision::CONTINUE };
        trainer.add_hook(closure::on_train_batch_end("end", move |_| decide())).unwrap();
        let mut toy = Toy::default().with_scheduler(SchedulerPlan::every(Interval::Epoch));
        let report = trainer.fit(&mut toy, &mut ToyData::default()).unwrap();
        (report.progress.step, toy.lr(0))
    };
    assert_eq!(fit(false), (8, 0.1 * 0.9));
    assert_eq!(fit(true), (1, 0.1 * 0.9));
}

#[test]
fn an_update_hook_can_take_itself_out() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    struct Quits(Arc<AtomicU32>);
    #[hook]
    impl UpdateHook for Quits {
        fn declare(&self, spec: HookSpec) -> HookSpec {
            spec.name("quits")
        }
        fn update(&mut self, _: &mut Gradients<'_>, cx: &Update<'_>) -> HookResult {
            self.0.fetch_add(1, Ordering::Relaxed);
            cx.hooks().disable("quits");
            Ok(())
        }
    }
    let runs = Arc::new(AtomicU32::new(0));
    let mut trainer = quiet(epochs(1));
    trainer.add_hook(Quits(runs.clone())).unwrap();
    trainer.fit(&mut Toy::default(), &mut ToyData::default()).unwrap();
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[test]
fn a_controller_can_skip_the_update_and_stop_at_once() {
    let mut trainer = quiet(epochs(3));
    trainer
        .add_hook(closure::on_after_backward("guard", |_| {
            Decision::stop("not a number").and(Flow::SkipUpdate)
        }))
        .unwrap();
    let mut toy = Toy::default();
    let report = trainer.fit(&mut toy, &mut ToyData::default()).unwrap();
    assert_eq!((report.progress.step, report.progress.total_batches), (0, 1));
    assert_eq!(toy.param("weight"), [0.0, 0.0]);
    assert_eq!(report.outcome, Outcome::Stopped { by: "guard".into(), reason: "not a number".into() });
}

#[test]
fn a_hook_that_is_missing_on_either_side_of_a_resume_is_an_error_unless_accepted() {
    let root = tempfile::tempdir().unwrap();
    let with = |name: &str| {
        let mut trainer = quiet(epochs(2)).with_checkpoints_in(root.path());
        trainer.add_hook(closure::on_train_end(name, |_| Decision::save_now())).unwrap();
        trainer
    };
    with("old").fit(&mut Toy::default(), &mut ToyData::default()).unwrap();
    let saved = root.path().join("epoch=2-step=16");
    let resumed =
        |trainer: Trainer| trainer.restoring(&saved).fit(&mut Toy::default(), &mut ToyData::default());
    let error = resumed(with("new")).unwrap_err().to_string();
    assert_eq!(
        error,
        "the hooks differ from those of the checkpoint: `old` is in the checkpoint and not registered, `new` is \
         registered and not in the checkpoint; register the same ones, or accept it with \
         `--accept-hook-changes` (`Trainer::accepting_other_hooks`)"
    );
    assert!(resumed(with("new").accepting_other_hooks()).is_ok());
    assert!(resumed(with("old")).is_ok());
}
