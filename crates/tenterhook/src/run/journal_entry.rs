//! The journal: the entries of `events.jsonl`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tenterhook_core::{
    BudgetOverrun, Failure, Flow, HookDecision, LrChange, Outcome, Request, RosterRequest, SaveRequest, Stage,
};

use super::RunHeader;
use crate::journal::{Consequence, RunNotice};

/// An entry of the journal: an event and its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JournalEntry {
    /// Completed optimizer steps.
    pub step: u64,
    /// The epoch, from 0.
    pub epoch: u64,
    /// Seconds since the run began.
    pub time: f64,
    /// The event.
    #[serde(flatten)]
    pub what: JournalEvent,
}

/// An event in the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum JournalEvent {
    /// A call began.
    Start {
        /// The call.
        stage: Stage,
        /// The checkpoint that it resumes from.
        #[serde(skip_serializing_if = "Option::is_none")]
        resumed_from: Option<PathBuf>,
    },
    /// The header of a run, before its first step.
    Run(RunHeader),
    /// A hook or the module made a decision.
    Decision {
        /// The hook, or the module.
        by: String,
        /// The event.
        at: String,
        /// The flows, followed by the requests.
        decided: Vec<Value>,
    },
    /// A failure of a hook, or one that ended the run.
    Failure {
        /// The hook, the module or another source.
        by: String,
        /// The event or action.
        at: String,
        /// The error.
        error: String,
        /// It was a panic.
        panicked: bool,
        /// The number of failures of this hook so far, including this one; 1 for a failure that ends the run.
        count: u32,
        /// Whether this disabled the hook.
        disabled: bool,
        /// It ends the run.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        aborted: bool,
        /// It happened during clean-up, after the failure that ended the run.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        afterwards: bool,
        /// The backtrace, if they are kept; only of the first failure of its kind.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        backtrace: Option<String>,
    },
    /// A hook took more time than its budget.
    OverBudget {
        /// The hook.
        hook: String,
        /// The fraction of the time that it took.
        share: f64,
        /// The fraction that it may take.
        budget: f64,
        /// Whether this disabled the hook.
        disabled: bool,
    },
    /// A hook was enabled, disabled, removed or added.
    Toggle {
        /// The hook that requested it; `None` for the module, or for the trainer after a failure.
        by: Option<String>,
        /// The change.
        change: RosterRequest,
    },
    /// A request that was refused.
    Refused {
        /// Why.
        error: String,
    },
    /// A problem of the plan that was accepted because the trainer is lenient.
    Accepted {
        /// The problem.
        problem: String,
    },
    /// A message of a hook.
    Said {
        /// The hook.
        by: String,
        /// The message.
        text: String,
    },
    /// A checkpoint is durable.
    Checkpoint {
        /// Its path, relative to the run directory if it is below it.
        path: PathBuf,
        /// Whether it holds only weights, so that no run can resume from it.
        weights_only: bool,
    },
    /// A checkpoint could not be written.
    CheckpointFailed {
        /// Its path.
        path: PathBuf,
        /// Why.
        error: String,
    },
    /// A checkpoint was removed because a better or newer one replaces it.
    CheckpointRemoved {
        /// Its path.
        path: PathBuf,
    },
    /// Parameters without a gradient.
    NoGradient {
        /// Their names.
        parameters: Vec<String>,
    },
    /// The loss is NaN or infinite.
    NotFinite {
        /// The loss.
        #[serde(with = "tenterhook_core::number")]
        loss: f64,
    },
    /// Training waits, or waited, for a loader.
    Stall {
        /// The loader's name.
        loader: String,
        /// The time waited, in seconds.
        seconds: f64,
        /// The wait is over: the loader has returned a batch or failed.
        over: bool,
    },
    /// A signal asked the run to end.
    Interruption {
        /// The signal.
        signal: String,
    },
    /// A write failed.
    Unwritten {
        /// Why.
        error: String,
    },
    /// A call ended.
    End {
        /// The call.
        stage: Stage,
        /// The outcome.
        #[serde(flatten)]
        outcome: Outcome,
    },
    /// An event of a newer version.
    #[serde(other)]
    Unknown,
}

impl From<&RunNotice> for JournalEvent {
    fn from(notice: &RunNotice) -> JournalEvent {
        match notice {
            RunNotice::Contained(contained) => {
                JournalEvent::failed(&contained.failure, contained.count, Consequence::of(contained))
            }
            RunNotice::Changed(changed) => {
                JournalEvent::Toggle { by: changed.by.clone(), change: changed.change.clone() }
            }
            RunNotice::OverBudget(BudgetOverrun { hook, share, budget, disabled }) => {
                JournalEvent::OverBudget {
                    hook: hook.clone(),
                    share: *share,
                    budget: *budget,
                    disabled: *disabled,
                }
            }
            RunNotice::Refused(error) => JournalEvent::Refused { error: error.to_string() },
            RunNotice::PlanProblem(error) => JournalEvent::Accepted { problem: error.to_string() },
            RunNotice::Printed(line) => JournalEvent::Said { by: String::new(), text: line.clone() },
            RunNotice::Started(header) => JournalEvent::Run(header.clone()),
            RunNotice::Said { hook, text } => JournalEvent::Said { by: hook.clone(), text: text.clone() },
            RunNotice::Decided { decided, .. } => decision(decided),
            RunNotice::NoGradient { parameters } => {
                JournalEvent::NoGradient { parameters: parameters.clone() }
            }
            RunNotice::NotFinite { loss, .. } => JournalEvent::NotFinite { loss: *loss },
            RunNotice::Stalled { loader, waited, over } => {
                JournalEvent::Stall { loader: loader.clone(), seconds: waited.as_secs_f64(), over: *over }
            }
            RunNotice::Interrupted { signal } => JournalEvent::Interruption { signal: signal.clone() },
            RunNotice::SaveFailed { path, error } => {
                JournalEvent::CheckpointFailed { path: path.clone(), error: error.to_string() }
            }
            RunNotice::WriteFailed(error) => JournalEvent::Unwritten { error: error.to_string() },
        }
    }
}

impl JournalEvent {
    /// A failure, the number of failures of its hook, and its consequence.
    pub(crate) fn failed(failure: &Failure, count: u32, then: Consequence) -> JournalEvent {
        JournalEvent::Failure {
            by: failure.origin.to_string(),
            at: failure.place.to_owned(),
            error: failure.error.to_string(),
            panicked: failure.panicked,
            count,
            disabled: then.disables(),
            aborted: then == Consequence::Aborts,
            afterwards: then.is_afterwards(),
            backtrace: failure.trace.as_ref().map(ToString::to_string),
        }
    }
}

fn decision(decided: &HookDecision) -> JournalEvent {
    let flows = decided.decision.flows().iter().filter_map(flow);
    let all = flows.chain(decided.decision.requests().iter().map(request));
    JournalEvent::Decision { by: decided.hook.clone(), at: decided.event.to_string(), decided: all.collect() }
}

fn flow(flow: &Flow) -> Option<Value> {
    Some(match flow {
        Flow::Continue => return None,
        Flow::SkipUpdate => json!({ "flow": "skip_update" }),
        Flow::SkipBatch => json!({ "flow": "skip_batch" }),
        Flow::EndEpoch => json!({ "flow": "end_epoch" }),
        Flow::Stop { reason } => json!({ "flow": "stop", "reason": reason }),
        other => json!({ "flow": other }),
    })
}

fn request(request: &Request) -> Value {
    match request {
        Request::Lr { optimizer, change: LrChange::Set(lr) } => {
            json!({ "request": "set_lr", "optimizer": optimizer, "lr": lr })
        }
        Request::Lr { optimizer, change: LrChange::Scale(factor) } => {
            json!({ "request": "scale_lr", "optimizer": optimizer, "factor": factor })
        }
        Request::Save(SaveRequest { path, weights_only, .. }) => {
            json!({ "request": "save", "path": path, "weights_only": weights_only })
        }
        Request::Validate => json!({ "request": "validate" }),
        Request::SwapWeights(_) => json!({ "request": "swap_weights" }),
        Request::SwapBack => json!({ "request": "swap_back" }),
        other => json!({ "request": other }),
    }
}

#[cfg(test)]
mod tests {
    use tenterhook_core::{Decision, Event};

    use super::*;

    #[test]
    fn a_decision_is_written_with_all_its_parts() {
        let decision = Decision::stop("enough").and(Flow::SkipUpdate).request(Request::Validate);
        let decision = decision.request(Request::Lr { optimizer: Some(1), change: LrChange::Scale(0.5) });
        let decided = HookDecision { hook: "h".into(), event: Event::AfterBackward, decision };
        let what = JournalEvent::from(&RunNotice::Decided { step: 3, decided });
        let entry = JournalEntry { step: 3, epoch: 1, time: 0.5, what };
        assert_eq!(
            serde_json::to_value(entry).expect("it is JSON"),
            json!({
                "step": 3, "epoch": 1, "time": 0.5, "event": "decision", "by": "h", "at": "on_after_backward",
                "decided": [
                    { "flow": "stop", "reason": "enough" },
                    { "flow": "skip_update" },
                    { "request": "validate" },
                    { "request": "scale_lr", "optimizer": 1, "factor": 0.5 },
                ],
            })
        );
    }
}
