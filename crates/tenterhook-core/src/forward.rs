//! Forward hooks: observers of named activations during the module's step.

use crate::failure::Policy;
use crate::hook::HookResult;
use crate::metrics::LogOptions;
use crate::moment::Shared;
use crate::progress::{Phase, Progress};
use crate::tensor::Tensors;

/// An observer of activations. It sees them by shared reference and cannot change them.
pub trait ForwardHook: Send + 'static {
    /// Its name, unique among the hooks of a run.
    fn name(&self) -> String;
    /// What its errors do to the run.
    fn policy(&self) -> Policy {
        Policy::DISABLE
    }
    /// Whether it wants this point.
    fn wants(&self, _point: &str) -> bool {
        true
    }
    /// Looks at an activation.
    fn on_activation(&mut self, activation: &Activation<'_>) -> HookResult;
}

/// One named activation.
pub struct Activation<'a> {
    /// The point's name, such as `blocks.3.mlp`.
    pub point: &'a str,
    /// Its values, one tensor.
    pub values: Tensors<'a>,
    /// Which loop is running.
    pub phase: Phase,
    /// Where the run stands.
    pub progress: Progress,
    pub(crate) shared: &'a Shared,
}

impl Activation<'_> {
    /// Logs a number. A name that the module or the trainer logs is theirs, and is left out.
    pub fn log(&self, name: &str, value: f64) {
        let _ = self.shared.metrics.log_as_hook(name, value, LogOptions::usual(self.phase));
    }
}
