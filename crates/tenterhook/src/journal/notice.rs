//! What a person should know of a run while it goes on.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenterhook_core::failure::Contained;
use tenterhook_core::{BoxError, Changed, Decided, Failure, Overrun, PlanError, RosterError, RosterRequest};

use crate::journal::{Failures, Then};
use crate::run::Introduction;

/// Something a person or the run's journal should know.
#[derive(Debug)]
#[non_exhaustive]
pub enum Notice {
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
    Began(Introduction),
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

impl std::fmt::Display for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Notice::Contained(contained @ Contained { failure, count, .. }) => {
                let then = match Then::of(contained) {
                    Then::Disabled => "the hook is disabled from here on",
                    Then::Afterwards { .. } => "the run is ending already, and clean-up goes on",
                    _ => "the run goes on, and more of this kind are only counted",
                };
                let times = if *count > 1 { format!(" (failure number {count})") } else { String::new() };
                write!(f, "{failure}{times}; {then}")
            }
            Notice::OverBudget(Overrun { hook, share, budget, disabled }) => {
                let then = if *disabled { "; it is disabled from here on" } else { "" };
                let [share, budget] = [share, budget].map(|share| in_percent(*share));
                write!(f, "hook `{hook}` takes {share} of the step time, and its budget is {budget}{then}")
            }
            Notice::Refused(error) => write!(f, "{error}"),
            Notice::Said { hook, text } => write!(f, "{hook}: {text}"),
            Notice::Printed(line) => f.write_str(line),
            Notice::Began(introduction) => write!(f, "{introduction}"),
            Notice::WouldRefuse(error) => write!(f, "{error}"),
            Notice::Changed(Changed { by, change }) => {
                let (what, hook) = match change {
                    RosterRequest::Enable(hook) => ("enabled", hook),
                    RosterRequest::Disable(hook) => ("disabled", hook),
                    RosterRequest::Remove(hook) => ("removed", hook),
                    RosterRequest::Add(hook) => ("added", hook),
                };
                let by = by.as_ref().map(|by| format!(", as `{by}` asked")).unwrap_or_default();
                write!(f, "hook `{hook}` was {what}{by}")
            }
            Notice::NoGradient { parameters } => {
                write!(
                    f,
                    "no gradient reached `{}`: the loss does not depend on it, so it is not trained; use it in the \
                     training step, or freeze it",
                    parameters.join("`, `")
                )
            }
            Notice::NotFinite { loss, step, guarded } => {
                write!(
                    f,
                    "the loss is {loss} at step {step}, where it was read; training continues with it"
                )?;
                if *guarded { Ok(()) } else { f.write_str("; the hook `nan_guard` finds where it began") }
            }
            Notice::Stalled { loader, waited, over: false } => {
                let waited = waited.as_secs_f64();
                write!(f, "loader `{loader}` has given no batch for {waited:.1} s; training waits for it")
            }
            Notice::Stalled { loader, waited, over: true } => {
                let waited = waited.as_secs_f64();
                write!(f, "loader `{loader}` is back after {waited:.1} s")
            }
            Notice::Interrupted { signal } => {
                write!(f, "{signal}: the run ends in good order when the current batch is done")
            }
            Notice::Unsaved { error, .. } => {
                write!(f, "{error}; the run goes on, and older checkpoints stay")
            }
            Notice::Unwritten(error) => {
                write!(f, "{error}; the run goes on, and what cannot be written is counted")
            }
            Notice::Decided { step, decided } => {
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

/// How many notices a report keeps; a hook that decides something at every step must not fill the memory.
const KEPT: usize = 1000;

/// How people are told. Shared with the thread that watches for stalls.
pub(crate) type Tell = Arc<Mutex<Box<dyn FnMut(&Notice) + Send>>>;

pub(crate) fn telling(tell: impl FnMut(&Notice) + Send + 'static) -> Tell {
    Arc::new(Mutex::new(Box::new(tell)))
}

/// The notices of a call: told as they come, and the first of them kept for the report.
pub(crate) struct Notices {
    pub(crate) tell: Tell,
    pub(crate) kept: Vec<Notice>,
    pub(crate) not_kept: u64,
    pub(crate) failures: Failures,
    /// The kinds of contained failures that people know of: by whom, where, and whether it was a panic.
    known: BTreeSet<(String, &'static str, bool)>,
    /// Whether the start of a run is told.
    pub(crate) introduces: bool,
}

impl Notices {
    pub(crate) fn new(tell: Tell) -> Notices {
        let (kept, not_kept, failures, known) = Default::default();
        Notices { tell, kept, not_kept, failures, known, introduces: true }
    }

    /// Tells people, and keeps nothing.
    pub(crate) fn tell(&mut self, notice: &Notice) {
        (self.tell.lock().unwrap_or_else(PoisonError::into_inner))(notice);
    }

    /// Whether people are to be told. A hook's failure is counted; after the first of its kind they are told only
    /// that the hook is disabled, and only the first keeps its backtrace.
    pub(crate) fn is_told(&mut self, notice: &mut Notice) -> bool {
        let Notice::Contained(contained) = notice else {
            return notice.is_worth_telling() && (self.introduces || !matches!(notice, Notice::Began(_)));
        };
        let Failure { origin, place, panicked, .. } = &contained.failure;
        let is_first = self.known.insert((origin.to_string(), place, *panicked));
        self.failures.count(&contained.failure, Then::of(contained));
        contained.failure.trace.take_if(|_| !is_first);
        is_first || contained.disabled
    }

    pub(crate) fn push(&mut self, notice: Notice, told: bool) {
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

impl Notice {
    /// Decisions and changes are the journal's business.
    fn is_worth_telling(&self) -> bool {
        match self {
            Notice::Decided { .. } | Notice::Changed(_) => false,
            Notice::Contained(_)
            | Notice::Refused(_)
            | Notice::OverBudget(_)
            | Notice::WouldRefuse(_)
            | Notice::Said { .. }
            | Notice::Printed(_)
            | Notice::Began(_)
            | Notice::NoGradient { .. }
            | Notice::NotFinite { .. }
            | Notice::Stalled { .. }
            | Notice::Interrupted { .. }
            | Notice::Unsaved { .. }
            | Notice::Unwritten(_) => true,
        }
    }
}
