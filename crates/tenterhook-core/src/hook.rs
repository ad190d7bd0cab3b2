//! The traits that hook authors implement, and [`Hook`], the one that the runner calls.

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

/// The result of a handler: nothing, a [`Decision`], or an error, which the hook's failure policy handles.
pub type HookResult<V = ()> = Result<V, BoxError>;

/// The result that a hook returns to the runner. The usual result, `Ok(())`, fits a register.
pub type EventResult = Result<(), Box<HookResponse>>;

/// A hook's response to an event, other than to continue.
#[derive(Debug)]
pub enum HookResponse {
    /// A decision other than to continue.
    Decision(Decision),
    /// An error.
    Error(BoxError),
}

/// Converts the result of a handler into what the runner expects.
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

/// The method of every kind of hook that completes its spec.
macro_rules! declare_method {
    () => {
        /// Declares what depends on the hook's options: name, tier, policy, reads and writes. `spec` holds
        /// the declarations of the attribute.
        fn declare(&self, spec: HookSpec) -> HookSpec {
            spec
        }
    };
}

/// The methods of every kind of hook that save and restore its state.
macro_rules! state_methods {
    () => {
        /// The hook's own state, for a checkpoint. Called for every hook, disabled ones too.
        fn state_dict(&self) -> HookResult<State> {
            Ok(State::empty())
        }

        /// Restores the hook's own state from a checkpoint.
        fn load_state_dict(&mut self, _state: &State) -> HookResult {
            Ok(())
        }

        /// Checks whether the hook could load this state, without changing anything.
        ///
        /// Called before `setup` if the hook's policy is `abort`, so an invalid state is refused before any
        /// hook is called. An error that this method misses is raised by `load_state_dict` after `setup`.
        /// `#[hook(state = "..")]` generates both methods.
        fn check_state_dict(&self, _state: &State) -> HookResult {
            Ok(())
        }
    };
}

/// The methods of observers and controllers besides their handlers.
macro_rules! observer_methods {
    () => {
        state_methods! {}

        /// Whether the hook wants the activation of this name at `on_activation`. Called for every activation
        /// that the module exposes, so it must be cheap.
        fn wants_point(&self, _point: &str) -> bool {
            true
        }

        /// Whether the hook wants activations at all in this step.
        ///
        /// Called once per step of the module, after the events of the batch's start, and again before each
        /// activation is delivered. If no hook wants any, the module does not even build their names. An
        /// answer that changes within a step takes effect in the next one.
        fn wants_activations(&self, _phase: Phase, _progress: &Progress) -> bool {
            true
        }

        /// Waits for work that was handed to a worker thread. Called once at the end of a call, after
        /// teardown, for every hook, disabled ones too.
        fn finish(&mut self) -> HookResult {
            Ok(())
        }

        /// Statistics of what the hook handed to a worker thread in this call, for the summary. Called after
        /// `finish`.
        fn delivery_stats(&self) -> Option<DeliveryStats> {
            None
        }
    };
}

pub(crate) use {declare_method, state_methods};

/// A hook as the runner calls it, with one method for all events.
///
/// Authors write [`Observer`], [`Controller`] or [`UpdateHook`](crate::UpdateHook), and `#[hook]` implements
/// this trait. Implement it directly for hooks that treat all events alike, such as recorders and wrappers. A
/// wrapper forwards `deliver` and `update`, and returns the wrapped hook from `wrapped` and `wrapped_mut`;
/// all other methods forward to that by default.
///
/// A hook is `'static` and a context borrows from the loop, so a hook can keep numbers, but no context,
/// tensor or loss.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a hook",
    label = "write `#[hook]` above its `impl Observer for …`, `impl Controller for …` or `impl UpdateHook for …`"
)]
pub trait Hook: Any + Send {
    /// The hook's declarations. Called once, when the hook is registered.
    fn spec(&self) -> HookSpec;

    /// Receives an event that the spec lists. A decision of an observer is an error.
    #[inline]
    fn deliver(&mut self, _event: EventRef<'_>) -> EventResult {
        Ok(())
    }

    /// Changes gradients, as [`UpdateHook::update`](crate::UpdateHook::update). Called for update hooks only.
    fn update(&mut self, _gradients: &mut Gradients<'_>, _cx: &Update<'_>) -> HookResult {
        Ok(())
    }

    /// The wrapped hook, if this is a wrapper.
    fn wrapped(&self) -> Option<&dyn Hook> {
        None
    }

    /// The wrapped hook to change. A wrapper implements it together with [`wrapped`](Hook::wrapped): the first saves the
    /// state of the wrapped hook, the second restores it.
    fn wrapped_mut(&mut self) -> Option<&mut dyn Hook> {
        None
    }

    /// See [`Observer::wants_point`].
    fn wants_point(&self, point: &str) -> bool {
        self.wrapped().is_none_or(|hook| hook.wants_point(point))
    }

    /// See [`Observer::wants_activations`].
    fn wants_activations(&self, phase: Phase, progress: &Progress) -> bool {
        self.wrapped().is_none_or(|hook| hook.wants_activations(phase, progress))
    }

    /// See [`Observer::state_dict`].
    fn state_dict(&self) -> HookResult<State> {
        self.wrapped().map_or_else(|| Ok(State::empty()), Hook::state_dict)
    }

    /// See [`Observer::load_state_dict`].
    fn load_state_dict(&mut self, state: &State) -> HookResult {
        self.wrapped_mut().map_or(Ok(()), |hook| hook.load_state_dict(state))
    }

    /// See [`Observer::check_state_dict`].
    fn check_state_dict(&self, state: &State) -> HookResult {
        self.wrapped().map_or(Ok(()), |hook| hook.check_state_dict(state))
    }

    /// See [`Observer::finish`].
    fn finish(&mut self) -> HookResult {
        self.wrapped_mut().map_or(Ok(()), Hook::finish)
    }

    /// See [`Observer::delivery_stats`].
    fn delivery_stats(&self) -> Option<DeliveryStats> {
        self.wrapped()?.delivery_stats()
    }
}

impl dyn Hook {
    /// The hook as this type, even inside wrappers.
    pub(crate) fn downcast_ref<H: Hook>(&self) -> Option<&H> {
        let mut hook = self;
        while let Some(wrapped) = hook.wrapped() {
            hook = wrapped;
        }
        (hook as &dyn Any).downcast_ref()
    }
}

macro_rules! controller_result {
    (steer) => { HookResult<Decision> };
    (watch) => { HookResult };
}

macro_rules! define_kinds {
    ($($(#[$doc:meta])* $mode:ident $handler:ident $Event:ident $Phase:ident $sources:tt;)*) => {
        /// A hook that watches training and cannot change it: it sees every context by shared reference and
        /// returns nothing but an error.
        ///
        /// It receives the events whose handlers it implements. `#[hook]` lists them in the spec and names
        /// the hook after its type.
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
            declare_method! {}
            observer_methods! {}
            $(
                $(#[$doc])*
                fn $handler(&mut self, _cx: &$Event<'_>) -> HookResult {
                    Ok(())
                }
            )*
        }

        /// A hook that can steer training: it sees the same contexts as an observer, and returns a
        /// [`Decision`] from every handler whose event allows one.
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
            declare_method! {}
            observer_methods! {}
            $(
                $(#[$doc])*
                fn $handler(&mut self, _cx: &$Event<'_>) -> controller_result!($mode) {
                    Ok(Default::default())
                }
            )*
        }
    };
}

for_each_event!(define_kinds);
