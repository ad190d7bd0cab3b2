//! Signals that stop the program.

use std::process::exit;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use tenterhook::run::Interrupt;

use crate::error::CommandError;
use crate::terminal::print_stderr;

/// The handled signals. Clusters send SIGUSR1 shortly before the time limit of a job.
const NAMES: [(i32, &str); 3] = [(SIGINT, "SIGINT"), (SIGTERM, "SIGTERM"), (SIGUSR1, "SIGUSR1")];

/// The exit code after a signal: 130 for SIGINT, and 143 for all others, so scripts have one code to check.
pub(crate) fn exit_code(signal: &str) -> u8 {
    if signal == "SIGINT" { 130 } else { 143 }
}

/// The handling of signals: a signal exits the program or interrupts the current call.
#[derive(Clone, Debug)]
pub(crate) struct SignalHandler {
    interrupt: Interrupt,
    /// The message that is printed when a signal interrupts the call; `None` before it starts.
    message: Arc<Mutex<Option<String>>>,
}

impl SignalHandler {
    /// Makes the next signal print this message and interrupt the call instead of exiting.
    pub(crate) fn interrupt_with(&self, message: impl Into<String>) {
        *self.message.lock().unwrap_or_else(PoisonError::into_inner) = Some(message.into());
    }

    /// The handle that interrupts the call, for its trainer.
    pub(crate) fn interrupt(&self) -> Interrupt {
        self.interrupt.clone()
    }

    fn message(&self) -> Option<String> {
        self.message.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Handles signals on a thread. A signal exits the program until [`SignalHandler::interrupt_with`] is called. After
    /// that, the first signal interrupts the call, and the program exits after `timeout` or at the next SIGINT.
    pub(crate) fn install(timeout: Duration) -> Result<SignalHandler, CommandError> {
        let cannot = |error| CommandError::new(error).at("cannot handle signals");
        let signals = Signals::new(NAMES.map(|(number, _)| number)).map_err(cannot)?;
        let handler = SignalHandler { interrupt: Interrupt::new(), message: Arc::default() };
        let shared = handler.clone();
        let listen = move || shared.listen(signals, timeout);
        std::thread::Builder::new().name("signals".into()).spawn(listen).map_err(cannot)?;
        Ok(handler)
    }

    fn listen(&self, mut signals: Signals, timeout: Duration) {
        let mut interrupted = false;
        for signal in signals.forever() {
            let name =
                NAMES.iter().find(|(number, _)| *number == signal).map_or("a signal", |(_, name)| name);
            let code = i32::from(exit_code(name));
            let Some(message) = self.message() else {
                print_stderr(format_args!("\n{name}: exiting; nothing was started yet"));
                exit(code);
            };
            if std::mem::replace(&mut interrupted, true) {
                if signal == SIGINT {
                    print_stderr(format_args!("\n{name} again: exiting now; saved checkpoints are kept"));
                    exit(code);
                }
                // Clusters send a warning signal first and SIGTERM later, so only SIGINT exits.
                print_stderr(format_args!("\n{name}: already stopping; press Ctrl-C to exit now"));
                continue;
            }
            // Printed before the interrupt, so the user knows the effect of a second signal.
            print_stderr(format_args!("\n{name}: {message}; press Ctrl-C to exit now"));
            self.interrupt.request(name);
            exit_after(timeout, name, code);
        }
    }
}

/// Exits if the shutdown takes longer than `shutdown_timeout`.
fn exit_after(timeout: Duration, name: &'static str, code: i32) {
    let wait = move || {
        std::thread::sleep(timeout);
        print_stderr(format_args!(
            "{name}: the shutdown took longer than `shutdown_timeout` ({timeout:?}); exiting now; saved checkpoints are \
             kept"
        ));
        exit(code);
    };
    // Without this thread there is no time limit, but Ctrl-C still works.
    let _ = std::thread::Builder::new().name("shutdown".into()).spawn(wait);
}
