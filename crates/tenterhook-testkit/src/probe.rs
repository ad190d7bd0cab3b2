//! What stands in the runner instead of the hook: forwards everything to it and notes what it was sent.
//!
//! The hook itself is shared, so that a test can look at its fields while the runner owns the probe.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[allow(clippy::wildcard_imports)] // forty contexts
use tenterhook_core::*;

pub(crate) struct Probed<H> {
    hook: Mutex<H>,
    notes: Mutex<Notes>,
}

#[derive(Default)]
pub(crate) struct Notes {
    /// How often the hook was called at an event.
    pub(crate) calls: usize,
    /// What it asked of the roster.
    pub(crate) requests: Vec<RosterRequest>,
}

pub(crate) struct Probe<H>(pub(crate) Arc<Probed<H>>);

impl<H> Probed<H> {
    pub(crate) fn new(hook: H) -> Arc<Probed<H>> {
        Arc::new(Probed { hook: Mutex::new(hook), notes: Mutex::default() })
    }

    /// The hook. One that panicked is looked at all the same.
    pub(crate) fn hook(&self) -> MutexGuard<'_, H> {
        self.hook.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

macro_rules! returned {
    (steer) => { HookResult<Self::Verdict> };
    (watch) => { HookResult };
}

macro_rules! forward_everything {
    ($($(#[$doc:meta])* $mode:ident $handler:ident $Event:ident;)*) => {
        impl<H: Hook> Hook for Probe<H> {
            type Verdict = H::Verdict;
            fn __events(&self) -> Events {
                self.0.hook().__events()
            }
            fn name(&self) -> String {
                self.0.hook().name()
            }
            fn access(&self) -> Access {
                self.0.hook().access()
            }
            fn tier(&self) -> Tier {
                self.0.hook().tier()
            }
            fn policy(&self) -> Policy {
                self.0.hook().policy()
            }
            fn idle(&self) -> Events {
                self.0.hook().idle()
            }
            fn wants_point(&self, point: &str) -> bool {
                self.0.hook().wants_point(point)
            }
            fn listens(&self, phase: Phase, progress: &Progress) -> bool {
                self.0.hook().listens(phase, progress)
            }
            fn state_dict(&self) -> HookResult<State> {
                self.0.hook().state_dict()
            }
            fn load_state_dict(&mut self, state: &State) -> HookResult {
                self.0.hook().load_state_dict(state)
            }
            fn check_state_dict(&self, state: &State) -> HookResult {
                self.0.hook().check_state_dict(state)
            }
            fn finish(&mut self) -> HookResult {
                self.0.hook().finish()
            }
            fn sent(&self) -> Option<Sent> {
                self.0.hook().sent()
            }
            $(
                fn $handler(&mut self, cx: &$Event<'_>) -> returned!($mode) {
                    self.0.notes().calls += 1;
                    let pending = cx.hooks().pending().len();
                    let answer = self.0.hook().$handler(cx);
                    self.0.notes().requests.extend(cx.hooks().pending().split_off(pending));
                    answer
                }
            )*
        }
    };
}

for_each_event!(forward_everything);

impl<H: UpdateHook> UpdateHook for Probe<H> {
    fn name(&self) -> String {
        self.0.hook().name()
    }
    fn policy(&self) -> Policy {
        self.0.hook().policy()
    }
    fn access(&self) -> Access {
        self.0.hook().access()
    }
    fn check_finite(&self) -> bool {
        self.0.hook().check_finite()
    }
    fn changes_gradients(&self) -> bool {
        self.0.hook().changes_gradients()
    }
    fn update(&mut self, gradients: &mut Gradients<'_>, cx: &Update<'_>) -> HookResult {
        self.0.hook().update(gradients, cx)
    }
    fn state_dict(&self) -> HookResult<State> {
        self.0.hook().state_dict()
    }
    fn load_state_dict(&mut self, state: &State) -> HookResult {
        self.0.hook().load_state_dict(state)
    }
    fn check_state_dict(&self, state: &State) -> HookResult {
        self.0.hook().check_state_dict(state)
    }
}
