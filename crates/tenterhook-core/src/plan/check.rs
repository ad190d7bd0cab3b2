//! Checks of the plan before step 1. Each error has a fix.

use super::condition_names;
use super::writers::Writers;
use crate::cadence::Cadence;
use crate::progress::Phase;
use crate::spec::{Claim, Declaration, EnvironmentProblem, HookSpec};

/// A metric that the module declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredMetric {
    /// The name.
    pub name: String,
    /// The loop in which it is logged.
    pub phase: Phase,
}

impl DeclaredMetric {
    /// Declares a metric of this name, logged in this loop.
    pub fn new(name: impl Into<String>, phase: Phase) -> DeclaredMetric {
        DeclaredMetric { name: name.into(), phase }
    }
}

/// Facts about a run that are known before it begins.
#[derive(Clone, Debug, Default)]
pub struct RunFacts {
    /// The metrics that the module logs; `None` if it does not declare them. Missing metrics cannot be
    /// detected then.
    pub metrics: Option<Vec<DeclaredMetric>>,
    /// The reason if validation never runs.
    pub no_validation: Option<NoValidation>,
    /// The number of optimizer steps, if known.
    pub steps: Option<u64>,
    /// The maximum number of epochs, if known.
    pub epochs: Option<u64>,
    /// The number of micro-batches, if known.
    pub batches: Option<u64>,
}

/// The reason why validation never runs, with a fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoValidation {
    /// The reason.
    pub why: String,
    /// The fix.
    pub fix: String,
}

/// An error or a warning about the plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}; {fix}")]
#[non_exhaustive]
pub struct PlanError {
    /// The hook concerned, or the first of two.
    pub hook: String,
    /// The option concerned.
    pub key: Option<&'static str>,
    /// The problem.
    pub what: String,
    /// The fix.
    pub fix: String,
    warning: bool,
}

impl PlanError {
    pub(super) fn new(hook: &str, what: String, fix: impl Into<String>) -> PlanError {
        PlanError { hook: hook.to_owned(), key: None, what, fix: fix.into(), warning: false }
    }

    /// Sets the option concerned.
    pub(super) fn for_option(self, key: Option<&'static str>) -> PlanError {
        PlanError { key, ..self }
    }

    fn warning_if(self, warning: bool) -> PlanError {
        PlanError { warning, ..self }
    }

    /// Whether it is only a warning: an observer that does nothing does not affect training.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        self.warning
    }

    /// The error for a hook that reads a name which no hook, module or trainer writes.
    pub(super) fn unwritten(spec: &HookSpec, name: &str, fix: String) -> PlanError {
        let hook = &spec.name;
        let what = format!("hook `{hook}` reads `{name}`, which nothing writes");
        PlanError::new(hook, what, fix).for_option(spec.option_of(&Declaration::Name(name.to_owned())))
    }
}

/// The metric that the trainer itself logs.
pub const TRAIN_LOSS: &str = "train/loss";

/// Checks the specs of all hooks against each other and against the run. Returns errors and warnings in the
/// order of the hooks.
#[must_use]
pub fn check(hooks: &[HookSpec], facts: &RunFacts) -> Vec<PlanError> {
    let mut errors = Vec::new();
    let writers = Writers::of(hooks, facts);
    errors.extend(writers.clashes());
    for spec in hooks {
        let hook = &spec.name;
        for name in spec.reads.iter().chain(&spec.monitors) {
            if facts.metrics.is_some() && !writers.write(name) {
                errors.push(PlanError::unwritten(spec, name, hint(name, &writers.names())));
            }
        }
        let provided = |what: &String| hooks.iter().any(|spec| spec.provides.contains(what));
        let missing = spec.requires.iter().filter(|required| !provided(&required.what));
        errors.extend(missing.map(|Claim { what, fix }| {
            PlanError::new(hook, format!("hook `{hook}` requires {what}, and no hook provides it"), fix)
        }));
        errors.extend(condition_names::likely_typos(spec, hooks, facts));
        errors.extend(spec.monitors.as_ref().and_then(|name| never_seen(spec, name, facts)));
        let every = spec.every.iter().copied().map(Declaration::Every);
        let declared = every.chain(spec.after.iter().copied().map(Declaration::After));
        errors.extend(declared.filter_map(|declared| never_fires(spec, &declared, facts)));
        for (key, needed) in &spec.min_run_length {
            errors.extend(too_short(*needed, 0, facts).map(|total| {
                let needs = format!("hook `{hook}` needs {needed} by its `{key}`");
                let what = format!("{needs}, but this run has only {total}, so the hook never runs");
                let error = PlanError::new(hook, what, "lower it or train longer");
                error.for_option(Some(key)).warning_if(!spec.steers())
            }));
        }
        errors.extend(environment_problems_of(spec));
    }
    errors
}

/// Checks what hooks need on this machine. In an evaluation nothing else about them can be wrong.
#[must_use]
pub fn environment_problems(hooks: &[HookSpec]) -> Vec<PlanError> {
    hooks.iter().flat_map(environment_problems_of).collect()
}

fn environment_problems_of(spec: &HookSpec) -> impl Iterator<Item = PlanError> {
    let hook = &spec.name;
    spec.environment_problems.iter().map(move |EnvironmentProblem { key, problem, fix }| {
        PlanError::new(hook, format!("hook `{hook}` cannot work: {problem}"), fix).for_option(Some(key))
    })
}

fn hint(name: &str, known: &[&str]) -> String {
    let names = known.iter().copied().filter(|known| !known.contains('*'));
    // `loss` is short for `train/loss` when values are read.
    let of_training = format!("train/{name}");
    let meant = known.iter().copied().find(|known| *known == of_training).or_else(|| nearest(name, names));
    if let Some(meant) = meant {
        return format!("did you mean `{meant}`?");
    }
    let known = known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    format!("there are: {known}; a hook that writes it must declare so: `writes = [\"{name}\"]`")
}

/// The most similar name, ignoring case, if any is similar enough.
#[must_use]
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let similarity = |candidate: &str| strsim::jaro_winkler(&name, &candidate.to_lowercase());
    known
        .map(|candidate| (similarity(candidate), candidate))
        .filter(|(similarity, _)| *similarity > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

fn never_seen(spec: &HookSpec, name: &str, facts: &RunFacts) -> Option<PlanError> {
    let hook = &spec.name;
    let metric = facts.metrics.iter().flatten().find(|metric| metric.name == name)?;
    let (logged_in, NoValidation { why, fix }) = match metric.phase {
        Phase::Validate => ("validation", facts.no_validation.clone()?),
        Phase::Test => {
            let (why, fix) = ("fit runs no test", "monitor a metric of training or validation");
            ("test", NoValidation { why: why.to_owned(), fix: fix.to_owned() })
        }
        _ => return None,
    };
    let monitors = format!("hook `{hook}` monitors `{name}`, which is logged in {logged_in}");
    let error = PlanError::new(hook, format!("{monitors}, but the hook never sees it: {why}"), fix);
    Some(error.for_option(spec.option_of(&Declaration::Name(name.to_owned()))))
}

fn never_fires(spec: &HookSpec, declared: &Declaration, facts: &RunFacts) -> Option<PlanError> {
    let (distance, beyond, when) = match declared {
        Declaration::Every(cadence) => (*cadence, 0, format!("every {cadence}")),
        Declaration::After(start) => (*start, 1, format!("only after {start}")),
        Declaration::Name(_) => return None,
    };
    let hook = &spec.name;
    let total = too_short(distance, beyond, facts)?;
    let what = format!("hook `{hook}` fires {when}, but this run has only {total}, so it never fires");
    let error = PlanError::new(hook, what, "shorten it or train longer");
    Some(error.for_option(spec.option_of(declared)).warning_if(!spec.steers()))
}

/// Warnings about metrics that hooks read or monitor, but that were not logged by the end of `label`.
/// `logged` contains the logged names.
#[must_use]
pub fn not_logged(
    hooks: &[HookSpec],
    label: &str,
    logged: &[String],
    is_there: impl Fn(&str) -> bool,
) -> Vec<PlanError> {
    let read = hooks
        .iter()
        .flat_map(|spec| spec.reads.iter().chain(&spec.monitors).map(move |name| (&spec.name, name)));
    let missing = read.filter(|(_, name)| !name.contains('*') && !is_there(name));
    missing
        .map(|(hook, name)| {
            let fix = nearest(name, logged.iter().map(String::as_str)).map_or_else(
                || format!("there are: `{}`", logged.join("`, `")),
                |near| format!("did you mean `{near}`?"),
            );
            let what = format!("hook `{hook}` reads `{name}`, which was not logged by the end of {label}");
            PlanError::new(hook, what, fix).warning_if(true)
        })
        .collect()
}

/// The length of the run, if it is shorter than `distance + beyond`.
fn too_short(distance: Cadence, beyond: u64, facts: &RunFacts) -> Option<String> {
    let (needed, total, unit): (u64, Option<u64>, fn(u64) -> Cadence) = match distance {
        Cadence::Steps(n) => (n, facts.steps, Cadence::Steps),
        Cadence::Epochs(n) => (n, facts.epochs, Cadence::Epochs),
        Cadence::Batches(n) => (n, facts.batches, Cadence::Batches),
        Cadence::Time(_) => return None,
    };
    let total = total.filter(|total| *total < needed.saturating_add(beyond))?;
    Some(unit(total).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world() -> RunFacts {
        RunFacts {
            metrics: Some(vec![
                DeclaredMetric::new("val/loss", Phase::Validate),
                DeclaredMetric::new("test/loss", Phase::Test),
            ]),
            steps: Some(500),
            epochs: Some(3),
            ..RunFacts::default()
        }
    }

    fn refusals(hooks: &[HookSpec], facts: &RunFacts) -> Vec<String> {
        check(hooks, facts).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_consistent_plan_is_not_refused() {
        let hooks = [
            HookSpec::observer("a").writes("best").every(Cadence::Steps(500)),
            HookSpec::observer("b").reads("best").reads("train/loss").monitors("val/loss"),
        ];
        assert_eq!(refusals(&hooks, &world()), Vec::<String>::new());
    }

    #[test]
    fn two_writers_of_one_name_are_refused() {
        let hooks = [
            HookSpec::observer("a").writes("best"),
            HookSpec::observer("b").writes("best").writes("train/loss"),
        ];
        assert_eq!(
            refusals(&hooks, &world()),
            [
                "`train/loss` is written by the trainer and by hook `b`; \
                 let the hook write it under another name, or set its `enabled = false`",
                "`best` is written by hook `a` and by hook `b`; remove one of them, or set its `enabled = false`",
            ]
        );
    }

    #[test]
    fn two_hooks_with_several_common_names_are_refused_once() {
        let norms =
            |name| HookSpec::observer(name).writes("grad_norm/*").writes("grad_norm/total").writes("flag");
        let refused = refusals(&[norms("a"), norms("b"), HookSpec::observer("c")], &world());
        let fix = "remove one of them, or set its `enabled = false`";
        assert_eq!(refused, [format!("`grad_norm/total` is written by hook `a` and by hook `b`; {fix}")]);
        let hooks = [norms("a"), HookSpec::observer("b").writes("grad_norm/fc1.weight")];
        let refused = refusals(&hooks, &world());
        assert_eq!(
            refused,
            [format!("`grad_norm/fc1.weight` is written by hook `a` and by hook `b`; {fix}")]
        );
        let apart = [norms("a"), HookSpec::observer("b").writes("grad_norm").writes("grad_norm/a/b")];
        assert!(refusals(&apart, &world()).is_empty());
    }

    #[test]
    fn names_that_match_a_declared_pattern_can_be_monitored() {
        let writer = || HookSpec::observer("lr").writes("lr/*/**");
        for name in ["lr/adamw", "lr/adamw/decayed"] {
            let hooks = [writer(), HookSpec::observer("stop").monitors(name)];
            assert!(refusals(&hooks, &world()).is_empty(), "{name}");
        }
        for name in ["lr", "momentum/adamw"] {
            let refused = refusals(&[writer(), HookSpec::observer("stop").monitors(name)], &world());
            assert!(refused[0].contains(&format!("`{name}`, which nothing writes")), "{refused:?}");
            assert!(!refused[0].contains("did you mean `lr/*"), "no pattern is a name: {refused:?}");
        }
    }

    #[test]
    fn a_claim_is_exclusive_and_is_no_metric() {
        let claim =
            |name, what: &str| HookSpec::observer(name).claims(what, "give one of them another `path`");
        let refused = refusals(&[claim("a", "x.jsonl"), claim("b", "x.jsonl")], &world());
        assert_eq!(
            refused,
            ["`x.jsonl` is written by hook `a` and by hook `b`; give one of them another `path`"]
        );
        let apart = [claim("a", "x.jsonl"), claim("b", "y.jsonl"), HookSpec::observer("c").writes("y.jsonl")];
        assert!(refusals(&apart, &world()).is_empty());
        let refused = refusals(&[claim("a", "weights"), HookSpec::observer("c").reads("weight")], &world());
        assert!(refused[0].contains("there are: `test/loss`"), "{refused:?}");
    }

    #[test]
    fn an_option_that_asks_for_more_than_the_run_has_is_refused_by_its_name() {
        let needs = |name, n| HookSpec::observer(name).min_run_length("window", Cadence::Epochs(n));
        assert!(refusals(&[needs("a", 3)], &world()).is_empty());
        assert_eq!(
            refusals(&[needs("a", 4)], &world()),
            [
                "hook `a` needs 4 epochs by its `window`, but this run has only 3 epochs, so the hook never runs; \
              lower it or train longer"
            ]
        );
        assert!(refusals(&[HookSpec::observer("a").throttle(Cadence::Steps(501))], &world()).is_empty());
    }

    #[test]
    fn a_reader_of_a_name_that_nothing_writes_is_refused_with_a_suggestion() {
        let hooks = [
            HookSpec::observer("short").monitors("loss"),
            HookSpec::observer("stop").monitors("val/los"),
            HookSpec::observer("b").reads("zebra"),
        ];
        assert_eq!(
            refusals(&hooks, &world()),
            [
                "hook `short` reads `loss`, which nothing writes; did you mean `train/loss`?",
                "hook `stop` reads `val/los`, which nothing writes; did you mean `val/loss`?",
                "hook `b` reads `zebra`, which nothing writes; there are: `test/loss`, `train/loss`, `val/loss`; \
                 a hook that writes it must declare so: `writes = [\"zebra\"]`",
            ]
        );
    }

    #[test]
    fn any_metric_is_accepted_if_the_module_declares_none() {
        let hooks = [HookSpec::observer("stop").monitors("val/los")];
        assert!(refusals(&hooks, &RunFacts { metrics: None, ..world() }).is_empty());
    }

    #[test]
    fn a_monitor_that_can_never_see_its_metric_is_refused() {
        let no_validation = NoValidation { why: "`limit_val_batches` is 0".into(), fix: "raise it".into() };
        let facts = RunFacts { no_validation: Some(no_validation), ..world() };
        let hooks = [
            HookSpec::observer("stop").monitors("val/loss"),
            HookSpec::observer("keep").monitors("test/loss"),
        ];
        assert_eq!(
            refusals(&hooks, &facts),
            [
                "hook `stop` monitors `val/loss`, which is logged in validation, but the hook never sees it: \
                 `limit_val_batches` is 0; raise it",
                "hook `keep` monitors `test/loss`, which is logged in test, but the hook never sees it: \
                 fit runs no test; monitor a metric of training or validation",
            ]
        );
    }

    #[test]
    fn a_cadence_that_will_fire_zero_times_is_refused() {
        let hooks = [
            HookSpec::observer("a").every(Cadence::Steps(501)),
            HookSpec::observer("b").after(Cadence::Epochs(3)),
            HookSpec::observer("c").every(Cadence::Batches(9)).after(Cadence::Epochs(2)),
            HookSpec::observer("d").every(Cadence::Steps(2)).every(Cadence::Steps(1000)),
        ];
        assert_eq!(
            refusals(&hooks, &world()),
            [
                "hook `a` fires every 501 steps, but this run has only 500 steps, so it never fires; \
                 shorten it or train longer",
                "hook `b` fires only after 3 epochs, but this run has only 3 epochs, so it never fires; \
                 shorten it or train longer",
                "hook `d` fires every 1000 steps, but this run has only 500 steps, so it never fires; \
                 shorten it or train longer",
            ]
        );
    }
}
