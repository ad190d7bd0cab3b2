//! Ending a run from outside, for example on a signal.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A handle that asks a running trainer to end: the current batch completes, and the end events and teardowns follow.
/// `min_epochs` and `min_steps` are ignored.
///
/// The library installs no signal handler; a program passes a handle to its own:
///
/// ```
/// use tenterhook::run::Interrupt;
/// use tenterhook::toy::{Toy, ToyData};
/// use tenterhook::{Outcome, Settings, Trainer};
///
/// let mut trainer = Trainer::new(Settings::default())?;
/// let interrupt = trainer.interrupt_handle();
/// interrupt.request("SIGINT"); // from a signal handler, or from any thread
/// let report = trainer.fit(&mut Toy::default(), &mut ToyData::default())?;
/// assert_eq!(report.outcome, Outcome::Interrupted { signal: "SIGINT".into() });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<State>);

#[derive(Debug, Default)]
struct State {
    requested: AtomicBool,
    signal: Mutex<String>,
    /// A handle whose request also ends this one.
    outer: Option<Interrupt>,
}

impl Interrupt {
    /// A handle for [`Trainer::with_interrupt`](crate::Trainer::with_interrupt).
    #[must_use]
    pub fn new() -> Interrupt {
        Interrupt::default()
    }

    /// A handle for calls that also end when this one is requested.
    pub(crate) fn inner(&self) -> Interrupt {
        Interrupt(Arc::new(State { outer: Some(self.clone()), ..State::default() }))
    }

    /// Requests the end, because of this signal. Later requests have no effect.
    pub fn request(&self, signal: impl Into<String>) {
        let mut first = self.0.signal.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.0.requested.load(Ordering::Relaxed) {
            *first = signal.into();
            self.0.requested.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the end was requested. This is one relaxed atomic load.
    #[inline]
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.requested.load(Ordering::Relaxed) || self.0.outer.as_ref().is_some_and(Interrupt::is_requested)
    }

    /// Clears the request; without this, every later call ends at once.
    pub fn clear(&self) {
        self.0.requested.store(false, Ordering::Relaxed);
    }

    /// The signal of the request.
    #[must_use]
    pub fn signal(&self) -> String {
        match &self.0.outer {
            Some(outer) if outer.is_requested() => outer.signal(),
            _ => self.0.signal.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}
