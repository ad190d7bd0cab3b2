//! What a hook declares, as a value: name, place, policy, events, what it reads and writes, where it runs.

use serde::{Deserialize, Serialize};

use crate::cadence::Cadence;
use crate::effect::Effect;
use crate::event::{Event, Events};
use crate::failure::Policy;
use crate::pattern;
use crate::plan::Tier;
use crate::roster::HookKind;

/// What a hook [provides](HookSpec::provides) that finds where a number stopped being finite.
pub const FINDS_NAN: &str = "the search for numbers that are not finite";

/// What a hook [provides](HookSpec::provides) that saves checkpoints.
pub const SAVES_CHECKPOINTS: &str = "the saving of checkpoints";

/// What a hook declares. It is asked for once, when the hook is registered.
///
/// `#[hook]` makes it of the type's name, the handlers and the arguments; [`Observer::declare`](crate::Observer::declare)
/// adds what depends on the hook's options.
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
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct HookSpec {
    /// Its name, unique among the hooks of a run.
    pub name: String,
    kind: HookKind,
    /// Where it stands among the other hooks.
    pub tier: Tier,
    /// What its errors do to the run.
    pub policy: Policy,
    /// The events it wants: the plan leaves it out of all others, and nothing is built for it there.
    pub events: Events,
    /// On which ranks it runs.
    pub ranks: Ranks,
    /// Names it reads.
    pub reads: Vec<String>,
    /// Names that decide whether it fires. A hook may log them without declaring so: only one that is a slip of
    /// the pen is refused.
    pub gated_by: Vec<String>,
    /// Names it writes. A `*` stands for any text within a part of a name, and a part that is `**` for any
    /// number of parts; parts are divided by `/`: `grad_norm/*`.
    pub writes: Vec<String>,
    /// What else it holds that no other hook may hold too.
    pub claims: Vec<Claim>,
    /// What it offers to other hooks, besides what it writes; several hooks may offer the same.
    pub provides: Vec<String>,
    /// What another hook must provide.
    pub requires: Vec<Claim>,
    /// A metric it monitors: it decides nothing before it has seen it.
    pub monitors: Option<String>,
    /// How often it fires, when less than at every event; all of them must agree.
    pub every: Vec<Cadence>,
    /// How often it looks, where that is no reason to refuse a run that is shorter: what is prepared for it is
    /// prepared no more often.
    pub throttle: Option<Cadence>,
    /// How long a run must be by which option, if the hook is to fire at all.
    pub needs_run_length: Vec<(&'static str, Cadence)>,
    /// It fires only from then on.
    pub after: Vec<Cadence>,
    /// It prints a line at the end of each epoch.
    pub prints_epochs: bool,
    /// It wants the time spent in hooks to be measured.
    pub measures_hook_time: bool,
    /// The tensors of its state are to be evaluated instead of the module's weights.
    pub provides_eval_weights: bool,
    /// It does not read the norm of the gradients in `on_step_end`.
    pub ignores_grad_norm: bool,
    /// What it does outside of the run directory.
    pub effects: Vec<Effect>,
    /// What it needs and this machine lacks.
    pub environment_problems: Vec<EnvironmentProblem>,
    /// Which option says what it declares, so that a refusal points to that option.
    pub options: Vec<(Declaration, &'static str)>,
    /// Of an update hook: a gradient that it changed and that is not finite then is a failure of the hook.
    pub check_finite: bool,
    /// Of an update hook: it changes gradients. One that does not is listed and never called.
    pub changes_gradients: bool,
}

/// Something that a hook declares because an option says so.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Declaration {
    /// It reads, monitors or asks for this name.
    Name(String),
    /// It fires this often.
    Every(Cadence),
    /// It fires only from then on.
    After(Cadence),
}

/// On which ranks of a distributed run a hook runs. A run of one process is all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Ranks {
    /// On every rank.
    #[default]
    All,
    /// On rank 0.
    Main,
    /// On the first rank of every machine.
    LocalMain,
}

impl Ranks {
    /// Whether it is every rank.
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

/// Something that is no metric, and that one hook alone may hold, or that one hook requires of another: the module's
/// weights, a file, the choice of a best checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What.
    pub what: String,
    /// What to do where two hooks claim it, or none provides it.
    pub fix: String,
}

/// Something that a hook needs and this machine lacks: a program, a directory that can be written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentProblem {
    /// The option that asks for it.
    pub key: &'static str,
    /// What is missing.
    pub problem: String,
    /// What to do about it.
    pub fix: String,
}

impl HookSpec {
    /// An observer of this name that declares nothing else.
    #[must_use]
    pub fn observer(name: impl Into<String>) -> HookSpec {
        HookSpec::new(name.into(), HookKind::Observer, Policy::DISABLE)
    }

    /// A controller of this name that declares nothing else.
    #[must_use]
    pub fn controller(name: impl Into<String>) -> HookSpec {
        HookSpec::new(name.into(), HookKind::Controller, Policy::ABORT)
    }

    /// An update hook of this name that declares nothing else.
    #[must_use]
    pub fn update(name: impl Into<String>) -> HookSpec {
        HookSpec { changes_gradients: true, ..HookSpec::new(name.into(), HookKind::Update, Policy::ABORT) }
    }

    fn new(name: String, kind: HookKind, policy: Policy) -> HookSpec {
        HookSpec {
            name,
            kind,
            tier: Tier::User,
            policy,
            events: Events::NONE,
            ranks: Ranks::All,
            reads: Vec::new(),
            gated_by: Vec::new(),
            writes: Vec::new(),
            claims: Vec::new(),
            provides: Vec::new(),
            requires: Vec::new(),
            monitors: None,
            every: Vec::new(),
            throttle: None,
            needs_run_length: Vec::new(),
            after: Vec::new(),
            prints_epochs: false,
            measures_hook_time: false,
            provides_eval_weights: false,
            ignores_grad_norm: false,
            effects: Vec::new(),
            environment_problems: Vec::new(),
            options: Vec::new(),
            check_finite: false,
            changes_gradients: false,
        }
    }

    /// Its kind. An observer that looks at activations is what people call a forward hook.
    #[must_use]
    pub fn kind(&self) -> HookKind {
        match self.kind {
            HookKind::Observer if self.events.contains(Event::Activation) => HookKind::Forward,
            kind => kind,
        }
    }

    /// Whether it can change training: a controller or an update hook.
    #[must_use]
    pub fn steers(&self) -> bool {
        self.kind.steers()
    }

    /// It has this name.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> HookSpec {
        self.name = name.into();
        self
    }

    /// It stands here among the other hooks.
    #[must_use]
    pub fn tier(mut self, tier: Tier) -> HookSpec {
        self.tier = tier;
        self
    }

    /// Its errors do this to the run.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> HookSpec {
        self.policy = policy;
        self
    }

    /// It wants this event as well. `#[hook]` says so of every handler that is written.
    #[must_use]
    pub fn wants(mut self, event: Event) -> HookSpec {
        self.events = self.events.with(event);
        self
    }

    /// It does not want these events, though it has handlers for them: its options leave nothing to do there.
    #[must_use]
    pub fn without_events(mut self, events: Events) -> HookSpec {
        self.events = self.events.without(events);
        self
    }

    /// It wants this event only if `wanted`: otherwise its options leave nothing to do there.
    #[must_use]
    pub fn wants_if(self, event: Event, wanted: bool) -> HookSpec {
        if wanted { self } else { self.without_events(Events::NONE.with(event)) }
    }

    /// It runs on these ranks.
    #[must_use]
    pub fn ranks(mut self, ranks: Ranks) -> HookSpec {
        self.ranks = ranks;
        self
    }

    /// A gradient that it changed and that is not finite then is a failure of the hook.
    #[must_use]
    pub fn check_finite(mut self, check: bool) -> HookSpec {
        self.check_finite = check;
        self
    }

    /// Whether it changes gradients, being an update hook. One that does not is listed and never called.
    #[must_use]
    pub fn changes_gradients(mut self, changes: bool) -> HookSpec {
        self.changes_gradients = changes;
        self
    }

    /// It reads this as well.
    #[must_use]
    pub fn reads(mut self, name: impl Into<String>) -> HookSpec {
        self.reads.push(name.into());
        self
    }

    /// It reads this as well, because this option says so.
    #[must_use]
    pub fn reads_option(self, key: &'static str, name: impl Into<String>) -> HookSpec {
        let name = name.into();
        self.by(key, Declaration::Name(name.clone())).reads(name)
    }

    fn by(mut self, key: &'static str, declared: Declaration) -> HookSpec {
        self.options.push((declared, key));
        self
    }

    /// The option that says this.
    #[must_use]
    pub fn option_of(&self, declared: &Declaration) -> Option<&'static str> {
        self.options.iter().find(|(said, _)| said == declared).map(|(_, key)| *key)
    }

    /// Whether it fires depends on this as well, by its `when`.
    #[must_use]
    pub fn gated_by(mut self, name: impl Into<String>) -> HookSpec {
        let name = name.into();
        self.gated_by.push(name.clone());
        self.by("when", Declaration::Name(name))
    }

    /// It writes this as well.
    #[must_use]
    pub fn writes(mut self, name: impl Into<String>) -> HookSpec {
        self.writes.push(name.into());
        self
    }

    /// Whether it declares to write what has this name.
    #[must_use]
    pub fn writes_to(&self, name: &str) -> bool {
        self.writes.iter().any(|written| crate::pattern::overlap(written, name))
    }

    /// It holds this, which is no metric; where another hook does too, this is what to do about it.
    #[must_use]
    pub fn claims(mut self, what: impl Into<String>, fix: impl Into<String>) -> HookSpec {
        self.claims.push(Claim { what: what.into(), fix: fix.into() });
        self
    }

    /// It provides this for hooks that [require](HookSpec::requires) it.
    #[must_use]
    pub fn provides(mut self, what: impl Into<String>) -> HookSpec {
        self.provides.push(what.into());
        self
    }

    /// Another hook must [provide](HookSpec::provides) this; where none does, the run is refused with this fix.
    #[must_use]
    pub fn requires(mut self, what: impl Into<String>, fix: impl Into<String>) -> HookSpec {
        self.requires.push(Claim { what: what.into(), fix: fix.into() });
        self
    }

    /// It has this effect outside of the run directory.
    #[must_use]
    pub fn effect(mut self, effect: Effect) -> HookSpec {
        self.effects.push(effect);
        self
    }

    /// It cannot work on this machine: the plan refuses it.
    #[must_use]
    pub fn environment_problem(mut self, problem: EnvironmentProblem) -> HookSpec {
        self.environment_problems.push(problem);
        self
    }

    /// It receives `on_step_end` without reading the norm of the gradients there. Where nobody reads it, nobody has to hold
    /// all gradients through the update; it is NaN then.
    #[must_use]
    pub fn ignores_grad_norm(mut self) -> HookSpec {
        self.ignores_grad_norm = true;
        self
    }

    /// It monitors this metric by its option `monitor`, and so reads it.
    #[must_use]
    pub fn monitors(self, name: impl Into<String>) -> HookSpec {
        self.monitors_option("monitor", name)
    }

    /// It monitors this metric, and so reads it, because this option says so.
    #[must_use]
    pub fn monitors_option(mut self, key: &'static str, name: impl Into<String>) -> HookSpec {
        let name = name.into();
        self.monitors = Some(name.clone());
        self.by(key, Declaration::Name(name))
    }

    /// It fires this often.
    #[must_use]
    pub fn every(mut self, cadence: Cadence) -> HookSpec {
        self.every.push(cadence);
        self
    }

    /// It fires this often, because this option says so.
    #[must_use]
    pub fn every_option(self, key: &'static str, cadence: Cadence) -> HookSpec {
        self.by(key, Declaration::Every(cadence)).every(cadence)
    }

    /// It looks this often, and a shorter run is not refused for it.
    #[must_use]
    pub fn throttle(mut self, cadence: Cadence) -> HookSpec {
        self.throttle = Some(cadence);
        self
    }

    /// It fires only in a run that is at least so long, because this option says so.
    #[must_use]
    pub fn needs_run_length(mut self, key: &'static str, length: Cadence) -> HookSpec {
        self.needs_run_length.push((key, length));
        self
    }

    /// It prints a line at the end of each epoch, so nothing else needs to.
    #[must_use]
    pub fn prints_epochs(mut self) -> HookSpec {
        self.prints_epochs = true;
        self
    }

    /// It wants the time spent in hooks to be measured, for `cx.time_in_hooks()`.
    #[must_use]
    pub fn measures_hook_time(mut self) -> HookSpec {
        self.measures_hook_time = true;
        self
    }

    /// The tensors of its state, under the parameters' names, are to be evaluated instead of the module's weights:
    /// an average of them, for example. A checkpoint of weights alone holds them.
    #[must_use]
    pub fn provides_eval_weights(mut self) -> HookSpec {
        self.provides_eval_weights = true;
        self
    }

    /// It fires only from then on.
    #[must_use]
    pub fn after(mut self, start: Cadence) -> HookSpec {
        self.after.push(start);
        self
    }

    /// It fires only from then on, because this option says so.
    #[must_use]
    pub fn after_option(self, key: &'static str, start: Cadence) -> HookSpec {
        self.by(key, Declaration::After(start)).after(start)
    }

    /// A name that this hook reads, monitors or asks for, and that the other writes.
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
        let written = |name: &&String| other.writes.iter().any(|written| pattern::overlap(written, name));
        read.find(written).map(String::as_str)
    }
}
