//! The spec of a hook: its name, tier, policy, events, reads, writes and ranks.

use serde::{Deserialize, Serialize};

use crate::cadence::Cadence;
use crate::effect::Effect;
use crate::event::{Event, Events};
use crate::failure::Policy;
use crate::pattern;
use crate::plan::Tier;
use crate::roster::HookKind;

/// [Provided](HookSpec::provides) by a hook that locates the first number that is not finite.
pub const FINDS_NAN: &str = "the search for numbers that are not finite";

/// [Provided](HookSpec::provides) by a hook that saves checkpoints.
pub const SAVES_CHECKPOINTS: &str = "the saving of checkpoints";

/// The declarations of a hook. The runner reads them once, when the hook is registered.
///
/// `#[hook]` derives it from the type's name, the handlers and the arguments;
/// [`Observer::declare`](crate::Observer::declare) adds what depends on the hook's options.
///
/// ```
/// use tenterhook_core::{hook, HookResult, HookSpec, Observer, StepEnd};
///
/// struct Watch { metric: String }
///
/// #[hook(tier = "monitor")]
/// impl Observer for Watch {
///     fn declare(&self, spec: HookSpec) -> HookSpec {
///         spec.reads(&self.metric)
///     }
///     fn on_step_end(&mut self, _cx: &StepEnd) -> HookResult {
///         Ok(())
///     }
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct HookSpec {
    /// The name, unique among the hooks of a run.
    pub name: String,
    kind: HookKind,
    /// The hook's place in the order of hooks.
    pub tier: Tier,
    /// The effect of the hook's errors on the run.
    pub policy: Policy,
    /// The events that the hook receives. No context is built for an event that no hook wants.
    pub events: Events,
    /// The ranks of a distributed run on which the hook runs.
    pub ranks: Ranks,
    /// The metrics and blackboard keys that the hook reads.
    pub reads: Vec<String>,
    /// The names in the hook's `when` condition. Undeclared names are allowed; only a likely typo is refused.
    pub gated_by: Vec<String>,
    /// The metrics and blackboard keys that the hook writes. Parts of a name are separated by `/`; `*`
    /// matches any text within a part, and a part `**` any number of parts: `grad_norm/*`.
    pub writes: Vec<String>,
    /// Resources that no other hook may use at the same time.
    pub claims: Vec<Claim>,
    /// Capabilities that the hook offers to other hooks. Several hooks may provide the same one.
    pub provides: Vec<String>,
    /// Capabilities that another hook must provide.
    pub requires: Vec<Claim>,
    /// The metric that the hook monitors. The hook decides nothing before the metric has a value.
    pub monitors: Option<String>,
    /// The intervals at which the hook runs, if not at every event. All of them must be met.
    pub every: Vec<Cadence>,
    /// An interval between the hook's calls, which may exceed the length of the run. Data for the hook is
    /// prepared no more often.
    pub throttle: Option<Cadence>,
    /// The minimum lengths of a run in which the hook runs at all, each with the option that requires it.
    pub min_run_length: Vec<(&'static str, Cadence)>,
    /// The points of training after which the hook runs.
    pub after: Vec<Cadence>,
    /// The hook prints a line at the end of each epoch.
    pub prints_epochs: bool,
    /// The time spent in hooks must be measured for the hook.
    pub measures_hook_time: bool,
    /// Evaluations use the tensors of the hook's state instead of the module's weights.
    pub provides_eval_weights: bool,
    /// The hook does not read the gradient norm in `on_step_end`.
    pub ignores_grad_norm: bool,
    /// The hook's effects outside of the run directory.
    pub effects: Vec<Effect>,
    /// Requirements of the hook that this machine does not meet.
    pub environment_problems: Vec<EnvironmentProblem>,
    /// The option behind a declaration, for error messages.
    pub options: Vec<(Declaration, &'static str)>,
    /// For an update hook: a gradient that it changed and that is not finite afterwards is a failure of the
    /// hook.
    pub check_finite: bool,
    /// For an update hook: it changes gradients. A hook that does not is listed and never called.
    pub changes_gradients: bool,
}

/// A declaration that follows from an option of the hook.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Declaration {
    /// The hook reads or monitors this name, or its condition does.
    Name(String),
    /// The hook runs at this interval.
    Every(Cadence),
    /// The hook runs after this point.
    After(Cadence),
}

/// The ranks of a distributed run on which a hook runs. A run of one process has rank 0 only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Ranks {
    /// All ranks.
    #[default]
    All,
    /// Rank 0.
    Main,
    /// The first rank of every machine.
    LocalMain,
}

impl Ranks {
    /// Whether the hook runs on all ranks.
    #[must_use]
    pub fn is_all(&self) -> bool {
        *self == Ranks::All
    }
}

impl std::fmt::Display for Ranks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Ranks::All => "all ranks",
            Ranks::Main => "rank 0",
            Ranks::LocalMain => "the first rank of every machine",
        })
    }
}

/// A resource other than a metric that only one hook may use, or a capability that one hook requires of
/// another: the module's weights, a file, the choice of the best checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The resource or capability.
    pub what: String,
    /// The fix if two hooks claim it, or if no hook provides it.
    pub fix: String,
}

/// A requirement of a hook that this machine does not meet, such as a program or a writable directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentProblem {
    /// The option that needs it.
    pub key: &'static str,
    /// The missing requirement.
    pub problem: String,
    /// The fix.
    pub fix: String,
}

impl HookSpec {
    /// The spec of an observer of this name.
    #[must_use]
    pub fn observer(name: impl Into<String>) -> HookSpec {
        HookSpec { name: name.into(), ..HookSpec::default() }
    }

    /// The spec of a controller of this name.
    #[must_use]
    pub fn controller(name: impl Into<String>) -> HookSpec {
        HookSpec { kind: HookKind::Controller, policy: Policy::ABORT, ..HookSpec::observer(name) }
    }

    /// The spec of an update hook of this name.
    #[must_use]
    pub fn update(name: impl Into<String>) -> HookSpec {
        HookSpec { kind: HookKind::Update, changes_gradients: true, ..HookSpec::controller(name) }
    }

    /// The hook's kind. An observer that wants activations is called a forward hook.
    #[must_use]
    pub fn kind(&self) -> HookKind {
        match self.kind {
            HookKind::Observer if self.events.contains(Event::Activation) => HookKind::Forward,
            kind => kind,
        }
    }

    /// Whether the hook can change training, which controllers and update hooks can.
    #[must_use]
    pub fn steers(&self) -> bool {
        self.kind.steers()
    }

    /// Sets the name.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> HookSpec {
        self.name = name.into();
        self
    }

    /// Sets the tier.
    #[must_use]
    pub fn tier(mut self, tier: Tier) -> HookSpec {
        self.tier = tier;
        self
    }

    /// Sets the failure policy.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> HookSpec {
        self.policy = policy;
        self
    }

    /// Adds an event that the hook wants. `#[hook]` adds the events of all handlers.
    #[must_use]
    pub fn wants(mut self, event: Event) -> HookSpec {
        self.events = self.events.with(event);
        self
    }

    /// Removes events whose handlers do nothing with the hook's options.
    #[must_use]
    pub fn without_events(mut self, events: Events) -> HookSpec {
        self.events = self.events.without(events);
        self
    }

    /// Removes an event unless `wanted`.
    #[must_use]
    pub fn wants_if(self, event: Event, wanted: bool) -> HookSpec {
        if wanted { self } else { self.without_events(Events::NONE.with(event)) }
    }

    /// Sets the ranks on which the hook runs.
    #[must_use]
    pub fn ranks(mut self, ranks: Ranks) -> HookSpec {
        self.ranks = ranks;
        self
    }

    /// Sets whether a gradient that the update hook changed and that is not finite afterwards is a failure of
    /// the hook.
    #[must_use]
    pub fn check_finite(mut self, check: bool) -> HookSpec {
        self.check_finite = check;
        self
    }

    /// Sets whether the update hook changes gradients. A hook that does not is listed and never called.
    #[must_use]
    pub fn changes_gradients(mut self, changes: bool) -> HookSpec {
        self.changes_gradients = changes;
        self
    }

    /// Adds a metric or blackboard key that the hook reads.
    #[must_use]
    pub fn reads(mut self, name: impl Into<String>) -> HookSpec {
        self.reads.push(name.into());
        self
    }

    /// Adds a name that the hook reads because of this option.
    #[must_use]
    pub fn reads_option(self, key: &'static str, name: impl Into<String>) -> HookSpec {
        let name = name.into();
        self.by_option(key, Declaration::Name(name.clone())).reads(name)
    }

    fn by_option(mut self, key: &'static str, declaration: Declaration) -> HookSpec {
        self.options.push((declaration, key));
        self
    }

    /// The option behind a declaration.
    #[must_use]
    pub fn option_of(&self, declaration: &Declaration) -> Option<&'static str> {
        self.options.iter().find(|(own, _)| own == declaration).map(|(_, key)| *key)
    }

    /// Adds a name in the hook's `when` condition.
    #[must_use]
    pub fn gated_by(mut self, name: impl Into<String>) -> HookSpec {
        let name = name.into();
        self.gated_by.push(name.clone());
        self.by_option("when", Declaration::Name(name))
    }

    /// Adds a metric or blackboard key that the hook writes, or a pattern of them.
    #[must_use]
    pub fn writes(mut self, name: impl Into<String>) -> HookSpec {
        self.writes.push(name.into());
        self
    }

    /// Whether the hook declares to write this name.
    #[must_use]
    pub fn writes_to(&self, name: &str) -> bool {
        self.writes.iter().any(|written| pattern::overlap(written, name))
    }

    /// Claims exclusive use of a resource, such as a file. `fix` is shown if another hook claims it too.
    #[must_use]
    pub fn claims(mut self, what: impl Into<String>, fix: impl Into<String>) -> HookSpec {
        self.claims.push(Claim { what: what.into(), fix: fix.into() });
        self
    }

    /// Offers a capability to hooks that [require](HookSpec::requires) it.
    #[must_use]
    pub fn provides(mut self, what: impl Into<String>) -> HookSpec {
        self.provides.push(what.into());
        self
    }

    /// Requires that another hook [provides](HookSpec::provides) a capability. Otherwise the run is refused
    /// with this fix.
    #[must_use]
    pub fn requires(mut self, what: impl Into<String>, fix: impl Into<String>) -> HookSpec {
        self.requires.push(Claim { what: what.into(), fix: fix.into() });
        self
    }

    /// Adds an effect outside of the run directory.
    #[must_use]
    pub fn effect(mut self, effect: Effect) -> HookSpec {
        self.effects.push(effect);
        self
    }

    /// Adds a reason why the hook cannot work on this machine. The plan refuses the hook.
    #[must_use]
    pub fn environment_problem(mut self, problem: EnvironmentProblem) -> HookSpec {
        self.environment_problems.push(problem);
        self
    }

    /// Declares that the hook receives `on_step_end` without reading the gradient norm. If no hook reads it,
    /// the gradients need not be held through the update, and the norm is NaN.
    #[must_use]
    pub fn ignores_grad_norm(mut self) -> HookSpec {
        self.ignores_grad_norm = true;
        self
    }

    /// Sets the metric that the hook monitors by its option `monitor`. A monitored metric is also read.
    #[must_use]
    pub fn monitors(self, name: impl Into<String>) -> HookSpec {
        self.monitors_option("monitor", name)
    }

    /// Sets the metric that the hook monitors because of this option.
    #[must_use]
    pub fn monitors_option(mut self, key: &'static str, name: impl Into<String>) -> HookSpec {
        let name = name.into();
        self.monitors = Some(name.clone());
        self.by_option(key, Declaration::Name(name))
    }

    /// Adds an interval at which the hook runs.
    #[must_use]
    pub fn every(mut self, cadence: Cadence) -> HookSpec {
        self.every.push(cadence);
        self
    }

    /// Adds an interval at which the hook runs because of this option.
    #[must_use]
    pub fn every_option(self, key: &'static str, cadence: Cadence) -> HookSpec {
        self.by_option(key, Declaration::Every(cadence)).every(cadence)
    }

    /// Sets an interval between the hook's calls, which may exceed the length of the run.
    #[must_use]
    pub fn throttle(mut self, cadence: Cadence) -> HookSpec {
        self.throttle = Some(cadence);
        self
    }

    /// Declares that this option requires a run of at least this length.
    #[must_use]
    pub fn min_run_length(mut self, key: &'static str, length: Cadence) -> HookSpec {
        self.min_run_length.push((key, length));
        self
    }

    /// Declares that the hook prints a line at the end of each epoch, which replaces the default one.
    #[must_use]
    pub fn prints_epochs(mut self) -> HookSpec {
        self.prints_epochs = true;
        self
    }

    /// Enables the measurement of the time spent in hooks, for `cx.time_in_hooks()`.
    #[must_use]
    pub fn measures_hook_time(mut self) -> HookSpec {
        self.measures_hook_time = true;
        self
    }

    /// Declares that evaluations use the tensors of the hook's state, under the parameters' names, instead of
    /// the module's weights; for example an average of the weights. A weights-only checkpoint contains these
    /// tensors.
    #[must_use]
    pub fn provides_eval_weights(mut self) -> HookSpec {
        self.provides_eval_weights = true;
        self
    }

    /// Adds a point of training after which the hook runs.
    #[must_use]
    pub fn after(mut self, start: Cadence) -> HookSpec {
        self.after.push(start);
        self
    }

    /// Adds a point of training after which the hook runs because of this option.
    #[must_use]
    pub fn after_option(self, key: &'static str, start: Cadence) -> HookSpec {
        self.by_option(key, Declaration::After(start)).after(start)
    }

    /// A name that the other hook writes and that this hook or its condition reads or monitors.
    ///
    /// ```
    /// use tenterhook_core::HookSpec;
    ///
    /// let norms = HookSpec::observer("norms").writes("grad_norm/*");
    /// let guard = HookSpec::controller("guard").reads("train/loss").gated_by("grad_norm/total");
    /// assert_eq!(guard.reads_from(&norms), Some("grad_norm/total"));
    /// assert_eq!(norms.reads_from(&guard), None);
    /// ```
    #[must_use]
    pub fn reads_from<'a>(&'a self, other: &HookSpec) -> Option<&'a str> {
        let mut read = self.reads.iter().chain(&self.monitors).chain(&self.gated_by);
        read.find(|name| other.writes_to(name)).map(String::as_str)
    }
}
