//! The trainer computes the same bits as a hand-written loop.

use burn::optim::{AdamWConfig, GradientsParams};
use tenterhook::random::seed_at;
use tenterhook::{DataModule, Settings, Split, closure};
use tenterhook_burn::Optimizer;

use crate::lab::{Bench, Net, SharedVec, epochs, trainer, weights};

const SEED: u64 = 3;

/// Two epochs of a hand-written Burn loop.
fn by_hand(bench: &Bench, mut net: Net) -> (Net, Vec<f64>) {
    let mut optimizer = AdamWConfig::new().with_weight_decay(0.1).init();
    let mut loader = bench.pairs().loaders(Split::Train).unwrap().remove(0);
    let (mut batches, mut losses) = (0, Vec::new());
    for epoch in 0..2 {
        loader.seek(epoch, 0, true).unwrap();
        while let Some(batch) = loader.next().unwrap() {
            batches += 1;
            bench.device.seed(seed_at(SEED, 1, batches));
            let loss = net.loss(&batch);
            let gradients = GradientsParams::from_grads(loss.backward(), &net);
            net = optimizer.step(0.01, net, gradients);
            losses.push(loss.into_scalar());
        }
    }
    (net, losses)
}

#[test]
fn the_trainer_computes_the_same_bits_as_a_loop_written_by_hand() {
    let bench = Bench::new();
    let (by_hand, losses) = by_hand(&bench, bench.net(1));

    let seen = SharedVec::new();
    let see = seen.clone();
    let mut trainer = trainer(Settings { seed: SEED, ..epochs(2) });
    trainer.add_hook(closure::on_step_end("see", move |cx| see.push(cx.loss.value()))).unwrap();
    let mut module = bench.burn(bench.net(1)).with_optimizers(|_| {
        Ok(Optimizer::new("adamw", AdamWConfig::new().with_weight_decay(0.1).build(), 0.01).into())
    });
    let before = weights(&module);
    trainer.fit(&mut module, &mut bench.pairs()).unwrap();

    assert_eq!(seen.take(), losses);
    assert_eq!(weights(&module), weights(&bench.burn(by_hand)));
    assert_ne!(weights(&module), before);
}

#[test]
fn dropout_is_part_of_the_comparison() {
    let bench = Bench::new();
    let (with, _) = by_hand(&bench, bench.net(1));
    let (without, _) = by_hand(&bench, bench.net_with(0.0, 1));
    assert_ne!(weights(&bench.burn(with)), weights(&bench.burn(without)));
}
