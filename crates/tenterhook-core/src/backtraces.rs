//! Backtraces of failures.
//!
//! The stack of a panic no longer exists when the panic is caught. Therefore a panic hook captures the
//! backtrace, but only in threads that called [`capture`]. Then it calls the previously installed panic hook.

use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use crate::failure::{BoxError, panic_message};

thread_local! {
    static GUARDS: Cell<u32> = const { Cell::new(0) };
    static LAST: RefCell<Option<Box<FailureTrace>>> = const { RefCell::new(None) };
}

static INSTALLED: Once = Once::new();

/// The backtrace of a failure. Frames are resolved to names only when it is displayed.
#[derive(Debug)]
pub enum FailureTrace {
    /// Captured where a panic began or an error was received.
    Captured(Backtrace),
    /// Taken from the `Debug` output of an error that contains its own backtrace.
    Reported(String),
}

impl fmt::Display for FailureTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FailureTrace::Captured(backtrace) => write!(f, "{backtrace}"),
            FailureTrace::Reported(text) => f.write_str(text),
        }
    }
}

/// A guard. While it exists, its thread captures the backtrace of its last panic.
#[derive(Debug)]
pub struct CaptureGuard(PhantomData<*const ()>);

/// Captures backtraces of this thread's failures while the guard exists.
#[must_use]
pub fn capture() -> CaptureGuard {
    // The panic hook cannot be changed during a panic.
    if !std::thread::panicking() {
        INSTALLED.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                if is_capturing() {
                    let taken = Box::new(FailureTrace::Captured(Backtrace::force_capture()));
                    // The thread-local no longer exists in a thread that is ending.
                    let _ = LAST.try_with(|last| last.replace(Some(taken)));
                }
                before(panic);
            }));
        });
    }
    GUARDS.set(GUARDS.get() + 1);
    CaptureGuard(PhantomData)
}

impl Drop for CaptureGuard {
    fn drop(&mut self) {
        let _ = GUARDS.try_with(|guards| guards.set(guards.get() - 1));
    }
}

/// Whether this thread captures backtraces.
#[must_use]
pub fn is_capturing() -> bool {
    GUARDS.try_with(Cell::get).unwrap_or(0) > 0
}

/// Lets a worker thread capture backtraces if the current thread does: call the returned function in the
/// worker.
pub fn inherit() -> impl FnOnce() -> Option<CaptureGuard> + Send {
    let capturing = is_capturing();
    move || capturing.then(capture)
}

/// The panic of a worker thread, as an error for the thread that started it. A hook that returns it is
/// treated as a hook that panicked.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct PanicError {
    text: String,
    trace: Option<Box<FailureTrace>>,
}

impl PanicError {
    /// Takes the backtrace.
    pub fn take_backtrace(&mut self) -> Option<Box<FailureTrace>> {
        self.trace.take()
    }
}

/// Changes the message of an error. A [`PanicError`] remains a [`PanicError`].
#[must_use]
pub fn map_message(error: BoxError, words: impl FnOnce(&dyn fmt::Display) -> String) -> BoxError {
    match error.downcast::<PanicError>() {
        Ok(panicked) => PanicError { text: words(&panicked.text), trace: panicked.trace }.into(),
        Err(error) => words(&error).into(),
    }
}

/// Runs work and turns its panic into a [`PanicError`], with `words` before its message.
pub fn catch_panic<T>(words: &str, work: impl FnOnce() -> Result<T, BoxError>) -> Result<T, BoxError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = format!("{words}{}", panic_message(&*panic));
        Err(PanicError { text, trace: of_last_panic() }.into())
    })
}

/// Takes the backtrace of this thread's last panic.
#[must_use]
pub fn of_last_panic() -> Option<Box<FailureTrace>> {
    LAST.try_with(RefCell::take).ok().flatten()
}

/// The backtrace of an error, if this thread captures backtraces: the error's own if its `Debug` output
/// contains one, otherwise that of the caller.
#[must_use]
pub fn of_error(error: &BoxError) -> Option<Box<FailureTrace>> {
    is_capturing().then(|| {
        // The `Debug` implementation is foreign code, which may panic.
        let reported = catch_unwind(AssertUnwindSafe(|| own(&format!("{error:?}")))).unwrap_or(None);
        Box::new(
            reported
                .map_or_else(|| FailureTrace::Captured(Backtrace::force_capture()), FailureTrace::Reported),
        )
    })
}

/// The backtrace in the `Debug` output of an error.
fn own(debugged: &str) -> Option<String> {
    let (_, trace) = debugged.rsplit_once("\nStack backtrace:\n")?;
    Some(trace.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panic_here() {
        let _ = catch_unwind(|| panic!("for its backtrace"));
    }

    #[test]
    fn a_panic_has_a_backtrace_while_they_are_captured_and_it_is_taken_once() {
        panic_here();
        assert!(of_last_panic().is_none());
        let guard = capture();
        panic_here();
        let trace = of_last_panic().expect("it is kept").to_string();
        assert!(trace.contains("panic_here"), "{trace}");
        assert!(of_last_panic().is_none());
        drop(guard);
        panic_here();
        assert!(of_last_panic().is_none());
    }

    #[test]
    fn another_thread_keeps_its_own() {
        let _guard = capture();
        assert!(!std::thread::spawn(is_capturing).join().expect("it ends"));
    }

    #[test]
    fn a_panic_of_a_worker_thread_brings_its_backtrace() {
        let panicked = |capture: fn() -> Option<CaptureGuard>| {
            let _guard = capture();
            let inherited = inherit();
            let work = move || {
                let _guard = inherited();
                catch_panic("it said: ", || -> Result<(), BoxError> { panic!("no") })
            };
            let error = std::thread::spawn(work).join().expect("it is caught").expect_err("it panicked");
            let error = map_message(error, |text| format!("{text}, twice"));
            let mut panicked = error.downcast::<PanicError>().expect("its type");
            let trace = panicked.take_backtrace().map(|trace| trace.to_string());
            (panicked.to_string(), trace)
        };
        assert_eq!(panicked(|| None), ("it said: no, twice".to_owned(), None));
        let trace = panicked(|| Some(capture())).1.expect("it is kept");
        assert!(trace.contains("a_panic_of_a_worker_thread"), "{trace}");
    }

    #[test]
    fn an_error_keeps_its_own_backtrace() {
        #[derive(thiserror::Error)]
        #[error("no")]
        struct Telling;
        impl fmt::Debug for Telling {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("no\n\nStack backtrace:\n   0: where_it_began\n")
            }
        }
        assert!(of_error(&Telling.into()).is_none());
        let _guard = capture();
        assert_eq!(of_error(&Telling.into()).expect("kept").to_string(), "   0: where_it_began");
        let taken = of_error(&"plain".into()).expect("kept").to_string();
        assert!(taken.contains("an_error_keeps_its_own_backtrace"), "{taken}");
    }
}
