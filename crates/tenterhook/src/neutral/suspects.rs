//! Which hooks are judged, and why the others are not.

use tenterhook_core::{HookInfo, HookSpec, Origin, ReceivedEvents, Tier};

use super::exercise;
use super::judgement::{NotExercised, NotJudged, Reason};
use super::runs::Ran;
use crate::journal::RunNotice;
use crate::trainer::{Report, Trainer};

/// The hooks of a training, sorted.
pub(super) struct Suspects {
    /// The observers that are judged, in registration order.
    pub(super) judged: Vec<String>,
    pub(super) not_judged: Vec<NotJudged>,
    /// Those that are in no run.
    left_out: Vec<String>,
    declared: Vec<HookSpec>,
}

impl Suspects {
    pub(super) fn among(trainer: &Trainer) -> Suspects {
        let declared = trainer.hooks().declared();
        let mut suspects =
            Suspects { judged: Vec::new(), not_judged: Vec::new(), left_out: Vec::new(), declared };
        let mut readers = Vec::new();
        for HookInfo { name: hook, kind, tier, enabled, .. } in trainer.list_hooks() {
            let reason = match (enabled, tier) {
                (false, _) => Reason::Disabled,
                (true, Tier::Checkpoint) => Reason::SavesCheckpoints,
                (true, _) if kind.steers() => {
                    readers.push(hook);
                    continue;
                }
                (true, _) => {
                    suspects.judged.push(hook);
                    continue;
                }
            };
            suspects.left_out.push(hook.clone());
            suspects.not_judged.push(NotJudged { hook, reason });
        }
        while let Some(reader) = readers.pop() {
            suspects.spare_what_is_read_by(&reader, &mut readers);
        }
        suspects
    }

    /// Whoever is read from stays in all runs; and what it reads itself, too.
    fn spare_what_is_read_by(&mut self, reader: &str, readers: &mut Vec<String>) {
        let Some(reads) = self.spec(reader) else { return };
        let read_from = |hook: &String| {
            let name = reads.reads_from(self.spec(hook)?)?.to_owned();
            Some(Reason::ReadBy { reader: reader.to_owned(), name })
        };
        let spared = self.judged.iter().filter_map(|hook| Some((hook.clone(), read_from(hook)?)));
        for (hook, reason) in spared.collect::<Vec<_>>() {
            self.judged.retain(|judged| *judged != hook);
            readers.push(hook.clone());
            self.not_judged.push(NotJudged { hook, reason });
        }
    }

    /// The hooks to remove from a run with these of the judged ones.
    pub(super) fn without<'a>(&'a self, with: &'a [String]) -> impl Iterator<Item = &'a str> {
        let others = self.judged.iter().filter(|hook| !with.contains(hook));
        others.chain(&self.left_out).map(String::as_str)
    }

    /// The judged observers that the run with all of them says little about: they failed in it, it was too short, or
    /// nothing of what they wait for came.
    pub(super) fn not_exercised(&self, ran: &Ran) -> Vec<NotExercised> {
        let why = |hook: &String, received: ReceivedEvents| {
            let failed = ran.hooks.iter().any(|info| info.name == *hook && info.failures > 0);
            if failed {
                return Some(failure_of(hook, &ran.report).unwrap_or_else(|| "it failed".to_owned()));
            }
            let spec = self.spec(hook)?;
            exercise::too_rare(spec, &ran.report.progress).or_else(|| exercise::idle(spec, received))
        };
        let each = self.judged.iter().zip(&ran.received);
        let idle = each.filter_map(|(hook, received)| Some((hook.clone(), why(hook, *received)?)));
        idle.map(|(hook, why)| NotExercised { hook, why }).collect()
    }

    fn spec(&self, hook: &str) -> Option<&HookSpec> {
        self.declared.iter().find(|spec| spec.name == hook)
    }

    /// How many steps it takes until every judged observer has fired, as far as that is known and not more than
    /// `most`.
    pub(super) fn steps_to_fire(&self, accumulate: u64, most: u64) -> u64 {
        let declared = self.judged.iter().filter_map(|hook| self.spec(hook));
        let steps = declared.flat_map(|spec| exercise::steps_to_fire(spec, accumulate));
        steps.filter(|steps| *steps <= most).max().unwrap_or(0)
    }
}

/// The first failure of a hook that was contained.
fn failure_of(hook: &str, report: &Report) -> Option<String> {
    report.notices.iter().find_map(|notice| match notice {
        RunNotice::Contained(contained) if contained.failure.origin == Origin::Hook(hook.to_owned()) => {
            Some(contained.failure.to_string())
        }
        _ => None,
    })
}
