//! Adds Gaussian noise to gradients.

use std::f64::consts::TAU;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::random::RandomStream;
use tenterhook_core::{FromOptions, Gradients, HookResult, HookSpec, OptionError, Update, UpdateHook, hook};

use crate::checks;
use crate::chosen::{Chosen, everything};

/// The options of [`GradientNoise`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GradientNoiseOptions {
    /// The standard deviation of the noise in the first step. Zero adds none.
    #[schemars(range(min = 0))]
    pub std: f64,
    /// How fast the noise dies away: after `t` steps its variance is that of the first divided by `(1 + t)` to
    /// this power. Zero keeps it constant; 0.55 is usual.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub decay: f64,
    /// Which parameters, by patterns over their dotted names: `*` within a part of a name, `**` across parts.
    #[serde(default = "everything")]
    #[schemars(length(min = 1), inner(length(min = 1)))]
    pub params: Vec<String>,
    /// A gradient that is not finite afterwards is a failure of this hook.
    #[serde(default)]
    pub check_finite: bool,
}

impl GradientNoiseOptions {
    /// The defaults for this standard deviation.
    #[must_use]
    pub fn of(std: f64) -> GradientNoiseOptions {
        GradientNoiseOptions { std, decay: 0.0, params: everything(), check_finite: false }
    }
}

/// Adds independent Gaussian noise to every value of the gradients that `params` chooses, constant or dying away.
///
/// - **Fires** as an update hook: after `on_before_optimizer_step` and before the trainer's own clipping, once for
///   each optimizer.
/// - **Reads** and writes the gradients that `params` chooses. A pattern that matches no parameter is said once. The
///   noise comes from a random stream that belongs to the hook's name in this run: other hooks do not shift it, and
///   a checkpoint keeps its position, so that a resumed run has the same noise as an uninterrupted one.
/// - **Cost**: a logarithm, a root, a sine and a cosine for two values, and a pass over the gradients in host
///   memory; engines that keep them elsewhere copy them there and back.
/// - **When it fails** the gradients are as before it, and the run is aborted.
///
/// ```toml
/// [[hooks]]
/// use = "gradient_noise"
/// std = 0.01
/// decay = 0.0
/// params = ["**"]
/// check_finite = false
/// ```
#[derive(Clone, Debug)]
pub struct GradientNoise {
    options: GradientNoiseOptions,
    chosen: Chosen,
}

impl FromOptions for GradientNoise {
    type Options = GradientNoiseOptions;
    const PURPOSE: &str = "adds Gaussian noise to gradients, constant or dying away";
    const EXAMPLE: &str = r#"
std = 0.01
decay = 0.55
params = ["**"]
"#;

    fn from_options(options: GradientNoiseOptions) -> Result<GradientNoise, OptionError> {
        GradientNoise::new(options)
    }
}

impl GradientNoise {
    /// With these options, which are checked.
    pub fn new(options: GradientNoiseOptions) -> Result<GradientNoise, OptionError> {
        for (key, value) in [("std", options.std), ("decay", options.decay)] {
            checks::fits(key, value, value >= 0.0 && value.is_finite(), "it must be 0 or more, and finite")?;
        }
        Ok(GradientNoise { chosen: Chosen::new(&options.params)?, options })
    }

    /// The standard deviation when so many steps are done.
    fn std_after(&self, steps: u64) -> f64 {
        // The variance is divided by the power, so its root by the power of half of it.
        self.options.std / (1.0 + steps as f64).powf(self.options.decay / 2.0)
    }
}

#[hook]
impl UpdateHook for GradientNoise {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.check_finite(self.options.check_finite)
    }

    fn update(&mut self, gradients: &mut Gradients, cx: &Update) -> HookResult {
        self.chosen.look_out(gradients, cx);
        let std = self.std_after(cx.current_step().saturating_sub(1));
        if std == 0.0 {
            return Ok(());
        }
        let mut stream = cx.rng();
        gradients.each(|gradient| {
            if self.chosen.has(gradient.name()) {
                gradient.edit(|values| add_noise(values, std, &mut stream));
            }
            Ok(())
        })
    }
}

/// Adds noise to each value. Of an odd number the last takes one half of a pair and leaves the other, so that
/// nothing is kept from call to call but the position of the stream.
fn add_noise(values: &mut [f32], std: f64, stream: &mut RandomStream) {
    for pair in values.chunks_mut(2) {
        for (value, normal) in pair.iter_mut().zip(two_normals(stream)) {
            #[allow(clippy::cast_possible_truncation)] // back to what a gradient is
            let noisy = (f64::from(*value) + std * normal) as f32;
            *value = noisy;
        }
    }
}

/// Two independent normal numbers, by Box and Muller's method.
fn two_normals(stream: &mut RandomStream) -> [f64; 2] {
    // From above 0 to 1: the logarithm of 0 is no number.
    let radius = (-2.0 * (1.0 - stream.uniform()).ln()).sqrt();
    let (sin, cos) = (TAU * stream.uniform()).sin_cos();
    [radius * cos, radius * sin]
}

#[cfg(test)]
mod tests;
