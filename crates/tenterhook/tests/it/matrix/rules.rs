//! The rules for failures, independent of the implementation. They derive the run with a failure from the run
//! without.
//!
//! - Abort: no further receiver gets the event. Hooks, module, data and strategy receive `on_exception`; then
//!   strategy, data, hooks and module are torn down, unless they were already. No other event follows.
//! - Warn: nothing changes.
//! - Disable: after its last allowed failure, the hook receives only `teardown`.
//! - A panic disables the hook at once, unless it aborts the run.
//! - Contained failures in the event that ends the run precede the fatal failure.
//! - All receivers get `on_exception`. Failures in it that would abort the run follow the fatal failure.
//! - The state of a disabled hook is still saved, because that is not an event.
//! - The remaining hooks receive `on_hook_disabled` for each disabled hook after the delivery of its event,
//!   except in `on_exception` and `teardown`.

use tenterhook::OnError;

use super::hooks::Fault;

pub type Rows = Vec<(String, &'static str)>;

/// A failed hook, and whether the failure disabled it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    pub hook: &'static str,
    pub disabled: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Expected {
    pub rows: Rows,
    /// The hook whose failure ends the run, if any.
    pub aborts: Option<&'static str>,
    pub later: Vec<&'static str>,
    pub contained: Vec<Failed>,
}

pub struct Case<'a> {
    /// The run without these faults.
    pub undisturbed: &'a Rows,
    /// The faulty hooks, in order, with the same fault and policy.
    pub faulty: &'a [&'static str],
    pub fault: Fault,
    pub on_error: OnError,
    pub max_failures: usize,
    /// All hooks in order, as rows name them.
    pub hooks: &'a [&'static str],
    /// The first faulty hook has the policy `warn`, whatever the policy of the other.
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

    /// The faulty hooks with contained failures, and those after them that abort.
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
        // In a teardown, the other faulty hooks fail later; in any other event they are not reached.
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

    /// Whether a row belongs to the event of the fault: its deliveries, and the rest of a save.
    fn is_of_event(&self, (source, place): &(String, &'static str)) -> bool {
        let of_save = ["state_dict", "on_save_checkpoint", "weights", "optimizer_state"].contains(place);
        // Within the module's step, `on_hook_disabled` is deferred until after the next event.
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
