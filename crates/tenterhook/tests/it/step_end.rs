//! The guarantees at `on_step_end`.

use tenterhook::module::{Interval, SchedulerPlan};
use tenterhook::toy::Toy;
use tenterhook::{Decision, HookResult, HookSpec, Observer, Settings, StepEnd, closure, hook};

use crate::call_log::{CallLog, Recorder, SharedVec};
use crate::lab::{Lab, data, epochs, trainer};
use crate::line::{Batches, Line, points};

#[test]
fn the_first_step_is_one_and_ends_before_the_batch_that_completed_it() {
    let settings = Settings { accumulate_grad_batches: 2, ..epochs(1) };
    let mut trainer = trainer(settings);
    let seen = SharedVec::new();
    let (step, start, end) = (seen.clone(), seen.clone(), seen.clone());
    trainer
        .add_hook(closure::on_train_batch_start("start", move |cx| start.push(("start", cx.step))))
        .unwrap();
    trainer.add_hook(closure::on_step_end("step", move |cx| step.push(("step", cx.step)))).unwrap();
    trainer.add_hook(closure::on_train_batch_end("end", move |cx| end.push(("end", cx.step)))).unwrap();
    trainer.fit(&mut Toy::default(), &mut data(3, 0)).unwrap();
    let expected = [
        ("start", 0),
        ("end", 0),
        ("start", 0),
        ("step", 1),
        ("end", 1),
        ("start", 1),
        ("step", 2),
        ("end", 2),
    ];
    assert_eq!(seen.take(), expected);
}

#[test]
fn it_shows_the_rate_that_the_update_used_and_the_next_one() {
    let mut trainer = trainer(epochs(1));
    let rates = SharedVec::new();
    let seen = rates.clone();
    trainer.add_hook(closure::on_step_end("rates", move |cx| seen.push((cx.lr, cx.next_lr)))).unwrap();
    let mut toy = Toy::default().with_scheduler(SchedulerPlan::every(Interval::Step));
    trainer.fit(&mut toy, &mut data(3, 0)).unwrap();
    let (first, second, third) = (0.1, 0.1 * 0.9, 0.1 * 0.9 * 0.9);
    assert_eq!(rates.take(), [(first, second), (second, third), (third, third * 0.9)]);
}

#[test]
fn a_scheduler_per_epoch_shows_at_the_last_step_of_the_epoch() {
    let mut trainer = trainer(epochs(2));
    let rates = SharedVec::new();
    let seen = rates.clone();
    trainer.add_hook(closure::on_step_end("rates", move |cx| seen.push((cx.lr, cx.next_lr)))).unwrap();
    let mut toy = Toy::default().with_scheduler(SchedulerPlan::every(Interval::Epoch));
    trainer.fit(&mut toy, &mut data(2, 0)).unwrap();
    let (first, second, third) = (0.1, 0.1 * 0.9, 0.1 * 0.9 * 0.9);
    assert_eq!(rates.take(), [(first, first), (first, second), (second, second), (second, third)]);
}

#[test]
fn a_scheduler_on_a_plateau_per_step_steps_when_the_optimizer_has() {
    let call_log = CallLog::default();
    let plateau = SchedulerPlan {
        interval: Interval::Step,
        strict: false,
        ..SchedulerPlan::on_plateau_of("train/loss")
    };
    let mut trainer = trainer(Settings { accumulate_grad_batches: 2, log_every_n_steps: 1, ..epochs(1) });
    trainer
        .add_hook(closure::on_after_backward("skip", |cx| {
            if cx.batches == 6 { Decision::skip_update() } else { Decision::CONTINUE }
        }))
        .unwrap();
    let mut lab = Lab::new(Toy::default().with_scheduler(plateau), &call_log);
    let report = trainer.fit(&mut lab, &mut data(7, 0)).unwrap();
    assert_eq!(report.progress.step, 3);
    assert_eq!(call_log.sources("lr_scheduler_step").len(), 3);
}

#[test]
fn samples_and_tokens_include_the_batch_at_hand() {
    let mut trainer = trainer(epochs(2));
    let counts = SharedVec::new();
    let (at_start, at_step) = (counts.clone(), counts.clone());
    trainer
        .add_hook(closure::on_train_batch_start("start", move |cx| at_start.push((cx.samples, cx.tokens))))
        .unwrap();
    trainer.add_hook(closure::on_step_end("step", move |cx| at_step.push((cx.samples, cx.tokens)))).unwrap();
    let train = vec![points(&[(1.0, 1.0)]), points(&[(1.0, 2.0), (2.0, 1.0), (0.5, 0.5)])];
    let mut batches = Batches { validate: train.clone(), train };
    let report = trainer.fit(&mut Line::new(0.25), &mut batches).unwrap();
    let expected = [(0, 0), (1, 10), (1, 10), (4, 40), (4, 40), (5, 50), (5, 50), (8, 80)];
    assert_eq!(counts.take(), expected, "validation batches are not counted");
    assert_eq!((report.progress.samples, report.progress.tokens), (8, 80));
}

#[test]
fn parameters_are_the_updated_ones() {
    let mut trainer = trainer(epochs(1));
    let seen = SharedVec::new();
    let (at_batch, at_step) = (seen.clone(), seen.clone());
    trainer
        .add_hook(closure::on_train_batch_start("before", move |cx| {
            at_batch.push(cx.params().by_name("w").unwrap().to_vec()[0]);
        }))
        .unwrap();
    trainer
        .add_hook(closure::on_step_end("after", move |cx| {
            assert_eq!(cx.run.parameters, 1);
            assert!((cx.optimizers().groups(0)[0].lr - 0.25).abs() < f64::EPSILON);
            at_step.push(cx.params().by_name("w").unwrap().to_vec()[0]);
        }))
        .unwrap();
    let mut line = Line::new(0.25);
    trainer.fit(&mut line, &mut Batches::of(vec![points(&[(1.0, 1.0)])])).unwrap();
    assert_eq!(seen.take(), [0.0, 0.5]);
    assert_eq!(line.w().to_bits(), 0.5f32.to_bits());
}

#[test]
fn gradients_are_kept_after_the_update_only_for_a_hook_that_looks() {
    let train = vec![points(&[(1.0, 1.0)])];
    let mut line = Line::new(0.25);
    let mut looked_at = trainer(epochs(1));
    let seen = SharedVec::new();
    let gradients = seen.clone();
    looked_at
        .add_hook(closure::on_after_optimizer_step("look", move |cx| {
            gradients.push((cx.optimizer, cx.gradients.by_name("w").unwrap().to_vec()[0]));
        }))
        .unwrap();
    looked_at.fit(&mut line, &mut Batches::of(train.clone())).unwrap();
    assert_eq!(seen.take(), [(0, -2.0)]);

    let mut line = Line::new(0.25);
    trainer(epochs(1)).fit(&mut line, &mut Batches::of(train)).unwrap();
    assert!(line.gradient().is_nan(), "consumed by the optimizer");
}

#[test]
fn the_update_is_surrounded_by_its_events() {
    let call_log = CallLog::default();
    let mut trainer = trainer(epochs(1));
    trainer.add_hook(Recorder::new("all", &call_log)).unwrap();
    trainer.fit(&mut Line::new(0.25), &mut Batches::of(vec![points(&[(1.0, 1.0)])])).unwrap();
    let places = call_log.places("hook:all");
    let from = places.iter().position(|place| *place == "on_after_backward").unwrap();
    assert_eq!(
        places[from + 1..from + 6],
        [
            "on_before_optimizer_step",
            "on_gradient_clip",
            "on_after_optimizer_step",
            "on_step_end",
            "on_train_batch_end"
        ]
    );
}

struct Leaves(SharedVec<f64>);

#[hook]
impl Observer for Leaves {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.ignores_grad_norm()
    }
    fn on_step_end(&mut self, cx: &StepEnd) -> HookResult {
        self.0.push(cx.grad_norm.value());
        Ok(())
    }
}

#[test]
fn the_norm_is_computed_for_all_hooks_if_one_may_read_it_and_otherwise_not() {
    for another_reads in [false, true] {
        let seen = SharedVec::new();
        let mut trainer = trainer(epochs(1));
        trainer.add_hook(Leaves(seen.clone())).unwrap();
        if another_reads {
            trainer
                .add_hook(closure::on_step_end("reads", |cx| assert!(cx.grad_norm.value() > 0.0)))
                .unwrap();
        }
        let report = trainer.fit(&mut Toy::default(), &mut data(2, 0)).unwrap();
        assert!(report.failures.kinds.is_empty(), "{:?}", report.failures);
        let seen = seen.take();
        assert_eq!(
            seen.iter().map(|norm| norm.is_nan()).collect::<Vec<_>>(),
            [!another_reads; 2],
            "{seen:?}"
        );
    }
}
