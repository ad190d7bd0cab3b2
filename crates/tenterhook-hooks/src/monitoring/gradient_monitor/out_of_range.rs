//! Gradients that vanish or explode, each reported once when it begins.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tenterhook_core::RunContext;

use super::options::GradientMonitorOptions;
use crate::support::text::list;

/// The parameters whose gradients vanished or exploded in the last monitored step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct OutOfRange {
    vanishing: Names,
    exploding: Names,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Names {
    names: BTreeSet<String>,
    /// Names not reported yet, in order of occurrence.
    #[serde(skip)]
    new: Vec<String>,
}

impl Names {
    fn record(&mut self, name: &str, is_out: bool) {
        if !is_out {
            self.names.remove(name);
        } else if !self.names.contains(name) {
            self.names.insert(name.to_owned());
            self.new.push(name.to_owned());
        }
    }

    fn report_new(&mut self, run_cx: &RunContext<'_>, what: &str) {
        if !self.new.is_empty() {
            let (step, names) = (run_cx.progress.current_step(), list(&self.new));
            run_cx.say(format!("at step {step} the gradient norm {what}: {names}"));
            self.new.clear();
        }
    }
}

impl OutOfRange {
    /// Records whether a gradient vanishes or explodes.
    pub(super) fn record(&mut self, name: &str, vanishes: bool, explodes: bool) {
        self.vanishing.record(name, vanishes);
        self.exploding.record(name, explodes);
    }

    /// Reports the gradients that began to vanish or explode since the last report.
    pub(super) fn report_new(&mut self, run_cx: &RunContext<'_>, options: &GradientMonitorOptions) {
        let (low, high) = (options.vanishing_threshold, options.exploding_threshold);
        self.vanishing.report_new(run_cx, &format!("vanishes (below {low:?}) in"));
        self.exploding.report_new(run_cx, &format!("explodes (above {high:?}, or not finite) in"));
    }
}
