//! The choice of `sampled` depends on seed, name and batch only.

use tenterhook_core::{Event, HookExt, Progress, closure};
use tenterhook_testkit::Rig;

use super::Recorder;

/// The batches that pass, of the first `batches`.
fn chosen(seed: u64, share: f64, batches: u64, with_others: bool) -> Vec<u64> {
    let recorder = Recorder::default();
    let mut rig = Rig::new(recorder.clone().sampled(share));
    rig.seed(seed);
    if with_others {
        rig.add_hook(closure::on_train_batch_start("draws", |cx| {
            cx.rng().uniform();
        }));
        rig.add_hook(closure::on_train_batch_start("sampled too", |_| ()).sampled(0.5));
    }
    for total_batches in 1..=batches {
        rig.progress(Progress { total_batches, ..Progress::default() });
        rig.on_train_batch_start();
        rig.on_train_batch_end();
    }
    let passed = recorder.take();
    let of = |wanted| passed.iter().filter(move |(event, ..)| *event == wanted).map(|passed| passed.2);
    let starts: Vec<_> = of(Event::TrainBatchStart).collect();
    assert!(of(Event::TrainBatchEnd).eq(starts.iter().copied()), "a batch passes as a whole");
    starts
}

#[test]
fn the_choice_does_not_depend_on_other_hooks() {
    let alone = chosen(7, 0.3, 500, false);
    assert_eq!(chosen(7, 0.3, 500, true), alone);
    assert_ne!(chosen(8, 0.3, 500, false), alone);
}

#[test]
fn about_the_requested_share_of_batches_passes() {
    assert_eq!(chosen(7, 0.1, 10_000, false).len(), 976);
    assert!(chosen(7, 0.0, 1000, false).is_empty());
    assert_eq!(chosen(7, 1.0, 1000, false).len(), 1000);
}

#[test]
fn hooks_of_other_names_choose_other_batches() {
    fn choice(name: &'static str) -> Vec<f64> {
        let mut rig = Rig::new(
            closure::on_train_batch_start(name, |cx| cx.log("n", cx.total_batches as f64)).sampled(0.5),
        );
        let mut seen = Vec::new();
        for total_batches in 1..=100 {
            rig.progress(Progress { total_batches, ..Progress::default() }).on_train_batch_start();
            seen.extend(rig.metrics().get("n"));
        }
        seen.dedup();
        seen
    }
    assert_eq!(choice("a"), choice("a"));
    assert_ne!(choice("a"), choice("b"));
}
