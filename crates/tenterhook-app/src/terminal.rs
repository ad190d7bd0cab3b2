//! The only place that writes to standard output and standard error.
//!
//! **Invariant.** Whatever is printed has gone through [`tenterhook::printable`]: metric names, cells, run names and
//! texts of servers cannot control the terminal. Colours are added after that.

#![allow(clippy::disallowed_methods)] // the one place

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use tenterhook::failure::panic_message;
use tenterhook::printable;

/// The longest line on standard output, in characters.
const LONGEST_PRINTED: usize = 1 << 16;
/// The longest line of a message, in characters.
const LONGEST_TOLD: usize = 2000;
/// The most lines of a message.
const MOST_TOLD: usize = 1000;

/// Something could not be printed, and a message said so.
static UNPRINTED: AtomicBool = AtomicBool::new(false);

/// Prints text for people.
pub(crate) fn print(text: &str) {
    write_out(&printable::text(text, LONGEST_PRINTED));
}

/// Prints JSON, or TOML: text for programs, which is not shortened.
pub(crate) fn print_data(text: &str) {
    write_out(&printable::json(text));
}

/// Prints text for people that contains some of these escape sequences of our own, such as colours.
pub(crate) fn print_styled(text: &str, own: &[&str]) {
    let (mut shown, mut rest) = (String::new(), text);
    while !rest.is_empty() {
        let next = own.iter().filter_map(|code| rest.find(code).map(|at| (at, *code))).min();
        let (at, code) = next.unwrap_or((rest.len(), ""));
        shown += &printable::text(&rest[..at], LONGEST_PRINTED);
        shown += code;
        rest = &rest[at + code.len()..];
    }
    write_out(&shown);
}

/// A reader that closes the pipe early is no failure; a full disk is one.
fn write_out(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let Err(error) = writeln!(stdout, "{text}").and_then(|()| stdout.flush()) else { return };
    if error.kind() != ErrorKind::BrokenPipe && !UNPRINTED.swap(true, Ordering::Relaxed) {
        tell(format_args!("error: cannot write to standard output: {error}"));
    }
}

/// The exit code of a command: success only if all its output was written.
pub(crate) fn exit_code(code: ExitCode, failed: u8) -> ExitCode {
    let unprinted = UNPRINTED.load(Ordering::Relaxed);
    if unprinted && code == ExitCode::SUCCESS { ExitCode::from(failed) } else { code }
}

/// Writes a message to standard error. That it cannot be written is ignored.
pub(crate) fn tell(message: impl Display) {
    let _ = writeln!(std::io::stderr(), "{}", bounded(&message.to_string()));
}

/// Prints panics with [`tell`] from now on. With `RUST_BACKTRACE` set, the backtrace follows.
pub(crate) fn tell_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let place = panic.location().map(|place| format!(" at {place}")).unwrap_or_default();
        let message = panic_message(panic.payload());
        tell(format_args!("thread '{}' panicked{place}:\n{message}", thread.name().unwrap_or("<unnamed>")));
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            tell(format_args!("stack backtrace:\n{backtrace}"));
        }
    }));
}

/// A message with at most [`MOST_TOLD`] lines.
fn bounded(message: &str) -> String {
    let Some((end, _)) = message.match_indices('\n').nth(MOST_TOLD - 1) else {
        return printable::text(message, LONGEST_TOLD);
    };
    let rest = message[end + 1..].split('\n').count();
    format!("{}\n… ({rest} more lines)", printable::text(&message[..end], LONGEST_TOLD))
}

/// Whether standard output is a terminal.
pub(crate) fn out_is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Whether standard error is a terminal.
pub(crate) fn err_is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_bounded_in_lines_and_in_length() {
        let shown = bounded(&format!("{}\n{}", "x".repeat(50_000_000), "y\n".repeat(1_000_000)));
        assert!(shown.len() < 10_000, "{}", shown.len());
        assert!(shown.ends_with("… (999002 more lines)"), "{}", &shown[shown.len() - 40..]);
        assert_eq!(bounded("a\nb"), "a\nb");
    }

    const PANICS: &str = "TENTERHOOK_TEST_PANICS";

    /// Does nothing by itself: the test below starts this program again, to see what a panic prints.
    #[test]
    fn panics_with_a_message_of_somebody_else() {
        if std::env::var_os(PANICS).is_none() {
            return;
        }
        tell_panics();
        let message = format!("\u{1b}]0;title\u{7}{}", "x".repeat(1_000_000));
        let _ = std::thread::Builder::new()
            .name("loader".into())
            .spawn(move || panic!("{message}"))
            .map(std::thread::JoinHandle::join);
    }

    #[test]
    fn a_panic_is_printed_like_every_message_with_its_place_and_its_backtrace() {
        let printed = |backtrace: &str| {
            let mut program = std::process::Command::new(std::env::current_exe().expect("this program"));
            program.args(["terminal::tests::panics_with_a_message_of_somebody_else", "--exact"]);
            program.env(PANICS, "1").env("RUST_BACKTRACE", backtrace).env_remove("RUST_LIB_BACKTRACE");
            String::from_utf8(program.output().expect("it runs").stderr).expect("UTF-8")
        };
        let plain = printed("0");
        assert!(
            plain.starts_with("thread 'loader' panicked at crates/tenterhook-app/src/terminal.rs:"),
            "{plain}"
        );
        assert!(
            plain.contains("\n\\u{1b}]0;title\\u{7}xxx") && plain.contains("more characters)"),
            "{plain}"
        );
        assert!(plain.len() < 4000 && !plain.contains(['\u{1b}', '\u{7}']), "{plain}");
        assert!(!plain.contains("stack backtrace"), "{plain}");
        assert!(printed("1").contains("stack backtrace:\n"));
    }
}
