//! Keeps parameters as they are, for all of training or for a while.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::{
    Cadence, FromOptions, Gradients, HookResult, HookSpec, OptionError, Update, UpdateHook, hook,
};

use crate::chosen::Chosen;

/// The options of [`Freeze`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FreezeOptions {
    /// Which parameters, by patterns over their dotted names: `*` within a part of a name, `**` across parts.
    #[schemars(length(min = 1), inner(length(min = 1)))]
    pub params: Vec<String>,
    /// The first step in which they are frozen. Steps count from 1.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub from_step: u64,
    /// The last step in which they are frozen; the one after it moves them again. Unset: to the end.
    #[schemars(range(min = 1), example = 1000)]
    pub until_step: Option<u64>,
    /// A gradient that is not finite afterwards is a failure of this hook; one that it dropped counts as finite.
    #[serde(default)]
    pub check_finite: bool,
}

fn one() -> u64 {
    1
}

impl FreezeOptions {
    /// The defaults for these parameters.
    pub fn of<S: Into<String>>(params: impl IntoIterator<Item = S>) -> FreezeOptions {
        let params = params.into_iter().map(Into::into).collect();
        FreezeOptions { params, from_step: 1, until_step: None, check_finite: false }
    }
}

/// Drops the gradients that `params` chooses, so that the optimizer leaves those parameters bit for bit as they are:
/// no update, no weight decay, no momentum.
///
/// - **Fires** as an update hook: after `on_before_optimizer_step` and before the trainer's own clipping, once for
///   each optimizer, in the steps from `from_step` to `until_step`, both included.
/// - **Reads** the names of the parameters, and takes gradients away; hooks after it find none there. A pattern that
///   matches no parameter is said once, also before `from_step`.
/// - **Cost**: none to speak of. The gradients are still computed: a hook cannot cut the backward pass short.
/// - **When it fails** the gradients are as before it, and the run is aborted.
///
/// ```toml
/// [[hooks]]
/// use = "freeze"
/// params = ["embedding.**"]
/// from_step = 1
/// check_finite = false
/// # until_step: unset is to the end
/// ```
#[derive(Clone, Debug)]
pub struct Freeze {
    options: FreezeOptions,
    chosen: Chosen,
}

impl FromOptions for Freeze {
    type Options = FreezeOptions;
    const PURPOSE: &str = "keeps parameters as they are, by name and step";
    const EXAMPLE: &str = r#"
params = ["**.bias"]
until_step = 1000
"#;

    fn from_options(options: FreezeOptions) -> Result<Freeze, OptionError> {
        Freeze::new(options)
    }
}

impl Freeze {
    /// With these options, which are checked.
    pub fn new(options: FreezeOptions) -> Result<Freeze, OptionError> {
        let from = options.from_step;
        if from == 0 {
            return Err(OptionError::new("from_step", "`from_step` must be 1 or more: the first step is 1"));
        }
        if let Some(until) = options.until_step.filter(|until| *until < from) {
            return Err(OptionError::new("until_step", format!("`until_step` is {until}"))
                .and("from_step")
                .fix(format!(
                    "it is the last step that is frozen, so it must not be below `from_step`, {from}"
                )));
        }
        Ok(Freeze { chosen: Chosen::new(&options.params)?, options })
    }

    fn is_on(&self, step: u64) -> bool {
        step >= self.options.from_step && self.options.until_step.is_none_or(|until| step <= until)
    }
}

#[hook]
impl UpdateHook for Freeze {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        let spec = spec.check_finite(self.options.check_finite);
        match self.options.from_step {
            // Every run that has a step has the first.
            1 => spec,
            from => spec.needs_run_length("from_step", Cadence::Steps(from)),
        }
    }

    fn update(&mut self, gradients: &mut Gradients, cx: &Update) -> HookResult {
        self.chosen.look_out(gradients, cx);
        if !self.is_on(cx.current_step()) {
            return Ok(());
        }
        gradients.each(|gradient| {
            if self.chosen.has(gradient.name()) {
                gradient.remove();
            }
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

    /// Whether `fc.bias` has a gradient left in each of six steps; `fc.weight` always has.
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
    fn the_gradients_that_are_chosen_are_dropped_from_the_first_step_to_the_last() {
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
        assert_eq!(access(5).needs_run_length, [("from_step", Cadence::Steps(5))]);
        assert_eq!(access(1).needs_run_length, []);
    }

    #[test]
    fn a_pattern_that_matches_nothing_is_said_before_it_would_be_needed() {
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
    fn what_is_dropped_is_never_found_to_be_not_finite() {
        let options = FreezeOptions { check_finite: true, ..FreezeOptions::of(["**"]) };
        let hook = Freeze::new(options).unwrap();
        assert!(hook.spec().check_finite);
        let mut rig = Rig::new(hook);
        assert_eq!(rig.gradients([("fc.bias", [f32::NAN])]).update().get("fc.bias"), None);
        assert!(rig.failures().is_empty());
    }

    #[test]
    fn steps_that_cannot_be_are_refused() {
        let refused = |options| Freeze::new(options).unwrap_err().to_string();
        let options = FreezeOptions { from_step: 0, ..FreezeOptions::of(["**"]) };
        assert!(refused(options).starts_with("`from_step` must be 1 or more"));
        let options = FreezeOptions { from_step: 5, until_step: Some(4), ..FreezeOptions::of(["**"]) };
        assert!(refused(options).starts_with("`until_step` is 4;"));
        assert!(refused(FreezeOptions::of([""; 0])).starts_with("`params` is empty"));
    }
}
