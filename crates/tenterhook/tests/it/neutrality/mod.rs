//! Observers do not change training: any set of them, in any order, gives bit-identical results.

mod busy;
mod sets;
mod steering;

use std::collections::BTreeMap;

use proptest::prelude::*;
use tenterhook::module::{Interval, OptimizerState, SchedulerPlan};
use tenterhook::run::{MetricsLine, Recorder};
use tenterhook::settings::ClipAlgorithm;
use tenterhook::toy::Toy;
use tenterhook::{
    AnyHook, BoxError, Gradients, HookResult, HookSpec, Module, Phase, Progress, Report, RunNotice, Settings,
    TensorMap, Update, UpdateHook, closure, hook,
};

use crate::call_log::SharedVec;
use crate::lab::{data, trainer};
use sets::{Member, any_set, built_in_observers};
use steering::{Steering, any_steering};

/// The results of a run, as reported by the trainer, because a hook could influence them.
#[derive(Debug, PartialEq)]
struct Ended {
    weights: TensorMap,
    optimizers: OptimizerState,
    /// Step, phase, name and bits of every loss.
    losses: Vec<(u64, Phase, String, u64)>,
    progress: Progress,
}

/// Records the losses of training and validation.
struct Losses(SharedVec<(u64, Phase, String, u64)>);

impl Recorder for Losses {
    fn metrics(&mut self, line: &MetricsLine<'_>) -> Result<(), BoxError> {
        for name in ["train/loss", "val/loss"] {
            if let Some(value) = line.metrics.get(name) {
                self.0.push((line.step, line.stage, name.to_owned(), value.to_bits()));
            }
        }
        Ok(())
    }
}

/// An update hook that adds noise from its random stream. A shifted stream would change the weights.
struct Noise(&'static str);

#[hook]
impl UpdateHook for Noise {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.name(self.0)
    }
    fn update(&mut self, gradients: &mut Gradients<'_>, cx: &Update<'_>) -> HookResult {
        gradients.each(|gradient| {
            #[allow(clippy::cast_possible_truncation)]
            gradient.edit(|values| values.iter_mut().for_each(|value| *value += cx.rng().uniform() as f32));
            Ok(())
        })
    }
}

/// The settings of a training run of the toy.
#[derive(Clone, Debug)]
struct Training {
    optimizers: usize,
    accumulate: u64,
    clip: Option<(f64, ClipAlgorithm)>,
    schedulers: Vec<SchedulerPlan>,
    /// The number of update hooks that draw noise: the first is before the observers, the second after them.
    noises: usize,
    /// The hook that decides by the loss.
    steering: Steering,
    log_every: u64,
    seed: u64,
}

impl Training {
    /// A training run with everything that observers could disturb.
    fn full() -> Training {
        Training {
            optimizers: 2,
            accumulate: 2,
            clip: Some((0.5, ClipAlgorithm::Norm)),
            schedulers: vec![SchedulerPlan::every(Interval::Step), SchedulerPlan::on_plateau_of("val/loss")],
            noises: 2,
            steering: Steering::None,
            log_every: 1,
            seed: 7,
        }
    }

    fn settings(&self) -> Settings {
        Settings {
            max_epochs: Some(2),
            num_sanity_val_steps: 1,
            accumulate_grad_batches: self.accumulate,
            gradient_clip_val: self.clip.map(|(limit, _)| limit),
            gradient_clip_algorithm: self.clip.map(|(_, algorithm)| algorithm),
            log_every_n_steps: self.log_every,
            seed: self.seed,
            ..Settings::default()
        }
    }

    /// Trains with these observers.
    fn run(&self, observers: impl IntoIterator<Item = AnyHook>) -> (Ended, Report) {
        let root = tempfile::tempdir().unwrap();
        let losses = SharedVec::new();
        // The plan may refuse a built-in hook with a random gate.
        let trainer = trainer(self.settings()).lenient().with_recorder(Losses(losses.clone()));
        let mut trainer = trainer.with_checkpoints_in(root.path().join("checkpoints"));
        let mut noises = ["noise0", "noise1"].into_iter().take(self.noises);
        noises.next().into_iter().for_each(|name| trainer.add_hook(Noise(name)).unwrap());
        self.steering.hooks().into_iter().for_each(|hook| trainer.add_hook(hook).unwrap());
        observers.into_iter().for_each(|hook| trainer.add_hook(hook).unwrap());
        noises.next().into_iter().for_each(|name| trainer.add_hook(Noise(name)).unwrap());
        let toy = self.schedulers.iter().cloned().fold(Toy::new(self.optimizers), Toy::with_scheduler);
        let mut toy = toy;
        let report = trainer.fit(&mut toy, &mut data(7, 2)).unwrap();
        let ended = Ended {
            weights: toy.weights().unwrap(),
            optimizers: toy.optimizer_state().unwrap(),
            losses: losses.take(),
            progress: report.progress,
        };
        (ended, report)
    }
}

fn any_training() -> impl Strategy<Value = Training> {
    let limit = prop::sample::select(vec![0.01, 0.5, 100.0]);
    let algorithm = prop::sample::select(vec![ClipAlgorithm::Norm, ClipAlgorithm::Value]);
    let schedulers = vec![
        SchedulerPlan::every(Interval::Step),
        SchedulerPlan::every(Interval::Epoch),
        SchedulerPlan::on_plateau_of("val/loss"),
    ];
    let schedulers = prop::sample::subsequence(schedulers, 0..=3);
    let steering = (0..=2_usize, any_steering(), prop::sample::select(vec![1_u64, 3, 7]));
    (1..=2_usize, 1..=3_u64, prop::option::of((limit, algorithm)), schedulers, steering, 0..4_u64).prop_map(
        |(optimizers, accumulate, clip, schedulers, (noises, steering, log_every), seed)| Training {
            optimizers,
            accumulate,
            clip,
            schedulers,
            noises,
            steering,
            log_every,
            seed,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]
    #[test]
    fn any_observers_in_any_order_give_the_same_bits_as_none(
        training in any_training(),
        set in any_set(),
    ) {
        let (alone, _) = training.run([]);
        let (observed, _) = training.run(set.iter().map(Member::hook));
        prop_assert_eq!(observed, alone);
    }
}

/// The contained failures.
fn failures(report: &Report) -> Vec<String> {
    let failed = report.notices.iter().filter(|notice| matches!(notice, RunNotice::Contained(_)));
    // No webhook is set in tests, and the hook must report that.
    let all = failed.map(ToString::to_string);
    all.filter(|text| !text.contains("`SLACK_WEBHOOK_URL` is not set")).collect()
}

#[test]
fn every_built_in_observer_at_once_in_both_directions_changes_nothing() {
    let names = built_in_observers();
    for expected in
        ["console", "csv", "jsonl", "logging", "gradient_monitor", "lr_monitor", "tensorboard", "throughput"]
    {
        assert!(names.contains(&expected.to_owned()), "{expected} is an observer: {names:?}");
    }
    let all: Vec<_> = names.into_iter().map(Member::built_in).collect();
    let training = Training::full();
    let (alone, without) = training.run([]);
    let logged = alone.losses.iter().filter(|(_, phase, ..)| *phase == Phase::Train).count();
    assert_eq!(logged, 8 + 2, "of every step, and of both epochs");
    for forwards in [true, false] {
        let hooks = all.iter().map(Member::hook);
        let hooks: Vec<_> = if forwards { hooks.collect() } else { hooks.rev().collect() };
        let (observed, report) = training.run(hooks);
        assert_eq!(observed, alone);
        assert_eq!(failures(&report), Vec::<String>::new());
        let more = report.metrics.len() - without.metrics.len();
        assert!(more >= 10, "they have logged: {:?}", report.metrics);
    }
}

#[test]
fn an_observer_that_reads_the_loss_does_not_influence_decisions_about_it() {
    for steering in Steering::ALL {
        let training = Training { steering, log_every: 7, ..Training::full() };
        let (alone, _) = training.run([]);
        let seen = SharedVec::new();
        let kept = seen.clone();
        let reader = closure::on_step_end("reader", move |cx| {
            kept.push(cx.metrics().get("train/loss").is_some());
        });
        let (observed, _) = training.run([AnyHook::new(reader.reads("train/loss"))]);
        assert_eq!(observed, alone, "{steering:?}");
        assert_eq!(seen.take(), [true; 8], "it sees every one");
        let (nothing, _) = Training { steering: Steering::None, ..training }.run([]);
        assert_ne!(nothing.weights, alone.weights, "{steering:?} changes something");
    }
}

#[test]
fn a_hook_that_changes_training_is_detected() {
    let training = Training { noises: 1, ..Training::full() };
    let (alone, _) = training.run([]);
    assert_eq!(training.run([]).0, alone, "it is the same every time");
    let (noisier, _) = training.run([AnyHook::new(Noise("more"))]);
    assert_ne!(noisier.weights, alone.weights);
    let slower = closure::on_train_start("slower", |_| tenterhook::Decision::scale_lr(0.5));
    let (slower, _) = training.run([AnyHook::new(slower)]);
    assert!(slower.weights != alone.weights && slower.optimizers != alone.optimizers);
    assert_ne!(slower.losses, alone.losses);
    let (reseeded, _) = Training { seed: 8, ..training }.run([]);
    assert_ne!(reseeded.weights, alone.weights);
}

/// Draws n numbers from its random stream at every step, and does not change the gradients.
struct Drawing {
    name: String,
    draws: usize,
    drawn: SharedVec<u64>,
}

#[hook]
impl UpdateHook for Drawing {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.name(&self.name)
    }
    fn update(&mut self, _: &mut Gradients<'_>, cx: &Update<'_>) -> HookResult {
        (0..self.draws).for_each(|_| self.drawn.push(cx.rng().uniform().to_bits()));
        Ok(())
    }
}

#[test]
fn a_hook_that_draws_shifts_the_stream_of_no_other() {
    let training = Training { noises: 2, ..Training::full() };
    let (alone, _) = training.run([]);
    let drawn = |draws: BTreeMap<&'static str, usize>| {
        let seen: Vec<_> = draws.keys().map(|_| SharedVec::new()).collect();
        let hooks = draws.iter().zip(&seen).map(|((name, draws), drawn)| {
            AnyHook::new(Drawing { name: (*name).into(), draws: *draws, drawn: drawn.clone() })
        });
        let (ended, _) = training.run(hooks.collect::<Vec<_>>());
        assert_eq!(ended, alone, "the noise is the same");
        draws.into_keys().zip(seen.iter().map(SharedVec::take)).collect::<BTreeMap<_, _>>()
    };
    let (one, both) = (drawn([("b", 3)].into()), drawn([("a", 5), ("b", 3), ("c", 1)].into()));
    assert!(one["b"].len() >= 3 * 8, "{} numbers", one["b"].len());
    assert_eq!(one["b"], both["b"]);
    assert_ne!(both["a"][..8], both["b"][..8], "each has its own");
}
