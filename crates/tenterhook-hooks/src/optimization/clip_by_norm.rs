//! Clips gradients by norm.

use tenterhook_core::{ClipRule, Gradients, HookResult, HookSpec, OptionError, Update, UpdateHook, hook};

use crate::support::checks;
use crate::support::param_filter::{ParamFilter, all_params, is_clip_limit};
use crate::support::{from_options, options};

options! {
    /// The options of [`ClipByNorm`].
    pub struct ClipByNormOptions {
        /// Maximum norm of the gradients.
        #[schemars(extend("exclusiveMinimum" = 0))]
        pub max_norm: f64,
        /// Patterns of the parameters to change: `*` matches within a part of a dotted name, `**` across parts.
        #[schemars(length(min = 1), inner(length(min = 1)))]
        pub params: Vec<String> = all_params(),
        /// Clip each gradient by its own norm instead of all by their total norm.
        pub per_parameter: bool = false,
        /// Fail if a gradient is not finite afterwards.
        pub check_finite: bool = false,
    }
}

impl ClipByNormOptions {
    /// Default options for this norm.
    #[must_use]
    pub fn new(max_norm: f64) -> ClipByNormOptions {
        ClipByNormOptions::with_defaults(max_norm)
    }
}

/// Clips the gradients of the selected parameters by their total norm, or each by its own norm.
///
/// - **Fires** as an update hook: after `on_before_optimizer_step` and before the trainer's clipping, once per optimizer.
///   The total norm is that of one optimizer's gradients.
/// - **Reads** the selected gradients, and scales them down to `max_norm` if their norm is larger. A NaN norm makes all of
///   them NaN; an infinite norm makes infinite values NaN and the others 0. With `check_finite`, both are errors. A
///   pattern that matches no parameter is reported once.
/// - **Precision** is that of the engine. Burn computes the norm in 32 bits, where a norm above about 1e19 is infinite, and adds
///   1e-6, so that clipped gradients end slightly below `max_norm`.
/// - **Cost**: a pass over the gradients for the norm and one for the scaling, on the device.
/// - **When it fails** its changes are undone, and the run is aborted.
///
/// ```toml
/// [[hooks]]
/// use = "clip_by_norm"
/// max_norm = 1.0
/// params = ["**"]
/// per_parameter = false
/// check_finite = false
/// ```
#[derive(Clone, Debug)]
pub struct ClipByNorm {
    options: ClipByNormOptions,
    params: ParamFilter,
}

from_options! {
    ClipByNorm from ClipByNormOptions,
    purpose: "clips gradients by norm, all together or each separately",
    example: r#"
max_norm = 1.0
params = ["**"]
"#
}

impl ClipByNorm {
    /// Creates the hook, or reports an invalid option.
    pub fn new(options: ClipByNormOptions) -> Result<ClipByNorm, OptionError> {
        let max_norm = options.max_norm;
        checks::fits(
            "max_norm",
            max_norm,
            is_clip_limit(max_norm),
            "it must be above 0 and finite, in 32 bits",
        )?;
        Ok(ClipByNorm { params: ParamFilter::new(&options.params)?, options })
    }
}

#[hook]
impl UpdateHook for ClipByNorm {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.check_finite(self.options.check_finite)
    }

    fn update(&mut self, gradients: &mut Gradients, cx: &Update) -> HookResult {
        let rule = ClipRule::Norm(self.options.max_norm);
        if self.options.per_parameter {
            return self.params.each(gradients, cx, |gradient| Ok(gradient.clip(rule)?));
        }
        self.params.report_unmatched_gradients(gradients, cx);
        Ok(gradients.clip(|name| self.params.matches(name), rule)?)
    }
}

#[cfg(test)]
mod tests {
    use tenterhook_testkit::Rig;

    use super::*;

    /// The gradients of `fc.weight` and `fc.bias` (norms 3 and 4) after clipping.
    fn left(options: ClipByNormOptions) -> Vec<f32> {
        let mut rig = Rig::new(ClipByNorm::new(options).unwrap());
        let left = rig.gradients([("fc.weight", [3.0]), ("fc.bias", [-4.0])]).update();
        ["fc.weight", "fc.bias"].iter().flat_map(|name| left.get(name).unwrap().to_vec()).collect()
    }

    #[test]
    fn all_gradients_are_clipped_by_their_norm_together() {
        assert_eq!(left(ClipByNormOptions::new(2.5)), [1.5, -2.0]);
        assert_eq!(left(ClipByNormOptions::new(5.0)), [3.0, -4.0], "it is not too large");
    }

    #[test]
    fn only_selected_gradients_count_and_are_clipped() {
        let options = ClipByNormOptions { params: vec!["**.weight".into()], ..ClipByNormOptions::new(1.5) };
        assert_eq!(left(options), [1.5, -4.0]);
        let options = ClipByNormOptions { params: vec!["**.weight".into()], ..ClipByNormOptions::new(4.0) };
        assert_eq!(left(options), [3.0, -4.0], "the other is no part of the norm");
    }

    #[test]
    fn each_gradient_can_be_clipped_by_its_own_norm() {
        let options = ClipByNormOptions { per_parameter: true, ..ClipByNormOptions::new(3.5) };
        assert_eq!(left(options), [3.0, -3.5]);
        let params = vec!["fc.weight".into()];
        let options = ClipByNormOptions { per_parameter: true, params, ..ClipByNormOptions::new(1.0) };
        assert_eq!(left(options), [1.0, -4.0]);
    }

    #[test]
    fn non_finite_gradients_are_an_error_on_request() {
        for (per_parameter, check_finite) in [(false, true), (true, true), (false, false)] {
            let options = ClipByNormOptions { per_parameter, check_finite, ..ClipByNormOptions::new(1.0) };
            let mut rig = Rig::new(ClipByNorm::new(options).unwrap());
            rig.gradients([("w", [f32::NAN, 1.0])]).update();
            assert_eq!(rig.failures().len(), usize::from(check_finite), "{per_parameter}");
        }
    }

    #[test]
    fn a_nan_norm_makes_its_gradients_nan() {
        for (per_parameter, spoilt) in [(false, true), (true, false)] {
            let options = ClipByNormOptions { per_parameter, ..ClipByNormOptions::new(1.0) };
            let mut rig = Rig::new(ClipByNorm::new(options).unwrap());
            let left = rig.gradients([("w", [f32::NAN]), ("b", [4.0])]).update();
            assert!(left.get("w").unwrap()[0].is_nan());
            assert_eq!(left.get("b").unwrap()[0].is_nan(), spoilt, "{per_parameter}");
        }
    }

    #[test]
    fn an_invalid_norm_is_refused() {
        for max_norm in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-60, 1e60] {
            let error = ClipByNorm::new(ClipByNormOptions::new(max_norm)).unwrap_err().to_string();
            assert!(error.starts_with("`max_norm` is"), "{error}");
        }
        let none = ClipByNormOptions { params: Vec::new(), ..ClipByNormOptions::new(1.0) };
        assert!(ClipByNorm::new(none).unwrap_err().to_string().starts_with("`params`"));
    }
}
