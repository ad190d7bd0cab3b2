//! What the plan refuses before step 1, each with its fix.

use std::fmt;

use super::asked;
use super::writers::Writers;
use crate::access::{Access, Claim, Declared, Lack};
use crate::cadence::Cadence;
use crate::progress::Phase;

/// A metric that the module says it logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredMetric {
    /// Its name.
    pub name: String,
    /// The loop it is logged in.
    pub phase: Phase,
}

impl DeclaredMetric {
    /// A metric of this name, logged in this loop.
    pub fn new(name: impl Into<String>, phase: Phase) -> DeclaredMetric {
        DeclaredMetric { name: name.into(), phase }
    }
}

/// What is known of a run before it begins.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// What the module logs; `None` when it does not say, and then nothing can be refused for lack of it.
    pub metrics: Option<Vec<DeclaredMetric>>,
    /// Why validation never runs, if it never does.
    pub no_validation: Option<NoValidation>,
    /// How many optimizer steps there will be, where that is known.
    pub steps: Option<u64>,
    /// How many epochs there will be at most, where that is known.
    pub epochs: Option<u64>,
    /// How many micro-batches there will be, where that is known.
    pub batches: Option<u64>,
}

/// Why validation never runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoValidation {
    /// The reason.
    pub why: String,
    /// What to do about it.
    pub fix: String,
}

/// Who writes a metric or a place on the board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Writer {
    /// The trainer.
    Trainer,
    /// The module.
    Module,
    /// The hook of this name.
    Hook(String),
}

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Writer::Trainer => f.write_str("the trainer"),
            Writer::Module => f.write_str("the module"),
            Writer::Hook(name) => write!(f, "hook `{name}`"),
        }
    }
}

/// Why a plan is refused: [what](PlanError::what) cannot work, which [hook](PlanError::hook) and which of its
/// [options](PlanError::key) it is about, and the [fix](PlanError::fix).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanError {
    /// Two writers of one thing: one error for each two of them, however much they both write.
    TwoWriters {
        /// What is written; the first such thing.
        name: String,
        /// One writer.
        first: Writer,
        /// The other.
        second: Writer,
        /// What to do about it.
        fix: String,
    },
    /// A reader of something nobody writes.
    NobodyWrites {
        /// The reader.
        hook: String,
        /// The option that says what it reads.
        key: Option<&'static str>,
        /// What it reads.
        name: String,
        /// What to do about it.
        fix: String,
    },
    /// Something that a hook requires and no other provides.
    NotProvided {
        /// The hook.
        hook: String,
        /// What it requires.
        what: String,
        /// What to do about it.
        fix: String,
    },
    /// A monitor that can never see its metric.
    NeverSeen {
        /// The monitor.
        hook: String,
        /// The option that names the metric.
        key: Option<&'static str>,
        /// The metric.
        name: String,
        /// Where it is logged.
        logged_in: &'static str,
        /// Why it is never seen.
        why: String,
        /// What to do about it.
        fix: String,
    },
    /// A cadence that will fire zero times.
    NeverFires {
        /// The hook.
        hook: String,
        /// The option that says when it fires.
        key: Option<&'static str>,
        /// When it would fire.
        when: String,
        /// How long the run is.
        total: String,
        /// It only observes, so this is a warning.
        observer: bool,
    },
    /// An option that asks for more than the run has.
    TooShort {
        /// The hook.
        hook: String,
        /// The option.
        key: &'static str,
        /// What it asks for.
        needed: String,
        /// How long the run is.
        total: String,
        /// It only observes, so this is a warning.
        observer: bool,
    },
    /// A hook that needs what this machine lacks.
    Lacks {
        /// The hook.
        hook: String,
        /// The option that asks for it.
        key: &'static str,
        /// What is missing.
        problem: String,
        /// What to do about it.
        fix: String,
    },
    /// A metric that a hook reads or monitors, and that was not logged while there was time to.
    NotLogged {
        /// The hook.
        hook: String,
        /// The metric.
        name: String,
        /// The validation or epoch by whose end it should be there.
        label: String,
        /// What to do about it.
        fix: String,
    },
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what(), self.fix())
    }
}

impl std::error::Error for PlanError {}

impl PlanError {
    /// What cannot work.
    #[must_use]
    pub fn what(&self) -> String {
        match self {
            PlanError::TwoWriters { name, first, second, .. } => {
                format!("`{name}` is written by {first} and by {second}")
            }
            PlanError::NobodyWrites { hook, name, .. } => {
                format!("hook `{hook}` reads `{name}`, which nobody writes")
            }
            PlanError::NotProvided { hook, what, .. } => {
                format!("hook `{hook}` requires {what}, and no hook provides it")
            }
            PlanError::NeverSeen { hook, name, logged_in, why, .. } => format!(
                "hook `{hook}` monitors `{name}`, which is logged in {logged_in}, and it can never see it: {why}"
            ),
            PlanError::NeverFires { hook, when, total, .. } => {
                format!("hook `{hook}` fires {when}, but this run has only {total}, so it never fires")
            }
            PlanError::TooShort { hook, key, needed, total, .. } => format!(
                "hook `{hook}` needs {needed} by its `{key}`, but this run has only {total}, so that never comes"
            ),
            PlanError::Lacks { hook, problem, .. } => format!("hook `{hook}` cannot work: {problem}"),
            PlanError::NotLogged { hook, name, label, .. } => {
                format!("hook `{hook}` reads `{name}`, which nobody has logged by the end of {label}")
            }
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn fix(&self) -> &str {
        match self {
            PlanError::TwoWriters { fix, .. }
            | PlanError::NobodyWrites { fix, .. }
            | PlanError::NotProvided { fix, .. }
            | PlanError::NeverSeen { fix, .. }
            | PlanError::Lacks { fix, .. }
            | PlanError::NotLogged { fix, .. } => fix,
            PlanError::NeverFires { .. } => "shorten it or train longer",
            PlanError::TooShort { .. } => "lower it or train longer",
        }
    }

    /// The hook it is about; of two, the one that comes first.
    #[must_use]
    pub fn hook(&self) -> Option<&str> {
        match self {
            PlanError::TwoWriters { first: Writer::Hook(hook), .. }
            | PlanError::TwoWriters { second: Writer::Hook(hook), .. }
            | PlanError::NobodyWrites { hook, .. }
            | PlanError::NotProvided { hook, .. }
            | PlanError::NeverSeen { hook, .. }
            | PlanError::NeverFires { hook, .. }
            | PlanError::TooShort { hook, .. }
            | PlanError::Lacks { hook, .. }
            | PlanError::NotLogged { hook, .. } => Some(hook),
            PlanError::TwoWriters { .. } => None,
        }
    }

    /// The option it is about, where one is.
    #[must_use]
    pub fn key(&self) -> Option<&'static str> {
        match self {
            PlanError::NobodyWrites { key, .. }
            | PlanError::NeverSeen { key, .. }
            | PlanError::NeverFires { key, .. } => *key,
            PlanError::TooShort { key, .. } | PlanError::Lacks { key, .. } => Some(key),
            PlanError::TwoWriters { .. } | PlanError::NotProvided { .. } | PlanError::NotLogged { .. } => {
                None
            }
        }
    }

    /// Whether it is only reported: what an observer misses changes no training.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        matches!(
            self,
            PlanError::NeverFires { observer: true, .. }
                | PlanError::TooShort { observer: true, .. }
                | PlanError::NotLogged { .. }
        )
    }
}

/// The metric the trainer itself writes.
pub const TRAIN_LOSS: &str = "train/loss";

/// Everything that is wrong with these declarations in this world, in the order of the hooks.
#[must_use]
pub fn check(hooks: &[(String, Access)], world: &World) -> Vec<PlanError> {
    let mut errors = Vec::new();
    let writers = Writers::of(hooks, world);
    errors.extend(writers.clashes());
    for (hook, access) in hooks {
        for name in access.reads.iter().chain(&access.monitors) {
            if world.metrics.is_some() && !writers.write(name) {
                let key = access.option_of(&Declared::Name(name.clone()));
                let (hook, fix) = (hook.clone(), hint(name, &writers.names()));
                errors.push(PlanError::NobodyWrites { hook, key, name: name.clone(), fix });
            }
        }
        let provided = |what: &String| hooks.iter().any(|(_, access)| access.provides.contains(what));
        let missing = access.requires.iter().filter(|required| !provided(&required.what));
        errors.extend(missing.cloned().map(|Claim { what, fix }| PlanError::NotProvided {
            hook: hook.clone(),
            what,
            fix,
        }));
        errors.extend(asked::slips(hook, access, hooks, world));
        errors.extend(access.monitors.as_ref().and_then(|name| never_seen((hook, access), name, world)));
        let every = access.every.iter().copied().map(Declared::Every);
        let declared = every.chain(access.after.iter().copied().map(Declared::After));
        errors.extend(declared.filter_map(|declared| never_fires((hook, access), &declared, world)));
        for (key, needed) in &access.needs {
            let total = too_short(*needed, 0, world);
            let (hook, needed, observer) = (hook.clone(), needed.to_string(), !access.steers);
            errors.extend(total.map(|total| PlanError::TooShort { hook, key, needed, total, observer }));
        }
        errors.extend(lacks_of(hook, access));
    }
    errors
}

/// What hooks need and this machine lacks: all that can be wrong with them in an evaluation.
#[must_use]
pub fn lacks(hooks: &[(String, Access)]) -> Vec<PlanError> {
    hooks.iter().flat_map(|(hook, access)| lacks_of(hook, access)).collect()
}

fn lacks_of<'a>(hook: &'a str, access: &'a Access) -> impl Iterator<Item = PlanError> + 'a {
    access.lacks.iter().cloned().map(|Lack { key, problem, fix }| PlanError::Lacks {
        hook: hook.to_owned(),
        key,
        problem,
        fix,
    })
}

fn hint(name: &str, known: &[&str]) -> String {
    let names = known.iter().copied().filter(|known| !known.contains('*'));
    // `loss` is short for `train/loss` where values are read.
    let of_training = format!("train/{name}");
    let meant = known.iter().copied().find(|known| *known == of_training).or_else(|| nearest(name, names));
    if let Some(meant) = meant {
        return format!("did you mean `{meant}`?");
    }
    let known = known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    format!("there are: {known}; a hook that writes it must declare so: `writes = [\"{name}\"]`")
}

/// The name most like the given one, if any is like it at all.
#[must_use]
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |candidate: &str| strsim::jaro_winkler(name, candidate);
    known
        .map(|candidate| (likeness(candidate), candidate))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

fn never_seen((hook, access): (&str, &Access), name: &str, world: &World) -> Option<PlanError> {
    let metric = world.metrics.iter().flatten().find(|metric| metric.name == name)?;
    let (logged_in, NoValidation { why, fix }) = match metric.phase {
        Phase::Validate => ("validation", world.no_validation.clone()?),
        Phase::Test => {
            let (why, fix) = ("fit runs no test", "monitor a metric of training or validation");
            ("test", NoValidation { why: why.to_owned(), fix: fix.to_owned() })
        }
        _ => return None,
    };
    let (hook, key) = (hook.to_owned(), access.option_of(&Declared::Name(name.to_owned())));
    Some(PlanError::NeverSeen { hook, key, name: name.to_owned(), logged_in, why, fix })
}

fn never_fires((hook, access): (&str, &Access), declared: &Declared, world: &World) -> Option<PlanError> {
    let (distance, beyond, when) = match declared {
        Declared::Every(cadence) => (*cadence, 0, format!("every {cadence}")),
        Declared::After(start) => (*start, 1, format!("only after {start}")),
        Declared::Name(_) => return None,
    };
    let total = too_short(distance, beyond, world)?;
    let (hook, key, observer) = (hook.to_owned(), access.option_of(declared), !access.steers);
    Some(PlanError::NeverFires { hook, key, when, total, observer })
}

/// What hooks read or monitor and is not there by the end of what `label` names. `logged`: the names there are.
#[must_use]
pub fn not_logged(
    hooks: &[(String, Access)],
    label: &str,
    logged: &[String],
    is_there: impl Fn(&str) -> bool,
) -> Vec<PlanError> {
    let read = hooks
        .iter()
        .flat_map(|(hook, access)| access.reads.iter().chain(&access.monitors).map(move |name| (hook, name)));
    let missing = read.filter(|(_, name)| !name.contains('*') && !is_there(name));
    missing
        .map(|(hook, name)| {
            let fix = nearest(name, logged.iter().map(String::as_str)).map_or_else(
                || format!("there are: `{}`", logged.join("`, `")),
                |near| format!("did you mean `{near}`?"),
            );
            PlanError::NotLogged { hook: hook.clone(), name: name.clone(), label: label.to_owned(), fix }
        })
        .collect()
}

/// How long the run is, if it is too short for this. `beyond`: how much further than the distance it must go.
fn too_short(distance: Cadence, beyond: u64, world: &World) -> Option<String> {
    let (needed, total, unit): (u64, Option<u64>, fn(u64) -> Cadence) = match distance {
        Cadence::Steps(n) => (n, world.steps, Cadence::Steps),
        Cadence::Epochs(n) => (n, world.epochs, Cadence::Epochs),
        Cadence::Batches(n) => (n, world.batches, Cadence::Batches),
        Cadence::Time(_) => return None,
    };
    let total = total.filter(|total| *total < needed.saturating_add(beyond))?;
    Some(unit(total).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world() -> World {
        World {
            metrics: Some(vec![
                DeclaredMetric::new("val/loss", Phase::Validate),
                DeclaredMetric::new("test/loss", Phase::Test),
            ]),
            steps: Some(500),
            epochs: Some(3),
            ..World::default()
        }
    }

    fn refusals(hooks: &[(&str, Access)], world: &World) -> Vec<String> {
        let hooks: Vec<_> = hooks.iter().map(|(name, access)| ((*name).to_owned(), access.clone())).collect();
        check(&hooks, world).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_fits_together_is_not_refused() {
        let hooks = [
            ("a", Access::none().writes("best").every(Cadence::Steps(500))),
            ("b", Access::none().reads("best").reads("train/loss").monitors("val/loss")),
        ];
        assert_eq!(refusals(&hooks, &world()), Vec::<String>::new());
    }

    #[test]
    fn two_writers_of_one_thing_are_refused() {
        let hooks =
            [("a", Access::none().writes("best")), ("b", Access::none().writes("best").writes("train/loss"))];
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
    fn two_hooks_that_write_many_things_alike_are_refused_once() {
        let norms = || Access::none().writes("grad_norm/*").writes("grad_norm/total").writes("flag");
        let refused = refusals(&[("a", norms()), ("b", norms()), ("c", Access::none())], &world());
        let fix = "remove one of them, or set its `enabled = false`";
        assert_eq!(refused, [format!("`grad_norm/total` is written by hook `a` and by hook `b`; {fix}")]);
        let hooks = [("a", norms()), ("b", Access::none().writes("grad_norm/fc1.weight"))];
        let refused = refusals(&hooks, &world());
        assert_eq!(
            refused,
            [format!("`grad_norm/fc1.weight` is written by hook `a` and by hook `b`; {fix}")]
        );
        let apart = [("a", norms()), ("b", Access::none().writes("grad_norm").writes("grad_norm/a/b"))];
        assert!(refusals(&apart, &world()).is_empty());
    }

    #[test]
    fn what_a_declared_pattern_stands_for_can_be_monitored() {
        let writer = || ("lr", Access::none().writes("lr/*/**"));
        for name in ["lr/adamw", "lr/adamw/decayed"] {
            let hooks = [writer(), ("stop", Access::none().monitors(name))];
            assert!(refusals(&hooks, &world()).is_empty(), "{name}");
        }
        for name in ["lr", "momentum/adamw"] {
            let refused = refusals(&[writer(), ("stop", Access::none().monitors(name))], &world());
            assert!(refused[0].contains(&format!("`{name}`, which nobody writes")), "{refused:?}");
            assert!(!refused[0].contains("did you mean `lr/*"), "no pattern is a name: {refused:?}");
        }
    }

    #[test]
    fn one_hook_alone_may_hold_what_it_claims_and_nobody_reads_that_as_a_metric() {
        let claim = |what: &str| Access::none().claims(what, "give one of them another `path`");
        let refused = refusals(&[("a", claim("x.jsonl")), ("b", claim("x.jsonl"))], &world());
        assert_eq!(
            refused,
            ["`x.jsonl` is written by hook `a` and by hook `b`; give one of them another `path`"]
        );
        let apart =
            [("a", claim("x.jsonl")), ("b", claim("y.jsonl")), ("c", Access::none().writes("y.jsonl"))];
        assert!(refusals(&apart, &world()).is_empty());
        let refused = refusals(&[("a", claim("weights")), ("c", Access::none().reads("weight"))], &world());
        assert!(refused[0].contains("there are: `test/loss`"), "{refused:?}");
    }

    #[test]
    fn an_option_that_asks_for_more_than_the_run_has_is_refused_by_its_name() {
        let needs = |n| Access::none().needs("window", Cadence::Epochs(n));
        assert!(refusals(&[("a", needs(3))], &world()).is_empty());
        assert_eq!(
            refusals(&[("a", needs(4))], &world()),
            [
                "hook `a` needs 4 epochs by its `window`, but this run has only 3 epochs, so that never comes; \
              lower it or train longer"
            ]
        );
        assert!(refusals(&[("a", Access::none().paced(Cadence::Steps(501)))], &world()).is_empty());
    }

    #[test]
    fn a_reader_of_something_nobody_writes_is_refused_with_the_nearest_name() {
        let hooks = [
            ("short", Access::none().monitors("loss")),
            ("stop", Access::none().monitors("val/los")),
            ("b", Access::none().reads("zebra")),
        ];
        assert_eq!(
            refusals(&hooks, &world()),
            [
                "hook `short` reads `loss`, which nobody writes; did you mean `train/loss`?",
                "hook `stop` reads `val/los`, which nobody writes; did you mean `val/loss`?",
                "hook `b` reads `zebra`, which nobody writes; there are: `test/loss`, `train/loss`, `val/loss`; \
                 a hook that writes it must declare so: `writes = [\"zebra\"]`",
            ]
        );
    }

    #[test]
    fn nothing_is_refused_for_a_metric_when_the_module_does_not_say_what_it_logs() {
        let hooks = [("stop", Access::none().monitors("val/los"))];
        assert!(refusals(&hooks, &World { metrics: None, ..world() }).is_empty());
    }

    #[test]
    fn a_monitor_that_can_never_see_its_metric_is_refused() {
        let no_validation = NoValidation { why: "`limit_val_batches` is 0".into(), fix: "raise it".into() };
        let world = World { no_validation: Some(no_validation), ..world() };
        let hooks =
            [("stop", Access::none().monitors("val/loss")), ("keep", Access::none().monitors("test/loss"))];
        assert_eq!(
            refusals(&hooks, &world),
            [
                "hook `stop` monitors `val/loss`, which is logged in validation, and it can never see it: \
                 `limit_val_batches` is 0; raise it",
                "hook `keep` monitors `test/loss`, which is logged in test, and it can never see it: \
                 fit runs no test; monitor a metric of training or validation",
            ]
        );
    }

    #[test]
    fn a_cadence_that_will_fire_zero_times_is_refused() {
        let hooks = [
            ("a", Access::none().every(Cadence::Steps(501))),
            ("b", Access::none().after(Cadence::Epochs(3))),
            ("c", Access::none().every(Cadence::Batches(9)).after(Cadence::Epochs(2))),
            ("d", Access::none().every(Cadence::Steps(2)).every(Cadence::Steps(1000))),
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
