//! The option `log_frequency`: every n-th optimizer step.

use tenterhook_core::{Cadence, HookSpec, Progress};

/// The value of `log_frequency`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogEvery(pub(crate) u64);

impl LogEvery {
    /// Whether the current step is logged.
    pub(crate) fn is_due(self, progress: &Progress) -> bool {
        progress.current_step().is_multiple_of(self.0)
    }

    /// Adds the cadence to the hook's spec.
    pub(crate) fn declare(self, spec: HookSpec) -> HookSpec {
        spec.every_option("log_frequency", Cadence::Steps(self.0))
    }
}
