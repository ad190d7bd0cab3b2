//! Every hook draws from its own random stream.

use tenterhook_core::{Decision, Gradients, HookResult, HookSpec, Registration, Update, UpdateHook, hook};
use tenterhook_testkit::NamedTensors;

use crate::bench::{Actor, Bench, Log, run_cx};

fn drawing_hook(name: &str, log: &Log) -> Actor {
    let own = log.clone();
    let label = name.to_owned();
    Actor::new(name, &Log::default()).acting(move |_, run_cx| {
        own.note(format!("{label} {}", run_cx.rng().uniform()));
        Ok(Decision::CONTINUE)
    })
}

/// The numbers that these hooks draw over three events.
fn draws(seed: u64, names: &[&str]) -> Vec<String> {
    let mut bench = Bench::seeded(seed);
    for name in names {
        bench.add(drawing_hook(name, &bench.log));
    }
    (0..3).flat_map(|_| bench.receivers()).collect()
}

fn of(name: &str, draws: &[String]) -> Vec<String> {
    draws.iter().filter(|draw| draw.starts_with(name)).cloned().collect()
}

#[test]
fn random_numbers_of_a_hook_depend_on_the_seed_and_its_name_only() {
    let alone = draws(1, &["a"]);
    for others in [&["a", "b"][..], &["b", "a"], &["c", "a", "b", "d"]] {
        assert_eq!(of("a", &draws(1, others)), alone);
    }
    assert_ne!(draws(2, &["a"]), alone);
    let both = draws(1, &["a", "b"]);
    assert_ne!(of("a", &both)[0][1..], of("b", &both)[0][1..]);
}

#[test]
fn the_stream_depends_on_the_registered_name() {
    let mut bench = Bench::seeded(1);
    let how = Registration { name: Some("b".into()), ..Registration::default() };
    bench.runner.register(drawing_hook("a", &bench.log), how).unwrap();
    let renamed = bench.receivers();
    assert_eq!(renamed[0][1..], draws(1, &["b"])[0][1..]);
}

#[test]
fn a_hook_added_while_training_runs_has_its_own_stream_too() {
    let expected = draws(1, &["late"]);
    let mut bench = Bench::seeded(1);
    let late = drawing_hook("late", &bench.log);
    let adds = bench.actor("adds").once(|run_cx| run_cx.hooks().add(late));
    bench.add(adds);
    let seen: Vec<_> = (0..4).flat_map(|_| bench.receivers()).collect();
    assert_eq!(of("late", &seen), expected);
}

#[test]
fn an_update_hook_draws_from_its_own_stream_only() {
    struct Noise(Log);
    #[hook]
    impl UpdateHook for Noise {
        fn declare(&self, spec: HookSpec) -> HookSpec {
            spec.name("noise")
        }
        fn update(&mut self, _: &mut Gradients<'_>, cx: &Update<'_>) -> HookResult {
            self.0.note(format!("noise {}", cx.rng().uniform()));
            Ok(())
        }
    }
    let run = |with_another: bool| {
        let mut bench = Bench::seeded(1);
        if with_another {
            bench.add(drawing_hook("a", &bench.log));
        }
        bench.runner.add(Noise(bench.log.clone())).unwrap();
        for _ in 0..3 {
            bench.start().unwrap();
            let cx = Update { run_cx: run_cx(&bench.shared, bench.progress), optimizer: 0 };
            bench.runner.update(&mut NamedTensors::default(), &cx).unwrap();
        }
        bench.log.take()
    };
    assert_eq!(of("noise", &run(true)), run(false));
    assert_eq!(of("a", &run(true)), draws(1, &["a"]));
}
