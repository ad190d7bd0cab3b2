//! Limits by wall time, with a clock that the test sets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenterhook::settings::ValInterval;
use tenterhook::toy::Toy;
use tenterhook::{Clock, Outcome, Settings, TimeSpan, Trainer, closure};

use crate::call_log::SharedVec;
use crate::lab::{data, epochs, trainer};

/// A clock in seconds. All clones share the time.
#[derive(Clone)]
pub struct Hand(Arc<AtomicU64>);

impl Hand {
    pub fn at(seconds: u64) -> Hand {
        Hand(Arc::new(AtomicU64::new(seconds)))
    }

    pub fn turn(&self, seconds: u64) {
        self.0.fetch_add(seconds, Ordering::Relaxed);
    }
}

impl Clock for Hand {
    fn elapsed(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::Relaxed))
    }
}

fn time(seconds: u64) -> TimeSpan {
    TimeSpan::from_secs(seconds)
}

/// A trainer whose clock reads an hour before training, and whose batches take ten seconds.
pub fn ten_seconds_a_batch(settings: Settings) -> (Trainer, Hand) {
    let hand = Hand::at(3600);
    let mut trainer = trainer(settings).with_clock(hand.clone());
    let turned = hand.clone();
    trainer.add_hook(closure::on_after_forward("work", move |_| turned.turn(10))).unwrap();
    (trainer, hand)
}

#[test]
fn training_stops_when_its_time_is_over_counted_from_its_start() {
    let settings = Settings { max_time: Some(time(25)), ..epochs(9) };
    let (mut trainer, _) = ten_seconds_a_batch(settings);
    let report = trainer.fit(&mut Toy::default(), &mut data(8, 1)).unwrap();
    assert_eq!(report.progress.step, 3);
    assert_eq!(
        report.outcome,
        Outcome::Stopped { by: "trainer".into(), reason: "`max_time` is over".into() }
    );
    let again = trainer.fit(&mut Toy::default(), &mut data(8, 1)).unwrap();
    assert_eq!(again.progress.step, 3, "another fit has its own time");
}

#[test]
fn max_time_waits_for_min_steps() {
    let settings = Settings { max_time: Some(time(25)), min_steps: Some(11), ..epochs(9) };
    let (mut trainer, _) = ten_seconds_a_batch(settings);
    let report = trainer.fit(&mut Toy::default(), &mut data(8, 1)).unwrap();
    assert_eq!(report.progress.step, 11);
}

#[test]
fn a_validation_by_time_comes_that_long_after_the_last_one_has_ended() {
    let settings = Settings { val_check_interval: Some(ValInterval::Time(time(30))), ..epochs(1) };
    let (mut trainer, hand) = ten_seconds_a_batch(settings);
    let seen = SharedVec::new();
    let steps = seen.clone();
    trainer
        .add_hook(closure::on_validation_start("slow", move |cx| {
            steps.push(cx.step);
            hand.turn(100);
        }))
        .unwrap();
    trainer.fit(&mut Toy::default(), &mut data(8, 1)).unwrap();
    assert_eq!(seen.take(), [3, 6]);
}

#[test]
fn hooks_see_the_time_of_the_trainers_clock() {
    let (mut trainer, _) = ten_seconds_a_batch(epochs(1));
    let seen = SharedVec::new();
    let (elapsed, forward) = (seen.clone(), seen.clone());
    trainer.add_hook(closure::on_step_end("elapsed", move |cx| elapsed.push(cx.elapsed()))).unwrap();
    trainer.add_hook(closure::on_after_forward("forward", move |cx| forward.push(cx.duration))).unwrap();
    trainer.fit(&mut Toy::default(), &mut data(2, 0)).unwrap();
    // The hook that advances the clock runs after the duration of the step is measured.
    let expected = [0, 3610, 0, 3620].map(Duration::from_secs);
    assert_eq!(seen.take(), expected);
}
