//! Ctrl-C and the other ways of asking a program to end.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tenterhook::run::Interrupt;

use crate::commands::tell;

/// The exit code that a shell expects of a program ended by a signal.
pub(crate) fn exit_code(signal: &str) -> u8 {
    let number = if signal == "SIGTERM" { SIGTERM } else { SIGINT };
    u8::try_from(128 + number).unwrap_or(u8::MAX)
}

/// Lets the first signal end the run cleanly, and the second one at once.
pub(crate) fn watch(interrupt: Interrupt) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let mut asked = false;
        for signal in signals.forever() {
            let name = if signal == SIGTERM { "SIGTERM" } else { "SIGINT" };
            if std::mem::replace(&mut asked, true) {
                tell(format_args!("\n{name} again: ending at once"));
                std::process::exit(i32::from(exit_code(name)));
            }
            interrupt.request(name);
            tell(format_args!(
                "\n{name}: the current batch is finished, then the run ends; once more ends it at once"
            ));
        }
    })?;
    Ok(())
}
