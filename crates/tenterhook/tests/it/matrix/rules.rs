//! What must come of a failure, said independently of the code: from a run in which nothing fails follows the run in
//! which something does.
//!
//! - abort: nobody else receives that event; `on_exception` to hooks, module, data, strategy; then teardown of strategy,
//!   data, hooks, module, of each that was not torn down yet. No other event follows.
//! - warn: nothing changes, for anybody.
//! - disable: from the failure that is one too many on, the hook receives nothing but `teardown`.
//! - a panic disables at once, unless it aborts.
//! - what is contained in the event that ends the run comes before that.
//! - in `on_exception` nobody is left out; what would abort comes later than what the run fails by.
//! - a disabled hook is still asked for its state, which is no event.
//! - that a hook was disabled is told to those that are left, one after the other, when its event has reached everyone; not
//!   in `on_exception` and `teardown`.

use tenterhook::OnError;

use super::hooks::Fault;

pub type Rows = Vec<(String, &'static str)>;

/// One contained or aborting failure: who, and whether that disabled it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    pub hook: &'static str,
    pub disabled: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Expected {
    pub rows: Rows,
    /// What ends the run, if a hook's failure does.
    pub aborts: Option<&'static str>,
    pub later: Vec<&'static str>,
    pub contained: Vec<Failed>,
}

pub struct Case<'a> {
    /// The run without these faults.
    pub undisturbed: &'a Rows,
    /// Those that go wrong, in order, with the same fault and policy.
    pub faulty: &'a [&'static str],
    pub fault: Fault,
    pub on_error: OnError,
    pub max_failures: usize,
    /// All hooks in order, as rows name them.
    pub hooks: &'a [&'static str],
    /// The first of those that go wrong is only warned about, whatever the policy of the other.
    pub warns_first: bool,
}

impl Case<'_> {
    pub fn expected(&self) -> Expected {
        match self.on_error {
            OnError::Abort if self.fault.place == "on_exception" => {
                let (contained, aborting) = self.contained_first();
                Expected { rows: self.undisturbed.clone(), later: aborting.to_vec(), contained, aborts: None }
            }
            OnError::Abort => self.aborted(),
            OnError::Warn | OnError::Disable => self.contained(),
        }
    }

    fn is_at(&self, hook: &str, (source, place): &(String, &'static str)) -> bool {
        source.strip_prefix("hook:") == Some(hook) && *place == self.fault.place
    }

    /// Those that go wrong and are contained, and those that abort after them.
    fn contained_first(&self) -> (Vec<Failed>, &[&'static str]) {
        let (contained, aborting) = self.faulty.split_at(usize::from(self.warns_first));
        let failed = contained.iter().map(|hook| Failed { hook, disabled: self.fault.panics });
        (failed.collect(), aborting)
    }

    fn aborted(&self) -> Expected {
        let (contained, aborting) = self.contained_first();
        let first = aborting[0];
        let is_disabled = |source: &str| {
            let hook = source.strip_prefix("hook:");
            contained.iter().any(|failed| failed.disabled && Some(failed.hook) == hook)
        };
        let at = self.undisturbed.iter().position(|row| self.is_at(first, row)).expect("it is called there");
        let mut rows = self.undisturbed[..=at].to_vec();
        let hooks = || self.hooks.iter().map(|hook| format!("hook:{hook}"));
        let sources = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let told =
            hooks().filter(|source| !is_disabled(source)).chain(sources(&["module", "data", "strategy"]));
        rows.extend(told.map(|source| (source, "on_exception")));
        let torn: Vec<_> = rows.iter().filter(|row| row.1 == "teardown").map(|row| row.0.clone()).collect();
        let to_tear = sources(&["strategy", "data"]).into_iter().chain(hooks()).chain(sources(&["module"]));
        let left = to_tear.filter(|source| !torn.contains(source));
        rows.extend(left.map(|source| (source, "teardown")));
        // Whoever else goes wrong in a teardown does so after it was told; in any other event he is not reached.
        let later = if self.fault.place == "teardown" { aborting[1..].to_vec() } else { Vec::new() };
        Expected { rows, aborts: Some(first), later, contained }
    }

    fn contained(&self) -> Expected {
        let most = match (self.fault.panics, self.on_error) {
            (true, _) => 1,
            (false, OnError::Disable) => self.max_failures,
            (false, _) => usize::MAX,
        };
        let mut expected = Expected::default();
        let mut failures = vec![0; self.faulty.len()];
        let mut disabled_now: Vec<&str> = Vec::new();
        for row in self.undisturbed {
            if !self.is_of_event(row) {
                self.tell_disabled(&mut disabled_now, &failures, most, &mut expected.rows);
            }
            let who = self.faulty.iter().position(|hook| row.0 == format!("hook:{hook}"));
            let Some(who) = who else {
                expected.rows.push(row.clone());
                continue;
            };
            if failures[who] >= most && !["state_dict", "load_state_dict", "teardown"].contains(&row.1) {
                continue;
            }
            expected.rows.push(row.clone());
            if row.1 == self.fault.place {
                failures[who] += 1;
                let disabled = failures[who] == most;
                expected.contained.push(Failed { hook: self.faulty[who], disabled });
                if disabled {
                    disabled_now.push(self.faulty[who]);
                }
            }
        }
        expected
    }

    /// Whether a row belongs to the event in which something goes wrong: its deliveries, and of a save the rest of it.
    fn is_of_event(&self, (source, place): &(String, &'static str)) -> bool {
        let of_save = ["state_dict", "on_save_checkpoint", "weights", "optimizer_state"].contains(place);
        // Within the module's step nobody is told; the event that follows it comes first.
        let after_step = ["on_after_forward", "on_validation_batch_end"].contains(place);
        let of_event = *place == self.fault.place || self.fault.place == "on_activation" && after_step;
        source.starts_with("hook:") && of_event
            || ["state_dict", "on_save_checkpoint"].contains(&self.fault.place) && of_save
    }

    fn tell_disabled(&self, disabled: &mut Vec<&str>, failures: &[usize], most: usize, rows: &mut Rows) {
        let is_left = |hook: &&&str| {
            let faulty = self.faulty.iter().position(|faulty| faulty == *hook);
            faulty.is_none_or(|who| failures[who] < most)
        };
        for _ in disabled.drain(..) {
            if !["on_exception", "teardown"].contains(&self.fault.place) {
                let left = self.hooks.iter().filter(is_left);
                rows.extend(left.map(|hook| (format!("hook:{hook}"), "on_hook_disabled")));
            }
        }
    }
}
