//! Update hooks: they receive the gradients by parameter name after `on_before_optimizer_step` and
//! before clipping, and what they leave is what the optimizer uses.

mod engine;
mod gradients;
mod trace;

use std::any::Any;

use crate::access::Access;
use crate::event::Event;
use crate::failure::Policy;
use crate::hook::HookResult;
use crate::moment::Moment;
use crate::state::State;
use crate::tensor::DType;
use crate::wrap::{Door, Gate};

pub use engine::{GradientsMut, Kept};
pub use gradients::{Gradient, Gradients};
pub use trace::Touched;

/// A hook that changes gradients. It must be registered as such; nothing else can.
///
/// Written as `#[hook] impl UpdateHook for …`, it has a name and goes wherever hooks go; a plain `impl` has to
/// say its name and is registered with `add_update_hook`.
///
/// ```
/// use tenterhook_core::{hook, Gradients, HookResult, Update, UpdateHook};
///
/// /// Halves the gradients of the embeddings for a while.
/// struct Gently;
///
/// #[hook]
/// impl UpdateHook for Gently {
///     fn update(&mut self, gradients: &mut Gradients, cx: &Update) -> HookResult {
///         if cx.current_step() <= 100 && gradients.contains("embedding.weight") {
///             gradients.get("embedding.weight")?.scale(0.5);
///         }
///         Ok(())
///     }
/// }
/// ```
pub trait UpdateHook: Any + Send {
    /// Its name, unique among the hooks of a run.
    fn name(&self) -> String;

    /// What its errors do to the run.
    fn policy(&self) -> Policy {
        Policy::ABORT
    }

    /// What it reads and writes in the metrics and on the board, and how often it fires.
    fn access(&self) -> Access {
        Access::none()
    }

    /// Whether a gradient that it changed and that is not finite then is a failure of the hook.
    fn check_finite(&self) -> bool {
        false
    }

    /// Whether it changes gradients at all. One that does not is listed and never called.
    fn changes_gradients(&self) -> bool {
        true
    }

    /// Changes what it wants to change. On an error or a panic all its changes are undone.
    fn update(&mut self, gradients: &mut Gradients<'_>, cx: &Update<'_>) -> HookResult;

    /// The hook that this one wraps, if it does.
    #[doc(hidden)]
    fn __wrapped(&self) -> Option<&dyn UpdateHook> {
        None
    }

    /// Its own state, for a checkpoint.
    fn state_dict(&self) -> HookResult<State> {
        Ok(State::empty())
    }

    /// Its own state, from a checkpoint.
    fn load_state_dict(&mut self, _state: &State) -> HookResult {
        Ok(())
    }

    /// Whether it could load this state; it must change nothing. Asked before any hook is called.
    fn check_state_dict(&self, _state: &State) -> HookResult {
        Ok(())
    }
}

/// Where an update hook stands: the moment, and the optimizer that is about to step.
pub struct Update<'a> {
    /// The state of the run; it shows no parameters, since the module is being changed.
    pub moment: Moment<'a>,
    /// Which optimizer is about to step.
    pub optimizer: usize,
}

impl<'a> std::ops::Deref for Update<'a> {
    type Target = Moment<'a>;
    fn deref(&self) -> &Moment<'a> {
        &self.moment
    }
}

/// Why a change of a gradient is refused. The update hook has failed then, whatever it makes of the error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateError {
    /// No parameter of this optimizer has that name.
    #[error("there is no parameter `{name}` among those of this optimizer{hint}")]
    Unknown {
        /// The name asked for.
        name: String,
        /// The nearest there is, as the end of a sentence.
        hint: String,
    },
    /// The parameter has no gradient in this step.
    #[error("`{0}` has no gradient in this step; ask `contains` first")]
    Missing(String),
    /// Another shape than the parameter's.
    #[error("the gradient of `{name}` has the shape {expected:?}, and cannot become one of {given}")]
    Shape {
        /// The parameter.
        name: String,
        /// Its shape.
        expected: Vec<usize>,
        /// What was given instead.
        given: String,
    },
    /// Another element type than the gradient's.
    #[error("the gradient of `{name}` is of {}, and cannot become one of {}", expected.name(), given.name())]
    DType {
        /// The parameter.
        name: String,
        /// Its element type.
        expected: DType,
        /// What was given instead.
        given: DType,
    },
    /// A limit that nothing can be clipped at.
    #[error("gradients cannot be clipped at {0}; the limit must be a number of 0 or more")]
    Limit(String),
    /// A tensor that is none of the engine that computes the gradients.
    #[error("the gradient of `{0}` is no tensor of this engine")]
    OtherEngine(String),
}

/// The update hook that changes nothing: what stands where no other is enabled.
#[derive(Clone, Copy, Debug, Default)]
pub struct Identity;

impl UpdateHook for Identity {
    fn name(&self) -> String {
        "identity".into()
    }
    fn changes_gradients(&self) -> bool {
        false
    }
    fn update(&mut self, _: &mut Gradients<'_>, _: &Update<'_>) -> HookResult {
        Ok(())
    }
}

impl From<Identity> for crate::AnyHook {
    fn from(hook: Identity) -> crate::AnyHook {
        crate::AnyHook::update(hook)
    }
}

/// An update hook behind a gate.
pub(crate) struct GatedUpdate<G> {
    pub(crate) hook: Box<dyn UpdateHook>,
    pub(crate) door: Door<G>,
}

impl<G: Gate> UpdateHook for GatedUpdate<G> {
    fn name(&self) -> String {
        self.hook.name()
    }
    fn policy(&self) -> Policy {
        self.hook.policy()
    }
    fn access(&self) -> Access {
        self.door.access(self.hook.access())
    }
    fn __wrapped(&self) -> Option<&dyn UpdateHook> {
        Some(&*self.hook)
    }
    fn check_finite(&self) -> bool {
        self.hook.check_finite()
    }
    fn changes_gradients(&self) -> bool {
        self.hook.changes_gradients()
    }
    fn update(&mut self, gradients: &mut Gradients<'_>, cx: &Update<'_>) -> HookResult {
        // Gradients change between this event and clipping; a gate lets both pass or neither.
        if self.door.passes(Event::BeforeOptimizerStep, &cx.moment) {
            self.hook.update(gradients, cx)
        } else {
            Ok(())
        }
    }
    fn state_dict(&self) -> HookResult<State> {
        Ok(self.door.wrapped(self.hook.state_dict()?))
    }
    fn load_state_dict(&mut self, state: &State) -> HookResult {
        let inner = self.door.load(state)?;
        if inner.is_empty() { Ok(()) } else { self.hook.load_state_dict(&inner) }
    }
    fn check_state_dict(&self, state: &State) -> HookResult {
        let (_, inner) = state.unwrapped()?;
        if inner.is_empty() { Ok(()) } else { self.hook.check_state_dict(&inner) }
    }
}
