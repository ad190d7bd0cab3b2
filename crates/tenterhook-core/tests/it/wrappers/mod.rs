//! Wrappers: which events pass, that nothing else changes, and that they resume.

mod conditions;
mod erased;
mod passing;
mod resuming;
mod sampling;
mod transparency;

use std::sync::{Arc, Mutex};

#[allow(clippy::wildcard_imports)] // forty contexts
use tenterhook_core::*;
use tenterhook_testkit::{FitScript, Rig, ScriptEntry};

/// An event that passed, its epoch, and the number of batches so far.
type Passed = (Event, u64, u64);

/// Records every event; its state is their number.
#[derive(Clone, Default)]
struct Recorder {
    seen: Arc<Mutex<Vec<Passed>>>,
    count: u64,
}

impl Recorder {
    fn note(&mut self, event: Event, run_cx: &RunContext<'_>) {
        self.count += 1;
        self.seen.lock().unwrap().push((event, run_cx.epoch, run_cx.total_batches));
    }

    fn take(&self) -> Vec<Passed> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

macro_rules! record_everything {
    ($($(#[$doc:meta])* $mode:ident $handler:ident $Event:ident $Phase:ident $sources:tt;)*) => {
        #[hook(tier = "monitor", reads = ["val/loss"], state = "count", version = 3)]
        impl Observer for Recorder {
            fn declare(&self, spec: HookSpec) -> HookSpec {
                spec.policy(Policy::WARN)
            }
            $(fn $handler(&mut self, cx: &$Event) -> HookResult {
                self.note(Event::$Event, cx);
                Ok(())
            })*
        }
    };
}
for_each_event!(record_everything);

/// Three epochs of four batches, two batches per step, and a validation of one batch after each epoch. Every
/// batch takes a second.
fn script() -> Vec<ScriptEntry> {
    FitScript::new(3, 4).accumulate(2).validate(1).script()
}

/// The events that pass to a wrapped recorder in the whole script.
fn passed<H: Hook>(wrap: impl FnOnce(Recorder) -> H) -> Vec<Passed> {
    let recorder = Recorder::default();
    Rig::new(wrap(recorder.clone())).play(&script());
    recorder.take()
}

/// The events of the script that match a predicate.
fn scripted(keep: impl Fn(&ScriptEntry) -> bool) -> Vec<Passed> {
    let entries = script().into_iter().filter(|entry| keep(entry));
    entries.map(|entry| (entry.event, entry.progress.epoch, entry.progress.total_batches)).collect()
}
