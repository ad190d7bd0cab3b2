//! Every event reaches a hook with the values that were set.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
#[allow(clippy::wildcard_imports)] // forty contexts
use tenterhook_core::*;
use tenterhook_testkit::{NamedTensors, Rig};

/// Records the events that it receives, in all handlers.
#[derive(Default)]
struct Everything(Vec<(Event, Phase, Stage, Status)>);

macro_rules! note_everything {
    ($($(#[$doc:meta])* $mode:ident $handler:ident $Event:ident $Phase:ident $sources:tt;)*) => {
        #[hook]
        impl Observer for Everything {
            $(fn $handler(&mut self, cx: &$Event) -> HookResult {
                let run_cx = &cx.run_cx;
                self.0.push((Event::$Event, run_cx.phase, run_cx.stage, run_cx.status));
                Ok(())
            })*
        }
    };
}
for_each_event!(note_everything);

#[test]
fn every_event_is_delivered_by_value() {
    let mut rig = Rig::new(Everything::default());
    for event in Event::ALL {
        assert!(rig.deliver(*event).delivered, "{event}");
    }
    let seen: Vec<_> = rig.hook().0.iter().map(|(event, ..)| *event).collect();
    assert_eq!(seen, Event::ALL);
    assert!(rig.failures().is_empty());
}

#[test]
fn stage_phase_and_status_follow_from_the_event_by_default() {
    let mut rig = Rig::new(Everything::default());
    rig.setup();
    rig.on_sanity_check_start();
    rig.on_validation_start();
    rig.on_sanity_check_end();
    rig.on_validation_start();
    rig.on_test_start();
    rig.on_train_end();
    rig.stage(Stage::Validate).phase(Phase::Validate).status(Status::Interrupted).setup();
    let expected = [
        (Event::Setup, Phase::Train, Stage::Fit, Status::Starting),
        (Event::SanityCheckStart, Phase::SanityCheck, Stage::Fit, Status::Starting),
        (Event::ValidationStart, Phase::SanityCheck, Stage::Fit, Status::Training),
        (Event::SanityCheckEnd, Phase::SanityCheck, Stage::Fit, Status::Starting),
        (Event::ValidationStart, Phase::Validate, Stage::Fit, Status::Training),
        (Event::TestStart, Phase::Test, Stage::Test, Status::Training),
        (Event::TrainEnd, Phase::Train, Stage::Fit, Status::Completed),
        (Event::Setup, Phase::Validate, Stage::Validate, Status::Interrupted),
    ];
    assert_eq!(rig.hook().0, expected);
}

/// A closure that records values, and the list of the values.
fn keep<T: Send + 'static>() -> (Arc<Mutex<Vec<T>>>, impl Fn(T) + Send + 'static) {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let copy = Arc::clone(&kept);
    (kept, move |value| copy.lock().unwrap().push(value))
}

#[test]
fn a_batch_shows_the_set_values() {
    let (kept, note) = keep();
    let mut rig = Rig::new(closure::on_train_batch_start("batch", move |cx| {
        let (batch, tensors) = (&cx.batch, &cx.batch.tensors);
        let x = tensors.by_name("x").expect("given").shape().to_vec();
        note((batch.index, batch.size, batch.loader_index, batch.loader.to_owned(), batch.is_last, x));
    }));
    rig.batch(3).batch_size(16).loader(1, "easy").last_batch(true);
    rig.batch_tensors(NamedTensors::default().with("x", [2, 3], [0.0; 6])).on_train_batch_start();
    assert_eq!(*kept.lock().unwrap(), [(3, 16, 1, "easy".to_owned(), true, vec![2, 3])]);
}

#[test]
fn a_step_shows_losses_norms_and_learning_rates() {
    let (kept, note) = keep();
    let mut rig = Rig::new(closure::on_step_end("step", move |cx| {
        let losses = (cx.loss.value(), cx.latest_loss(), cx.average_loss());
        note((cx.epoch, cx.step, losses, cx.grad_norm.value(), cx.lr, cx.next_lr));
    }));
    rig.epoch(2).step(7).loss(0.5).average_loss(0.75).gradients([("w", [3.0, 4.0])]).lr(0.1).on_step_end();
    rig.norms(8.0, 1.0).next_lr(0.05).on_step_end();
    let losses = (0.5, Some(0.5), Some(0.75));
    assert_eq!(*kept.lock().unwrap(), [(2, 7, losses, 5.0, 0.1, 0.1), (2, 7, losses, 8.0, 0.1, 0.05)]);
}

#[test]
fn clipping_shows_both_norms_and_its_rule() {
    let (kept, note) = keep();
    let mut rig = Rig::new(closure::on_gradient_clip("clip", move |cx| {
        note((cx.optimizer, cx.clipped(), cx.rule, cx.gradients.norm()));
    }));
    rig.gradients([("w", [3.0, 4.0])]).on_gradient_clip();
    rig.optimizer(1).norms(5.0, 1.0).clip_rule(Some(context::ClipRule::Norm(1.0))).on_gradient_clip();
    assert_eq!(
        *kept.lock().unwrap(),
        [(0, false, None, 5.0), (1, true, Some(context::ClipRule::Norm(1.0)), 5.0)]
    );
}

#[test]
fn the_model_and_the_run_show_the_set_values() {
    let (kept, note) = keep();
    let mut rig = Rig::new(closure::on_fit_start("look", move |cx| {
        let group = &cx.optimizers().groups(0)[1];
        note((
            cx.params().by_name("w").expect("given").to_vec(),
            (cx.optimizers().name(0).to_owned(), group.name.clone(), group.lr),
            (cx.run.parameters, cx.run.fast_dev_run, cx.run.validation.enabled),
            (cx.config["epochs"].as_u64(), cx.elapsed(), cx.metrics().get("val/loss")),
        ));
    }));
    rig.params([("w", vec![1.0, 2.0]), ("b", vec![3.0])]).optimizers([("sgd", &[0.1, 0.2])]);
    rig.fast_dev_run(true).validation(Validation { enabled: false, ..Validation::default() });
    rig.config(json!({ "epochs": 3 })).elapsed(Duration::from_secs(9)).metric("val/loss", 0.25);
    rig.on_fit_start();
    let expected = (
        vec![1.0, 2.0],
        ("sgd".to_owned(), "group 1".to_owned(), 0.2),
        (3, true, false),
        (Some(3), Duration::from_secs(9), Some(0.25)),
    );
    assert_eq!(*kept.lock().unwrap(), [expected]);
}

#[test]
fn ends_checkpoints_predictions_and_failures_show_the_set_values() {
    #[derive(Default)]
    struct Ends(Vec<String>);

    #[hook]
    impl Observer for Ends {
        fn on_train_end(&mut self, cx: &TrainEnd) -> HookResult {
            self.0.push(format!("{:?}", cx.outcome));
            Ok(())
        }
        fn on_checkpoint_saved(&mut self, cx: &CheckpointSaved) -> HookResult {
            self.0.push(format!("{} {} {}", cx.saved_step, cx.path.display(), cx.root == Path::new("all")));
            Ok(())
        }
        fn on_predict_batch_end(&mut self, cx: &PredictBatchEnd) -> HookResult {
            self.0.push(format!("{:?}", cx.prediction.downcast_ref::<Vec<u8>>()));
            Ok(())
        }
        fn on_exception(&mut self, cx: &Exception) -> HookResult {
            self.0.push(cx.failure.to_string());
            Ok(())
        }
    }

    let mut rig = Rig::new(Ends::default());
    rig.outcome(Outcome::Failed { error: "oh".into() }).on_train_end();
    rig.checkpoint(5, "all/five", "all").on_checkpoint_saved();
    rig.prediction(vec![1u8, 2]).on_predict_batch_end();
    rig.on_exception();
    assert_eq!(
        rig.hook().0,
        [
            "Failed { error: \"oh\" }",
            "5 all/five true",
            "Some([1, 2])",
            "module failed in training_step (epoch 1, step 0): a made-up failure",
        ]
    );
}

#[test]
fn metrics_of_an_evaluation_are_visible_at_its_end_as_in_a_run() {
    let mut rig =
        Rig::new(closure::on_validation_batch_end("log", |cx| cx.log("val/x", cx.batch.index as f64)));
    rig.on_validation_start();
    rig.batch(1).batch_size(1).on_validation_batch_end();
    rig.batch(2).batch_size(3).on_validation_batch_end();
    assert_eq!(rig.metrics().get("val/x"), None);
    rig.on_validation_epoch_end();
    assert_eq!(rig.metrics().get("val/x"), Some(1.75));
}
