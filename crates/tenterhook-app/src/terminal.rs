//! Printing to standard output and standard error.
//!
//! **Invariant.** All text is escaped by [`tenterhook::printable`], so metric names, cells, run names and
//! responses of servers cannot control the terminal. Colours are added afterwards.

#![allow(clippy::disallowed_methods)] // the only module that prints

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use tenterhook::failure::panic_message;
use tenterhook::printable;

/// Maximum length of a line on standard output, in characters.
const MAX_STDOUT_LINE: usize = 1 << 16;
/// Maximum length of a line on standard error, in characters.
const MAX_STDERR_LINE: usize = 2000;
/// Maximum number of lines of a message on standard error.
const MAX_STDERR_LINES: usize = 1000;

/// Whether writing to standard output has failed, and an error was printed.
static STDOUT_FAILED: AtomicBool = AtomicBool::new(false);

/// Prints text to standard output.
pub(crate) fn print_stdout(text: &str) {
    write_stdout(&printable::text(text, MAX_STDOUT_LINE));
}

/// Prints JSON or TOML to standard output, without shortening it.
pub(crate) fn print_data(text: &str) {
    write_stdout(&printable::json(text));
}

/// Prints text to standard output, and keeps our own escape sequences, such as colours.
pub(crate) fn print_styled(text: &str, own: &[&str]) {
    let (mut shown, mut rest) = (String::new(), text);
    while !rest.is_empty() {
        let next = own.iter().filter_map(|code| rest.find(code).map(|at| (at, *code))).min();
        let (at, code) = next.unwrap_or((rest.len(), ""));
        shown += &printable::text(&rest[..at], MAX_STDOUT_LINE);
        shown += code;
        rest = &rest[at + code.len()..];
    }
    write_stdout(&shown);
}

/// A closed pipe is not a failure; a full disk is.
fn write_stdout(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let Err(error) = writeln!(stdout, "{text}").and_then(|()| stdout.flush()) else { return };
    if error.kind() != ErrorKind::BrokenPipe && !STDOUT_FAILED.swap(true, Ordering::Relaxed) {
        print_stderr(format_args!("error: cannot write to standard output: {error}"));
    }
}

/// The exit code of a command: success only if all its output was written.
pub(crate) fn exit_code(code: ExitCode, failed: u8) -> ExitCode {
    let lost_output = STDOUT_FAILED.load(Ordering::Relaxed);
    if lost_output && code == ExitCode::SUCCESS { ExitCode::from(failed) } else { code }
}

/// Prints a message to standard error. Write errors are ignored.
pub(crate) fn print_stderr(message: impl Display) {
    let _ = writeln!(std::io::stderr(), "{}", bounded(&message.to_string()));
}

/// Installs a panic hook that prints with [`print_stderr`], with a backtrace if `RUST_BACKTRACE` is set.
pub(crate) fn install_panic_hook() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let place = panic.location().map(|place| format!(" at {place}")).unwrap_or_default();
        let message = panic_message(panic.payload());
        print_stderr(format_args!(
            "thread '{}' panicked{place}:\n{message}",
            thread.name().unwrap_or("<unnamed>")
        ));
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            print_stderr(format_args!("stack backtrace:\n{backtrace}"));
        }
    }));
}

/// Cuts a message to [`MAX_STDERR_LINES`] lines.
fn bounded(message: &str) -> String {
    let Some((end, _)) = message.match_indices('\n').nth(MAX_STDERR_LINES - 1) else {
        return printable::text(message, MAX_STDERR_LINE);
    };
    let rest = message[end + 1..].split('\n').count();
    format!("{}\n… ({rest} more lines)", printable::text(&message[..end], MAX_STDERR_LINE))
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

    /// Does nothing in a normal test run; the test below runs it in another process.
    #[test]
    fn panic_with_an_untrusted_message() {
        if std::env::var_os(PANICS).is_none() {
            return;
        }
        install_panic_hook();
        let message = format!("\u{1b}]0;title\u{7}{}", "x".repeat(1_000_000));
        let _ = std::thread::Builder::new()
            .name("loader".into())
            .spawn(move || panic!("{message}"))
            .map(std::thread::JoinHandle::join);
    }

    #[test]
    fn a_panic_is_printed_safely_with_its_location_and_backtrace() {
        let printed = |backtrace: &str| {
            let mut program = std::process::Command::new(std::env::current_exe().expect("this program"));
            program.args(["terminal::tests::panic_with_an_untrusted_message", "--exact"]);
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
