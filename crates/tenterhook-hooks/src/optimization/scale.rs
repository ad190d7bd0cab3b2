//! Scales gradients.

use tenterhook_core::{Gradients, HookResult, HookSpec, OptionError, Update, UpdateHook, hook};

use crate::support::checks;
use crate::support::param_filter::{ParamFilter, all_params};
use crate::support::{from_options, options};

options! {
    /// The options of [`Scale`].
    pub struct ScaleOptions {
        /// Factor for the gradients. A negative factor reverses them (gradient ascent). With 0 the optimizer still applies
        /// weight decay and momentum; use `freeze` to keep parameters constant.
        pub factor: f64,
        /// Patterns of the parameters to change: `*` matches within a part of a dotted name, `**` across parts.
        #[schemars(length(min = 1), inner(length(min = 1)))]
        pub params: Vec<String> = all_params(),
        /// Fail if a gradient is not finite afterwards.
        pub check_finite: bool = false,
    }
}

impl ScaleOptions {
    /// Default options for this factor.
    #[must_use]
    pub fn new(factor: f64) -> ScaleOptions {
        ScaleOptions::with_defaults(factor)
    }
}

/// Scales the gradients of the selected parameters by `factor`, for example to train a part of the model more slowly. A
/// constant factor has little effect with optimizers that normalize gradients, such as Adam.
///
/// - **Fires** as an update hook: after `on_before_optimizer_step` and before the trainer's clipping, once per optimizer.
/// - **Reads** and writes the selected gradients. A pattern that matches no parameter is reported once.
/// - **Cost**: a pass over the gradients, on the device.
/// - **When it fails** its changes are undone, and the run is aborted.
///
/// ```toml
/// [[hooks]]
/// use = "scale"
/// factor = 0.1
/// params = ["**"]
/// check_finite = false
/// ```
#[derive(Clone, Debug)]
pub struct Scale {
    options: ScaleOptions,
    /// The factor in the gradients' precision.
    factor: f32,
    params: ParamFilter,
}

from_options! {
    Scale from ScaleOptions,
    purpose: "scales gradients by a factor",
    example: r#"
factor = 0.1
params = ["**"]
"#
}

impl Scale {
    /// Creates the hook, or reports an invalid option.
    pub fn new(options: ScaleOptions) -> Result<Scale, OptionError> {
        #[allow(clippy::cast_possible_truncation)] // options are 64-bit, gradients 32-bit
        let factor = options.factor as f32;
        let fits = factor.is_finite();
        checks::fits("factor", options.factor, fits, "it must be finite, and not too large for 32 bits")?;
        Ok(Scale { params: ParamFilter::new(&options.params)?, factor, options })
    }
}

#[hook]
impl UpdateHook for Scale {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.check_finite(self.options.check_finite)
    }

    fn update(&mut self, gradients: &mut Gradients, cx: &Update) -> HookResult {
        self.params.each(gradients, cx, |gradient| {
            gradient.scale(self.factor);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use tenterhook_testkit::Rig;

    use super::*;

    #[test]
    fn selected_gradients_are_scaled() {
        for (factor, params, weight, bias) in
            [(0.5, "**", 1.0, -2.0), (-2.0, "**.bias", 2.0, 8.0), (0.0, "fc.weight", 0.0, -4.0)]
        {
            let options = ScaleOptions { params: vec![params.into()], ..ScaleOptions::new(factor) };
            let mut rig = Rig::new(Scale::new(options).unwrap());
            let left = rig.gradients([("fc.weight", [2.0]), ("fc.bias", [-4.0])]).update();
            let expected = [("fc.weight", [weight]), ("fc.bias", [bias])].into();
            assert_eq!(*left, expected, "{factor} {params}");
        }
    }

    #[test]
    fn an_overflow_is_an_error_on_request() {
        for check_finite in [false, true] {
            let options = ScaleOptions { check_finite, ..ScaleOptions::new(1e30) };
            let mut rig = Rig::new(Scale::new(options).unwrap());
            let left = rig.gradients([("w", [1e30])]).update().get("w").unwrap()[0];
            assert_eq!(left.is_finite(), check_finite, "put back when it is an error");
            assert_eq!(rig.failures().len(), usize::from(check_finite));
        }
    }

    #[test]
    fn a_factor_beyond_32_bits_is_refused() {
        for factor in [f64::NAN, f64::INFINITY, 1e300] {
            let error = Scale::new(ScaleOptions::new(factor)).unwrap_err().to_string();
            assert!(error.starts_with("`factor` is"), "{error}");
        }
    }
}
