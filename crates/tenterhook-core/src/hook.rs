//! The traits that hook authors implement, and the one that the runner calls.

use std::any::Any;

#[allow(clippy::wildcard_imports)] // forty contexts
use crate::context::*;
use crate::delivery_stats::DeliveryStats;
use crate::failure::BoxError;
use crate::flow::Decision;
use crate::progress::{Phase, Progress};
use crate::spec::HookSpec;
use crate::state::State;
use crate::update::{Gradients, Update};

/// What a handler returns: nothing or a [`Decision`], or an error that the hook's policy judges.
pub type HookResult<V = ()> = Result<V, BoxError>;

/// What the runner receives from a hook: usually nothing, and then it is one word that fits a register.
pub type EventResult = Result<(), Box<HookResponse>>;

/// What a hook said.
#[derive(Debug)]
pub enum HookResponse {
    /// A decision other than to continue.
    Decision(Decision),
    /// An error.
    Error(BoxError),
}

/// What a handler returned, as the runner takes it.
#[inline]
pub fn event_result<V: Into<Decision>>(result: HookResult<V>) -> EventResult {
    match result.map(Into::into) {
        Ok(decision) if decision.is_continue() => Ok(()),
        Ok(decision) => Err(Box::new(HookResponse::Decision(decision))),
        Err(error) => Err(Box::new(HookResponse::Error(error))),
    }
}

impl From<()> for Decision {
    fn from((): ()) -> Decision {
        Decision::CONTINUE
    }
}

/// What a hook declares besides the arguments of the attribute.
macro_rules! declaring {
    () => {
        /// Declares what depends on the hook's options: its name, its place, its policy, what it reads and writes. The
        /// given value holds what the attribute says.
        fn declare(&self, spec: HookSpec) -> HookSpec {
            spec
        }
    };
}

/// What a checkpoint keeps of a hook of any kind.
macro_rules! keeping_state {
    () => {
        /// Its own state, for a checkpoint. Every hook is asked.
        fn state_dict(&self) -> HookResult<State> {
            Ok(State::empty())
        }

        /// Its own state, from a checkpoint.
        fn load_state_dict(&mut self, _state: &State) -> HookResult {
            Ok(())
        }

        /// Whether it could load this state; it must change nothing. PendingChange before `setup` where the hook's errors end
        /// the run, so that a resume is refused before any hook is called. What this does not find,
        /// `load_state_dict` refuses after `setup`. `#[hook(state = "..")]` writes both.
        fn check_state_dict(&self, _state: &State) -> HookResult {
            Ok(())
        }
    };
}

/// What the runner asks of a hook that receives events, besides its handlers.
macro_rules! watching {
    () => {
        keeping_state! {}

        /// Which of the activations that a module names it wants to see at `on_activation`. PendingChange for
        /// every activation that is shown, so it must be cheap.
        fn wants_point(&self, _point: &str) -> bool {
            true
        }

        /// Whether it looks at activations now. PendingChange once per step of the module, after the events of the
        /// batch's start, and again before it is shown one: where no hook does, a module builds not even the
        /// names of its points. An answer that changes within a step counts from the next one on.
        fn wants_activations(&self, _phase: Phase, _progress: &Progress) -> bool {
            true
        }

        /// The call is over and everything is torn down: waits for what was handed to a worker thread. PendingChange once,
        /// of every hook, disabled ones too; an error is a failure like any other.
        fn finish(&mut self) -> HookResult {
            Ok(())
        }

        /// What became of what it handed to a worker thread in this call, where it has one. PendingChange after
        /// `finish`, for the summary.
        fn delivery_stats(&self) -> Option<DeliveryStats> {
            None
        }
    };
}

pub(crate) use {declaring, keeping_state};

/// A hook as the runner calls it: one method for all events.
///
/// Authors write [`Observer`], [`Controller`] or [`UpdateHook`](crate::UpdateHook), and `#[hook]` implements this trait. By
/// hand it is written for what treats all events alike: wrappers and recorders.
///
/// A hook is `'static` and a context borrows from the loop, so no hook can keep a context, or a
/// tensor or loss out of one: keep the numbers.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a hook",
    label = "write `#[hook]` above its `impl Observer for …`, `impl Controller for …` or `impl UpdateHook for …`"
)]
pub trait Hook: Any + Send {
    /// What it declares. PendingChange once, when the hook is registered.
    fn spec(&self) -> HookSpec;

    /// Receives an event that it declares to want. What an observer decides is an error.
    #[inline]
    fn deliver(&mut self, _event: EventRef<'_>) -> EventResult {
        Ok(())
    }

    /// Changes gradients, as [`UpdateHook::update`](crate::UpdateHook::update). Only update hooks are asked.
    fn update(&mut self, _gradients: &mut Gradients<'_>, _cx: &Update<'_>) -> HookResult {
        Ok(())
    }

    watching! {}

    /// The hook that a wrapper wraps.
    fn wrapped(&self) -> Option<&dyn Hook> {
        None
    }
}

impl dyn Hook {
    /// The hook itself where it is of this type, behind wrappers too.
    pub(crate) fn downcast_ref<H: Hook>(&self) -> Option<&H> {
        let mut hook = self;
        while let Some(wrapped) = hook.wrapped() {
            hook = wrapped;
        }
        (hook as &dyn Any).downcast_ref()
    }
}

macro_rules! decided {
    (steer) => { HookResult<Decision> };
    (watch) => { HookResult };
}

macro_rules! define_kinds {
    ($($(#[$doc:meta])* $mode:ident $handler:ident $Event:ident $Phase:ident $sources:tt;)*) => {
        /// A hook that watches: it sees every context by shared reference and returns nothing but an error,
        /// so it cannot stop, change or delay the numbers.
        ///
        /// It receives the events whose handlers it writes; `#[hook]` notes which they are, and names the hook after
        /// its type.
        ///
        /// ```
        /// use tenterhook_core::{hook, HookResult, Observer, StepEnd};
        ///
        /// struct Losses(Vec<f64>);
        ///
        /// #[hook]
        /// impl Observer for Losses {
        ///     fn on_step_end(&mut self, cx: &StepEnd) -> HookResult {
        ///         self.0.push(cx.loss.value());
        ///         Ok(())
        ///     }
        /// }
        /// ```
        pub trait Observer: Send + 'static {
            declaring! {}
            watching! {}
            $(
                $(#[$doc])*
                fn $handler(&mut self, _cx: &$Event<'_>) -> HookResult {
                    Ok(())
                }
            )*
        }

        /// A hook that may steer: it sees the same as an observer and returns a [`Decision`] where one counts.
        ///
        /// ```
        /// use tenterhook_core::{hook, Controller, Decision, HookResult, StepEnd};
        ///
        /// struct StopAt(u64);
        ///
        /// #[hook]
        /// impl Controller for StopAt {
        ///     fn on_step_end(&mut self, cx: &StepEnd) -> HookResult<Decision> {
        ///         if cx.step >= self.0 {
        ///             return Ok(Decision::stop(format!("{} steps are enough", self.0)));
        ///         }
        ///         Ok(Decision::CONTINUE)
        ///     }
        /// }
        /// ```
        pub trait Controller: Send + 'static {
            declaring! {}
            watching! {}
            $(
                $(#[$doc])*
                fn $handler(&mut self, _cx: &$Event<'_>) -> decided!($mode) {
                    Ok(Default::default())
                }
            )*
        }
    };
}

for_each_event!(define_kinds);
