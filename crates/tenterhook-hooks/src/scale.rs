//! Multiplies gradients.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::{FromOptions, Gradients, HookResult, HookSpec, OptionError, Update, UpdateHook, hook};

use crate::checks;
use crate::chosen::{Chosen, everything};

/// The options of [`Scale`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScaleOptions {
    /// What the gradients are multiplied by. A negative factor turns them round, so that the loss is climbed. Zero
    /// leaves zeros: the optimizer still decays weights and follows its momentum, and `freeze` is what stops it.
    pub factor: f64,
    /// Which parameters, by patterns over their dotted names: `*` within a part of a name, `**` across parts.
    #[serde(default = "everything")]
    #[schemars(length(min = 1), inner(length(min = 1)))]
    pub params: Vec<String>,
    /// A gradient that is not finite afterwards is a failure of this hook.
    #[serde(default)]
    pub check_finite: bool,
}

impl ScaleOptions {
    /// The defaults for this factor.
    #[must_use]
    pub fn of(factor: f64) -> ScaleOptions {
        ScaleOptions { factor, params: everything(), check_finite: false }
    }
}

/// Multiplies the gradients that `params` chooses by `factor`, as for a part of the model that should learn more
/// slowly than the rest. An optimizer that divides by the size of its gradients, such as Adam, hardly notices a
/// constant factor.
///
/// - **Fires** as an update hook: after `on_before_optimizer_step` and before the trainer's own clipping, once for
///   each optimizer.
/// - **Reads** and writes the gradients that `params` chooses. A pattern that matches no parameter is said once.
/// - **Cost**: a pass over the gradients, where the engine computes.
/// - **When it fails** the gradients are as before it, and the run is aborted.
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
    /// As the gradients have it.
    factor: f32,
    chosen: Chosen,
}

impl FromOptions for Scale {
    type Options = ScaleOptions;
    const PURPOSE: &str = "multiplies gradients";
    const EXAMPLE: &str = r#"
factor = 0.1
params = ["**"]
"#;

    fn from_options(options: ScaleOptions) -> Result<Scale, OptionError> {
        Scale::new(options)
    }
}

impl Scale {
    /// With these options, which are checked.
    pub fn new(options: ScaleOptions) -> Result<Scale, OptionError> {
        #[allow(clippy::cast_possible_truncation)] // options are 64-bit, gradients 32-bit
        let factor = options.factor as f32;
        let fits = factor.is_finite();
        checks::fits("factor", options.factor, fits, "it must be finite, and not too large for 32 bits")?;
        Ok(Scale { chosen: Chosen::new(&options.params)?, factor, options })
    }
}

#[hook]
impl UpdateHook for Scale {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.check_finite(self.options.check_finite)
    }

    fn update(&mut self, gradients: &mut Gradients, cx: &Update) -> HookResult {
        self.chosen.look_out(gradients, cx);
        gradients.each(|gradient| {
            if self.chosen.has(gradient.name()) {
                gradient.scale(self.factor);
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use tenterhook_testkit::Rig;

    use super::*;

    #[test]
    fn those_that_are_chosen_are_multiplied() {
        for (factor, params, weight, bias) in
            [(0.5, "**", 1.0, -2.0), (-2.0, "**.bias", 2.0, 8.0), (0.0, "fc.weight", 0.0, -4.0)]
        {
            let options = ScaleOptions { params: vec![params.into()], ..ScaleOptions::of(factor) };
            let mut rig = Rig::new(Scale::new(options).unwrap());
            let left = rig.gradients([("fc.weight", [2.0]), ("fc.bias", [-4.0])]).update();
            let expected = [("fc.weight", [weight]), ("fc.bias", [bias])].into();
            assert_eq!(*left, expected, "{factor} {params}");
        }
    }

    #[test]
    fn what_overflows_is_an_error_on_request() {
        for check_finite in [false, true] {
            let options = ScaleOptions { check_finite, ..ScaleOptions::of(1e30) };
            let mut rig = Rig::new(Scale::new(options).unwrap());
            let left = rig.gradients([("w", [1e30])]).update().get("w").unwrap()[0];
            assert_eq!(left.is_finite(), check_finite, "put back when it is an error");
            assert_eq!(rig.failures().len(), usize::from(check_finite));
        }
    }

    #[test]
    fn a_factor_that_gradients_cannot_have_is_refused() {
        for factor in [f64::NAN, f64::INFINITY, 1e300] {
            let error = Scale::new(ScaleOptions::of(factor)).unwrap_err().to_string();
            assert!(error.starts_with("`factor` is"), "{error}");
        }
    }
}
