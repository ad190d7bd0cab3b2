//! The events of a run as a tree: an event is nested between the start and the end of another.

use std::sync::{Arc, Mutex, PoisonError};

use tenterhook::hook::EventResult;
use tenterhook::{Event, EventRef, Hook, HookSpec};

/// An event that fired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fired {
    pub(super) event: Event,
    pub(super) epoch: u64,
    pub(super) step: u64,
    /// Index of the batch, and the name of its loader.
    pub(super) batch: Option<(u64, String)>,
    /// The name of the activation.
    pub(super) point: Option<String>,
}

/// A hook that records every event.
#[derive(Clone, Default)]
pub(super) struct Tracer(Arc<Mutex<Vec<Fired>>>);

impl Tracer {
    pub(super) const NAME: &str = "trace";

    pub(super) fn fired(&self) -> Vec<Fired> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Hook for Tracer {
    fn spec(&self) -> HookSpec {
        Event::ALL.iter().copied().fold(HookSpec::observer(Tracer::NAME), HookSpec::wants)
    }

    fn deliver(&mut self, event: EventRef<'_>) -> EventResult {
        let run_cx = event.run_cx();
        let batch = event.batch().map(|batch| (batch.index, batch.loader.to_owned()));
        let point = if let EventRef::Activation(cx) = event { Some(cx.point.to_owned()) } else { None };
        let fired = Fired { event: event.event(), epoch: run_cx.epoch, step: run_cx.step, batch, point };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(fired);
        Ok(())
    }
}

/// The depth of each event in the tree.
pub(super) fn depths(fired: &[Fired]) -> Vec<usize> {
    let mut open: Vec<&str> = Vec::new();
    let mut depths = Vec::with_capacity(fired.len());
    for Fired { event, .. } in fired {
        let handler = event.handler();
        let name = match handler {
            "teardown" => "setup",
            _ => handler.trim_end_matches("_start").trim_end_matches("_end"),
        };
        let ends = handler.ends_with("_end") || handler == "teardown";
        if ends && let Some(at) = open.iter().rposition(|open| *open == name) {
            open.truncate(at);
        }
        depths.push(open.len());
        if handler.ends_with("_start") || handler == "setup" {
            open.push(name);
        }
    }
    depths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_nested_between_start_and_end() {
        use Event as E;
        let events = [
            E::Setup,
            E::FitStart,
            E::TrainStart,
            E::TrainBatchStart,
            E::BeforeForward,
            E::StepEnd,
            E::TrainBatchEnd,
            E::TrainEnd,
            E::FitEnd,
            E::Teardown,
        ];
        let fired: Vec<_> = events
            .into_iter()
            .map(|event| Fired { event, epoch: 0, step: 0, batch: None, point: None })
            .collect();
        assert_eq!(depths(&fired), [0, 1, 2, 3, 4, 4, 3, 2, 1, 0]);
    }
}
