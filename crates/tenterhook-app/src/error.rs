//! Errors of commands, with exit codes.

use std::fmt::{self, Display};
use std::io;
use std::path::Path;
use std::process::ExitCode;

use tenterhook::RunError;

use crate::failures::{contained, contained_afterwards};
use crate::terminal::print_stderr;

/// Exit code for wrong input: a file, a configuration or a plan that is refused.
pub(crate) const WRONG_INPUT: u8 = 2;
/// Exit code for a run that failed after it had started.
pub(crate) const FAILED: u8 = 1;

/// An error of a command: where, what, how to fix it, and the exit code.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CommandError {
    /// The option or file, if `what` does not name it.
    place: Option<String>,
    what: String,
    fix: Option<String>,
    /// Lines printed below the error, such as later failures.
    notes: Vec<String>,
    code: u8,
}

impl CommandError {
    /// An error of the input.
    pub(crate) fn new(what: impl Display) -> CommandError {
        CommandError { place: None, what: what.to_string(), fix: None, notes: Vec::new(), code: WRONG_INPUT }
    }

    /// An I/O error of a file.
    pub(crate) fn cannot(what: &str, path: &Path) -> impl Fn(io::Error) -> CommandError {
        move |error| CommandError::new(format_args!("cannot {what} {}: {error}", path.display()))
    }

    /// The failure of a call, with its backtrace and other failures as notes.
    pub(crate) fn from_run(error: RunError) -> CommandError {
        let (failure, later, report) = match error {
            RunError::Failed { failure, later, report } => (failure, later, report),
            error => return CommandError::new(message_of(error)),
        };
        let mut error = CommandError::new(&failure).code(FAILED);
        error.notes.extend(failure.trace.map(|trace| trace.to_string().trim_end().to_owned()));
        error.notes.extend(later.iter().map(|failure| format!("also: {failure}")));
        let after = contained_afterwards(&report.failures, &later).into_iter();
        error.notes.extend(after.map(|line| format!("also: {line}")));
        error.notes.extend(contained(&report.failures).into_iter().map(|line| format!("before: {line}")));
        error
    }

    pub(crate) fn at(self, place: impl Display) -> CommandError {
        CommandError { place: Some(place.to_string()), ..self }
    }

    pub(crate) fn fix(self, fix: impl Display) -> CommandError {
        CommandError { fix: Some(fix.to_string()), ..self }
    }

    pub(crate) fn note(mut self, note: impl Display) -> CommandError {
        self.notes.push(note.to_string());
        self
    }

    pub(crate) fn code(self, code: u8) -> CommandError {
        CommandError { code, ..self }
    }

    /// Prints the error to standard error.
    pub(crate) fn report(self) -> ExitCode {
        print_stderr(format_args!("error: {self}"));
        self.notes.iter().for_each(print_stderr);
        ExitCode::from(self.code)
    }
}

impl Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.iter().try_for_each(|place| write!(f, "{place}: "))?;
        f.write_str(&self.what)?;
        self.fix.iter().try_for_each(|fix| write!(f, "; {fix}"))
    }
}

/// Errors of the library mean wrong input, except those of a run: [`CommandError::from_run`].
impl<E: std::error::Error> From<E> for CommandError {
    fn from(error: E) -> CommandError {
        CommandError::new(error)
    }
}

/// The message of a call that failed before anything ran, without hook and step.
pub(crate) fn message_of(error: RunError) -> String {
    match error {
        RunError::Failed { failure, .. } => failure.error.to_string(),
        RunError::Settings(problems) => problems.join("\n"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use tenterhook::{Failure, Origin, Report};

    use super::*;

    #[test]
    fn an_error_shows_place_problem_and_fix() {
        let error = CommandError::new("no run has a `los`").at("--sort los").fix("did you mean `loss`?");
        assert_eq!(error.to_string(), "--sort los: no run has a `los`; did you mean `loss`?");
        assert_eq!(error.code, WRONG_INPUT);
    }

    #[test]
    fn a_failed_run_is_not_wrong_input_and_shows_later_failures() {
        let failure = |error: &str| Failure {
            origin: Origin::Trainer,
            place: "fit",
            epoch: 0,
            step: 0,
            panicked: false,
            error: error.into(),
            trace: None,
        };
        let (failure, later, report) = (failure("first"), vec![failure("second")], Box::<Report>::default());
        let error = CommandError::from_run(RunError::Failed { failure, later, report });
        assert_eq!((error.to_string().as_str(), error.code), ("first", FAILED));
        assert_eq!(error.notes, ["also: second"]);
        let error = CommandError::from_run(RunError::Settings(vec!["a".into(), "b".into()]));
        assert_eq!((error.to_string().as_str(), error.code), ("a\nb", WRONG_INPUT));
    }
}
