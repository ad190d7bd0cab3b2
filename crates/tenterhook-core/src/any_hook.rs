//! Boxed hooks of any kind, to keep different ones in one list.

use crate::context::EventRef;
use crate::hook::{EventResult, Hook, HookResult};
use crate::roster::HookKind;
use crate::spec::HookSpec;
use crate::state::State;
use crate::update::{Gradients, Update};

/// A boxed hook of any kind, with its spec.
pub struct AnyHook {
    pub(crate) hook: Box<dyn Hook>,
    pub(crate) spec: HookSpec,
}

impl AnyHook {
    /// Boxes a hook and takes its spec.
    pub fn new(hook: impl Hook) -> AnyHook {
        let spec = hook.spec();
        AnyHook { hook: Box::new(hook), spec }
    }

    /// Loads the hook's state from a checkpoint to check it, outside of a run.
    pub fn load_state(&mut self, state: &State) -> HookResult {
        self.hook.load_state_dict(state)
    }

    /// The hook's spec.
    #[must_use]
    pub fn spec(&self) -> &HookSpec {
        &self.spec
    }

    /// The hook's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// The hook's kind.
    #[must_use]
    pub fn kind(&self) -> HookKind {
        self.spec.kind()
    }

    /// Declares that the hook also reads this metric or blackboard key.
    #[must_use]
    pub fn reads(mut self, name: impl Into<String>) -> AnyHook {
        self.spec = self.spec.reads(name);
        self
    }

    /// Declares that the hook also writes this metric or blackboard key.
    #[must_use]
    pub fn writes(mut self, name: impl Into<String>) -> AnyHook {
        self.spec = self.spec.writes(name);
        self
    }
}

/// A boxed hook is itself a hook, so wrappers can hold one.
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
    fn wrapped(&self) -> Option<&dyn Hook> {
        Some(&**self)
    }
    fn wrapped_mut(&mut self) -> Option<&mut dyn Hook> {
        Some(&mut **self)
    }
}

impl<H: Hook> From<H> for AnyHook {
    fn from(hook: H) -> AnyHook {
        AnyHook::new(hook)
    }
}

/// An array of hooks of different types, for `with_hooks`.
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
