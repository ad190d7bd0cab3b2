//! The candidates: which hooks are tested, why others are not, and whether the runs exercised them.

use tenterhook_core::{Cadence, Event, HookInfo, HookSpec, Origin, Progress, ReceivedEvents, Tier};

use super::report::{ExcludedHook, ExclusionReason, NotExercised};
use super::runs::Ran;
use crate::journal::RunNotice;
use crate::trainer::{Report, Trainer};

/// The hooks of a training run: those to test, and those to exclude.
pub(super) struct Candidates {
    /// The observers to test, in registration order.
    pub(super) tested: Vec<String>,
    pub(super) excluded: Vec<ExcludedHook>,
    /// The excluded hooks that are in no run.
    removed: Vec<String>,
    declared: Vec<HookSpec>,
}

impl Candidates {
    pub(super) fn of(trainer: &Trainer) -> Candidates {
        let declared = trainer.hooks().declared();
        let mut candidates =
            Candidates { tested: Vec::new(), excluded: Vec::new(), removed: Vec::new(), declared };
        let mut readers = Vec::new();
        for HookInfo { name: hook, kind, tier, enabled, .. } in trainer.list_hooks() {
            let reason = match (enabled, tier) {
                (false, _) => ExclusionReason::Disabled,
                (true, Tier::Checkpoint) => ExclusionReason::SavesCheckpoints,
                (true, _) => {
                    let list = if kind.steers() { &mut readers } else { &mut candidates.tested };
                    list.push(hook);
                    continue;
                }
            };
            candidates.removed.push(hook.clone());
            candidates.excluded.push(ExcludedHook { hook, reason });
        }
        while let Some(reader) = readers.pop() {
            candidates.exclude_read_by(&reader, &mut readers);
        }
        candidates
    }

    /// Excludes the observers that `reader` reads from, and adds them to the readers.
    fn exclude_read_by(&mut self, reader: &str, readers: &mut Vec<String>) {
        let Some(reads) = self.spec(reader) else { return };
        let read_from = |hook: &String| {
            let name = reads.reads_from(self.spec(hook)?)?.to_owned();
            Some(ExclusionReason::ReadBy { reader: reader.to_owned(), name })
        };
        let read = self.tested.iter().filter_map(|hook| Some((hook.clone(), read_from(hook)?)));
        for (hook, reason) in read.collect::<Vec<_>>() {
            self.tested.retain(|tested| *tested != hook);
            readers.push(hook.clone());
            self.excluded.push(ExcludedHook { hook, reason });
        }
    }

    /// The hooks to remove for a run with these of the tested observers.
    pub(super) fn all_but<'a>(&'a self, with: &'a [String]) -> impl Iterator<Item = &'a str> {
        let others = self.tested.iter().filter(|hook| !with.contains(hook));
        others.chain(&self.removed).map(String::as_str)
    }

    /// The tested observers that the run with all of them did not exercise: they failed, the run was too
    /// short, or the events that they wait for did not occur.
    pub(super) fn not_exercised(&self, ran: &Ran) -> Vec<NotExercised> {
        let why = |hook: &String, received: ReceivedEvents| {
            if ran.hooks.iter().any(|info| info.name == *hook && info.failures > 0) {
                return Some(first_failure(hook, &ran.report).unwrap_or_else(|| "it failed".to_owned()));
            }
            let spec = self.spec(hook)?;
            too_rare(spec, &ran.report.progress).or_else(|| idle(spec, received))
        };
        let each = self.tested.iter().zip(&ran.received);
        let idle = each.filter_map(|(hook, received)| Some((hook.clone(), why(hook, *received)?)));
        idle.map(|(hook, why)| NotExercised { hook, why }).collect()
    }

    fn spec(&self, hook: &str) -> Option<&HookSpec> {
        self.declared.iter().find(|spec| spec.name == hook)
    }

    /// The number of steps until every tested observer has fired, as far as it is known and at most `most`.
    pub(super) fn steps_to_fire(&self, accumulate: u64, most: u64) -> u64 {
        let declared = self.tested.iter().filter_map(|hook| self.spec(hook));
        let steps = declared.flat_map(|spec| steps_to_fire(spec, accumulate));
        steps.filter(|steps| *steps <= most).max().unwrap_or(0)
    }
}

/// The first contained failure of a hook.
fn first_failure(hook: &str, report: &Report) -> Option<String> {
    report.notices.iter().find_map(|notice| match notice {
        RunNotice::Contained(contained) if contained.failure.origin == Origin::Hook(hook.to_owned()) => {
            Some(contained.failure.to_string())
        }
        _ => None,
    })
}

/// The cadences by which a hook fires, each with a description and the steps, batches or epochs that it needs
/// beyond it.
fn cadences(spec: &HookSpec) -> impl Iterator<Item = (Cadence, u64, String)> {
    let paced = spec.throttle.filter(|cadence| !is_never(*cadence));
    let every = spec.every.iter().map(|cadence| (*cadence, 0, format!("it fires every {cadence}")));
    let paced = paced.into_iter().map(|cadence| (cadence, 0, format!("it looks every {cadence}")));
    let needs = spec
        .min_run_length
        .iter()
        .map(|(key, cadence)| (*cadence, 0, format!("its `{key}` needs {cadence}")));
    let after = spec.after.iter().map(|cadence| (*cadence, 1, format!("it fires after {cadence}")));
    every.chain(paced).chain(needs).chain(after)
}

/// Why the run was too short for a hook to fire.
fn too_rare(spec: &HookSpec, progress: &Progress) -> Option<String> {
    let is_missed = |(cadence, beyond, _): &(Cadence, u64, String)| match cadence {
        Cadence::Steps(n) => progress.step < n + beyond,
        Cadence::Epochs(n) => progress.epochs_done < n + beyond,
        Cadence::Batches(n) => progress.total_batches < n + beyond,
        Cadence::Time(_) => false,
    };
    let (_, _, why) = cadences(spec).find(is_missed)?;
    let accumulate = progress.total_batches.checked_div(progress.step).unwrap_or(1);
    let enough = steps_to_fire(spec, accumulate).max();
    let fix = enough.map(|steps| format!("; {steps} steps would do")).unwrap_or_default();
    Some(format!("{why}, and the run was shorter{fix}"))
}

/// The number of steps after which a hook has fired, for each of its cadences in steps or batches.
fn steps_to_fire(spec: &HookSpec, accumulate: u64) -> impl Iterator<Item = u64> {
    cadences(spec).filter_map(move |(cadence, beyond, _)| match cadence {
        Cadence::Steps(n) => Some(n + beyond),
        Cadence::Batches(n) => Some((n + beyond).div_ceil(accumulate.max(1))),
        Cadence::Epochs(_) | Cadence::Time(_) => None,
    })
}

/// The cadence of hooks that look at evaluations only.
fn is_never(cadence: Cadence) -> bool {
    cadence == Cadence::Steps(u64::MAX)
}

/// Why a hook did nothing: it received none of the events that it waits for. For a hook that receives events
/// of every epoch, events that fire once per run do not count.
fn idle(spec: &HookSpec, received: ReceivedEvents) -> Option<String> {
    let ReceivedEvents { wanted, in_training, in_evaluations } = received;
    let looks_at_steps = !spec.throttle.is_some_and(is_never);
    let came = |event: Event| {
        let ignored = event == Event::Activation && !looks_at_steps;
        in_evaluations.contains(event) || (in_training.contains(event) && !ignored)
    };
    let is_of_epochs = |event: &Event| event.is_within_epoch() || *event == Event::Activation;
    let recurs = wanted.iter().any(|event| is_of_epochs(&event));
    let counts = |event: &Event| !recurs || is_of_epochs(event);
    if wanted.iter().filter(counts).any(came) {
        return None;
    }
    let waits: Vec<_> = wanted.iter().filter(counts).map(Event::handler).take(3).collect();
    Some(format!("it received none of the events that it waits for ({})", waits.join(", ")))
}
