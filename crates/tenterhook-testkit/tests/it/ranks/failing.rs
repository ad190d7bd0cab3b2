//! A failure of one rank ends all ranks, with its reason.

use std::time::Duration;

use tenterhook::strategy::RankError;
use tenterhook::toy::Toy;
use tenterhook::{BoxError, Event, Policy, Registration, Strategy, closure};
use tenterhook_testkit::ranks::on_threads;

use super::{fit_on, settings, trainer};

#[test]
fn the_failure_of_one_rank_ends_all_with_its_rank_and_reason() {
    for event in [Event::FitStart, Event::StepEnd, Event::ValidationEnd, Event::FitEnd] {
        for failing in [0, 1] {
            let ended = fit_on(2, None, |rank| {
                let mut trainer = trainer(settings());
                let fail = move || -> Result<(), BoxError> {
                    if rank == failing { Err("the disk of this machine is broken".into()) } else { Ok(()) }
                };
                let aborts = Registration { policy: Some(Policy::ABORT), ..Registration::default() };
                let hook: tenterhook::AnyHook = match event {
                    Event::FitStart => closure::on_fit_start("fails", move |_| fail()).into(),
                    Event::StepEnd => closure::on_step_end("fails", move |_| fail()).into(),
                    Event::ValidationEnd => closure::on_validation_end("fails", move |_| fail()).into(),
                    _ => closure::on_fit_end("fails", move |_| fail()).into(),
                };
                trainer.register(hook, aborts).unwrap();
                (trainer, Toy::default())
            });
            let reason = "the disk of this machine is broken";
            let (own, other) = (ended[failing].error(), ended[1 - failing].error());
            assert!(own.contains(reason) && !own.contains("has failed"), "{event}: {own}");
            let expected = format!("rank {failing} has failed: ");
            assert!(other.contains(&expected) && other.contains(reason), "{event}: {other}");
        }
    }
}

#[test]
fn a_panic_of_one_rank_ends_all() {
    let ended = fit_on(2, None, |rank| {
        let mut trainer = trainer(settings());
        let panics = closure::on_step_end("panics", move |_| assert!(rank == 0, "no luck here"));
        let aborts = Registration { policy: Some(Policy::ABORT), ..Registration::default() };
        trainer.register(panics, aborts).unwrap();
        (trainer, Toy::default())
    });
    assert!(ended[0].error().contains("rank 1 has failed") && ended[0].error().contains("no luck here"));
}

fn rank_error(error: &BoxError) -> RankError {
    error.downcast_ref::<RankError>().cloned().unwrap()
}

#[test]
fn ranks_at_different_collectives_get_an_error_that_names_both() {
    let errors = on_threads(2, |mut rank| {
        let done = match rank.world().rank {
            0 => rank.sum_f32("gradients", &mut [1.0]),
            _ => rank.gather("decisions", Vec::new()).map(|_| ()),
        };
        rank_error(&done.unwrap_err()).to_string()
    });
    for error in errors {
        assert_eq!(error, "rank 0 is at `gradients, 1 numbers`, and rank 1 is at `decisions`");
    }
}

#[test]
fn a_missing_rank_is_named_after_the_timeout() {
    let errors = on_threads(2, |rank| {
        let mut rank = rank.with_timeout(Duration::from_millis(50));
        if rank.world().rank == 1 {
            std::thread::sleep(Duration::from_millis(500));
            return None;
        }
        Some(rank_error(&rank.wait("metrics").unwrap_err()))
    });
    assert_eq!(errors[0], Some(RankError::Missing { rank: 1, site: "metrics".into(), seconds: 0 }));
}

#[test]
fn sums_do_not_depend_on_the_order_of_arrival() {
    let numbers = [1e8_f32, 1.0, -1e8, 1.0];
    let expected = (numbers[0] + numbers[1]) + (numbers[2] + numbers[3]);
    for first in 0..4_u64 {
        let sums = on_threads(4, |mut rank| {
            let number = rank.world().rank;
            std::thread::sleep(Duration::from_millis((number as u64 + first) % 4 * 5));
            let mut values = [numbers[number]];
            rank.sum_f32("numbers", &mut values).unwrap();
            values[0].to_bits()
        });
        assert_eq!(sums, [expected.to_bits(); 4]);
    }
}

#[test]
fn a_strategy_without_collectives_is_refused() {
    struct Half;
    impl Strategy for Half {
        fn world(&self) -> tenterhook::World {
            tenterhook::World::new(0, 2)
        }
    }
    let error = super::fit(trainer(settings()).with_strategy(Half), Toy::default());
    let expected = "this strategy has 2 ranks, and does not implement `broadcast`";
    assert!(error.error().contains(expected), "{error:?}");
}
