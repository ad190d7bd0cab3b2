//! The events that pass over a whole run.

use tenterhook_core::{Event, HookExt};
use tenterhook_testkit::ScriptEntry;

use super::{Passed, passed, scripted};

/// The batches of these events. Each batch must be complete.
#[track_caller]
fn whole_batches(passed: &[Passed]) -> Vec<u64> {
    let within = |event: Event| event.is_within_train_batch();
    let mut batches: Vec<_> = passed.iter().filter(|(event, ..)| within(*event)).map(|seen| seen.2).collect();
    batches.dedup();
    let seen: Vec<_> = passed.iter().copied().filter(|(event, ..)| within(*event)).collect();
    let whole = scripted(|entry| within(entry.event) && batches.contains(&entry.progress.total_batches));
    assert_eq!(seen, whole, "a batch passes as a whole");
    batches
}

/// The events that passed outside of training batches.
fn outside(passed: &[Passed]) -> Vec<Passed> {
    passed.iter().copied().filter(|(event, ..)| !event.is_within_train_batch()).collect()
}

fn scripted_outside(keep: impl Fn(&ScriptEntry) -> bool) -> Vec<Passed> {
    scripted(|entry| !entry.event.is_within_train_batch() && keep(entry))
}

#[test]
fn without_a_wrapper_everything_passes() {
    let all = passed(|hook| hook);
    assert_eq!(all, scripted(|_| true));
    assert_eq!(whole_batches(&all), (1..=12).collect::<Vec<_>>());
}

#[test]
fn every_n_steps_passes_all_batches_of_those_steps() {
    let seen = passed(|hook| hook.every("2 steps").unwrap());
    assert_eq!(whole_batches(&seen), [3, 4, 7, 8, 11, 12]);
    assert_eq!(outside(&seen), scripted_outside(|_| true));
    let steps: Vec<_> = seen.iter().filter(|seen| seen.0 == Event::StepEnd).map(|seen| seen.2).collect();
    assert_eq!(steps, [4, 8, 12]);
    assert_eq!(whole_batches(&passed(|hook| hook.every("5 steps").unwrap())), [9, 10]);
}

#[test]
fn every_n_batches_passes_those_batches() {
    let seen = passed(|hook| hook.every("3 batches").unwrap());
    assert_eq!(whole_batches(&seen), [3, 6, 9, 12]);
    assert_eq!(outside(&seen), scripted_outside(|_| true));
}

#[test]
fn every_n_epochs_passes_those_epochs_with_their_batches_and_validations() {
    let seen = passed(|hook| hook.every("2 epochs").unwrap());
    assert_eq!(whole_batches(&seen), [5, 6, 7, 8]);
    assert_eq!(seen, scripted(|entry| !entry.event.is_within_epoch() || entry.progress.epoch == 1));
}

#[test]
fn every_interval_of_time_passes_the_first_batch_that_begins_after_it() {
    // Batches begin at 0, 1, 2, 3 | 5, 6, 7, 8 | 10, 11, 12, 13 seconds.
    let seen = passed(|hook| hook.every("3 s").unwrap());
    assert_eq!(whole_batches(&seen), [4, 6, 9, 12]);
    assert_eq!(outside(&seen), scripted_outside(|_| true));
}

#[test]
fn once_passes_the_first_batch_and_every_other_event_once() {
    let seen = passed(HookExt::once);
    assert_eq!(whole_batches(&seen), [1]);
    let mut first: Vec<Passed> = Vec::new();
    for entry in scripted_outside(|_| true) {
        if first.iter().all(|seen| seen.0 != entry.0) {
            first.push(entry);
        }
    }
    assert_eq!(outside(&seen), first);
}

#[test]
fn after_n_steps_passes_the_rest() {
    let seen = passed(|hook| hook.after("2 steps").unwrap());
    assert_eq!(whole_batches(&seen), (5..=12).collect::<Vec<_>>());
    assert_eq!(
        outside(&seen),
        scripted_outside(|entry| !entry.event.is_within_epoch() || entry.progress.step >= 2)
    );
}

#[test]
fn after_n_batches_passes_the_rest() {
    let seen = passed(|hook| hook.after("3 batches").unwrap());
    assert_eq!(whole_batches(&seen), (4..=12).collect::<Vec<_>>());
}

#[test]
fn after_n_epochs_passes_the_rest() {
    let seen = passed(|hook| hook.after("1 epoch").unwrap());
    assert_eq!(whole_batches(&seen), (5..=12).collect::<Vec<_>>());
    assert_eq!(seen, scripted(|entry| !entry.event.is_within_epoch() || entry.progress.epoch >= 1));
}

#[test]
fn after_a_time_passes_from_the_next_batch_on() {
    // Batch 3 ends at 3 seconds but began before, so it does not pass.
    assert_eq!(whole_batches(&passed(|hook| hook.after("3 s").unwrap())), (4..=12).collect::<Vec<_>>());
}

#[test]
fn when_passes_what_the_predicate_says_within_epochs() {
    let seen = passed(|hook| hook.when(|run_cx| run_cx.epoch == 2));
    assert_eq!(whole_batches(&seen), [9, 10, 11, 12]);
    assert_eq!(seen, scripted(|entry| !entry.event.is_within_epoch() || entry.progress.epoch == 2));
}

#[test]
fn nested_wrappers_pass_only_events_that_all_of_them_pass() {
    let seen = passed(|hook| hook.every("2 batches").unwrap().after("1 epoch").unwrap());
    assert_eq!(whole_batches(&seen), [6, 8, 10, 12]);
    let seen = passed(|hook| hook.every("3 batches").unwrap().every("2 batches").unwrap());
    assert_eq!(whole_batches(&seen), [6, 12]);
}

/// The inner wrapper counts only events that the outer one passes, so the order of nesting can matter.
#[test]
fn the_inner_wrapper_sees_only_what_the_outer_one_passes() {
    assert_eq!(whole_batches(&passed(|hook| hook.once().after("1 epoch").unwrap())), [5]);
    assert!(whole_batches(&passed(|hook| hook.after("1 epoch").unwrap().once())).is_empty());
}

#[test]
fn a_text_that_is_not_a_cadence_is_an_error() {
    let error = super::Recorder::default().every("often").err().expect("it is none").to_string();
    assert!(error.starts_with("`often` is not a cadence: it does not begin with a whole number"), "{error}");
}
