//! Which hooks are judged, and why the others are not.

use tenterhook_core::{Access, Cadence, HookInfo, Origin, Progress, Tier};

use super::judgement::{NotExercised, NotJudged, Reason};
use crate::notice::Notice;
use crate::trainer::{Report, Trainer};

/// The hooks of a training, sorted.
pub(super) struct Suspects {
    /// The observers that are judged, in registration order.
    pub(super) judged: Vec<String>,
    pub(super) not_judged: Vec<NotJudged>,
    /// Those that are in no run.
    left_out: Vec<String>,
    declared: Vec<(String, Access)>,
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
        let access =
            |hook: &str| self.declared.iter().find(|(name, _)| name == hook).map(|(_, access)| access);
        let Some(reads) = access(reader) else { return };
        let read_from = |hook: &String| {
            let name = reads.reads_from(access(hook)?)?.to_owned();
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

    /// The judged observers that the run with all of them says little about: they failed in it, or it was too short.
    pub(super) fn not_exercised(&self, hooks: &[HookInfo], report: &Report) -> Vec<NotExercised> {
        let why = |hook: &String| {
            let failed = hooks.iter().any(|info| info.name == *hook && info.failures > 0);
            if failed {
                return Some(failure_of(hook, report).unwrap_or_else(|| "it failed".to_owned()));
            }
            let (_, access) = self.declared.iter().find(|(name, _)| name == hook)?;
            let every = access.every.iter().filter(|cadence| !is_reached(**cadence, &report.progress, 0));
            let after = access.after.iter().filter(|cadence| !is_reached(**cadence, &report.progress, 1));
            let mut rare = every.map(|cadence| format!("it fires every {cadence}, and the run was shorter"));
            rare.next().or_else(|| {
                let mut late =
                    after.map(|cadence| format!("it fires after {cadence}, and the run was shorter"));
                late.next()
            })
        };
        let not_exercised = |hook: &String| Some(NotExercised { hook: hook.clone(), why: why(hook)? });
        self.judged.iter().filter_map(not_exercised).collect()
    }
}

/// The first failure of a hook that was contained.
fn failure_of(hook: &str, report: &Report) -> Option<String> {
    report.notices.iter().find_map(|notice| match notice {
        Notice::Contained(contained) if contained.failure.origin == Origin::Hook(hook.to_owned()) => {
            Some(contained.failure.to_string())
        }
        _ => None,
    })
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
