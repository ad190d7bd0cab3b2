//! Looking at every n-th step, by `log_frequency`.

use tenterhook_core::{Cadence, HookSpec, Progress};

/// A hook's `log_frequency`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace(pub(crate) u64);

impl Pace {
    /// Whether the step at hand is one to look at.
    pub(crate) fn is_due(self, progress: &Progress) -> bool {
        progress.current_step().is_multiple_of(self.0)
    }

    /// What the plan must know of it.
    pub(crate) fn declare(self, spec: HookSpec) -> HookSpec {
        spec.every_option("log_frequency", Cadence::Steps(self.0))
    }
}
