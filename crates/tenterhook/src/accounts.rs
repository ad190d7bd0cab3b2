//! Accounting of hooks: measures calls and steps, checks budgets, and charges hooks for work on their behalf.

use std::time::Duration;

use tenterhook_core::{BudgetOverrun, Clock, Event, HookRunner};

use crate::run::HookCosts;

/// The number of training batches between two checks of the budgets.
const CHECK_EVERY: u64 = 100;

/// The time of a trainer's calls, and of the training steps in them: without set-up, validations, and the
/// ends of epochs and of training.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TimeSpent {
    pub(crate) calls: Duration,
    pub(crate) steps: Duration,
}

/// When this call and its current steps began, and the time of earlier calls and steps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Accounts {
    began: Duration,
    steps_began: Option<Duration>,
    /// The number of batches before the first step of this call.
    batches_before: Option<u64>,
    before: TimeSpent,
}

impl Accounts {
    /// Starts accounting, if it is enabled. Otherwise nothing here reads the clock.
    pub(crate) fn open(hooks: &mut HookRunner, clock: &dyn Clock, on: bool, before: TimeSpent) -> Accounts {
        hooks.set_accounting(on);
        if !on {
            return Accounts::default();
        }
        hooks.end_steps();
        Accounts { began: clock.elapsed(), before, ..Accounts::default() }
    }

    /// Starts measuring training steps, also after a validation.
    pub(crate) fn begin_steps(&mut self, hooks: &mut HookRunner, clock: &dyn Clock, total_batches: u64) {
        if hooks.is_accounting() && self.steps_began.is_none() {
            self.steps_began = Some(clock.elapsed());
            self.batches_before.get_or_insert(total_batches);
            hooks.begin_steps();
        }
    }

    /// Stops measuring training steps, also for a validation.
    pub(crate) fn end_steps(&mut self, hooks: &mut HookRunner, clock: &dyn Clock) {
        if let Some(began) = self.steps_began.take() {
            self.before.steps += clock.elapsed().saturating_sub(began);
            hooks.end_steps();
        }
    }

    /// The time of this trainer's calls so far, if accounting is enabled.
    pub(crate) fn spent(&self, hooks: &HookRunner, clock: &dyn Clock) -> TimeSpent {
        let Accounts { began, steps_began, before, .. } = *self;
        if !hooks.is_accounting() {
            return before;
        }
        let now = clock.elapsed();
        let of_steps = steps_began.map_or(Duration::ZERO, |began| now.saturating_sub(began));
        TimeSpent { calls: before.calls + now.saturating_sub(began), steps: before.steps + of_steps }
    }

    /// The costs of hooks so far; empty without accounting.
    pub(crate) fn hook_costs(&self, hooks: &HookRunner, clock: &dyn Clock) -> HookCosts {
        if hooks.is_accounting() {
            HookCosts::of(&hooks.costs(), self.spent(hooks, clock))
        } else {
            HookCosts::default()
        }
    }

    /// Whether the budgets of hooks are to be checked after this batch.
    #[inline]
    pub(crate) fn checks_budgets(&self, hooks: &HookRunner, total_batches: u64) -> bool {
        // Counted from the start of this call, so that the first check has enough measurements.
        let batches = || total_batches - self.batches_before.unwrap_or_default();
        hooks.has_budgets() && batches().is_multiple_of(CHECK_EVERY) && hooks.is_accounting()
    }

    /// The hooks that exceed their budgets. When training is done (`trained`), hooks are no longer disabled.
    pub(crate) fn overruns(
        &self,
        hooks: &mut HookRunner,
        clock: &dyn Clock,
        trained: bool,
    ) -> Vec<BudgetOverrun> {
        let spent = self.spent(hooks, clock).steps;
        hooks.check_budgets(spent, trained)
    }
}

/// Starts measuring a duration, if it is wanted.
#[inline]
pub(crate) fn stopwatch(clock: &dyn Clock, wanted: bool) -> Option<Duration> {
    wanted.then(|| clock.elapsed())
}

/// The time since then, or zero if it is not wanted.
#[inline]
pub(crate) fn since(clock: &dyn Clock, started: Option<Duration>) -> Duration {
    started.map_or(Duration::ZERO, |started| clock.elapsed().saturating_sub(started))
}

/// Charges a hook for the time since then, if it is measured.
pub(crate) fn charge_since(
    hooks: &mut HookRunner,
    clock: &dyn Clock,
    began: Option<Duration>,
    hook: &str,
    event: Event,
) {
    if began.is_some() {
        hooks.charge(hook, event, since(clock, began));
    }
}
