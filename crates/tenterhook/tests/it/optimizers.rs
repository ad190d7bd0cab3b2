//! Several optimizers, stepped by the loop or by the module.

use tenterhook::toy::Toy;
use tenterhook::{Cx, Decision, HookExt, ModuleResult, Origin, RunError, Settings, StepOutput, closure};

use crate::call_log::{CallLog, Recorder, SharedVec};
use crate::lab::{Lab, bits, data, epochs, trainer};

const OF_AN_UPDATE: [&str; 6] = [
    "on_before_zero_grad",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "on_after_optimizer_step",
    "on_step_end",
];

/// The events around updates that a hook saw, in order.
fn updates(call_log: &CallLog) -> Vec<&'static str> {
    call_log.places("hook:all").into_iter().filter(|place| OF_AN_UPDATE.contains(place)).collect()
}

#[test]
fn the_loop_steps_them_in_order_and_counts_one_step() {
    let call_log = CallLog::default();
    let mut trainer = trainer(epochs(1));
    trainer.add_hook(Recorder::new("all", &call_log)).unwrap();
    let order = SharedVec::new();
    let (before, clip, after) = (order.clone(), order.clone(), order.clone());
    trainer
        .add_hook(closure::on_before_optimizer_step("before", move |cx| {
            let names: Vec<_> = cx.gradients.iter().map(|gradient| gradient.name().to_owned()).collect();
            before.push((cx.optimizer, cx.step, names.join(",")));
        }))
        .unwrap();
    trainer
        .add_hook(closure::on_gradient_clip("clip", move |cx| {
            clip.push((cx.optimizer, cx.step, "clip".into()));
        }))
        .unwrap();
    trainer
        .add_hook(closure::on_after_optimizer_step("after", move |cx| {
            after.push((cx.optimizer, cx.step, "after".into()));
        }))
        .unwrap();
    let report = trainer.fit(&mut Toy::new(2), &mut data(1, 0)).unwrap();
    let expected =
        [(0, 0, "weight"), (0, 0, "clip"), (0, 0, "after"), (1, 0, "bias"), (1, 0, "clip"), (1, 0, "after")];
    assert_eq!(order.take(), expected.map(|(optimizer, step, what)| (optimizer, step, what.to_owned())));
    assert_eq!(
        updates(&call_log),
        [
            "on_before_zero_grad",
            "on_before_backward",
            "on_after_backward",
            "on_before_optimizer_step",
            "on_after_optimizer_step",
            "on_before_optimizer_step",
            "on_after_optimizer_step",
            "on_step_end",
        ]
    );
    assert_eq!(report.progress.step, 1);
}

#[test]
fn two_optimizers_over_all_parameters_learn_what_one_learns() {
    let fit = |optimizers| {
        let mut toy = Toy::new(optimizers);
        trainer(epochs(2)).fit(&mut toy, &mut data(4, 0)).unwrap();
        bits(&toy)
    };
    assert_eq!(fit(1), fit(2));
}

/// A module that steps both optimizers itself, each with its own loss.
fn manual(call_log: &CallLog) -> Lab {
    Lab::new(Toy::new(2), call_log).manual().with_step(|lab, batch, cx| {
        for optimizer in 0..2 {
            let loss = lab.toy.loss(batch);
            cx.zero_grad(lab, optimizer)?;
            cx.backward(lab, &loss)?;
            cx.optimizer_step(lab, optimizer)?;
        }
        Ok(StepOutput::NoLoss)
    })
}

#[test]
fn a_module_that_steps_its_optimizers_itself_gets_the_events_and_the_counts() {
    let call_log = CallLog::default();
    let mut trainer = trainer(epochs(1));
    trainer.add_hook(Recorder::new("all", &call_log)).unwrap();
    let steps = SharedVec::new();
    let (step, end) = (steps.clone(), steps.clone());
    trainer.add_hook(closure::on_step_end("step", move |cx| step.push(("step", cx.step)))).unwrap();
    trainer
        .add_hook(closure::on_train_batch_end("end", move |cx| {
            assert!(cx.loss.is_some(), "the last loss it propagated back");
            end.push(("end", cx.step));
        }))
        .unwrap();
    let mut module = manual(&call_log);
    let report = trainer.fit(&mut module, &mut data(2, 0)).unwrap();
    assert_eq!(updates(&call_log), OF_AN_UPDATE.repeat(4));
    assert_eq!(steps.take(), [("step", 1), ("step", 2), ("end", 2), ("step", 3), ("step", 4), ("end", 4)]);
    assert_eq!(report.progress.step, 4);
    assert!(report.metrics.contains_key("train/loss"));
    assert!(module.toy.param("weight")[0].abs() > 0.0 && module.toy.param("bias")[0].abs() > 0.0);
}

#[test]
fn a_manual_step_shows_the_rates_of_the_optimizer_that_stepped() {
    let mut trainer = trainer(epochs(1));
    let rates = SharedVec::new();
    let seen = rates.clone();
    trainer
        .add_hook(closure::on_fit_start("rates", |_| {
            let change = tenterhook::LrChange::Set(0.5);
            Decision::CONTINUE.request(tenterhook::Request::Lr { optimizer: Some(1), change })
        }))
        .unwrap();
    trainer.add_hook(closure::on_step_end("seen", move |cx| seen.push((cx.lr, cx.next_lr)))).unwrap();
    trainer.fit(&mut manual(&CallLog::default()), &mut data(1, 0)).unwrap();
    assert_eq!(rates.take(), [(0.1, 0.1), (0.5, 0.5)]);
}

#[test]
fn max_steps_ends_a_manual_run_after_the_batch_that_reached_it() {
    let settings = Settings { max_steps: 3, ..epochs(10) };
    let report = trainer(settings).fit(&mut manual(&CallLog::default()), &mut data(5, 0)).unwrap();
    assert_eq!((report.progress.step, report.progress.total_batches), (4, 2));
}

#[test]
fn a_manual_step_can_be_skipped_by_a_controller() {
    let mut trainer = trainer(epochs(1));
    trainer
        .add_hook(closure::on_before_optimizer_step("skip", |cx| {
            if cx.optimizer == 0 { Decision::skip_update() } else { Decision::CONTINUE }
        }))
        .unwrap();
    let mut module = manual(&CallLog::default());
    let report = trainer.fit(&mut module, &mut data(2, 0)).unwrap();
    assert_eq!(report.progress.step, 2);
    assert_eq!(module.toy.param("weight"), Toy::default().param("weight"), "never stepped");
}

#[test]
fn a_hook_that_aborts_within_a_manual_step_is_the_one_that_is_reported() {
    for place in ["on_after_backward", "on_gradient_clip", "on_step_end"] {
        let call_log = CallLog::default();
        call_log.fails_at("hook:all", place);
        let mut trainer = trainer(epochs(1));
        trainer.add_hook(Recorder::new("all", &call_log)).unwrap();
        let error = trainer.fit(&mut manual(&call_log), &mut data(2, 0)).unwrap_err();
        let RunError::Failed { failure, .. } = error else { panic!("{error}") };
        assert_eq!((failure.origin, failure.place), (Origin::Hook("all".into()), place));
    }
}

type Action = fn(&mut Lab, &mut Cx<'_, Lab>) -> ModuleResult;

#[test]
fn a_failure_in_a_manual_step_names_it_and_one_after_it_names_the_training_step() {
    let call_log = CallLog::default();
    call_log.fails_at("module", "optimizer_step");
    let error = trainer(epochs(1)).fit(&mut manual(&call_log), &mut data(2, 0)).unwrap_err();
    let RunError::Failed { failure, .. } = error else { panic!("{error}") };
    assert_eq!((failure.origin, failure.place), (Origin::Module, "optimizer_step"));

    let actions: [Action; 3] = [
        |lab, cx| cx.zero_grad(lab, 0),
        |lab, cx| cx.backward(lab, &1.0.into()),
        |lab, cx| cx.optimizer_step(lab, 0),
    ];
    for action in actions {
        let mut module = Lab::new(Toy::new(2), &CallLog::default()).manual().with_step(move |lab, _, cx| {
            action(lab, cx)?;
            panic!("out of cheese");
        });
        let error = trainer(epochs(1)).fit(&mut module, &mut data(2, 0)).unwrap_err();
        let RunError::Failed { failure, .. } = error else { panic!("{error}") };
        assert_eq!((failure.origin, failure.place), (Origin::Module, "training_step"));
    }
}

#[test]
fn settings_that_manual_optimization_could_only_ignore_are_refused() {
    for (settings, key) in [
        (Settings { gradient_clip_val: Some(1.0), ..epochs(1) }, "gradient_clip_val"),
        (Settings { accumulate_grad_batches: 2, ..epochs(1) }, "accumulate_grad_batches"),
    ] {
        let error =
            trainer(settings).fit(&mut manual(&CallLog::default()), &mut data(2, 0)).unwrap_err().to_string();
        assert!(error.starts_with(&format!("`{key}` has no effect with manual optimization")), "{error}");
    }
}

#[test]
fn a_cadence_that_only_manual_steps_can_reach_is_not_refused() {
    let steps = SharedVec::new();
    let step = steps.clone();
    let mut trainer = trainer(epochs(1));
    trainer
        .add_hook(closure::on_step_end("late", move |cx| step.push(cx.step)).every("3 steps").unwrap())
        .unwrap();
    trainer.fit(&mut manual(&CallLog::default()), &mut data(2, 0)).unwrap();
    assert_eq!(steps.take(), [3], "two steps a batch");
}

#[test]
fn the_samples_of_a_batch_are_counted_before_its_manual_steps() {
    let samples = SharedVec::new();
    let seen = samples.clone();
    let mut trainer = trainer(epochs(1));
    trainer.add_hook(closure::on_step_end("samples", move |cx| seen.push(cx.samples))).unwrap();
    trainer.fit(&mut manual(&CallLog::default()), &mut data(2, 0)).unwrap();
    assert_eq!(samples.take(), [4, 4, 8, 8]);
}
