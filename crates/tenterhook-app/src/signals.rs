//! Ctrl-C and the other ways of asking a program to end.

use std::process::exit;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use tenterhook::run::Interrupt;

use crate::commands::tell;
use crate::error::CommandError;

/// The signals that are listened to, by name. SIGUSR1 is how clusters say that the time is soon over.
const NAMES: [(i32, &str); 3] = [(SIGINT, "SIGINT"), (SIGTERM, "SIGTERM"), (SIGUSR1, "SIGUSR1")];

/// The exit code after a signal: what a shell expects after SIGINT, and for the others what it expects after SIGTERM,
/// so that a script has one code to look for.
pub(crate) fn exit_code(signal: &str) -> u8 {
    if signal == "SIGINT" { 130 } else { 143 }
}

/// What the signals find: nothing that could be lost, or something under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch(Arc<Mutex<Option<String>>>);

impl Watch {
    /// From here on a signal lets what is under way end in good order, and says this about it.
    pub(crate) fn begins(&self, then: impl Into<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(then.into());
    }

    fn under_way(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Listens to signals. Until something [begins](Watch::begins), the first one ends the program. After that the first
/// one asks for the end, which may take this long, and a SIGINT after it ends the program at once.
pub(crate) fn watch(interrupt: Interrupt, timeout: Duration) -> Result<Watch, CommandError> {
    let cannot = |error| CommandError::new(error).at("cannot watch for signals");
    let mut signals = Signals::new(NAMES.map(|(number, _)| number)).map_err(cannot)?;
    let watch = Watch::default();
    let watched = watch.clone();
    let listen = move || {
        let mut asked = false;
        for signal in signals.forever() {
            let name =
                NAMES.iter().find(|(number, _)| *number == signal).map_or("a signal", |(_, name)| name);
            let code = i32::from(exit_code(name));
            let Some(then) = watched.under_way() else {
                tell(format_args!("\n{name}: ending; nothing had begun"));
                exit(code);
            };
            if std::mem::replace(&mut asked, true) {
                if signal == SIGINT {
                    tell(format_args!("\n{name} again: ending at once; what was saved stays"));
                    exit(code);
                }
                // A cluster warns with one signal and ends with another; what is under way is what it wants.
                tell(format_args!("\n{name}: it is ending already; Ctrl-C ends it at once"));
                continue;
            }
            // First the words: who reads them and signals again is understood.
            tell(format_args!("\n{name}: {then}; Ctrl-C ends it at once"));
            interrupt.request(name);
            limit(name, timeout, code);
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(listen).map_err(cannot)?;
    Ok(watch)
}

/// Ends the program when its end takes too long.
fn limit(name: &'static str, timeout: Duration, code: i32) {
    let wait = move || {
        std::thread::sleep(timeout);
        tell(format_args!(
            "{name}: the end took longer than `shutdown_timeout` ({timeout:?}); ending at once, and what was saved stays"
        ));
        exit(code);
    };
    // Without it the end takes as long as it takes, and Ctrl-C still ends it.
    let _ = std::thread::Builder::new().name("shutdown".into()).spawn(wait);
}
