//! Decisions of one rank are applied on all ranks.

use std::time::Duration;

use tenterhook::run::Interrupt;
use tenterhook::toy::Toy;
use tenterhook::{
    AfterBackward, BeforeOptimizerStep, Clock, Controller, Decision, Event, HookResult, Outcome, Settings,
    StepEnd, TrainBatchEnd, TrainBatchStart, Trainer, ValidationEnd, closure, hook,
};

use super::{Ended, SharedVec, alike, fit, fit_on, settings, trainer};

/// Returns this decision at this event of the third batch.
struct Decide(Event, Decision);

impl Decide {
    fn at(&self, event: Event, batch: u64) -> HookResult<Decision> {
        Ok(if event == self.0 && batch == 3 { self.1.clone() } else { Decision::CONTINUE })
    }
}

#[hook(ranks = "main")]
impl Controller for Decide {
    fn on_train_batch_start(&mut self, cx: &TrainBatchStart) -> HookResult<Decision> {
        self.at(Event::TrainBatchStart, cx.total_batches)
    }
    fn on_after_backward(&mut self, cx: &AfterBackward) -> HookResult<Decision> {
        self.at(Event::AfterBackward, cx.total_batches)
    }
    fn on_before_optimizer_step(&mut self, cx: &BeforeOptimizerStep) -> HookResult<Decision> {
        self.at(Event::BeforeOptimizerStep, cx.total_batches)
    }
    fn on_step_end(&mut self, cx: &StepEnd) -> HookResult<Decision> {
        self.at(Event::StepEnd, cx.total_batches)
    }
    fn on_train_batch_end(&mut self, cx: &TrainBatchEnd) -> HookResult<Decision> {
        self.at(Event::TrainBatchEnd, cx.total_batches)
    }
}

struct CountValidations(usize, SharedVec<u64>);

#[hook]
impl tenterhook::Observer for CountValidations {
    fn on_validation_end(&mut self, cx: &ValidationEnd) -> HookResult {
        self.1.push(self.0, cx.total_batches);
        Ok(())
    }
}

/// Decisions of rank 0 only, with their events and the collective that shares them.
fn cases() -> Vec<(Event, Decision, &'static str)> {
    vec![
        (Event::TrainBatchStart, Decision::skip_batch(), "skipped batches"),
        (Event::TrainBatchStart, Decision::end_epoch(), "skipped batches"),
        (Event::AfterBackward, Decision::skip_update(), "skipped updates"),
        (Event::BeforeOptimizerStep, Decision::skip_update(), "optimizer step"),
        (Event::BeforeOptimizerStep, Decision::scale_lr(0.5), "optimizer step"),
        (Event::StepEnd, Decision::stop("enough"), "decisions"),
        (Event::StepEnd, Decision::set_lr(0.01), "decisions"),
        (Event::TrainBatchEnd, Decision::end_epoch(), "decisions"),
        (Event::TrainBatchEnd, Decision::validate_now(), "decisions"),
    ]
}

fn deciding(rank: usize, event: Event, decision: &Decision, validations: &SharedVec<u64>) -> (Trainer, Toy) {
    let mut trainer = trainer(settings());
    trainer.add_hook(Decide(event, decision.clone())).unwrap();
    trainer.add_hook(CountValidations(rank, validations.clone())).unwrap();
    (trainer, Toy::default())
}

#[test]
fn a_decision_on_rank_0_is_applied_on_all_ranks_as_in_one_process() {
    for (event, decision, site) in cases() {
        let (validations, alone) = (SharedVec::on(2), SharedVec::on(1));
        let ended = fit_on(2, None, |rank| deciding(rank, event, &decision, &validations));
        assert!(alike(&ended), "{event} {decision:?}: {ended:?}");
        let (one, toy) = deciding(0, event, &decision, &alone);
        let one = fit(one, toy);
        assert_eq!(ended[1].report().progress, one.report().progress, "{event} {decision:?}");
        assert_eq!(ended[1].report().outcome, one.report().outcome, "{event} {decision:?}");
        assert_eq!(validations.all(), vec![alone.all()[0].clone(); 2], "{event} {decision:?}");

        let skipped = fit_on(2, Some(site), |rank| deciding(rank, event, &decision, &SharedVec::on(2)));
        assert!(!alike(&skipped), "{event} {decision:?} without `{site}`");
    }
}

#[test]
fn a_decision_of_all_ranks_is_applied_once() {
    let halve = |cx: &TrainBatchEnd<'_>| {
        if cx.total_batches == 3 { Decision::scale_lr(0.5) } else { Decision::CONTINUE }
    };
    let lrs = SharedVec::on(2);
    let ended = fit_on(2, None, |rank| {
        let mut trainer = trainer(settings());
        trainer.add_hook(closure::on_train_batch_end("halve", halve)).unwrap();
        let lrs = lrs.clone();
        trainer.add_hook(closure::on_step_end("lr", move |cx| lrs.push(rank, cx.lr.to_bits()))).unwrap();
        (trainer, Toy::default())
    });
    assert!(alike(&ended), "{ended:?}");
    assert_eq!((lrs.all()[1][2], lrs.all()[1][3]), (0.1_f64.to_bits(), 0.05_f64.to_bits()));
}

#[test]
fn a_hook_that_is_disabled_on_one_rank_is_disabled_on_all() {
    let counts = SharedVec::on(2);
    let ended = fit_on(2, None, |rank| {
        let mut trainer = trainer(settings());
        let counts = counts.clone();
        let count = closure::on_train_batch_start("count", move |cx| {
            counts.push(rank, cx.total_batches);
            assert!(rank == 0 || cx.total_batches < 3, "it panics on rank 1");
        });
        trainer.add_hook(count).unwrap();
        (trainer, Toy::default())
    });
    assert!(alike(&ended), "{ended:?}");
    assert_eq!(counts.all(), vec![vec![1, 2, 3]; 2]);
}

#[test]
fn a_roster_change_requested_on_rank_0_is_made_on_all_ranks() {
    struct Switch;
    #[hook(ranks = "main")]
    impl Controller for Switch {
        fn on_train_batch_end(&mut self, cx: &TrainBatchEnd) -> HookResult<Decision> {
            if cx.total_batches == 3 {
                cx.hooks().disable("count");
            }
            Ok(Decision::CONTINUE)
        }
    }
    let counts = SharedVec::on(2);
    let ended = fit_on(2, None, |rank| {
        let mut trainer = trainer(settings());
        let counts = counts.clone();
        let count = closure::on_train_batch_start("count", move |cx| counts.push(rank, cx.total_batches));
        trainer.add_hook(count).unwrap();
        trainer.add_hook(Switch).unwrap();
        (trainer, Toy::default())
    });
    assert!(alike(&ended), "{ended:?}");
    assert_eq!(counts.all(), vec![vec![1, 2, 3]; 2]);
}

#[test]
fn a_signal_on_one_rank_ends_all_at_the_same_batch() {
    let ended = fit_on(2, None, |rank| {
        let interrupt = Interrupt::new();
        let mut trainer = trainer(settings()).with_interrupt(interrupt.clone());
        let signal = closure::on_train_batch_start("signal", move |cx| {
            if rank == 1 && cx.total_batches == 3 {
                interrupt.request("SIGTERM");
            }
        });
        trainer.add_hook(signal).unwrap();
        (trainer, Toy::default())
    });
    assert!(alike(&ended), "{ended:?}");
    assert_eq!(ended[0].report().outcome, Outcome::Interrupted { signal: "SIGTERM".into() });
    assert_eq!(ended[0].report().progress.step, 3);
}

struct At(Duration);

impl Clock for At {
    fn elapsed(&self) -> Duration {
        self.0
    }
}

/// A clock that exceeds every limit from the second reading on.
#[derive(Default)]
struct Jumps(std::sync::atomic::AtomicU64);

impl Clock for Jumps {
    fn elapsed(&self) -> Duration {
        Duration::from_hours(self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
    }
}

#[test]
fn max_time_is_measured_by_the_clock_of_rank_0() {
    let limited = || Settings { max_time: Some("30 min".parse().unwrap()), ..settings() };
    let run = |jumping: usize| -> Vec<Ended> {
        fit_on(2, None, |rank| {
            let trainer = trainer(limited());
            let trainer = if rank == jumping {
                trainer.with_clock(Jumps::default())
            } else {
                trainer.with_clock(At(Duration::ZERO))
            };
            (trainer, Toy::default())
        })
    };
    let on_main = run(0);
    assert!(alike(&on_main), "{on_main:?}");
    assert!(matches!(on_main[1].report().outcome, Outcome::Stopped { .. }), "{on_main:?}");
    let on_other = run(1);
    assert!(alike(&on_other), "{on_other:?}");
    assert_eq!(on_other[1].report().outcome, Outcome::Completed);
}
