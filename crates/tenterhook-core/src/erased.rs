//! The private twin of [`Hook`] without its associated type, so that hooks of both kinds fit one list.

use std::any::Any;

use crate::access::Access;
#[allow(clippy::wildcard_imports)] // forty contexts
use crate::context::*;
use crate::event::{Event, Events};
use crate::failure::{BoxError, Policy};
use crate::flow::Decision;
use crate::hook::{Hook, HookResult, Verdict};
use crate::plan::Tier;
use crate::progress::{Phase, Progress};
use crate::roster::HookKind;
use crate::sent::Sent;
use crate::state::State;
use crate::update::UpdateHook;

/// What the runner hears from a hook: mostly nothing, and then it is one word that fits a register.
pub type Reply = Result<(), Box<Said>>;

/// What a hook said.
pub enum Said {
    /// A decision other than to continue.
    Decided(Decision),
    /// An error.
    Failed(BoxError),
}

#[inline]
fn heard(result: HookResult<Decision>) -> Reply {
    match result {
        Ok(decision) if decision.is_continue() => Ok(()),
        Ok(decision) => Err(Box::new(Said::Decided(decision))),
        Err(error) => Err(Box::new(Said::Failed(error))),
    }
}

macro_rules! as_decision {
    (steer $result:expr) => {
        $result.map(Into::into)
    };
    (watch $result:expr) => {
        $result.map(|()| Decision::CONTINUE)
    };
}

macro_rules! define_erased {
    ($($(#[$doc:meta])* $mode:ident $handler:ident $Event:ident;)*) => {
        pub(crate) trait Erased: Send {
            fn kind(&self) -> HookKind;
            fn any(&self) -> &dyn Any;
            fn events(&self) -> Events;
            fn name(&self) -> String;
            fn access(&self) -> Access;
            fn tier(&self) -> Tier;
            fn policy(&self) -> Policy;
            fn wants_point(&self, point: &str) -> bool;
            fn listens(&self, phase: Phase, progress: &Progress) -> bool;
            fn state_dict(&self) -> HookResult<State>;
            fn load_state_dict(&mut self, state: &State) -> HookResult;
            fn check_state_dict(&self, state: &State) -> HookResult;
            fn finish(&mut self) -> HookResult;
            fn sent(&self) -> Option<Sent>;
            $(fn $handler(&mut self, cx: &$Event<'_>) -> Reply;)*
        }

        impl<H: Hook> Erased for H {
            fn kind(&self) -> HookKind {
                H::Verdict::KIND
            }
            fn any(&self) -> &dyn Any {
                self.__any()
            }
            fn events(&self) -> Events {
                self.__events().without(self.idle())
            }
            fn name(&self) -> String {
                Hook::name(self)
            }
            fn access(&self) -> Access {
                Hook::access(self)
            }
            fn tier(&self) -> Tier {
                Hook::tier(self)
            }
            fn policy(&self) -> Policy {
                Hook::policy(self)
            }
            fn wants_point(&self, point: &str) -> bool {
                Hook::wants_point(self, point)
            }
            fn listens(&self, phase: Phase, progress: &Progress) -> bool {
                Hook::listens(self, phase, progress)
            }
            fn state_dict(&self) -> HookResult<State> {
                Hook::state_dict(self)
            }
            fn load_state_dict(&mut self, state: &State) -> HookResult {
                Hook::load_state_dict(self, state)
            }
            fn check_state_dict(&self, state: &State) -> HookResult {
                Hook::check_state_dict(self, state)
            }
            fn finish(&mut self) -> HookResult {
                Hook::finish(self)
            }
            fn sent(&self) -> Option<Sent> {
                Hook::sent(self)
            }
            $(
                #[inline]
                fn $handler(&mut self, cx: &$Event<'_>) -> Reply {
                    heard(as_decision!($mode Hook::$handler(self, cx)))
                }
            )*
        }
    };
}

for_each_event!(define_erased);

/// A hook that receives events, boxed.
pub struct EventHook(pub(crate) Box<dyn Erased>);

/// A hook of any kind, boxed.
pub struct AnyHook(pub(crate) Boxed);

pub(crate) enum Boxed {
    Events(EventHook),
    Update(Box<dyn UpdateHook>),
}

impl AnyHook {
    /// Boxes a hook that receives events.
    pub fn new(hook: impl Hook) -> AnyHook {
        AnyHook::receiving(hook)
    }

    /// Gives the hook the state of a checkpoint, outside of a run: to check it.
    pub fn load_state(&mut self, state: &State) -> HookResult {
        match &mut self.0 {
            Boxed::Events(hook) => hook.0.load_state_dict(state),
            Boxed::Update(hook) => hook.load_state_dict(state),
        }
    }

    /// Boxes an update hook.
    pub fn update(hook: impl UpdateHook) -> AnyHook {
        AnyHook(Boxed::Update(Box::new(hook)))
    }

    pub(crate) fn receiving(hook: impl Erased + 'static) -> AnyHook {
        AnyHook(Boxed::Events(EventHook(Box::new(hook))))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.0 {
            Boxed::Events(hook) => hook.0.name(),
            Boxed::Update(hook) => hook.name(),
        }
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> HookKind {
        match &self.0 {
            Boxed::Events(hook) => hook.kind(),
            Boxed::Update(_) => HookKind::Update,
        }
    }

    /// Whether it changes gradients: an update hook does, unless it says otherwise.
    #[must_use]
    pub fn changes_gradients(&self) -> bool {
        matches!(&self.0, Boxed::Update(hook) if hook.changes_gradients())
    }

    /// The events it wants. An update hook wants none: it is called between two of them.
    #[must_use]
    pub fn events(&self) -> Events {
        match &self.0 {
            Boxed::Events(hook) => hook.0.events(),
            Boxed::Update(_) => Events::NONE,
        }
    }

    /// Where it stands among the other hooks. Update hooks stand in registration order.
    #[must_use]
    pub fn tier(&self) -> Tier {
        match &self.0 {
            Boxed::Events(hook) => hook.0.tier(),
            Boxed::Update(_) => Tier::User,
        }
    }

    /// What it reads and writes, and how often it fires.
    #[must_use]
    pub fn access(&self) -> Access {
        match &self.0 {
            Boxed::Events(hook) => hook.0.access(),
            Boxed::Update(hook) => hook.access(),
        }
    }

    /// What its errors do to the run.
    #[must_use]
    pub fn policy(&self) -> Policy {
        match &self.0 {
            Boxed::Events(hook) => hook.0.policy(),
            Boxed::Update(hook) => hook.policy(),
        }
    }
}

impl EventHook {
    /// Its kind. An observer that looks at activations is what people call a forward hook.
    pub(crate) fn kind(&self) -> HookKind {
        match self.0.kind() {
            HookKind::Observer if self.0.events().contains(Event::Activation) => HookKind::Forward,
            kind => kind,
        }
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
/// assert_eq!(list.map(|hook| hook.name()), ["a", "b"]);
/// ```
#[macro_export]
macro_rules! hooks {
    ($($hook:expr),* $(,)?) => { [$($crate::AnyHook::from($hook)),*] };
}
