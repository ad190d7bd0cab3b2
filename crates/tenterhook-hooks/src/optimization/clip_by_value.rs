//! Clips gradients by value.

use tenterhook_core::{ClipRule, Gradients, HookResult, HookSpec, OptionError, Update, UpdateHook, hook};

use crate::support::checks;
use crate::support::param_filter::{ParamFilter, all_params, is_clip_limit};
use crate::support::{from_options, options};

options! {
    /// The options of [`ClipByValue`].
    pub struct ClipByValueOptions {
        /// Maximum absolute value of the gradients.
        #[schemars(extend("exclusiveMinimum" = 0))]
        pub limit: f64,
        /// Patterns of the parameters to change: `*` matches within a part of a dotted name, `**` across parts.
        #[schemars(length(min = 1), inner(length(min = 1)))]
        pub params: Vec<String> = all_params(),
        /// Fail if a gradient is not finite afterwards.
        pub check_finite: bool = false,
    }
}

impl ClipByValueOptions {
    /// Default options for this limit.
    #[must_use]
    pub fn new(limit: f64) -> ClipByValueOptions {
        ClipByValueOptions::with_defaults(limit)
    }
}

/// Clips each gradient value of the selected parameters to the range from `-limit` to `limit`.
///
/// - **Fires** as an update hook: after `on_before_optimizer_step` and before the trainer's clipping, once per optimizer.
/// - **Reads** and writes the selected gradients. An infinite value becomes the limit; a NaN stays NaN, which is an error
///   with `check_finite`. A pattern that matches no parameter is reported once.
/// - **Cost**: a pass over the gradients, on the device.
/// - **When it fails** its changes are undone, and the run is aborted.
///
/// ```toml
/// [[hooks]]
/// use = "clip_by_value"
/// limit = 0.5
/// params = ["**"]
/// check_finite = false
/// ```
#[derive(Clone, Debug)]
pub struct ClipByValue {
    options: ClipByValueOptions,
    params: ParamFilter,
}

from_options! {
    ClipByValue from ClipByValueOptions,
    purpose: "clips gradients by value",
    example: r#"
limit = 0.5
params = ["**"]
"#
}

impl ClipByValue {
    /// Creates the hook, or reports an invalid option.
    pub fn new(options: ClipByValueOptions) -> Result<ClipByValue, OptionError> {
        let limit = options.limit;
        checks::fits("limit", limit, is_clip_limit(limit), "it must be above 0 and finite, in 32 bits")?;
        Ok(ClipByValue { params: ParamFilter::new(&options.params)?, options })
    }
}

#[hook]
impl UpdateHook for ClipByValue {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.check_finite(self.options.check_finite)
    }

    fn update(&mut self, gradients: &mut Gradients, cx: &Update) -> HookResult {
        self.params.report_unmatched_gradients(gradients, cx);
        Ok(gradients.clip(|name| self.params.matches(name), ClipRule::Value(self.options.limit))?)
    }
}

#[cfg(test)]
mod tests {
    use tenterhook_testkit::Rig;

    use super::*;

    #[test]
    fn selected_gradients_are_clipped_by_value() {
        for (params, bias) in [("**", -0.5), ("**.weight", -4.0)] {
            let options = ClipByValueOptions { params: vec![params.into()], ..ClipByValueOptions::new(0.5) };
            let mut rig = Rig::new(ClipByValue::new(options).unwrap());
            let given = [("fc.weight", vec![3.0, -0.25, f32::NEG_INFINITY]), ("fc.bias", vec![-4.0])];
            let left = rig.gradients(given).update();
            assert_eq!(left.get("fc.weight"), Some(&[0.5, -0.25, -0.5][..]));
            assert_eq!(left.get("fc.bias"), Some(&[bias][..]), "{params}");
        }
    }

    #[test]
    fn a_nan_stays_one_and_is_an_error_on_request() {
        for check_finite in [false, true] {
            let options = ClipByValueOptions { check_finite, ..ClipByValueOptions::new(0.5) };
            let mut rig = Rig::new(ClipByValue::new(options).unwrap());
            let left = rig.gradients([("w", [f32::NAN, 2.0])]).update().get("w").unwrap();
            assert!(left[0].is_nan());
            assert_eq!(left[1].to_bits(), if check_finite { 2.0_f32 } else { 0.5 }.to_bits());
            assert_eq!(rig.failures().len(), usize::from(check_finite));
        }
    }

    #[test]
    fn an_invalid_limit_is_refused() {
        for limit in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-60, 1e60] {
            let error = ClipByValue::new(ClipByValueOptions::new(limit)).unwrap_err().to_string();
            assert!(error.starts_with("`limit` is"), "{error}");
        }
    }
}
