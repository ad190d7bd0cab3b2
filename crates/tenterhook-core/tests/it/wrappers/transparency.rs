//! A wrapped hook keeps its name, tier, events, policy and state.

use std::time::Duration;

use tenterhook_core::{
    Cadence, Event, Hook, HookExt, HookResult, HookSpec, Observer, State, TrainEpochEnd, hook,
};

use super::Recorder;

fn recorder() -> Recorder {
    Recorder { count: 5, ..Recorder::default() }
}

#[track_caller]
fn is_transparent<H: Hook>(wrapped: &H, spec: &HookSpec) {
    assert_eq!(&wrapped.spec(), spec);
    let state = wrapped.state_dict().expect("it has one");
    assert_eq!(state.read::<i32>(3).expect("the hook's own"), 5);
}

#[test]
fn every_wrapper_is_transparent() {
    let own = recorder().spec();
    assert_eq!(own.events.iter().collect::<Vec<_>>(), Event::ALL);
    is_transparent(
        &recorder().every("2 steps").unwrap(),
        &own.clone().every_option("every", Cadence::Steps(2)),
    );
    is_transparent(
        &recorder().every("5 min").unwrap(),
        &own.clone().every_option("every", Cadence::Time(Duration::from_mins(5))),
    );
    is_transparent(
        &recorder().after("1 epoch").unwrap(),
        &own.clone().after_option("after", Cadence::Epochs(1)),
    );
    is_transparent(&recorder().once(), &own);
    is_transparent(&recorder().when(|_| true), &own);
    is_transparent(&recorder().sampled(0.5), &own);
}

#[test]
fn the_hook_behind_wrappers_can_be_read() {
    let wrapped = recorder().once().sampled(0.5);
    assert_eq!(wrapped.inner().inner().count, 5);
}

#[test]
fn nested_wrappers_combine_their_declarations() {
    let wrapped = recorder().every("10 steps").unwrap().after("1 epoch").unwrap();
    assert_eq!(
        wrapped.spec(),
        recorder().spec().every_option("every", Cadence::Steps(10)).after_option("after", Cadence::Epochs(1))
    );
}

#[test]
fn a_wrapped_hook_takes_a_state_that_was_saved_without_the_wrapper_and_the_reverse() {
    let bare = Hook::state_dict(&recorder()).unwrap();
    let mut wrapped = Recorder::default().once().sampled(0.5);
    wrapped.load_state_dict(&bare).unwrap();
    assert_eq!(wrapped.inner().inner().count, 5);

    let mut unwrapped = Recorder::default();
    let saved = recorder().once().sampled(0.5).state_dict().unwrap();
    Hook::load_state_dict(&mut unwrapped, &saved).unwrap();
    assert_eq!(unwrapped.count, 5);
}

#[test]
fn a_state_of_another_shape_or_version_is_refused() {
    let mut wrapped = recorder().once();
    let other = wrapped.load_state_dict(&State::of(9, &5).unwrap()).unwrap_err().to_string();
    assert_eq!(other, "state has version 9, this program reads version 3");
    let error = wrapped.load_state_dict(&State::of(3, &"five").unwrap()).unwrap_err().to_string();
    assert!(error.starts_with("state does not fit its type"), "{error}");
}

#[test]
fn a_state_is_checked_as_it_is_loaded_and_nothing_changes() {
    let mut wrapped = recorder().once();
    for state in [State::of(9, &5), State::of(3, &"five"), State::of(3, &7)] {
        let state = state.unwrap();
        let checked = wrapped.check_state_dict(&state).map_err(|error| error.to_string());
        assert_eq!(wrapped.inner().count, 5);
        assert_eq!(wrapped.load_state_dict(&state).map_err(|error| error.to_string()), checked);
    }
    assert_eq!(wrapped.inner().count, 7);
}

/// Prints a line at the end of each epoch.
#[derive(Clone)]
struct Printer;

#[hook]
impl Observer for Printer {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.prints_epochs()
    }

    fn on_train_epoch_end(&mut self, _: &TrainEpochEnd) -> HookResult {
        Ok(())
    }
}

#[test]
fn a_gated_hook_prints_every_epoch_only_if_the_end_of_every_epoch_passes() {
    fn prints(hook: &impl Hook) -> bool {
        hook.spec().prints_epochs
    }
    assert!(prints(&Printer) && prints(&Printer.sampled(0.1)));
    assert!(prints(&Printer.every("5 steps").unwrap()) && prints(&Printer.every("1 epoch").unwrap()));
    assert!(!prints(&Printer.every("2 epochs").unwrap()));
    assert!(!prints(&Printer.once()) && !prints(&Printer.when(|_| true)));
    assert!(!prints(&Printer.after("1 epoch").unwrap()) && !prints(&Printer.after("5 steps").unwrap()));
}
