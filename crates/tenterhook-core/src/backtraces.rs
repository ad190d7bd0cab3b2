//! Backtraces of failures, for whoever looks for the line that failed.
//!
//! When a panic is caught its stack is gone. So a panic hook looks at it while it is there, for the threads that
//! [`capture`] backtraces and no others; then the panic hook that was there before runs as ever.

use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use crate::failure::{BoxError, panic_message};

thread_local! {
    static KEPT: Cell<u32> = const { Cell::new(0) };
    static LAST: RefCell<Option<Box<FailureTrace>>> = const { RefCell::new(None) };
}

static INSTALLED: Once = Once::new();

/// The way to a failure. Its text is made when it is written: frames get their names only then.
#[derive(Debug)]
pub enum FailureTrace {
    /// Taken where a panic began or an error was received.
    Captured(Backtrace),
    /// As an error tells it itself, which some kinds of errors do when they are printed for debugging.
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

/// While it lives, the thread that made it keeps the backtrace of its last panic.
#[derive(Debug)]
pub struct CaptureGuard(PhantomData<*const ()>);

/// Keeps backtraces of this thread's failures from now on.
#[must_use]
pub fn capture() -> CaptureGuard {
    // Nobody may change the panic hook in the middle of a panic.
    if !std::thread::panicking() {
        INSTALLED.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                if is_capturing() {
                    let taken = Box::new(FailureTrace::Captured(Backtrace::force_capture()));
                    // A thread that is ending has no place for it any more.
                    let _ = LAST.try_with(|last| last.replace(Some(taken)));
                }
                before(panic);
            }));
        });
    }
    KEPT.set(KEPT.get() + 1);
    CaptureGuard(PhantomData)
}

impl Drop for CaptureGuard {
    fn drop(&mut self) {
        let _ = KEPT.try_with(|kept| kept.set(kept.get() - 1));
    }
}

/// Whether this thread keeps backtraces; one that works for it should, too.
#[must_use]
pub fn is_capturing() -> bool {
    KEPT.try_with(Cell::get).unwrap_or(0) > 0
}

/// For a thread that works for this one: called there, it keeps backtraces if this one does.
pub fn inherit() -> impl FnOnce() -> Option<CaptureGuard> + Send {
    let keeps = is_capturing();
    move || keeps.then(capture)
}

/// A panic on a thread that works for another, as the error by which the other learns of it. A hook that returns it
/// has panicked itself.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct PanicError {
    text: String,
    trace: Option<Box<FailureTrace>>,
}

impl PanicError {
    /// The way to it, once.
    pub fn take_trace(&mut self) -> Option<Box<FailureTrace>> {
        self.trace.take()
    }
}

/// An error in other words. That it was a panic is not lost by that.
#[must_use]
pub fn map_message(error: BoxError, words: impl FnOnce(&dyn fmt::Display) -> String) -> BoxError {
    match error.downcast::<PanicError>() {
        Ok(panicked) => PanicError { text: words(&panicked.text), trace: panicked.trace }.into(),
        Err(error) => words(&error).into(),
    }
}

/// Works for another thread: a panic becomes an error, with these words before what it says.
pub fn catch_panic<T>(words: &str, work: impl FnOnce() -> Result<T, BoxError>) -> Result<T, BoxError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = format!("{words}{}", panic_message(&*panic));
        Err(PanicError { text, trace: of_last_panic() }.into())
    })
}

/// The way to this thread's last panic, once.
#[must_use]
pub fn of_last_panic() -> Option<Box<FailureTrace>> {
    LAST.try_with(RefCell::take).ok().flatten()
}

/// The way to an error, where backtraces are kept: its own if it tells one, else the way to where it was received.
#[must_use]
pub fn of_error(error: &BoxError) -> Option<Box<FailureTrace>> {
    is_capturing().then(|| {
        // It is somebody else's code that prints it.
        let told = catch_unwind(AssertUnwindSafe(|| own(&format!("{error:?}")))).unwrap_or(None);
        Box::new(
            told.map_or_else(|| FailureTrace::Captured(Backtrace::force_capture()), FailureTrace::Reported),
        )
    })
}

/// What stands below this title in an error that is printed for debugging.
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
    fn a_panic_has_the_way_to_it_while_backtraces_are_kept_and_only_once() {
        panic_here();
        assert!(of_last_panic().is_none());
        let keeping = capture();
        panic_here();
        let trace = of_last_panic().expect("it is kept").to_string();
        assert!(trace.contains("panic_here"), "{trace}");
        assert!(of_last_panic().is_none());
        drop(keeping);
        panic_here();
        assert!(of_last_panic().is_none());
    }

    #[test]
    fn another_thread_keeps_its_own() {
        let _keeping = capture();
        assert!(!std::thread::spawn(is_capturing).join().expect("it ends"));
    }

    #[test]
    fn a_panic_of_a_thread_that_works_for_this_one_brings_its_way_along() {
        let panicked = |keep: fn() -> Option<CaptureGuard>| {
            let _keeping = capture();
            let keep = inherit();
            let work = move || {
                let _keeping = capture();
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
        assert!(trace.contains("a_panic_of_a_thread_that_works_for_this_one"), "{trace}");
    }

    #[test]
    fn an_error_that_tells_its_backtrace_keeps_it() {
        #[derive(thiserror::Error)]
        #[error("no")]
        struct Telling;
        impl fmt::Debug for Telling {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("no\n\nStack backtrace:\n   0: where_it_began\n")
            }
        }
        assert!(of_error(&Telling.into()).is_none());
        let _keeping = capture();
        assert_eq!(of_error(&Telling.into()).expect("kept").to_string(), "   0: where_it_began");
        let taken = of_error(&"plain".into()).expect("kept").to_string();
        assert!(taken.contains("an_error_that_tells_its_backtrace_keeps_it"), "{taken}");
    }
}
