//! Freezes parameters, for the whole training or for a range of steps.

use tenterhook_core::{Cadence, Gradients, HookResult, HookSpec, OptionError, Update, UpdateHook, hook};

use crate::support::param_filter::ParamFilter;
use crate::support::{from_options, options};

options! {
    /// The options of [`Freeze`].
    pub struct FreezeOptions {
        /// Patterns of the parameters to freeze: `*` matches within a part of a dotted name, `**` across parts.
        #[schemars(length(min = 1), inner(length(min = 1)))]
        pub params: Vec<String>,
        /// First optimizer step in which the parameters are frozen, from 1.
        #[schemars(range(min = 1))]
        pub from_step: u64 = 1,
        /// Last optimizer step in which the parameters are frozen. Unset: until the end.
        #[schemars(range(min = 1), example = 1000)]
        pub until_step: Option<u64> = None,
        /// Fail if a gradient is not finite afterwards. Gradients of frozen parameters are not checked.
        pub check_finite: bool = false,
    }
}

impl FreezeOptions {
    /// Default options for these parameters.
    pub fn of<S: Into<String>>(params: impl IntoIterator<Item = S>) -> FreezeOptions {
        FreezeOptions::with_defaults(params.into_iter().map(Into::into).collect())
    }
}

/// Freezes the selected parameters by removing their gradients: no update, no weight decay, no momentum. The parameters
/// stay the same to the bit.
///
/// - **Fires** as an update hook: after `on_before_optimizer_step` and before the trainer's clipping, once per optimizer,
///   in the steps from `from_step` to `until_step`, both included.
/// - **Reads** the names of the parameters, and removes gradients; later hooks do not see them. A pattern that matches no
///   parameter is reported once, even before `from_step`.
/// - **Cost**: negligible. The gradients are still computed.
/// - **When it fails** its changes are undone, and the run is aborted.
///
/// ```toml
/// [[hooks]]
/// use = "freeze"
/// params = ["embedding.**"]
/// from_step = 1
/// check_finite = false
/// # until_step: unset is until the end
/// ```
#[derive(Clone, Debug)]
pub struct Freeze {
    options: FreezeOptions,
    params: ParamFilter,
}

from_options! {
    Freeze from FreezeOptions,
    purpose: "freezes parameters, by name and step",
    example: r#"
params = ["**.bias"]
until_step = 1000
"#
}

impl Freeze {
    /// Creates the hook, or reports an invalid option.
    pub fn new(options: FreezeOptions) -> Result<Freeze, OptionError> {
        let from = options.from_step;
        if from == 0 {
            return Err(OptionError::new("from_step", "`from_step` must be 1 or more: the first step is 1"));
        }
        if let Some(until) = options.until_step.filter(|until| *until < from) {
            return Err(OptionError::new("until_step", format!("`until_step` is {until}"))
                .and("from_step")
                .fix(format!("it is the last frozen step, so it must not be below `from_step`, {from}")));
        }
        Ok(Freeze { params: ParamFilter::new(&options.params)?, options })
    }

    fn is_frozen_in(&self, step: u64) -> bool {
        step >= self.options.from_step && self.options.until_step.is_none_or(|until| step <= until)
    }
}

#[hook]
impl UpdateHook for Freeze {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        let spec = spec.check_finite(self.options.check_finite);
        match self.options.from_step {
            // A run of any length includes the first step.
            1 => spec,
            from => spec.min_run_length("from_step", Cadence::Steps(from)),
        }
    }

    fn update(&mut self, gradients: &mut Gradients, cx: &Update) -> HookResult {
        if !self.is_frozen_in(cx.current_step()) {
            self.params.report_unmatched_gradients(gradients, cx);
            return Ok(());
        }
        self.params.each(gradients, cx, |gradient| {
            gradient.remove();
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use tenterhook_core::Hook as _;
    use tenterhook_core::Progress;
    use tenterhook_testkit::Rig;

    use super::*;

    /// Whether `fc.bias` keeps its gradient in each of six steps; `fc.weight` always does.
    fn left(options: FreezeOptions) -> Vec<bool> {
        let mut rig = Rig::new(Freeze::new(options).unwrap());
        let steps = 0..6;
        let left = steps.map(|done| {
            let left = rig.step(done).gradients([("fc.weight", [2.0]), ("fc.bias", [-4.0])]).update();
            assert_eq!(left.get("fc.weight"), Some(&[2.0][..]));
            left.get("fc.bias").is_some()
        });
        left.collect()
    }

    #[test]
    fn selected_gradients_are_removed_in_all_steps() {
        assert_eq!(left(FreezeOptions::of(["**.bias"])), [false; 6]);
        assert_eq!(left(FreezeOptions::of(["bias"])), [true; 6]);
    }

    #[test]
    fn both_ends_of_the_steps_are_included() {
        let between = FreezeOptions { from_step: 2, until_step: Some(4), ..FreezeOptions::of(["fc.bias"]) };
        assert_eq!(left(between), [true, false, false, false, true, true]);
        let one = FreezeOptions { from_step: 3, until_step: Some(3), ..FreezeOptions::of(["fc.bias"]) };
        assert_eq!(left(one), [true, true, false, true, true, true]);
        let late = FreezeOptions { from_step: 5, ..FreezeOptions::of(["fc.bias"]) };
        assert_eq!(left(late), [true, true, true, true, false, false]);
    }

    #[test]
    fn a_run_that_ends_before_the_first_frozen_step_is_too_short() {
        let access =
            |from_step| Freeze::new(FreezeOptions { from_step, ..FreezeOptions::of(["**"]) }).unwrap().spec();
        assert_eq!(access(5).min_run_length, [("from_step", Cadence::Steps(5))]);
        assert_eq!(access(1).min_run_length, []);
    }

    #[test]
    fn an_unmatched_pattern_is_reported_before_the_first_frozen_step() {
        let options = FreezeOptions { from_step: 100, ..FreezeOptions::of(["fc.bais"]) };
        let mut rig = Rig::new(Freeze::new(options).unwrap());
        for done in 0..3 {
            rig.progress(Progress { step: done, total_batches: done + 1, ..Progress::default() });
            rig.gradients([("fc.bias", [1.0])]).update();
        }
        let nearest = "`params`: no parameter so far matches `fc.bais`; nearest: `fc.bias`";
        assert_eq!(rig.said(), [("freeze".to_owned(), nearest.to_owned())]);
    }

    #[test]
    fn removed_gradients_are_not_checked() {
        let options = FreezeOptions { check_finite: true, ..FreezeOptions::of(["**"]) };
        let hook = Freeze::new(options).unwrap();
        assert!(hook.spec().check_finite);
        let mut rig = Rig::new(hook);
        assert_eq!(rig.gradients([("fc.bias", [f32::NAN])]).update().get("fc.bias"), None);
        assert!(rig.failures().is_empty());
    }

    #[test]
    fn invalid_steps_are_refused() {
        let refused = |options| Freeze::new(options).unwrap_err().to_string();
        let options = FreezeOptions { from_step: 0, ..FreezeOptions::of(["**"]) };
        assert!(refused(options).starts_with("`from_step` must be 1 or more"));
        let options = FreezeOptions { from_step: 5, until_step: Some(4), ..FreezeOptions::of(["**"]) };
        assert!(refused(options).starts_with("`until_step` is 4;"));
        assert!(refused(FreezeOptions::of([""; 0])).starts_with("`params` is empty"));
    }
}
