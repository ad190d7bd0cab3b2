//! Update hooks, which change gradients after `on_before_optimizer_step` and before clipping.
//!
//! A hook receives [`Gradients`], which accesses the engine through [`GradientsMut`]. Before the first change
//! of a gradient the engine saves it. Burn shares its tensors, so saving one increments a reference count,
//! and the change copies. After a failure the saved gradients are restored. `Gradients` records a refused
//! change, so a hook cannot hide it.

mod engine;
mod gradients;
mod trace;

use crate::hook::{Hook, HookResult, declare_method, state_methods};
use crate::run_context::RunContext;
use crate::spec::HookSpec;
use crate::state::State;
use crate::tensor::DType;

pub use engine::{GradientsMut, SavedGradient};
pub use gradients::{Gradient, Gradients};
pub use trace::GradientChange;

/// A hook that changes gradients before the optimizer step. `#[hook]` names it after its type.
///
/// ```
/// use tenterhook_core::{hook, Gradients, HookResult, Update, UpdateHook};
///
/// /// Halves the gradients of the embeddings for 100 steps.
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
pub trait UpdateHook: Send + 'static {
    declare_method! {}

    /// Changes gradients. After an error or a panic all changes of the hook are undone.
    fn update(&mut self, gradients: &mut Gradients<'_>, cx: &Update<'_>) -> HookResult;

    state_methods! {}
}

/// The context of an update hook: the state of the run and the optimizer.
pub struct Update<'a> {
    /// The state of the run. It shows no parameters, since the module is being changed.
    pub run_cx: RunContext<'a>,
    /// Index of the optimizer.
    pub optimizer: usize,
}

impl<'a> std::ops::Deref for Update<'a> {
    type Target = RunContext<'a>;
    fn deref(&self) -> &RunContext<'a> {
        &self.run_cx
    }
}

/// The error for a change of a gradient that is refused. The update hook counts as failed even if it ignores
/// the error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateError {
    /// The optimizer has no parameter of this name.
    #[error("there is no parameter `{name}` among those of this optimizer{hint}")]
    Unknown {
        /// The name that was given.
        name: String,
        /// A suggestion, as the end of a sentence.
        hint: String,
    },
    /// The parameter has no gradient in this step.
    #[error("`{0}` has no gradient in this step; ask `contains` first")]
    Missing(String),
    /// The shape differs from the parameter's.
    #[error("the gradient of `{name}` has the shape {expected:?}, and cannot become one of {given}")]
    Shape {
        /// The parameter.
        name: String,
        /// Its shape.
        expected: Vec<usize>,
        /// The given shape.
        given: String,
    },
    /// The element type differs from the gradient's.
    #[error("the gradient of `{name}` is of {}, and cannot become one of {}", expected.name(), given.name())]
    DType {
        /// The parameter.
        name: String,
        /// Its element type.
        expected: DType,
        /// The given element type.
        given: DType,
    },
    /// The limit for clipping is negative or not a number.
    #[error("gradients cannot be clipped at {0}; the limit must be a number of 0 or more")]
    Limit(String),
    /// The tensor is of another engine than the gradients.
    #[error("the gradient of `{0}` is not a tensor of this engine")]
    OtherEngine(String),
}

/// The update hook that changes nothing. It is listed if no other update hook is enabled.
#[derive(Clone, Copy, Debug, Default)]
pub struct Identity;

impl Hook for Identity {
    fn spec(&self) -> HookSpec {
        HookSpec::update("identity").changes_gradients(false)
    }
}
