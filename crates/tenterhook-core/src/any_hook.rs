//! Hooks of every kind in one list.

use crate::context::EventRef;
use crate::delivery_stats::DeliveryStats;
use crate::hook::{EventResult, Hook, HookResult};
use crate::progress::{Phase, Progress};
use crate::roster::HookKind;
use crate::spec::HookSpec;
use crate::state::State;
use crate::update::{Gradients, Update};

/// A hook of any kind, boxed, with what it declared.
pub struct AnyHook {
    pub(crate) hook: Box<dyn Hook>,
    pub(crate) spec: HookSpec,
}

impl AnyHook {
    /// Boxes a hook and asks what it declares.
    pub fn new(hook: impl Hook) -> AnyHook {
        let spec = hook.spec();
        AnyHook { hook: Box::new(hook), spec }
    }

    /// Gives the hook the state of a checkpoint, outside of a run: to check it.
    pub fn load_state(&mut self, state: &State) -> HookResult {
        self.hook.load_state_dict(state)
    }

    /// What it declares.
    #[must_use]
    pub fn spec(&self) -> &HookSpec {
        &self.spec
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> HookKind {
        self.spec.kind()
    }

    /// It also reads this metric or place on the board.
    #[must_use]
    pub fn reads(mut self, name: impl Into<String>) -> AnyHook {
        self.spec = self.spec.reads(name);
        self
    }

    /// It also writes this metric or place on the board.
    #[must_use]
    pub fn writes(mut self, name: impl Into<String>) -> AnyHook {
        self.spec = self.spec.writes(name);
        self
    }
}

/// What a wrapper wraps that does not know the hook's type.
impl Hook for Box<dyn Hook> {
    fn spec(&self) -> HookSpec {
        (**self).spec()
    }
    fn deliver(&mut self, event: EventRef<'_>) -> EventResult {
        (**self).deliver(event)
    }
    fn update(&mut self, gradients: &mut Gradients<'_>, cx: &Update<'_>) -> HookResult {
        (**self).update(gradients, cx)
    }
    fn wants_point(&self, point: &str) -> bool {
        (**self).wants_point(point)
    }
    fn wants_activations(&self, phase: Phase, progress: &Progress) -> bool {
        (**self).wants_activations(phase, progress)
    }
    fn state_dict(&self) -> HookResult<State> {
        (**self).state_dict()
    }
    fn load_state_dict(&mut self, state: &State) -> HookResult {
        (**self).load_state_dict(state)
    }
    fn check_state_dict(&self, state: &State) -> HookResult {
        (**self).check_state_dict(state)
    }
    fn finish(&mut self) -> HookResult {
        (**self).finish()
    }
    fn delivery_stats(&self) -> Option<DeliveryStats> {
        (**self).delivery_stats()
    }
    fn wrapped(&self) -> Option<&dyn Hook> {
        Some(&**self)
    }
}

impl<H: Hook> From<H> for AnyHook {
    fn from(hook: H) -> AnyHook {
        AnyHook::new(hook)
    }
}

/// A list of hooks of different types, for `with_hooks`.
///
/// ```
/// use tenterhook_core::{closure, hooks};
/// let list = hooks![closure::on_fit_start("a", |_| ()), closure::on_fit_end("b", |_| ())];
/// assert_eq!(list.each_ref().map(|hook| hook.name()), ["a", "b"]);
/// ```
#[macro_export]
macro_rules! hooks {
    ($($hook:expr),* $(,)?) => { [$($crate::AnyHook::from($hook)),*] };
}
