//! A run that is killed and resumed at any event passes the same events as an uninterrupted one.

use tenterhook_core::wrap::Gated;
use tenterhook_core::{Hook, HookExt};
use tenterhook_testkit::Rig;

use super::{Recorder, passed, script};

/// For every event of the script: stops before it and resumes with a new hook.
#[track_caller]
fn resumes_anywhere<H: Hook>(wrap: impl Fn(Recorder) -> H, inner: impl Fn(&H) -> &Recorder) {
    let uninterrupted = passed(&wrap);
    let script = script();
    for cut in 0..=script.len() {
        let (first, second) = (Recorder::default(), Recorder::default());
        let mut rig = Rig::new(wrap(first.clone()));
        rig.seed(0).play(&script[..cut]);
        let mut resumed = rig.resumed(wrap(second.clone()));
        resumed.play(&script[cut..]);
        let seen = [first.take(), second.take()].concat();
        assert_eq!(seen, uninterrupted, "cut at event {cut}");
        assert_eq!(
            inner(&resumed.hook()).count,
            uninterrupted.len() as u64,
            "the hook's own state, cut at {cut}"
        );
        assert!(resumed.failures().is_empty());
    }
}

#[test]
fn every_wrapper_resumes_anywhere() {
    resumes_anywhere(|hook| hook.every("2 steps").unwrap(), Gated::inner);
    resumes_anywhere(|hook| hook.every("3 batches").unwrap(), Gated::inner);
    resumes_anywhere(|hook| hook.every("2 epochs").unwrap(), Gated::inner);
    resumes_anywhere(|hook| hook.every("3 s").unwrap(), Gated::inner);
    resumes_anywhere(HookExt::once, Gated::inner);
    resumes_anywhere(|hook| hook.after("3 batches").unwrap(), Gated::inner);
    resumes_anywhere(|hook| hook.after("3 s").unwrap(), Gated::inner);
    resumes_anywhere(|hook| hook.when(|run_cx| run_cx.batches > 2), Gated::inner);
    resumes_anywhere(|hook| hook.sampled(0.5), Gated::inner);
}

#[test]
fn nested_wrappers_resume_anywhere() {
    let wrap = |hook: Recorder| hook.every("2 s").unwrap().once().after("1 epoch").unwrap();
    resumes_anywhere(wrap, |hook| hook.inner().inner().inner());
}
