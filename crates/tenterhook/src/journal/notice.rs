//! Notices: what a run reports while it is running.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenterhook_core::failure::Contained;
use tenterhook_core::{
    BoxError, BudgetOverrun, Failure, HookDecision, PlanError, RosterChange, RosterError, RosterRequest,
    printable,
};

use crate::journal::{Consequence, Failures};
use crate::run::RunHeader;

/// A notice of a run, for the terminal, `events.jsonl`, hooks and other readers.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunNotice {
    /// A hook failed, and the run continues.
    Contained(Contained),
    /// A hook exceeded its budget.
    OverBudget(BudgetOverrun),
    /// A requested change of the list of hooks was refused.
    Refused(RosterError),
    /// The list of hooks was changed during the run.
    Changed(RosterChange),
    /// A problem of the plan that does not prevent the run: it is a warning, or the trainer is lenient.
    PlanProblem(PlanError),
    /// A message of a hook.
    Said {
        /// The hook's name.
        hook: String,
        /// The message.
        text: String,
    },
    /// A line that a hook prints on the console. It is not recorded.
    Printed(String),
    /// A run has started that leaves files or checkpoints.
    Started(RunHeader),
    /// A hook or the module made a decision.
    Decided {
        /// The completed steps.
        step: u64,
        /// The decision, with the hook and the event.
        decided: HookDecision,
    },
    /// Parameters got no gradient in the first step of their optimizer, so they are not trained.
    NoGradient {
        /// Their names.
        parameters: Vec<String>,
    },
    /// The loss is NaN or infinite. Reported once per call.
    NotFinite {
        /// The loss.
        loss: f64,
        /// The completed steps when it was read.
        step: u64,
        /// A hook such as `nan_guard` locates the first value that is not finite.
        guarded: bool,
    },
    /// A loader has given no batch for longer than `stall_warning`, or has given one after such a stall.
    Stalled {
        /// The loader's name.
        loader: String,
        /// The time without a batch.
        waited: Duration,
        /// The stall is over: the loader has given a batch, or failed.
        over: bool,
    },
    /// A signal ends the run.
    Interrupted {
        /// The signal's name.
        signal: String,
    },
    /// A checkpoint could not be written, and the run continues.
    SaveFailed {
        /// The path of the checkpoint.
        path: PathBuf,
        /// The error.
        error: BoxError,
    },
    /// A file of the run could not be written. Reported once; the report counts the lost lines.
    WriteFailed(BoxError),
}

impl std::fmt::Display for RunNotice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RunNotice::Contained(contained @ Contained { failure, count, .. }) => {
                let then = match Consequence::of(contained) {
                    Consequence::Disabled => "the hook is disabled",
                    Consequence::Afterwards { .. } => "the run is already ending, and the clean-up continues",
                    _ => "the run continues, and further failures of this kind are only counted",
                };
                let times = if *count > 1 { format!(" (failure number {count})") } else { String::new() };
                write!(f, "{failure}{times}; {then}")
            }
            RunNotice::OverBudget(BudgetOverrun { hook, share, budget, disabled }) => {
                let then = if *disabled { "; it is disabled" } else { "" };
                let [share, budget] = [share, budget].map(|share| in_percent(*share));
                write!(f, "hook `{hook}` takes {share} of the step time, and its budget is {budget}{then}")
            }
            RunNotice::Refused(error) => write!(f, "{error}"),
            RunNotice::Said { hook, text } => write!(f, "{hook}: {text}"),
            RunNotice::Printed(line) => f.write_str(line),
            RunNotice::Started(header) => write!(f, "{header}"),
            RunNotice::PlanProblem(error) => write!(f, "{error}"),
            RunNotice::Changed(RosterChange { by, change }) => {
                let what = match change {
                    RosterRequest::Enable(_) => "enabled",
                    RosterRequest::Disable(_) => "disabled",
                    RosterRequest::Remove(_) => "removed",
                    RosterRequest::Add(_) => "added",
                    _ => "changed",
                };
                let hook = change.hook();
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
                write!(f, "loader `{loader}` has given no batch for {waited:.1} s; training is waiting")
            }
            RunNotice::Stalled { loader, waited, over: true } => {
                let waited = waited.as_secs_f64();
                write!(f, "loader `{loader}` has given a batch after {waited:.1} s")
            }
            RunNotice::Interrupted { signal } => {
                write!(f, "{signal}: the run ends after the current batch")
            }
            RunNotice::SaveFailed { error, .. } => {
                write!(f, "{error}; the run continues, and older checkpoints are kept")
            }
            RunNotice::WriteFailed(error) => {
                write!(f, "{error}; the run continues, and lost lines are counted")
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

/// A share in percent, with enough digits to compare it with a budget.
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

/// Writes what hooks print to standard output, and other notices to standard error. A closed pipe does not
/// end a run.
#[allow(clippy::disallowed_methods)] // the default reader
pub(crate) fn print(notice: &RunNotice) {
    let text = printable::text(&notice.to_string(), LONGEST);
    let _ = match notice {
        RunNotice::Printed(_) => writeln!(std::io::stdout(), "{text}"),
        _ => writeln!(std::io::stderr(), "tenterhook: {text}"),
    };
}

/// The largest number of notices that a report keeps, because a hook may make a decision in every step.
const KEPT: usize = 1000;

type Reader = Box<dyn FnMut(&RunNotice) + Send>;

/// The readers of notices besides hooks and the recorder: the terminal or its replacement, and others. Shared
/// with the thread that reports stalls.
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

/// The notices of a call. Readers receive them at once, and the first of them are kept for the report.
pub(crate) struct Notices {
    pub(crate) readers: Readers,
    pub(crate) kept: Vec<RunNotice>,
    pub(crate) not_kept: u64,
    pub(crate) failures: Failures,
    /// The kinds of contained failures that were reported: origin, place, and whether it was a panic.
    known: BTreeSet<(String, &'static str, bool)>,
    /// Announce the start of a run.
    pub(crate) announces_start: bool,
}

impl Notices {
    pub(crate) fn new(readers: Readers, announces_start: bool) -> Notices {
        Notices {
            readers,
            kept: Vec::new(),
            not_kept: 0,
            failures: Failures::default(),
            known: BTreeSet::new(),
            announces_start,
        }
    }

    /// Whether readers receive the notice. Decisions and changes of the list of hooks are only recorded. A
    /// failure of a hook is counted; of each kind readers receive the first, with its backtrace, and the one
    /// that disables the hook.
    pub(crate) fn is_shown(&mut self, notice: &mut RunNotice) -> bool {
        let contained = match notice {
            RunNotice::Contained(contained) => contained,
            RunNotice::Started(_) => return self.announces_start,
            RunNotice::Decided { .. } | RunNotice::Changed(_) => return false,
            _ => return true,
        };
        let Failure { origin, place, panicked, .. } = &contained.failure;
        let is_first = self.known.insert((origin.to_string(), place, *panicked));
        self.failures.count(&contained.failure, Consequence::of(contained));
        contained.failure.trace.take_if(|_| !is_first);
        is_first || contained.disabled
    }

    /// Keeps a notice for the report.
    pub(crate) fn keep(&mut self, notice: RunNotice) {
        if self.kept.len() < KEPT {
            self.kept.push(notice);
        } else {
            self.not_kept += 1;
        }
    }
}
