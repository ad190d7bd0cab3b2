//! Ending a run from outside, in good order.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Asks a running trainer to end: the current batch completes, nothing more begins, and all ends and
/// teardowns happen. `min_epochs` and `min_steps` do not hold it back.
///
/// The library installs no signal handler; a program gives a handle to its own:
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
    /// What ends this one, too.
    outer: Option<Interrupt>,
}

impl Interrupt {
    /// A handle for [`Trainer::with_interrupt`](crate::Trainer::with_interrupt).
    #[must_use]
    pub fn new() -> Interrupt {
        Interrupt::default()
    }

    /// A handle that ends its own calls alone, and those when this one is requested, too.
    pub(crate) fn inner(&self) -> Interrupt {
        Interrupt(Arc::new(State { outer: Some(self.clone()), ..State::default() }))
    }

    /// Asks to end, because of this signal. Later requests change nothing.
    pub fn request(&self, signal: impl Into<String>) {
        let mut said = self.0.signal.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.0.requested.load(Ordering::Relaxed) {
            *said = signal.into();
            self.0.requested.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it was asked to end. This is one load without any ordering.
    #[inline]
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.requested.load(Ordering::Relaxed) || self.0.outer.as_ref().is_some_and(Interrupt::is_requested)
    }

    /// Forgets the request: otherwise every later call ends at once, too.
    pub fn clear(&self) {
        self.0.requested.store(false, Ordering::Relaxed);
    }

    /// Which signal it was.
    #[must_use]
    pub fn signal(&self) -> String {
        match &self.0.outer {
            Some(outer) if outer.is_requested() => outer.signal(),
            _ => self.0.signal.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}
