//! What a person should know of a run while it goes on.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenterhook_core::failure::Contained;
use tenterhook_core::{
    BoxError, Changed, Decided, Failure, Overrun, PlanError, RosterError, RosterRequest, printable,
};

use crate::journal::{Failures, Then};
use crate::run::RunHeader;

/// Something a person or the run's journal should know.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunNotice {
    /// A hook failed and the run went on.
    Contained(Contained),
    /// A hook took more than its budget.
    OverBudget(Overrun),
    /// A hook asked for a change of the list of hooks that could not be made.
    Refused(RosterError),
    /// The list of hooks was changed while the run went on.
    Changed(Changed),
    /// A problem of the plan that does not keep the run from starting: it concerns observers only, or was accepted.
    WouldRefuse(PlanError),
    /// A hook has something to say to people.
    Said {
        /// The hook's name.
        hook: String,
        /// What it says.
        text: String,
    },
    /// A line that a hook prints on the console; nothing keeps it.
    Printed(String),
    /// A run begins that leaves something behind.
    Began(RunHeader),
    /// Somebody decided something.
    Decided {
        /// The completed steps at that time.
        step: u64,
        /// Who decided what.
        decided: Decided,
    },
    /// Parameters got no gradient in the first update of their optimizer, so nothing trains them.
    NoGradient {
        /// Their names.
        parameters: Vec<String>,
    },
    /// The loss was found to be no number, or an infinite one. Told once.
    NotFinite {
        /// What it is.
        loss: f64,
        /// The completed steps when it was read.
        step: u64,
        /// A hook looks for where it began.
        guarded: bool,
    },
    /// A loader keeps training waiting for longer than `stall_warning`, or did so and has given its batch.
    Stalled {
        /// The loader's name.
        loader: String,
        /// For how long.
        waited: Duration,
        /// It has given its batch, or failed.
        over: bool,
    },
    /// The run was asked to end by a signal.
    Interrupted {
        /// Which.
        signal: String,
    },
    /// A checkpoint could not be written, and the run goes on.
    Unsaved {
        /// Where it would have been.
        path: PathBuf,
        /// Why.
        error: BoxError,
    },
    /// Something of the run could not be written down. This is told once; the report counts.
    Unwritten(BoxError),
}

impl std::fmt::Display for RunNotice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RunNotice::Contained(contained @ Contained { failure, count, .. }) => {
                let then = match Then::of(contained) {
                    Then::Disabled => "the hook is disabled from here on",
                    Then::Afterwards { .. } => "the run is ending already, and clean-up goes on",
                    _ => "the run goes on, and more of this kind are only counted",
                };
                let times = if *count > 1 { format!(" (failure number {count})") } else { String::new() };
                write!(f, "{failure}{times}; {then}")
            }
            RunNotice::OverBudget(Overrun { hook, share, budget, disabled }) => {
                let then = if *disabled { "; it is disabled from here on" } else { "" };
                let [share, budget] = [share, budget].map(|share| in_percent(*share));
                write!(f, "hook `{hook}` takes {share} of the step time, and its budget is {budget}{then}")
            }
            RunNotice::Refused(error) => write!(f, "{error}"),
            RunNotice::Said { hook, text } => write!(f, "{hook}: {text}"),
            RunNotice::Printed(line) => f.write_str(line),
            RunNotice::Began(header) => write!(f, "{header}"),
            RunNotice::WouldRefuse(error) => write!(f, "{error}"),
            RunNotice::Changed(Changed { by, change }) => {
                let (what, hook) = match change {
                    RosterRequest::Enable(hook) => ("enabled", hook),
                    RosterRequest::Disable(hook) => ("disabled", hook),
                    RosterRequest::Remove(hook) => ("removed", hook),
                    RosterRequest::Add(hook) => ("added", hook),
                };
                let by = by.as_ref().map(|by| format!(", as `{by}` asked")).unwrap_or_default();
                write!(f, "hook `{hook}` was {what}{by}")
            }
            RunNotice::NoGradient { parameters } => {
                write!(
                    f,
                    "no gradient reached `{}`: the loss does not depend on it, so it is not trained; use it in the \
                     training step, or freeze it",
                    parameters.join("`, `")
                )
            }
            RunNotice::NotFinite { loss, step, guarded } => {
                write!(
                    f,
                    "the loss is {loss} at step {step}, where it was read; training continues with it"
                )?;
                if *guarded { Ok(()) } else { f.write_str("; the hook `nan_guard` finds where it began") }
            }
            RunNotice::Stalled { loader, waited, over: false } => {
                let waited = waited.as_secs_f64();
                write!(f, "loader `{loader}` has given no batch for {waited:.1} s; training waits for it")
            }
            RunNotice::Stalled { loader, waited, over: true } => {
                let waited = waited.as_secs_f64();
                write!(f, "loader `{loader}` is back after {waited:.1} s")
            }
            RunNotice::Interrupted { signal } => {
                write!(f, "{signal}: the run ends in good order when the current batch is done")
            }
            RunNotice::Unsaved { error, .. } => {
                write!(f, "{error}; the run goes on, and older checkpoints stay")
            }
            RunNotice::Unwritten(error) => {
                write!(f, "{error}; the run goes on, and what cannot be written is counted")
            }
            RunNotice::Decided { step, decided } => {
                write!(
                    f,
                    "`{}` decided at {} (step {step}): {:?}",
                    decided.hook, decided.event, decided.decision
                )
            }
        }
    }
}

/// With as many digits as one needs to tell it from a budget.
fn in_percent(share: f64) -> String {
    let percent = share * 100.0;
    let digits = match percent {
        _ if (percent - percent.round()).abs() < 1e-9 => 0,
        10.0.. => 1,
        0.1.. => 2,
        _ => 4,
    };
    format!("{percent:.digits$} %")
}

/// The longest line of a notice on a terminal, in characters.
const LONGEST: usize = 2000;

/// Writes what hooks print to standard output, and other notices to standard error. A closed pipe does not end a run.
#[allow(clippy::disallowed_methods)] // the default output of a program without `with_notices`
pub(crate) fn print(notice: &RunNotice) {
    let text = printable::text(&notice.to_string(), LONGEST);
    let _ = match notice {
        RunNotice::Printed(_) => writeln!(std::io::stdout(), "{text}"),
        _ => writeln!(std::io::stderr(), "tenterhook: {text}"),
    };
}

/// How many notices a report keeps; a hook that decides something at every step must not fill the memory.
const KEPT: usize = 1000;

type Reader = Box<dyn FnMut(&RunNotice) + Send>;

/// Who reads notices besides hooks and the recorder: the terminal, or what a program puts in its place, and others. Shared
/// with the thread that watches for stalls.
#[derive(Clone)]
pub(crate) struct Readers(Arc<Mutex<Vec<Reader>>>);

impl Readers {
    pub(crate) fn one(reader: impl FnMut(&RunNotice) + Send + 'static) -> Readers {
        Readers(Arc::new(Mutex::new(vec![Box::new(reader)])))
    }

    pub(crate) fn add(&self, reader: impl FnMut(&RunNotice) + Send + 'static) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(reader));
    }

    pub(crate) fn tell(&self, notice: &RunNotice) {
        let mut readers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        readers.iter_mut().for_each(|reader| reader(notice));
    }
}

/// The notices of a call: told as they come, and the first of them kept for the report.
pub(crate) struct Notices {
    pub(crate) readers: Readers,
    pub(crate) kept: Vec<RunNotice>,
    pub(crate) not_kept: u64,
    pub(crate) failures: Failures,
    /// The kinds of contained failures that people know of: by whom, where, and whether it was a panic.
    known: BTreeSet<(String, &'static str, bool)>,
    /// Whether the start of a run is told.
    pub(crate) introduces: bool,
}

impl Notices {
    pub(crate) fn new(readers: Readers, introduces: bool) -> Notices {
        let (kept, not_kept, failures, known) = Default::default();
        Notices { readers, kept, not_kept, failures, known, introduces }
    }

    /// Tells people, and keeps nothing.
    pub(crate) fn tell(&mut self, notice: &RunNotice) {
        self.readers.tell(notice);
    }

    /// Whether people are to be told. A hook's failure is counted; after the first of its kind they are told only
    /// that the hook is disabled, and only the first keeps its backtrace.
    pub(crate) fn is_told(&mut self, notice: &mut RunNotice) -> bool {
        let RunNotice::Contained(contained) = notice else {
            return notice.is_worth_telling() && (self.introduces || !matches!(notice, RunNotice::Began(_)));
        };
        let Failure { origin, place, panicked, .. } = &contained.failure;
        let is_first = self.known.insert((origin.to_string(), place, *panicked));
        self.failures.count(&contained.failure, Then::of(contained));
        contained.failure.trace.take_if(|_| !is_first);
        is_first || contained.disabled
    }

    pub(crate) fn push(&mut self, notice: RunNotice, told: bool) {
        if told {
            self.tell(&notice);
        }
        if self.kept.len() < KEPT {
            self.kept.push(notice);
        } else {
            self.not_kept += 1;
        }
    }
}

impl RunNotice {
    /// Decisions and changes are the journal's business.
    fn is_worth_telling(&self) -> bool {
        match self {
            RunNotice::Decided { .. } | RunNotice::Changed(_) => false,
            RunNotice::Contained(_)
            | RunNotice::Refused(_)
            | RunNotice::OverBudget(_)
            | RunNotice::WouldRefuse(_)
            | RunNotice::Said { .. }
            | RunNotice::Printed(_)
            | RunNotice::Began(_)
            | RunNotice::NoGradient { .. }
            | RunNotice::NotFinite { .. }
            | RunNotice::Stalled { .. }
            | RunNotice::Interrupted { .. }
            | RunNotice::Unsaved { .. }
            | RunNotice::Unwritten(_) => true,
        }
    }
}
