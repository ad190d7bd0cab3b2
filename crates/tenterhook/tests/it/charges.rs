//! The hooks that are charged for saves, console lines, end events, and values read from the engine.

use tenterhook::hooks::{Checkpoint, CheckpointOptions};
use tenterhook::toy::Toy;
use tenterhook::{
    AnyHook, Decision, HookResult, Observer, RunNotice, SaveCheckpoint, Settings, State, TrainBatchEnd,
    closure, hook,
};

use crate::accounts::taken;
use crate::clock::Hand;
use crate::lab::{data, epochs, trainer};
use crate::line::{Batches, Line, points};

/// Takes seven seconds in `state_dict`, and five in `on_save_checkpoint`.
struct TakesLong(Hand);

#[hook]
impl Observer for TakesLong {
    fn state_dict(&self) -> HookResult<State> {
        self.0.turn(7);
        Ok(State::of(1, &1)?)
    }
    fn on_save_checkpoint(&mut self, _: &SaveCheckpoint) -> HookResult {
        self.0.turn(5);
        Ok(())
    }
}

#[test]
fn waiting_for_a_checkpoint_is_charged_to_the_hook_that_saves() {
    let (root, hand) = (tempfile::tempdir().unwrap(), Hand::at(0));
    let mut trainer = trainer(epochs(2)).with_clock(hand.clone()).with_checkpoints_in(root.path());
    trainer.add_hook(Checkpoint::new(CheckpointOptions::default()).unwrap()).unwrap();
    trainer.add_hook(TakesLong(hand)).unwrap();
    let costs = trainer.fit(&mut Toy::default(), &mut data(2, 0)).unwrap().hook_costs;
    assert_eq!(taken(&costs, "checkpoint", "on_train_epoch_end"), (14.0, 2));
    assert_eq!(taken(&costs, "takes_long", "on_save_checkpoint"), (10.0, 2), "which is nobody else's");
    let saving = costs.hook("checkpoint").unwrap().calls;
    assert!((saving.p99.as_secs_f64() / 7.0 - 1.0).abs() < 0.13, "a call and its save are one: {saving:?}");
}

#[test]
fn a_save_is_charged_to_the_hook_that_requested_it() {
    let (root, hand) = (tempfile::tempdir().unwrap(), Hand::at(0));
    let mut trainer = trainer(epochs(1)).with_clock(hand.clone()).with_checkpoints_in(root.path());
    let asks = closure::on_train_batch_end("asks", |cx| {
        if cx.step == 2 { Decision::save_now() } else { Decision::CONTINUE }
    });
    trainer.add_hook(asks).unwrap();
    trainer.add_hook(TakesLong(hand)).unwrap();
    let costs = trainer.fit(&mut Toy::default(), &mut data(3, 0)).unwrap().hook_costs;
    assert_eq!(taken(&costs, "asks", "on_train_batch_end"), (7.0, 3));
}

#[test]
fn a_hook_is_charged_for_printing_and_for_waiting_at_its_end() {
    struct Prints(Hand);
    #[hook]
    impl Observer for Prints {
        fn on_train_batch_end(&mut self, cx: &TrainBatchEnd) -> HookResult {
            cx.print("a line");
            Ok(())
        }
        fn finish(&mut self) -> HookResult {
            self.0.turn(30);
            Ok(())
        }
    }
    let hand = Hand::at(0);
    let terminal = hand.clone();
    let mut trainer = trainer(epochs(1)).with_clock(hand.clone()).with_notices(move |notice| {
        if matches!(notice, RunNotice::Printed(_)) {
            terminal.turn(2);
        }
    });
    trainer.add_hook(Prints(hand)).unwrap();
    let costs = trainer.fit(&mut Toy::default(), &mut data(3, 0)).unwrap().hook_costs;
    assert_eq!(taken(&costs, "prints", "on_train_batch_end"), (6.0, 3));
    assert_eq!(taken(&costs, "prints", "teardown"), (30.0, 0));
}

/// The number of scalars that each of these hooks read in six batches, and the number of all loss reads.
fn handed_over(settings: Settings, hooks: Vec<AnyHook>) -> (Vec<u64>, u64) {
    let names: Vec<_> = hooks.iter().map(|hook| hook.name().to_owned()).collect();
    let mut line = Line::new(0.25);
    let mut trainer = trainer(settings).with_hooks(hooks).unwrap();
    let report = trainer.fit(&mut line, &mut Batches::of(vec![points(&[(1.0, 1.0)]); 6])).unwrap();
    let read = names.iter().map(|name| report.hook_costs.hook(name).unwrap().read.scalars);
    (read.collect(), line.loss_reads() as u64)
}

fn reads_thrice(name: &str) -> AnyHook {
    closure::on_before_backward(name, |cx| {
        assert!((0..3).all(|_| cx.loss.value() >= 0.0) && cx.loss.value() < 9.0);
    })
    .into()
}

#[test]
fn the_first_hook_that_reads_a_loss_is_charged_for_it() {
    let idle = || closure::on_step_end("idle", |_| ()).into();
    let hooks = vec![idle(), reads_thrice("first"), reads_thrice("second")];
    assert_eq!(handed_over(epochs(1), hooks), (vec![0, 6, 0], 6));
}

#[test]
fn a_loss_that_is_read_because_hooks_declare_it_is_charged_to_them() {
    let every = |steps| Settings { log_every_n_steps: steps, ..epochs(1) };
    let declares = |name: &str| closure::on_step_end(name, |_| ()).reads("train/loss").into();
    let idle = || closure::on_step_end("idle", |_| ()).into();
    let hooks = || vec![declares("one"), idle(), declares("other")];
    assert_eq!(handed_over(every(50), hooks()).0, [6, 0, 6]);
    assert_eq!(handed_over(every(1), hooks()).0, [0, 0, 0], "it is read anyway");
    assert_eq!(handed_over(every(3), hooks()).0, [4, 0, 4]);
    let earlier = vec![reads_thrice("first"), declares("one")];
    assert_eq!(handed_over(every(50), earlier).0, [6, 0], "it was there already");
}

#[test]
fn a_tensor_that_two_hooks_look_at_in_one_event_is_handed_over_once() {
    let looks = |name: &str| closure::on_after_backward(name, |cx| assert!(cx.gradients.norm() >= 0.0));
    let mut trainer = trainer(epochs(1)).with_hooks([looks("first"), looks("second")]).unwrap();
    let costs = trainer.fit(&mut Toy::default(), &mut data(3, 0)).unwrap().hook_costs;
    let read = ["first", "second"].map(|name| costs.hook(name).unwrap().read.tensors);
    assert_eq!(read, [6, 0], "weight and bias of three batches");
}
