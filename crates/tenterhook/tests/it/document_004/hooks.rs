//! Requirements: forward hooks, and update hooks.

use tenterhook::toy::Toy;
use tenterhook::update::Identity;
use tenterhook::{Gradients, HookKind, HookResult, StepOutput, Update, UpdateHook, closure, hook};

use super::{Log, Times, Watch, bits, train, untouched};
use crate::call_log::{CallLog, SharedVec};
use crate::lab::{Lab, data, epochs, trainer};

const WATCH: &str = "[[hooks]]\nuse = \"document::Watch\"\npoints = \"**\"\n";

#[test]
fn forward_hook_logs_activation_statistics() {
    let root = tempfile::tempdir().unwrap();
    let ran = train(root.path(), WATCH);
    for point in ["linear.product", "prediction"] {
        let calls = ran.done.iter().filter(|(_, shown)| shown == point).count();
        assert!(calls >= 4, "{point} was shown in {calls} steps");
    }
    let lines = ran.lines("metrics.jsonl");
    let trained: Vec<_> = lines.iter().filter(|line| line["stage"] == "train").collect();
    assert!(trained.len() >= 4, "{lines:?}");
    for line in &trained[..4] {
        let of = |name: &str| line["metrics"][format!("watch/prediction/{name}")].as_f64();
        assert!(of("mean").is_some() && of("std").is_some_and(|std| std >= 0.0), "{line}");
    }
    // The weights of the toy start at zero, so the first prediction is constant and the second is not.
    let std = |at: usize| trained[at]["metrics"]["watch/prediction/std"].as_f64().unwrap();
    assert!(std(0) <= 0.0 && std(1) > 0.0, "{} {}", std(0), std(1));
}

#[test]
fn forward_hook_doesnt_modify_outputs() {
    let root = tempfile::tempdir().unwrap();
    let watched = train(root.path(), WATCH);
    let disabled = train(root.path(), &format!("{WATCH}enabled = false\n"));
    assert!(!watched.done.is_empty() && disabled.done.is_empty());
    assert_eq!(watched.weights(), disabled.weights(), "to the bit");
    let losses = |ran: &super::Ran| -> Vec<_> {
        let lines = ran.lines("metrics.jsonl").into_iter();
        let of = |line: serde_json::Value, name: &str| line["metrics"][name].as_f64().map(f64::to_bits);
        lines.map(|line| (of(line.clone(), "train/loss"), of(line, "val/loss"))).collect()
    };
    assert!(losses(&watched).iter().filter(|(train, _)| train.is_some()).count() >= 4);
    assert_eq!(losses(&watched), losses(&disabled));

    // The predictions are also the same with and without a forward hook. `tests/ui` of the core crate checks
    // that the types allow no writing.
    let predicted = |watch: bool| {
        let mut trainer = trainer(epochs(1));
        let log = Log::new();
        if watch {
            trainer.add_hook(Watch { points: "**".parse().unwrap(), log: log.clone() }).unwrap();
            assert_eq!(trainer.list_hooks()[0].kind, HookKind::Forward);
            assert!(!trainer.list_hooks()[0].kind.steers(), "an observer");
        }
        let mut toy = Toy::default();
        trainer.fit(&mut toy, &mut data(4, 0)).unwrap();
        let (_, predictions) = trainer.predict(&mut toy, &mut data(4, 0)).unwrap();
        assert_eq!(log.take().is_empty(), !watch);
        predictions.concat().concat().into_iter().map(f32::to_bits).collect::<Vec<_>>()
    };
    assert_eq!(predicted(true), predicted(false));
}

#[test]
fn forward_hook_is_called_during_training_step() {
    let order = SharedVec::new();
    let (watch, before, after) = (order.clone(), order.clone(), order.clone());
    let mut trainer = trainer(epochs(1));
    let hook = closure::on_activation("watch", move |cx| {
        assert_eq!(cx.tensor().to_vec(), [0.0, 0.0], "with the activations");
        watch.push("hook");
    });
    trainer.add_hook(hook).unwrap();
    trainer.add_hook(closure::on_before_forward("before", move |_| before.push("step begins"))).unwrap();
    trainer.add_hook(closure::on_before_backward("after", move |_| after.push("backward"))).unwrap();
    let inside = order.clone();
    let mut lab = Lab::new(Toy::default(), &CallLog::default()).with_step(move |lab, batch, cx| {
        inside.push("activations");
        cx.show("weight", |name| tenterhook::NamedTensors::from([(name, lab.toy.param("weight"))]));
        inside.push("loss");
        Ok(StepOutput::Loss(lab.toy.loss(batch)))
    });
    trainer.fit(&mut lab, &mut data(1, 0)).unwrap();
    assert_eq!(order.take(), ["step begins", "activations", "hook", "loss", "backward"]);
}

/// Receives the gradients and does not change them.
struct Pass(SharedVec<Vec<f32>>);

#[hook]
impl UpdateHook for Pass {
    fn update(&mut self, gradients: &mut Gradients, _: &Update) -> HookResult {
        self.0.push(gradients.get("weight")?.to_vec());
        Ok(())
    }
}

#[test]
fn identity_update_hook_passes_gradients_unchanged() {
    let mut trainer = trainer(epochs(1));
    let default: Vec<_> = trainer.list_hooks().into_iter().map(|hook| (hook.name, hook.kind)).collect();
    assert_eq!(default, [("identity".to_owned(), HookKind::Update)], "without anybody's doing");
    trainer.add_hook(Identity).unwrap();
    let gradients = SharedVec::new();
    let (before, after) = (gradients.clone(), gradients.clone());
    trainer
        .add_hook(closure::on_before_optimizer_step("before", move |cx| {
            before.push(cx.gradients.by_name("weight").unwrap().to_vec());
        }))
        .unwrap();
    trainer
        .add_hook(closure::on_after_optimizer_step("after", move |cx| {
            after.push(cx.gradients.by_name("weight").unwrap().to_vec());
        }))
        .unwrap();
    let mut toy = Toy::default();
    trainer.fit(&mut toy, &mut data(4, 0)).unwrap();
    let gradients = gradients.take();
    assert!(gradients.len() == 8 && gradients.chunks(2).all(|of_step| of_step[0] == of_step[1]));
    assert_eq!(bits(&toy), untouched());

    // A user-defined hook receives the gradients, and passes them on unchanged.
    let received = SharedVec::new();
    let mut trainer = crate::lab::trainer(epochs(1));
    trainer.add_hook(Pass(received.clone())).unwrap();
    let mut toy = Toy::default();
    trainer.fit(&mut toy, &mut data(4, 0)).unwrap();
    assert_eq!(received.take(), gradients.into_iter().step_by(2).collect::<Vec<_>>());
    assert_eq!(bits(&toy), untouched());
}

#[test]
fn update_hook_can_transform_gradients() {
    let root = tempfile::tempdir().unwrap();
    let halved = train(root.path(), "[[hooks]]\nuse = \"document::Times\"\nfactor = 0.5\n");
    let steps: Vec<_> = halved.done.iter().map(|(_, step)| step.as_str()).collect();
    assert_eq!(steps, ["step 1", "step 2", "step 3", "step 4"], "it receives them in every step");
    // Halving the gradients equals halving the learning rate, without a rounding error.
    let slower = train(root.path(), "[optimizer]\nlr = 0.05\n");
    assert_eq!(halved.weights(), slower.weights());
    assert_ne!(halved.weights(), train(root.path(), "").weights());
    let nothing = train(root.path(), "[[hooks]]\nuse = \"document::Times\"\nfactor = 0.0\n");
    assert_eq!(nothing.weights().f32("weight", &[2]).unwrap(), [0.0, 0.0], "nothing is learned from nothing");
}

#[test]
fn update_hook_is_called_during_optimizer_step() {
    let call_log = CallLog::default();
    let log = Log::new();
    let mut trainer = trainer(epochs(1));
    trainer.add_hook(Times { factor: 1.0, log: log.clone() }).unwrap();
    let (gradients, weights, watched) = (SharedVec::new(), SharedVec::new(), log.clone());
    let (see, seen_weights) = (gradients.clone(), weights.clone());
    trainer
        .add_hook(closure::on_after_backward("backward", move |cx| {
            see.push(cx.gradients.norm() > 0.0);
            assert!(watched.take().is_empty(), "not before the backward pass is over");
        }))
        .unwrap();
    let (watched, seen) = (log.clone(), weights.clone());
    trainer
        .add_hook(closure::on_gradient_clip("clip", move |cx| {
            assert_eq!(watched.take().len(), 1, "called by now");
            seen.push(cx.params().norm().to_bits());
        }))
        .unwrap();
    trainer
        .add_hook(closure::on_before_forward("forward", move |cx| {
            seen_weights.push(cx.params().norm().to_bits());
        }))
        .unwrap();
    trainer.fit(&mut Lab::new(Toy::default(), &call_log), &mut data(3, 0)).unwrap();
    assert_eq!(gradients.take(), [true; 3]);
    let weights = weights.take();
    assert_eq!(weights.len(), 6);
    assert!(weights.chunks(2).all(|of_step| of_step[0] == of_step[1]), "before the parameters change");
    assert!(weights[0] != weights[2], "which they do");
}
