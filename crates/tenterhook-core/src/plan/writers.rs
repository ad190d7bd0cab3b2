//! The writers of metrics and keys, and conflicts between writers.

use std::collections::BTreeSet;

use super::check::{PlanError, RunFacts, TRAIN_LOSS};
use crate::pattern;
use crate::spec::{Claim, HookSpec};

/// All writers of a run: the trainer, the module and the hooks.
pub(super) struct Writers<'a> {
    own: [Writer<'a>; 2],
    hooks: Vec<Writer<'a>>,
}

struct Writer<'a> {
    /// The hook; `None` for the trainer and the module.
    hook: Option<&'a str>,
    name: String,
    /// Metrics and blackboard keys, or patterns of them.
    writes: Vec<&'a str>,
    claims: &'a [Claim],
}

impl<'a> Writers<'a> {
    pub(super) fn of(hooks: &'a [HookSpec], facts: &'a RunFacts) -> Writers<'a> {
        let own = |name: &str, writes| Writer { hook: None, name: name.to_owned(), writes, claims: &[] };
        // The module may declare that it logs the loss, although the trainer does.
        let logged = facts.metrics.iter().flatten().map(|metric| metric.name.as_str());
        let logged = logged.filter(|name| *name != TRAIN_LOSS).collect();
        let hooks = hooks.iter().map(|spec| Writer {
            hook: Some(&spec.name),
            name: format!("hook `{}`", spec.name),
            writes: spec.writes.iter().map(String::as_str).collect(),
            claims: &spec.claims,
        });
        Writers {
            own: [own("the trainer", vec![TRAIN_LOSS]), own("the module", logged)],
            hooks: hooks.collect(),
        }
    }

    /// Whether this name is written.
    pub(super) fn write(&self, name: &str) -> bool {
        self.all().any(|written| pattern::overlap(written, name))
    }

    /// All written names, sorted.
    pub(super) fn names(&self) -> Vec<&'a str> {
        self.all().collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn all(&self) -> impl Iterator<Item = &'a str> {
        self.own.iter().chain(&self.hooks).flat_map(|writer| writer.writes.iter().copied())
    }

    /// One error for each pair of writers of the same name or claim.
    pub(super) fn clashes(&self) -> Vec<PlanError> {
        let mut errors = Vec::new();
        let error = |name: &str, (first, second): (&Writer<'_>, &Writer<'_>), fix: &str| {
            let what = format!("`{name}` is written by {} and by {}", first.name, second.name);
            PlanError::new(first.hook.or(second.hook).unwrap_or_default(), what, fix)
        };
        for (at, second) in self.hooks.iter().enumerate() {
            for first in &self.own {
                let fix = "let the hook write it under another name, or set its `enabled = false`";
                errors.extend(first.shares(second).map(|name| error(name, (first, second), fix)));
            }
            for first in &self.hooks[..at] {
                let is_shared = |claim: &&Claim| second.claims.iter().any(|other| other.what == claim.what);
                let claim = first.claims.iter().find(is_shared);
                let claimed = claim.map(|claim| error(&claim.what, (first, second), &claim.fix));
                let fix = "remove one of them, or set its `enabled = false`";
                let written = || first.shares(second).map(|name| error(name, (first, second), fix));
                errors.extend(claimed.or_else(written));
            }
        }
        errors
    }
}

impl<'a> Writer<'a> {
    /// A name that both write, or a pattern if they share no name.
    fn shares(&self, other: &Writer<'a>) -> Option<&'a str> {
        let pairs = self.writes.iter().flat_map(|one| other.writes.iter().map(move |two| (*one, *two)));
        let both = pairs.filter(|(one, two)| pattern::overlap(one, two));
        let names = both.map(|(one, two)| if one.contains('*') { two } else { one });
        names.min_by_key(|name| name.contains('*'))
    }
}
