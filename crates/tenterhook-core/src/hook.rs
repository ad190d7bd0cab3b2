//! The trait behind every hook, and the two kinds that receive events.

use std::any::Any;

use crate::access::Access;
#[allow(clippy::wildcard_imports)] // forty contexts
use crate::context::*;
use crate::event::Events;
use crate::failure::{BoxError, Policy};
use crate::flow::Decision;
use crate::plan::Tier;
use crate::progress::{Phase, Progress};
use crate::sent::Sent;
use crate::state::State;

/// What a handler returns: its verdict, or an error that the hook's policy judges.
pub type HookResult<V = ()> = Result<V, BoxError>;

/// What a kind of hook may say about an event: nothing, or a decision.
pub trait Verdict: Default + Into<Decision> + sealed::Sealed {
    /// The failure policy of this kind of hook, unless it says otherwise.
    const POLICY: Policy;
    /// The name of the kind.
    const KIND: crate::roster::HookKind;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for () {}
    impl Sealed for crate::flow::Decision {}
}

impl Verdict for () {
    const POLICY: Policy = Policy::DISABLE;
    const KIND: crate::roster::HookKind = crate::roster::HookKind::Observer;
}

impl Verdict for Decision {
    const POLICY: Policy = Policy::ABORT;
    const KIND: crate::roster::HookKind = crate::roster::HookKind::Controller;
}

impl From<()> for Decision {
    fn from((): ()) -> Decision {
        Decision::CONTINUE
    }
}

macro_rules! returned {
    (steer) => { HookResult<Self::Verdict> };
    (watch) => { HookResult };
}

macro_rules! define_hook {
    ($($(#[$doc:meta])* $mode:ident $handler:ident $Event:ident;)*) => {
        /// Something that receives events. Written as `#[hook] impl Observer for …` or
        /// `#[hook] impl Controller for …`, never by hand: the attribute reads off the methods which
        /// events the hook wants, so that list cannot go stale.
        ///
        /// A hook is `'static` and a context borrows from the loop, so no hook can keep a context, or a
        /// tensor or loss out of one: keep the numbers.
        #[diagnostic::on_unimplemented(
            message = "`{Self}` is not a hook that receives events",
            label = "write `#[hook] impl Observer for …` or `#[hook] impl Controller for …`",
            note = "update hooks are registered with `add_update_hook`; `AnyHook::update(hook)` has `every`, `after`, `once`, `when` and `sampled`"
        )]
        pub trait Hook: Send + 'static {
            /// `()` for an observer, [`Decision`] for a controller.
            type Verdict: Verdict;

            /// The hook itself; a wrapper shows the hook it wraps.
            #[doc(hidden)]
            fn __any(&self) -> &dyn Any
            where
                Self: Sized,
            {
                self
            }

            /// The events it wants; written by `#[hook]`.
            #[doc(hidden)]
            fn __events(&self) -> Events;

            /// Its name, unique among the hooks of a run. `#[hook]` makes it from the type's name.
            fn name(&self) -> String;

            /// What it reads and writes in the metrics and on the board.
            fn access(&self) -> Access {
                Access::none()
            }

            /// Where it stands among the other hooks.
            fn tier(&self) -> Tier {
                Tier::User
            }

            /// What its errors do to the run.
            fn policy(&self) -> Policy {
                Self::Verdict::POLICY
            }

            /// The events that it has handlers for and does not want all the same, with its options: the plan
            /// leaves it out of them, and nothing is built for it. Asked when it is registered, enabled or
            /// disabled.
            fn idle(&self) -> Events {
                Events::NONE
            }

            /// Which of the activations that a module names it wants to see at `on_activation`. Asked for
            /// every activation that is shown, so it must be cheap.
            fn wants_point(&self, _point: &str) -> bool {
                true
            }

            /// Whether it looks at activations now. Asked once per step of the module, after the events of the
            /// batch's start, and again before it is shown one: where no hook does, a module builds not even the
            /// names of its points. An answer that changes within a step counts from the next one on.
            fn listens(&self, _phase: Phase, _progress: &Progress) -> bool {
                true
            }

            /// Its own state, for a checkpoint. Every hook is asked.
            fn state_dict(&self) -> HookResult<State> {
                Ok(State::empty())
            }

            /// Its own state, from a checkpoint.
            fn load_state_dict(&mut self, _state: &State) -> HookResult {
                Ok(())
            }

            /// Whether it could load this state; it must change nothing. Asked before `setup` where the hook's errors end
            /// the run, so that a resume is refused before any hook is called. What this does not find,
            /// [`load_state_dict`](Hook::load_state_dict) refuses after `setup`. `#[hook(state = "..")]` writes both.
            fn check_state_dict(&self, _state: &State) -> HookResult {
                Ok(())
            }

            /// The call is over and everybody torn down: waits for what was handed to a worker thread. Asked once,
            /// of every hook, disabled ones too; an error is a failure like any other.
            fn finish(&mut self) -> HookResult {
                Ok(())
            }

            /// What became of what it handed to a worker thread in this call, where it has one. Asked after
            /// [`finish`](Hook::finish), for the summary.
            fn sent(&self) -> Option<Sent> {
                None
            }

            $(
                $(#[$doc])*
                fn $handler(&mut self, _cx: &$Event<'_>) -> returned!($mode) {
                    Ok(Default::default())
                }
            )*
        }
    };
}

for_each_event!(define_hook);

/// A hook that watches: it sees every context by shared reference and returns nothing but an error,
/// so it cannot stop, change or delay the numbers.
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
pub trait Observer: Hook<Verdict = ()> {}

impl<H: Hook<Verdict = ()>> Observer for H {}

/// A hook that may steer: it sees the same as an observer and returns a [`Decision`].
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
pub trait Controller: Hook<Verdict = Decision> {}

impl<H: Hook<Verdict = Decision>> Controller for H {}
