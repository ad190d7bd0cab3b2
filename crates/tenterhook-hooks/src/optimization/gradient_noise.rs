//! Adds Gaussian noise to gradients.

use std::f64::consts::TAU;

use tenterhook_core::random::RandomStream;
use tenterhook_core::{Gradients, HookResult, HookSpec, OptionError, Update, UpdateHook, hook};

use crate::support::checks;
use crate::support::param_filter::{ParamFilter, all_params};
use crate::support::{from_options, options};

options! {
    /// The options of [`GradientNoise`].
    pub struct GradientNoiseOptions {
        /// Standard deviation of the noise in the first step; 0 disables.
        #[schemars(range(min = 0))]
        pub std: f64,
        /// Decay exponent of the variance: after `t` steps it is divided by `(1 + t)^decay`. 0 keeps it constant; 0.55 is
        /// common.
        #[schemars(range(min = 0))]
        pub decay: f64 = 0.0,
        /// Patterns of the parameters to change: `*` matches within a part of a dotted name, `**` across parts.
        #[schemars(length(min = 1), inner(length(min = 1)))]
        pub params: Vec<String> = all_params(),
        /// Fail if a gradient is not finite afterwards.
        pub check_finite: bool = false,
    }
}

impl GradientNoiseOptions {
    /// Default options for this standard deviation.
    #[must_use]
    pub fn new(std: f64) -> GradientNoiseOptions {
        GradientNoiseOptions::with_defaults(std)
    }
}

/// Adds independent Gaussian noise to the gradients of the selected parameters, constant or decaying.
///
/// - **Fires** as an update hook: after `on_before_optimizer_step` and before the trainer's clipping, once per optimizer.
/// - **Reads** and writes the selected gradients. A pattern that matches no parameter is reported once. The noise comes
///   from the hook's own random stream, so that other hooks do not affect it; a checkpoint holds the stream's position, so
///   that a resumed run has the same noise as an uninterrupted one.
/// - **Cost**: a logarithm, a square root, a sine and a cosine per two values, and a pass over the gradients in host
///   memory, with a copy there and back if they are on a device.
/// - **When it fails** its changes are undone, and the run is aborted.
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
    params: ParamFilter,
}

from_options! {
    GradientNoise from GradientNoiseOptions,
    purpose: "adds Gaussian noise to gradients, constant or decaying",
    example: r#"
std = 0.01
decay = 0.55
params = ["**"]
"#
}

impl GradientNoise {
    /// Creates the hook, or reports an invalid option.
    pub fn new(options: GradientNoiseOptions) -> Result<GradientNoise, OptionError> {
        for (key, value) in [("std", options.std), ("decay", options.decay)] {
            checks::fits(key, value, value >= 0.0 && value.is_finite(), "it must be 0 or more, and finite")?;
        }
        Ok(GradientNoise { params: ParamFilter::new(&options.params)?, options })
    }

    /// The standard deviation after this number of steps.
    fn std_after(&self, steps: u64) -> f64 {
        // `decay` is for the variance, so the standard deviation uses half of it.
        self.options.std / (1.0 + steps as f64).powf(self.options.decay / 2.0)
    }
}

#[hook]
impl UpdateHook for GradientNoise {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.check_finite(self.options.check_finite)
    }

    fn update(&mut self, gradients: &mut Gradients, cx: &Update) -> HookResult {
        let std = self.std_after(cx.current_step().saturating_sub(1));
        if std == 0.0 {
            self.params.report_unmatched_gradients(gradients, cx);
            return Ok(());
        }
        let mut stream = cx.rng();
        self.params.each(gradients, cx, |gradient| {
            gradient.edit(|values| add_noise(values, std, &mut stream));
            Ok(())
        })
    }
}

/// Adds noise to each value. With an odd number of values, the second number of the last pair is discarded, so that the
/// position of the stream is the only state.
fn add_noise(values: &mut [f32], std: f64, stream: &mut RandomStream) {
    for pair in values.chunks_mut(2) {
        for (value, normal) in pair.iter_mut().zip(two_normals(stream)) {
            #[allow(clippy::cast_possible_truncation)] // gradients are 32-bit
            let noisy = (f64::from(*value) + std * normal) as f32;
            *value = noisy;
        }
    }
}

/// Two independent normal numbers, by the Box-Muller transform.
fn two_normals(stream: &mut RandomStream) -> [f64; 2] {
    // In (0, 1], because the logarithm of 0 is infinite.
    let radius = (-2.0 * (1.0 - stream.uniform()).ln()).sqrt();
    let (sin, cos) = (TAU * stream.uniform()).sin_cos();
    [radius * cos, radius * sin]
}

#[cfg(test)]
mod tests;
