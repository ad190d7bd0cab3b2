//! Whether a run was enough to see what a hook does.

use tenterhook_core::{Cadence, Event, HookSpec, Progress, ReceivedEvents};

/// What a hook waits for and a run did not come to.
pub(super) fn too_rare(spec: &HookSpec, progress: &Progress) -> Option<String> {
    let missed = |cadence: &&Cadence| !is_reached(**cadence, progress, 0);
    let rare = spec.every.iter().find(missed).map(|cadence| format!("it fires every {cadence}"));
    let paced = || {
        let paced = spec.throttle.iter().filter(|cadence| !is_never(**cadence)).find(missed)?;
        Some(format!("it looks every {paced}"))
    };
    let needs = || {
        let (key, cadence) = spec.needs_run_length.iter().find(|(_, cadence)| missed(&cadence))?;
        Some(format!("its `{key}` needs {cadence}"))
    };
    let late = || {
        let after = spec.after.iter().find(|cadence| !is_reached(**cadence, progress, 1))?;
        Some(format!("it fires after {after}"))
    };
    let why = rare.or_else(paced).or_else(needs).or_else(late)?;
    let accumulate = progress.total_batches.checked_div(progress.step).unwrap_or(1);
    let enough = steps_to_fire(spec, accumulate).max();
    let fix = enough.map(|steps| format!("; {steps} steps would do")).unwrap_or_default();
    Some(format!("{why}, and the run was shorter{fix}"))
}

/// After how many steps it has fired once, by each thing that it says of itself in steps or batches.
pub(super) fn steps_to_fire(spec: &HookSpec, accumulate: u64) -> impl Iterator<Item = u64> {
    let paced = spec.throttle.iter().filter(|cadence| !is_never(**cadence));
    let often =
        spec.every.iter().chain(paced).chain(spec.needs_run_length.iter().map(|(_, cadence)| cadence));
    let late = spec.after.iter().map(|cadence| (cadence, 1));
    let all = often.map(|cadence| (cadence, 0)).chain(late);
    all.filter_map(move |(cadence, beyond)| match cadence {
        Cadence::Steps(n) => Some(n + beyond),
        Cadence::Batches(n) => Some((n + beyond).div_ceil(accumulate.max(1))),
        Cadence::Epochs(_) | Cadence::Time(_) => None,
    })
}

/// In no step: so hooks say that look at evaluations only.
fn is_never(cadence: Cadence) -> bool {
    cadence == Cadence::Steps(u64::MAX)
}

/// Whether a run that came so far has come to it, and beyond it by so much. Of times nothing is known.
fn is_reached(cadence: Cadence, progress: &Progress, beyond: u64) -> bool {
    match cadence {
        Cadence::Steps(n) => progress.step >= n + beyond,
        Cadence::Epochs(n) => progress.epochs_done >= n + beyond,
        Cadence::Batches(n) => progress.total_batches >= n + beyond,
        Cadence::Time(_) => true,
    }
}

/// Why a hook has done nothing, if it has done nothing. Where it wants something of every epoch, what comes once
/// in a run, and passes every gate, is not enough.
pub(super) fn idle(spec: &HookSpec, received: ReceivedEvents) -> Option<String> {
    let ReceivedEvents { wanted, in_training, in_evaluations } = received;
    let looks_at_steps = !spec.throttle.is_some_and(is_never);
    let came = |event: Event| {
        let shown_in_vain = event == Event::Activation && !looks_at_steps;
        in_evaluations.contains(event) || (in_training.contains(event) && !shown_in_vain)
    };
    let is_of_epochs = |event: &Event| event.is_within_epoch() || *event == Event::Activation;
    let recurs = wanted.iter().any(|event| is_of_epochs(&event));
    let counts = |event: &Event| !recurs || is_of_epochs(event);
    if wanted.iter().filter(counts).any(came) {
        return None;
    }
    let waits: Vec<_> = wanted.iter().filter(counts).map(Event::handler).take(3).collect();
    Some(format!("nothing that it waits for came through to it ({})", waits.join(", ")))
}
