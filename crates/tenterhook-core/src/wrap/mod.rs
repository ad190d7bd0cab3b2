//! Wrappers that let a hook run less often: `every`, `once`, `after`, `when`, `sampled`.
//!
//! A wrapped hook keeps its name, tier, events, policy and state; only some of the events are withheld. A
//! wrapper decides for a whole training batch or epoch, so a hook that receives the start of a batch receives
//! its end too. Events outside of epochs (set-up, teardown, checkpoints, failures, …) and outside of `fit`
//! always pass.

mod condition;
mod gates;

use crate::account::ALL_TIMED;
use crate::any_hook::AnyHook;
use crate::cadence::{Cadence, CadenceError};
use crate::context::EventRef;
use crate::event::Event;
use crate::hook::{EventResult, Hook, HookResult};
use crate::progress::{Phase, Stage};
use crate::run_context::RunContext;
use crate::spec::HookSpec;
use crate::state::State;
use crate::update::{Gradients, Update};

pub use condition::Conditioned;
pub(crate) use condition::FIELDS;
pub use gates::{After, Every, Once, Sampled, When};

/// Decides which events pass to the wrapped hook.
pub trait Gate: Send + 'static {
    /// Whether this event of an epoch passes.
    fn open(&mut self, event: Event, run_cx: &RunContext<'_>) -> bool;
    /// Adds the gate's declarations to the hook's spec.
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec
    }
    /// Whether the end of every epoch passes.
    fn passes_every_epoch(&self) -> bool {
        false
    }
    /// The gate's own state, or null.
    fn state(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
    /// Restores the gate's own state from a checkpoint.
    fn load(&mut self, _state: &serde_json::Value) {}
}

/// A hook behind a gate.
pub struct Gated<H, G> {
    hook: H,
    gate: G,
    /// How often the gate has opened, counted up to [`ALL_TIMED`].
    opened: u32,
}

impl<H, G: Gate> Gated<H, G> {
    fn new(hook: H, gate: G) -> Gated<H, G> {
        Gated { hook, gate, opened: 0 }
    }

    /// The hook behind the gate.
    pub fn inner(&self) -> &H {
        &self.hook
    }

    fn declare(&self, spec: HookSpec) -> HookSpec {
        let mut spec = self.gate.declare(spec);
        spec.prints_epochs &= self.gate.passes_every_epoch();
        spec
    }

    /// Whether an event passes. Calls behind a gate are rare, and sampling deliveries would miss most of
    /// them, so the first calls are timed individually. After that, deliveries are sampled as for any other
    /// hook.
    #[inline]
    fn passes(&mut self, event: Event, run_cx: &RunContext<'_>) -> bool {
        if !is_gated(event, run_cx) {
            return true;
        }
        if !self.gate.open(event, run_cx) {
            run_cx.shared.gate_closed();
            return false;
        }
        if self.opened < ALL_TIMED {
            self.opened += 1;
            run_cx.shared.gate_opened();
        }
        true
    }
}

impl<H: Hook, G: Gate> Hook for Gated<H, G> {
    fn spec(&self) -> HookSpec {
        self.declare(self.hook.spec())
    }
    #[inline]
    fn deliver(&mut self, event: EventRef<'_>) -> EventResult {
        if self.passes(event.event(), event.run_cx()) { self.hook.deliver(event) } else { Ok(()) }
    }
    fn update(&mut self, gradients: &mut Gradients<'_>, cx: &Update<'_>) -> HookResult {
        // Update hooks run between this event and clipping; a gate lets both pass or neither.
        if self.passes(Event::BeforeOptimizerStep, &cx.run_cx) {
            self.hook.update(gradients, cx)
        } else {
            Ok(())
        }
    }
    fn state_dict(&self) -> HookResult<State> {
        Ok(self.hook.state_dict()?.wrapped(&self.gate.state()))
    }
    fn load_state_dict(&mut self, state: &State) -> HookResult {
        let (own, inner) = state.unwrapped()?;
        if let Some(own) = own {
            self.gate.load(&own);
        }
        if inner.is_empty() { Ok(()) } else { self.hook.load_state_dict(&inner) }
    }
    fn check_state_dict(&self, state: &State) -> HookResult {
        let (_, inner) = state.unwrapped()?;
        if inner.is_empty() { Ok(()) } else { self.hook.check_state_dict(&inner) }
    }
    fn wrapped(&self) -> Option<&dyn Hook> {
        Some(&self.hook)
    }
    fn wrapped_mut(&mut self) -> Option<&mut dyn Hook> {
        Some(&mut self.hook)
    }
}

impl AnyHook {
    /// Puts the hook behind a gate, as the wrappers of [`HookExt`] do. The gate added last is checked first.
    #[must_use]
    pub fn gated(self, gate: impl Gate) -> AnyHook {
        let gated = Gated::new(self.hook, gate);
        AnyHook { spec: gated.declare(self.spec), hook: Box::new(gated) }
    }

    /// See [`HookExt::every`].
    pub fn every(self, cadence: &str) -> Result<AnyHook, CadenceError> {
        Ok(self.gated(Every::new(cadence.parse()?)))
    }

    /// See [`HookExt::once`].
    #[must_use]
    pub fn once(self) -> AnyHook {
        self.gated(Once::default())
    }

    /// See [`HookExt::after`].
    pub fn after(self, start: &str) -> Result<AnyHook, CadenceError> {
        Ok(self.gated(After::new(start.parse()?)))
    }

    /// See [`HookExt::when`].
    #[must_use]
    pub fn when(self, predicate: impl FnMut(&RunContext<'_>) -> bool + Send + 'static) -> AnyHook {
        self.gated(When(predicate))
    }

    /// See [`HookExt::sampled`].
    #[must_use]
    pub fn sampled(self, fraction: f64) -> AnyHook {
        self.gated(Sampled::new(fraction))
    }
}

/// Whether gates apply to an event: only to the epochs of `fit` with their batches and validations. A sanity
/// check must have no effect on training, so no gate may count it.
fn is_gated(event: Event, run_cx: &RunContext<'_>) -> bool {
    let recurs = event.is_within_epoch() || event == Event::Log && run_cx.progress.is_within_epoch();
    recurs && run_cx.stage == Stage::Fit && run_cx.phase != Phase::SanityCheck
}

/// The wrappers, as methods of every hook.
pub trait HookExt: Hook + Sized {
    /// Runs the hook at this interval: `every("100 steps")` passes all events of steps 100, 200, …; `every("2
    /// epochs")` those of every second epoch; `every("5 min")` those of the first batch after five minutes.
    /// Events that occur less often than the unit always pass.
    fn every(self, cadence: &str) -> Result<Gated<Self, Every>, CadenceError> {
        Ok(Gated::new(self, Every::new(cadence.parse()?)))
    }

    /// Runs the hook in the first training batch that it receives, and once at each event outside of batches.
    fn once(self) -> Gated<Self, Once> {
        Gated::new(self, Once::default())
    }

    /// Runs the hook after this point of training: `after("10 epochs")`.
    fn after(self, start: &str) -> Result<Gated<Self, After>, CadenceError> {
        Ok(Gated::new(self, After::new(start.parse::<Cadence>()?)))
    }

    /// Runs the hook while the predicate is true. The predicate is called at every event of an epoch.
    fn when<P>(self, predicate: P) -> Gated<Self, When<P>>
    where
        P: FnMut(&RunContext<'_>) -> bool + Send + 'static,
    {
        Gated::new(self, When(predicate))
    }

    /// Runs the hook in a random fraction of all training batches, from 0 (none) to 1 (all). The choice depends
    /// only on the seed, the name under which the hook is registered, and the batch.
    fn sampled(self, fraction: f64) -> Gated<Self, Sampled> {
        Gated::new(self, Sampled::new(fraction))
    }
}

impl<H: Hook> HookExt for H {}
