//! Why a command failed.

use std::fmt::{self, Display};
use std::io;
use std::path::Path;
use std::process::ExitCode;

use tenterhook::RunError;

use crate::failures::{contained, contained_afterwards};
use crate::terminal::tell;

/// Exit code: what was asked for cannot be done, as with a wrong file, a wrong configuration or a refused plan.
pub(crate) const WRONG_INPUT: u8 = 2;
/// Exit code: the run failed after it had begun.
pub(crate) const FAILED: u8 = 1;

/// Why a command failed: where, what and how to mend it, with the exit code.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CommandError {
    /// The option or file that it is about, where the text does not name it.
    place: Option<String>,
    what: String,
    fix: Option<String>,
    /// Lines below it, such as what failed afterwards.
    notes: Vec<String>,
    code: u8,
}

impl CommandError {
    /// Wrong input.
    pub(crate) fn new(what: impl Display) -> CommandError {
        CommandError { place: None, what: what.to_string(), fix: None, notes: Vec::new(), code: WRONG_INPUT }
    }

    /// What could not be done to a file, and why.
    pub(crate) fn cannot(what: &str, path: &Path) -> impl Fn(io::Error) -> CommandError {
        move |error| CommandError::new(format_args!("cannot {what} {}: {error}", path.display()))
    }

    /// Why a call failed that had been accepted.
    pub(crate) fn of_run(error: RunError) -> CommandError {
        let (failure, later, report) = match error {
            RunError::Failed { failure, later, report } => (failure, later, report),
            error @ RunError::Settings(_) => return CommandError::new(reason(error)),
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

    /// Writes it to standard error.
    pub(crate) fn tell(self) -> ExitCode {
        tell(format_args!("error: {self}"));
        self.notes.iter().for_each(tell);
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

/// Wrong input, as the library says it. What a run came to is no wrong input: [`CommandError::of_run`].
impl<E: std::error::Error> From<E> for CommandError {
    fn from(error: E) -> CommandError {
        CommandError::new(error)
    }
}

/// Why a call failed, where nothing has run yet, so that where and when it failed says nothing.
pub(crate) fn reason(error: RunError) -> String {
    match error {
        RunError::Failed { failure, .. } => failure.error.to_string(),
        RunError::Settings(problems) => problems.join("\n"),
    }
}

#[cfg(test)]
mod tests {
    use tenterhook::{Failure, Origin, Report};

    use super::*;

    #[test]
    fn an_error_says_where_it_is_what_it_is_and_how_to_mend_it() {
        let error = CommandError::new("no run has a `los`").at("--sort los").fix("did you mean `loss`?");
        assert_eq!(error.to_string(), "--sort los: no run has a `los`; did you mean `loss`?");
        assert_eq!(error.code, WRONG_INPUT);
    }

    #[test]
    fn a_run_that_failed_is_no_wrong_input_and_says_what_failed_after_it() {
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
        let error = CommandError::of_run(RunError::Failed { failure, later, report });
        assert_eq!((error.to_string().as_str(), error.code), ("first", FAILED));
        assert_eq!(error.notes, ["also: second"]);
        let error = CommandError::of_run(RunError::Settings(vec!["a".into(), "b".into()]));
        assert_eq!((error.to_string().as_str(), error.code), ("a\nb", WRONG_INPUT));
    }
}
