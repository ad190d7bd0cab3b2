//! The lines of `events.jsonl`: what happened besides numbers.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tenterhook_core::{
    Decided, Failure, Flow, Lr, Outcome, Overrun, Request, RosterRequest, SaveRequest, Stage,
};

use super::Introduction;
use crate::journal::Consequence;
use crate::journal::RunNotice;

/// Something that happened, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Completed optimizer steps.
    pub step: u64,
    /// The epoch, from 0.
    pub epoch: u64,
    /// Seconds since the run began.
    pub time: f64,
    /// What.
    #[serde(flatten)]
    pub what: Happening,
}

/// What can happen in a run besides numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Happening {
    /// A call began.
    Start {
        /// Which.
        stage: Stage,
        /// The checkpoint that it goes on from.
        #[serde(skip_serializing_if = "Option::is_none")]
        resumed_from: Option<PathBuf>,
    },
    /// A run began: what can be said of it before its first step.
    Run(Introduction),
    /// A hook, or the module, decided something.
    Decision {
        /// Who.
        by: String,
        /// At which event.
        at: String,
        /// What, in order: flows first, then requests.
        decided: Vec<Value>,
    },
    /// A hook failed and the run went on, or something failed that ended it.
    Failure {
        /// Who.
        by: String,
        /// In which event or action.
        at: String,
        /// What went wrong.
        error: String,
        /// It was a panic.
        panicked: bool,
        /// How often that hook has failed, this time included; 1 of whatever ends the run.
        count: u32,
        /// It is disabled from here on.
        disabled: bool,
        /// It ends the run.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        aborted: bool,
        /// It came afterwards, while everybody was told and torn down.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        afterwards: bool,
        /// The way to it, where backtraces are kept: of the first of its kind.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        backtrace: Option<String>,
    },
    /// A hook took more than its budget.
    OverBudget {
        /// Who.
        hook: String,
        /// What share of the time it took, of 1.
        share: f64,
        /// What share it may take, of 1.
        budget: f64,
        /// It is disabled from here on.
        disabled: bool,
    },
    /// A hook was enabled, disabled, removed or added.
    Toggle {
        /// Who asked for it: a hook; else the module, or the trainer after a failure.
        by: Option<String>,
        /// What was done to which hook.
        change: RosterRequest,
    },
    /// A hook asked for something that could not be done.
    Refused {
        /// Why.
        error: String,
    },
    /// The plan would have refused something, had it not been told to go on.
    Accepted {
        /// What.
        problem: String,
    },
    /// A hook had something to say.
    Said {
        /// Who.
        by: String,
        /// What.
        text: String,
    },
    /// A checkpoint is durable.
    Checkpoint {
        /// Where, below the run directory if it is there.
        path: PathBuf,
        /// Only weights: nothing to resume from.
        weights_only: bool,
    },
    /// A checkpoint could not be written.
    CheckpointFailed {
        /// Where it would have been.
        path: PathBuf,
        /// Why.
        error: String,
    },
    /// A checkpoint was removed because a better or newer one is there.
    CheckpointRemoved {
        /// Where it was.
        path: PathBuf,
    },
    /// Parameters that no gradient reached.
    NoGradient {
        /// Their names.
        parameters: Vec<String>,
    },
    /// The loss was found to be no number, or an infinite one.
    NotFinite {
        /// What it is.
        #[serde(with = "tenterhook_core::number")]
        loss: f64,
    },
    /// A loader keeps training waiting, or did so.
    Stall {
        /// The loader's name.
        loader: String,
        /// For how long, in seconds.
        seconds: f64,
        /// It has given its batch, or failed.
        over: bool,
    },
    /// The run was asked to end by a signal.
    Interruption {
        /// Which.
        signal: String,
    },
    /// Something could not be written.
    Unwritten {
        /// Why.
        error: String,
    },
    /// A call ended.
    End {
        /// Which.
        stage: Stage,
        /// How.
        #[serde(flatten)]
        outcome: Outcome,
    },
    /// Something that was written by a newer version, which this one does not know.
    #[serde(other)]
    Unknown,
}

impl From<&RunNotice> for Happening {
    fn from(notice: &RunNotice) -> Happening {
        match notice {
            RunNotice::Contained(contained) => {
                Happening::failed(&contained.failure, contained.count, Consequence::of(contained))
            }
            RunNotice::Changed(changed) => {
                Happening::Toggle { by: changed.by.clone(), change: changed.change.clone() }
            }
            RunNotice::OverBudget(Overrun { hook, share, budget, disabled }) => Happening::OverBudget {
                hook: hook.clone(),
                share: *share,
                budget: *budget,
                disabled: *disabled,
            },
            RunNotice::Refused(error) => Happening::Refused { error: error.to_string() },
            RunNotice::PlanProblem(error) => Happening::Accepted { problem: error.to_string() },
            RunNotice::Printed(line) => Happening::Said { by: String::new(), text: line.clone() },
            RunNotice::Started(introduction) => Happening::Run(introduction.clone()),
            RunNotice::Said { hook, text } => Happening::Said { by: hook.clone(), text: text.clone() },
            RunNotice::Decided { decided, .. } => decision(decided),
            RunNotice::NoGradient { parameters } => Happening::NoGradient { parameters: parameters.clone() },
            RunNotice::NotFinite { loss, .. } => Happening::NotFinite { loss: *loss },
            RunNotice::Stalled { loader, waited, over } => {
                Happening::Stall { loader: loader.clone(), seconds: waited.as_secs_f64(), over: *over }
            }
            RunNotice::Interrupted { signal } => Happening::Interruption { signal: signal.clone() },
            RunNotice::SaveFailed { path, error } => {
                Happening::CheckpointFailed { path: path.clone(), error: error.to_string() }
            }
            RunNotice::WriteFailed(error) => Happening::Unwritten { error: error.to_string() },
        }
    }
}

impl Happening {
    /// A failure, how often its hook has failed, and what it led to.
    pub(crate) fn failed(failure: &Failure, count: u32, then: Consequence) -> Happening {
        Happening::Failure {
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

fn decision(decided: &Decided) -> Happening {
    let flows = decided.decision.flows().iter().filter_map(flow);
    let all = flows.chain(decided.decision.requests().iter().map(request));
    Happening::Decision { by: decided.hook.clone(), at: decided.event.to_string(), decided: all.collect() }
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
        Request::Lr { optimizer, change: Lr::Set(lr) } => {
            json!({ "request": "set_lr", "optimizer": optimizer, "lr": lr })
        }
        Request::Lr { optimizer, change: Lr::Scale(factor) } => {
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
        let decision = decision.request(Request::Lr { optimizer: Some(1), change: Lr::Scale(0.5) });
        let decided = Decided { hook: "h".into(), event: Event::AfterBackward, decision };
        let what = Happening::from(&RunNotice::Decided { step: 3, decided });
        let entry = Entry { step: 3, epoch: 1, time: 0.5, what };
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
