//! Finds the observers that cause a difference, by bisection. A result counts only if a second run confirms
//! it.

use std::sync::Arc;

use tenterhook_core::BoxError;

use super::recorder::{Mismatch, RunRecord, Trace};
use super::report::{Difference, Finding};
use super::runs::{RunKind, Runs};
use super::{NeutralError, Training};

impl<T: Training, F: FnMut() -> Result<T, BoxError>> Runs<'_, F> {
    /// Explains a difference between the runs without and with all observers: either the program is not
    /// deterministic, or some observers cause it.
    pub(super) fn explain(
        &mut self,
        all: &[String],
        baseline: &Arc<Trace>,
        found: Mismatch,
    ) -> Result<Finding, NeutralError> {
        let first = found.unmeasured();
        let found = Arc::new(found);
        let measuring = RunRecord::measuring(baseline, &found).until_shown(&found);
        let repeated = self.run(&RunKind::WithoutAgain, &[], measuring)?.record;
        if let Some(other) = repeated.found {
            return Ok(not_deterministic(&RunKind::Without, other.unmeasured()));
        }

        let comparing = || RunRecord::comparing(baseline).until_shown(&found);
        let with_again = self.run(&RunKind::WithAgain, all, comparing())?.record.found;
        if !with_again.as_ref().is_some_and(|again| again.is_same(&found)) {
            let earlier = with_again.map_or(first.step, |other| other.unmeasured().step.min(first.step));
            return Ok(not_deterministic(&RunKind::With, Difference::unknown(earlier)));
        }

        let mut differs = |some: &[String]| {
            let kind = RunKind::Only(some.to_vec());
            self.run(&kind, some, comparing()).map(|ran| ran.record.found.is_some())
        };
        let causes = causes(all, &mut differs)?;
        for cause in causes.iter().filter(|cause| cause.len() < all.len()) {
            if !differs(cause)? {
                let kind = RunKind::Only(cause.clone());
                return Ok(not_deterministic(&kind, Difference::unknown(first.step)));
            }
        }
        Ok(Finding::Differs { difference: repeated.measured.unwrap_or(first), causes })
    }
}

fn not_deterministic(run: &RunKind, difference: Difference) -> Finding {
    Finding::NotDeterministic { run: run.to_string(), difference }
}

/// The sets of hooks each of which is sufficient for a difference, given that all together are. `differs`
/// tests a set, which is expensive.
fn causes<E>(
    all: &[String],
    differs: &mut impl FnMut(&[String]) -> Result<bool, E>,
) -> Result<Vec<Vec<String>>, E> {
    let (mut rest, mut causes, mut neutral) = (all.to_vec(), Vec::new(), Vec::new());
    let mut differs = |set: &[String]| {
        if neutral.iter().any(|known: &Vec<String>| known == set) {
            return Ok(false);
        }
        let different = differs(set)?;
        if !different {
            neutral.push(set.to_vec());
        }
        Ok(different)
    };
    loop {
        let cause = bisected(rest.clone(), &mut differs)?;
        rest.retain(|hook| !cause.contains(hook));
        causes.push(cause);
        if rest.is_empty() || !differs(&rest)? {
            return Ok(causes);
        }
    }
}

/// Bisects the set while one half is sufficient.
fn bisected<E>(
    mut set: Vec<String>,
    differs: &mut impl FnMut(&[String]) -> Result<bool, E>,
) -> Result<Vec<String>, E> {
    while set.len() > 1 {
        let second = set.split_off(set.len() / 2);
        if differs(&set)? {
            continue;
        }
        if differs(&second)? {
            set = second;
            continue;
        }
        set.extend(second);
        return reduced(set, differs);
    }
    Ok(set)
}

/// No half is sufficient: removes every hook that is not needed.
fn reduced<E>(
    mut set: Vec<String>,
    differs: &mut impl FnMut(&[String]) -> Result<bool, E>,
) -> Result<Vec<String>, E> {
    let mut at = 0;
    while at < set.len() && set.len() > 2 {
        let mut fewer = set.clone();
        fewer.remove(at);
        if differs(&fewer)? {
            set = fewer;
        } else {
            at += 1;
        }
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("h{number}")).collect()
    }

    /// The causes that are found if each of these sets is sufficient, and the number of runs.
    fn found(count: usize, causing: &[&[usize]]) -> (Vec<Vec<String>>, usize) {
        let (mut runs, all) = (0, names(count));
        let mut differs = |set: &[String]| {
            runs += 1;
            let is_in = |hook: &usize| set.contains(&all[*hook]);
            Ok::<_, ()>(causing.iter().any(|together| together.iter().all(is_in)))
        };
        let causes = causes(&all, &mut differs).expect("nothing fails");
        (causes, runs)
    }

    #[test]
    fn one_causing_hook_is_found_at_every_position() {
        for count in 1..=9 {
            for causing in 0..count {
                let (causes, runs) = found(count, &[&[causing]]);
                assert_eq!(causes, [[format!("h{causing}")]], "{causing} of {count}");
                let halvings = usize::BITS - (count - 1).leading_zeros();
                assert!(runs <= 2 * halvings as usize + 1, "{runs} runs for {count}");
            }
        }
    }

    #[test]
    fn hooks_that_cause_a_difference_only_together_are_named_together() {
        for (a, b) in [(0, 1), (0, 7), (3, 4), (6, 7)] {
            let (causes, _) = found(8, &[&[a, b]]);
            assert_eq!(causes, [[format!("h{a}"), format!("h{b}")]]);
        }
        assert_eq!(found(5, &[&[0, 2, 4]]).0, [["h0", "h2", "h4"]]);
        assert_eq!(found(2, &[&[0, 1]]).0, [["h0", "h1"]]);
    }

    #[test]
    fn several_independent_causes_are_all_named() {
        let (mut causes, _) = found(6, &[&[1], &[4], &[2, 3]]);
        causes.sort();
        assert_eq!(causes, [vec!["h1"], vec!["h2", "h3"], vec!["h4"]]);
    }
}
