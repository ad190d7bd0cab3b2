//! Update hooks: they receive the gradients by parameter name after `on_before_optimizer_step` and
//! before clipping, and what they leave is what the optimizer uses.
//!
//! A hook gets [`Gradients`], which knows the engine only as [`GradientsMut`]: view, edit, replace, remove. Before the first change
//! of a gradient the engine is asked to keep it. Burn shares its tensors, so keeping one is a reference count, and the change
//! copies. After a failure the kept gradients are put back. A refused change is remembered by `Gradients`, so a hook cannot hide it.

mod engine;
mod gradients;
mod trace;

use crate::hook::{Hook, HookResult, declaring, keeping_state};
use crate::run_context::RunContext;
use crate::spec::HookSpec;
use crate::state::State;
use crate::tensor::DType;

pub use engine::{GradientsMut, SavedGradient};
pub use gradients::{Gradient, Gradients};
pub use trace::Touched;

/// A hook that changes gradients. It must be registered as such; nothing else can.
///
/// `#[hook]` names it after its type.
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
pub trait UpdateHook: Send + 'static {
    declaring! {}

    /// Changes what it wants to change. On an error or a panic all its changes are undone.
    fn update(&mut self, gradients: &mut Gradients<'_>, cx: &Update<'_>) -> HookResult;

    keeping_state! {}
}

/// Where an update hook stands: the moment, and the optimizer that is about to step.
pub struct Update<'a> {
    /// The state of the run; it shows no parameters, since the module is being changed.
    pub run_cx: RunContext<'a>,
    /// Which optimizer is about to step.
    pub optimizer: usize,
}

impl<'a> std::ops::Deref for Update<'a> {
    type Target = RunContext<'a>;
    fn deref(&self) -> &RunContext<'a> {
        &self.run_cx
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

impl Hook for Identity {
    fn spec(&self) -> HookSpec {
        HookSpec::update("identity").changes_gradients(false)
    }
}
