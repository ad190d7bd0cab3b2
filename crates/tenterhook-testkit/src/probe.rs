//! A hook that forwards everything to the hook under test, and records the calls.
//!
//! The hook under test is shared, so a test can read its fields while the runner owns the probe.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenterhook_core::hook::EventResult;
use tenterhook_core::{
    DeliveryStats, EventRef, Gradients, Hook, HookResult, HookSpec, Phase, Progress, RosterRequest, State,
    Update,
};

pub(crate) struct Probed<H> {
    hook: Mutex<H>,
    notes: Mutex<Notes>,
}

#[derive(Default)]
pub(crate) struct Notes {
    /// The number of delivered events.
    pub(crate) calls: usize,
    /// Requests of the hook to enable, disable, add or remove hooks.
    pub(crate) requests: Vec<RosterRequest>,
}

pub(crate) struct Probe<H>(pub(crate) Arc<Probed<H>>);

impl<H> Probed<H> {
    pub(crate) fn new(hook: H) -> Arc<Probed<H>> {
        Arc::new(Probed { hook: Mutex::new(hook), notes: Mutex::default() })
    }

    /// The hook, also after a panic.
    pub(crate) fn hook(&self) -> MutexGuard<'_, H> {
        self.hook.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<H: Hook> Hook for Probe<H> {
    fn spec(&self) -> HookSpec {
        self.0.hook().spec()
    }
    fn deliver(&mut self, event: EventRef<'_>) -> EventResult {
        self.0.notes().calls += 1;
        let requests = || event.run_cx().hooks().pending();
        let pending = requests().len();
        let reply = self.0.hook().deliver(event);
        self.0.notes().requests.extend(requests().split_off(pending));
        reply
    }
    fn update(&mut self, gradients: &mut Gradients<'_>, cx: &Update<'_>) -> HookResult {
        self.0.hook().update(gradients, cx)
    }
    fn wants_point(&self, point: &str) -> bool {
        self.0.hook().wants_point(point)
    }
    fn wants_activations(&self, phase: Phase, progress: &Progress) -> bool {
        self.0.hook().wants_activations(phase, progress)
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
    fn delivery_stats(&self) -> Option<DeliveryStats> {
        self.0.hook().delivery_stats()
    }
}
