//! What a hook declares that it reads and writes, so that the plan can refuse what cannot work.

use crate::cadence::Cadence;

/// What a hook reads and writes in the metrics and on the board, and how often it fires.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Access {
    /// Names it reads.
    pub reads: Vec<String>,
    /// Names that decide whether it fires. A hook may log them without declaring so: only one that is a slip of
    /// the pen is refused.
    pub asks: Vec<String>,
    /// Names it writes.
    pub writes: Vec<String>,
    /// A metric it monitors: it decides nothing before it has seen it.
    pub monitors: Option<String>,
    /// How often it fires, when less than at every event; all of them must agree.
    pub every: Vec<Cadence>,
    /// It fires only from then on.
    pub after: Vec<Cadence>,
    /// It wants the time spent in hooks to be measured.
    pub measures_hooks: bool,
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

    /// Whether it fires depends on this as well.
    #[must_use]
    pub fn asks(mut self, name: impl Into<String>) -> Access {
        self.asks.push(name.into());
        self
    }

    /// It writes this as well.
    #[must_use]
    pub fn writes(mut self, name: impl Into<String>) -> Access {
        self.writes.push(name.into());
        self
    }

    /// It monitors this metric, and so reads it.
    #[must_use]
    pub fn monitors(mut self, name: impl Into<String>) -> Access {
        self.monitors = Some(name.into());
        self
    }

    /// It fires this often.
    #[must_use]
    pub fn every(mut self, cadence: Cadence) -> Access {
        self.every.push(cadence);
        self
    }

    /// It wants the time spent in hooks to be measured, for `cx.time_in_hooks()`.
    #[must_use]
    pub fn measures_hooks(mut self) -> Access {
        self.measures_hooks = true;
        self
    }

    /// It fires only from then on.
    #[must_use]
    pub fn after(mut self, start: Cadence) -> Access {
        self.after.push(start);
        self
    }
}
