//! What a hook declares that it reads and writes, so that the plan can refuse what cannot work.

use crate::cadence::Cadence;
use crate::effect::Effect;
use crate::pattern;

/// What a hook [provides](Access::provides) that finds where a number stopped being finite.
pub const FINDS_NAN: &str = "the search for numbers that are not finite";

/// What a hook [provides](Access::provides) that saves checkpoints.
pub const SAVES_CHECKPOINTS: &str = "the saving of checkpoints";

/// What a hook reads and writes in the metrics and on the board, and how often it fires.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Access {
    /// Names it reads.
    pub reads: Vec<String>,
    /// Names that decide whether it fires. A hook may log them without declaring so: only one that is a slip of
    /// the pen is refused.
    pub asks: Vec<String>,
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
    pub paced: Option<Cadence>,
    /// How long a run must be by which option, if the hook is to fire at all.
    pub needs: Vec<(&'static str, Cadence)>,
    /// It fires only from then on.
    pub after: Vec<Cadence>,
    /// It can change training: a controller or an update hook. The runner says so.
    pub steers: bool,
    /// It prints a line at the end of each epoch.
    pub prints_epochs: bool,
    /// It wants the time spent in hooks to be measured.
    pub measures_hooks: bool,
    /// The tensors of its state are to be evaluated instead of the module's weights.
    pub keeps_weights_to_evaluate: bool,
    /// It does not read the norm of the gradients in `on_step_end`.
    pub leaves_grad_norm: bool,
    /// What it does outside of the run directory.
    pub effects: Vec<Effect>,
    /// What it needs and this machine lacks.
    pub lacks: Vec<Lack>,
    /// Which option says what it declares, so that a refusal points to that option.
    pub options: Vec<(Declared, &'static str)>,
}

/// Something that a hook declares because an option says so.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Declared {
    /// It reads, monitors or asks for this name.
    Name(String),
    /// It fires this often.
    Every(Cadence),
    /// It fires only from then on.
    After(Cadence),
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
pub struct Lack {
    /// The option that asks for it.
    pub key: &'static str,
    /// What is missing.
    pub problem: String,
    /// What to do about it.
    pub fix: String,
}

impl Access {
    /// Nothing declared.
    #[must_use]
    pub fn none() -> Access {
        Access::default()
    }

    /// It reads this as well.
    #[must_use]
    pub fn reads(mut self, name: impl Into<String>) -> Access {
        self.reads.push(name.into());
        self
    }

    /// It reads this as well, because this option says so.
    #[must_use]
    pub fn reads_by(self, key: &'static str, name: impl Into<String>) -> Access {
        let name = name.into();
        self.by(key, Declared::Name(name.clone())).reads(name)
    }

    fn by(mut self, key: &'static str, declared: Declared) -> Access {
        self.options.push((declared, key));
        self
    }

    /// The option that says this.
    #[must_use]
    pub fn option_of(&self, declared: &Declared) -> Option<&'static str> {
        self.options.iter().find(|(said, _)| said == declared).map(|(_, key)| *key)
    }

    /// Whether it fires depends on this as well, by its `when`.
    #[must_use]
    pub fn asks(mut self, name: impl Into<String>) -> Access {
        let name = name.into();
        self.asks.push(name.clone());
        self.by("when", Declared::Name(name))
    }

    /// It writes this as well.
    #[must_use]
    pub fn writes(mut self, name: impl Into<String>) -> Access {
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
    pub fn claims(mut self, what: impl Into<String>, fix: impl Into<String>) -> Access {
        self.claims.push(Claim { what: what.into(), fix: fix.into() });
        self
    }

    /// It provides this for hooks that [require](Access::requires) it.
    #[must_use]
    pub fn provides(mut self, what: impl Into<String>) -> Access {
        self.provides.push(what.into());
        self
    }

    /// Another hook must [provide](Access::provides) this; where none does, the run is refused with this fix.
    #[must_use]
    pub fn requires(mut self, what: impl Into<String>, fix: impl Into<String>) -> Access {
        self.requires.push(Claim { what: what.into(), fix: fix.into() });
        self
    }

    /// It has this effect outside of the run directory.
    #[must_use]
    pub fn effect(mut self, effect: Effect) -> Access {
        self.effects.push(effect);
        self
    }

    /// It cannot work on this machine: the plan refuses it.
    #[must_use]
    pub fn lacks(mut self, lack: Lack) -> Access {
        self.lacks.push(lack);
        self
    }

    /// It receives `on_step_end` without reading the norm of the gradients there. Where nobody reads it, nobody has to hold
    /// all gradients through the update; it is NaN then.
    #[must_use]
    pub fn leaves_grad_norm(mut self) -> Access {
        self.leaves_grad_norm = true;
        self
    }

    /// It monitors this metric by its option `monitor`, and so reads it.
    #[must_use]
    pub fn monitors(self, name: impl Into<String>) -> Access {
        self.monitors_by("monitor", name)
    }

    /// It monitors this metric, and so reads it, because this option says so.
    #[must_use]
    pub fn monitors_by(mut self, key: &'static str, name: impl Into<String>) -> Access {
        let name = name.into();
        self.monitors = Some(name.clone());
        self.by(key, Declared::Name(name))
    }

    /// It fires this often.
    #[must_use]
    pub fn every(mut self, cadence: Cadence) -> Access {
        self.every.push(cadence);
        self
    }

    /// It fires this often, because this option says so.
    #[must_use]
    pub fn every_by(self, key: &'static str, cadence: Cadence) -> Access {
        self.by(key, Declared::Every(cadence)).every(cadence)
    }

    /// It looks this often, and a shorter run is not refused for it.
    #[must_use]
    pub fn paced(mut self, cadence: Cadence) -> Access {
        self.paced = Some(cadence);
        self
    }

    /// It fires only in a run that is at least so long, because this option says so.
    #[must_use]
    pub fn needs(mut self, key: &'static str, length: Cadence) -> Access {
        self.needs.push((key, length));
        self
    }

    /// It prints a line at the end of each epoch, so nothing else needs to.
    #[must_use]
    pub fn prints_epochs(mut self) -> Access {
        self.prints_epochs = true;
        self
    }

    /// It wants the time spent in hooks to be measured, for `cx.time_in_hooks()`.
    #[must_use]
    pub fn measures_hooks(mut self) -> Access {
        self.measures_hooks = true;
        self
    }

    /// The tensors of its state, under the parameters' names, are to be evaluated instead of the module's weights:
    /// an average of them, for example. A checkpoint of weights alone holds them.
    #[must_use]
    pub fn keeps_weights_to_evaluate(mut self) -> Access {
        self.keeps_weights_to_evaluate = true;
        self
    }

    /// It fires only from then on.
    #[must_use]
    pub fn after(mut self, start: Cadence) -> Access {
        self.after.push(start);
        self
    }

    /// It fires only from then on, because this option says so.
    #[must_use]
    pub fn after_by(self, key: &'static str, start: Cadence) -> Access {
        self.by(key, Declared::After(start)).after(start)
    }

    /// A name that this hook reads, monitors or asks for, and that the other writes.
    ///
    /// ```
    /// use tenterhook_core::Access;
    ///
    /// let norms = Access::none().writes("grad_norm/*");
    /// let guard = Access::none().reads("train/loss").asks("grad_norm/total");
    /// assert_eq!(guard.reads_from(&norms), Some("grad_norm/total"));
    /// assert_eq!(norms.reads_from(&guard), None);
    /// ```
    #[must_use]
    pub fn reads_from<'a>(&'a self, other: &Access) -> Option<&'a str> {
        let mut read = self.reads.iter().chain(&self.monitors).chain(&self.asks);
        let written = |name: &&String| other.writes.iter().any(|written| pattern::overlap(written, name));
        read.find(written).map(String::as_str)
    }
}
