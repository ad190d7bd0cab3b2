//! Wrappers that let a hook fire less often: `every`, `once`, `after`, `when`, `sampled`.
//!
//! A wrapped hook keeps its name, its place, its events, its policy and its state; only some of its
//! handlers' calls are left out. What is left out is decided per training batch or per epoch as a
//! whole, so that a hook that gets the start of something gets its end too. Events that belong to
//! neither (set-up, teardown, checkpoints, failures, …), and those outside of `fit`, always pass.

mod condition;
mod gates;

use crate::account::ALL_TIMED;
use crate::any_hook::AnyHook;
use crate::cadence::{Cadence, CadenceError};
use crate::context::EventRef;
use crate::delivery_stats::DeliveryStats;
use crate::event::Event;
use crate::hook::{EventResult, Hook, HookResult};
use crate::progress::{Phase, Progress, Stage};
use crate::run_context::RunContext;
use crate::spec::HookSpec;
use crate::state::State;
use crate::update::{Gradients, Update};

pub use condition::Conditioned;
pub(crate) use condition::FIELDS;
pub use gates::{After, Every, Once, Sampled, When};

/// Decides whether an event passes to the wrapped hook.
pub trait Gate: Send + 'static {
    /// Whether this event of an epoch passes.
    fn open(&mut self, event: Event, run_cx: &RunContext<'_>) -> bool;
    /// What the hook declares behind the gate.
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec
    }
    /// Whether the end of every epoch passes.
    fn passes_every_epoch(&self) -> bool {
        false
    }
    /// The gate's own state, where it has one.
    fn state(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
    /// The gate's own state, from a checkpoint.
    fn load(&mut self, _state: &serde_json::Value) {}
}

/// A gate that a hook stands behind.
pub(crate) struct Door<G> {
    gate: G,
    /// How often it has opened, as far as that is counted.
    opened: u32,
}

impl<G: Gate> Door<G> {
    pub(crate) fn new(gate: G) -> Door<G> {
        Door { gate, opened: 0 }
    }

    /// Whether an event passes. Calls behind a gate are rare, and a choice among deliveries would miss most of them, so the
    /// first are timed by themselves. Behind a gate that has opened often they are like any others.
    #[inline]
    pub(crate) fn passes(&mut self, event: Event, run_cx: &RunContext<'_>) -> bool {
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

    pub(crate) fn declare(&self, spec: HookSpec) -> HookSpec {
        let mut spec = self.gate.declare(spec);
        spec.prints_epochs &= self.gate.passes_every_epoch();
        spec
    }

    pub(crate) fn wrapped(&self, state: State) -> State {
        state.wrapped(&self.gate.state())
    }

    /// Gives the gate its own part of a state; the rest is the hook's.
    pub(crate) fn load(&mut self, state: &State) -> HookResult<State> {
        let (own, inner) = state.unwrapped()?;
        if let Some(own) = own {
            self.gate.load(&own);
        }
        Ok(inner)
    }
}

/// A hook behind a gate.
pub struct Gated<H, G> {
    hook: H,
    door: Door<G>,
}

impl<H, G: Gate> Gated<H, G> {
    fn new(hook: H, gate: G) -> Gated<H, G> {
        Gated { hook, door: Door::new(gate) }
    }

    /// The hook behind the gate.
    pub fn inner(&self) -> &H {
        &self.hook
    }
}

impl<H: Hook, G: Gate> Hook for Gated<H, G> {
    fn spec(&self) -> HookSpec {
        self.door.declare(self.hook.spec())
    }
    #[inline]
    fn deliver(&mut self, event: EventRef<'_>) -> EventResult {
        if self.door.passes(event.event(), event.run_cx()) { self.hook.deliver(event) } else { Ok(()) }
    }
    fn update(&mut self, gradients: &mut Gradients<'_>, cx: &Update<'_>) -> HookResult {
        // Gradients change between this event and clipping; a gate lets both pass or neither.
        if self.door.passes(Event::BeforeOptimizerStep, &cx.run_cx) {
            self.hook.update(gradients, cx)
        } else {
            Ok(())
        }
    }
    fn wants_point(&self, point: &str) -> bool {
        self.hook.wants_point(point)
    }
    fn wants_activations(&self, phase: Phase, progress: &Progress) -> bool {
        self.hook.wants_activations(phase, progress)
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
    fn finish(&mut self) -> HookResult {
        self.hook.finish()
    }
    fn delivery_stats(&self) -> Option<DeliveryStats> {
        self.hook.delivery_stats()
    }
    fn wrapped(&self) -> Option<&dyn Hook> {
        Some(&self.hook)
    }
}

impl AnyHook {
    /// The same behind a gate, as the wrappers of [`HookExt`] put it. Several gates are asked from the
    /// last one added to the first, until one is closed.
    #[must_use]
    pub fn gated(self, gate: impl Gate) -> AnyHook {
        let gated = Gated::new(self.hook, gate);
        AnyHook { spec: gated.door.declare(self.spec), hook: Box::new(gated) }
    }

    /// Fires only every so often, as [`HookExt::every`] has it.
    pub fn every(self, cadence: &str) -> Result<AnyHook, CadenceError> {
        Ok(self.gated(Every::new(cadence.parse()?)))
    }

    /// Fires only in the first training batch it gets, as [`HookExt::once`] has it.
    #[must_use]
    pub fn once(self) -> AnyHook {
        self.gated(Once::default())
    }

    /// Fires only once so much of training has passed, as [`HookExt::after`] has it.
    pub fn after(self, start: &str) -> Result<AnyHook, CadenceError> {
        Ok(self.gated(After::new(start.parse()?)))
    }

    /// Fires only when the predicate says so, as [`HookExt::when`] has it.
    #[must_use]
    pub fn when(self, predicate: impl FnMut(&RunContext<'_>) -> bool + Send + 'static) -> AnyHook {
        self.gated(When(predicate))
    }

    /// Fires in this share of all training batches, as [`HookExt::sampled`] has it.
    #[must_use]
    pub fn sampled(self, share: f64) -> AnyHook {
        self.gated(Sampled::new(share))
    }
}

/// Only what recurs within `fit` is left out: epochs, their batches and their validations. A sanity
/// check leaves no trace, so no gate may count it.
fn is_gated(event: Event, run_cx: &RunContext<'_>) -> bool {
    let recurs = event.is_within_epoch() || event == Event::Log && run_cx.progress.is_within_epoch();
    recurs && run_cx.stage == Stage::Fit && run_cx.phase != Phase::SanityCheck
}

/// The wrappers, on every hook.
pub trait HookExt: Hook + Sized {
    /// Fires only every so often: `every("100 steps")` passes all events of steps 100, 200, …;
    /// `every("2 epochs")` those of every second epoch; `every("5 min")` those of the first batch
    /// after five minutes have passed. Events that come less often than the unit always pass.
    fn every(self, cadence: &str) -> Result<Gated<Self, Every>, CadenceError> {
        Ok(Gated::new(self, Every::new(cadence.parse()?)))
    }

    /// Fires only in the first training batch it gets, and once at each event around the batches.
    fn once(self) -> Gated<Self, Once> {
        Gated::new(self, Once::default())
    }

    /// Fires only once so much of training has passed: `after("10 epochs")`.
    fn after(self, start: &str) -> Result<Gated<Self, After>, CadenceError> {
        Ok(Gated::new(self, After::new(start.parse::<Cadence>()?)))
    }

    /// Fires only when the predicate says so, which is asked at every event of an epoch.
    fn when<P>(self, predicate: P) -> Gated<Self, When<P>>
    where
        P: FnMut(&RunContext<'_>) -> bool + Send + 'static,
    {
        Gated::new(self, When(predicate))
    }

    /// Fires in this share of all training batches (0 is none, 1 is all), chosen at random: the choice
    /// depends on the seed, the name the hook is registered under and the batch, and on nothing else.
    fn sampled(self, share: f64) -> Gated<Self, Sampled> {
        Gated::new(self, Sampled::new(share))
    }
}

impl<H: Hook> HookExt for H {}
