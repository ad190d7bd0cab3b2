//! Looks at the gradients every so many steps: norms, percentiles, histograms, what clipping did to them
//! and how far they moved the weights.

mod clipping;
mod flags;
mod options;

use serde::{Deserialize, Serialize};
use tenterhook_core::metrics::Histogram;
use tenterhook_core::tensor::{Change, Followed, Tensor, norm};
use tenterhook_core::{
    BeforeOptimizerStep, Event, FromOptions, GradientClip, HookResult, HookSpec, Moment, Observer,
    OptionError, StepEnd, Tier, TrainStart, hook,
};

use clipping::{Clips, StepClip};
use flags::Flags;
use options::Filter;
pub use options::GradientMonitorOptions;

use crate::pace::Pace;
use crate::support::text::list;

/// Watches the gradients of every so many optimizer steps.
///
/// - **Fires** at `on_before_optimizer_step` (before update hooks and clipping, once per window of
///   accumulated batches), with `log_clipping` at `on_gradient_clip` and with `log_update_ratio` at
///   `on_step_end` of the steps that are multiples of `log_frequency`, and at `on_train_start`, where it says
///   which filters match no parameter. With manual optimization each optimizer's step counts: where two take
///   turns, an odd `log_frequency` sees both. A `log_frequency` that the run is too short for is refused; the
///   default is not, and then it says that it will see nothing.
/// - **Reads** gradients, and parameters for the update ratio; **writes** `grad_norm/<name>` and
///   `grad_norm/total` (over all gradients of all optimizers, whatever the filter), `grad_p10/<name>`, histograms
///   `grad/<name>`, `update_ratio/<name>` (the norm of a parameter's change over its norm; none while that is
///   0), `grad_vanishing`, `grad_exploding` and `grad_clip/…`. It says the names when gradients begin to
///   vanish or to explode.
/// - **Cost** on the steps it looks at: a pass over each gradient, where norms are enough without a copy; for
///   histograms and percentiles a copy of each that it watches and a pass per percentile. For the update ratio a pass
///   over each weight before and after its update, which Burn's engine makes while it updates it; other engines copy.
///   On all other steps a comparison; nothing is computed or copied for it.
/// - **When it fails** it is disabled after three failures, and training goes on.
///
/// ```toml
/// [[hooks]]
/// use = "gradient_monitor"
/// log_frequency = 100
/// log_norm = true
/// log_histogram = false
/// histogram_bins = 64
/// percentiles = []
/// param_filter = []
/// log_update_ratio = true
/// vanishing_threshold = 1e-7
/// exploding_threshold = 1000.0
/// log_clipping = true
/// ```
#[derive(Debug)]
pub struct GradientMonitor {
    options: GradientMonitorOptions,
    filters: Vec<Filter>,
    work: Work,
    memory: Memory,
}

/// What is gathered over the optimizers of one step.
#[derive(Debug, Default)]
struct Work {
    /// The step and the batch it belongs to: a step whose update was skipped is tried again by another batch.
    at: (u64, u64),
    /// The sum of the squares of the norms.
    squares: f64,
    vanishing: usize,
    exploding: usize,
    clip: StepClip,
    /// Those that it watches of the weights that the update will change, in the module's order.
    weights: Vec<Option<Followed>>,
}

/// What a checkpoint keeps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Memory {
    flags: Flags,
    clips: Clips,
}

impl FromOptions for GradientMonitor {
    type Options = GradientMonitorOptions;
    const PURPOSE: &str = "watches gradients: norms, percentiles, histograms, clipping and update ratios";
    const EXAMPLE: &str = r#"
log_frequency = 10
log_norm = true
log_histogram = true
percentiles = [10, 50, 90]
param_filter = ["encoder", "blocks.*.mlp.**"]
"#;

    fn from_options(options: GradientMonitorOptions) -> Result<GradientMonitor, OptionError> {
        GradientMonitor::new(options)
    }
}

impl GradientMonitor {
    /// With these options, which are checked.
    pub fn new(options: GradientMonitorOptions) -> Result<GradientMonitor, OptionError> {
        let filters = options.check()?;
        Ok(GradientMonitor { options, filters, work: Work::default(), memory: Memory::default() })
    }

    fn pace(&self) -> Pace {
        Pace(self.options.log_frequency)
    }

    fn is_due(&self, moment: &Moment<'_>) -> bool {
        self.pace().is_due(&moment.progress)
    }

    fn watches(&self, name: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| filter.matches(name))
    }

    /// The work on this step: what was gathered so far, or a new one.
    fn turn_to(&mut self, moment: &Moment<'_>) {
        let at = (moment.progress.current_step(), moment.progress.total_batches);
        if self.work.at != at {
            self.work = Work { at, ..Work::default() };
        }
    }

    /// The norm of a gradient; whatever else is wanted of it comes from the same reading.
    fn measure(&self, moment: &Moment<'_>, gradient: &Tensor<'_>) -> f64 {
        if !self.options.wants_values() {
            return gradient.norm();
        }
        let (name, mut values) = (gradient.name(), gradient.to_vec());
        let norm = norm(&values);
        if self.options.log_histogram {
            let histogram = Histogram::of(&values, self.options.histogram_bins);
            moment.log_histogram(&format!("grad/{name}"), histogram);
        }
        values.retain(|value| value.is_finite());
        for percent in &self.options.percentiles {
            if let Some(value) = percentile(&mut values, *percent) {
                moment.log(&format!("grad_p{percent}/{name}"), value);
            }
        }
        norm
    }

    /// Looks at one gradient that it watches, and returns its norm.
    fn look(&mut self, moment: &Moment<'_>, gradient: &Tensor<'_>) -> f64 {
        let (name, norm) = (gradient.name(), self.measure(moment, gradient));
        if self.options.log_norm {
            moment.log(&format!("grad_norm/{name}"), norm);
        }
        let vanishes = norm < self.options.vanishing_threshold;
        let explodes = norm > self.options.exploding_threshold || !norm.is_finite();
        self.work.vanishing += usize::from(vanishes);
        self.work.exploding += usize::from(explodes);
        self.memory.flags.note(name, vanishes, explodes);
        norm
    }

    /// Looks at the gradients of one optimizer, and returns the names of those that it watches.
    fn look_at_all<'a>(&mut self, cx: &'a BeforeOptimizerStep<'_>) -> Vec<&'a str> {
        let mut watched = Vec::new();
        for gradient in cx.gradients.iter() {
            let norm = if self.watches(gradient.name()) {
                watched.push(gradient.name());
                self.look(cx, &gradient)
            } else if self.options.log_norm {
                gradient.norm()
            } else {
                continue;
            };
            self.work.squares += norm.powi(2);
        }
        if self.options.log_norm && !cx.gradients.is_empty() {
            cx.log("grad_norm/total", self.work.squares.sqrt());
        }
        watched
    }

    /// Says which filters choose nothing, so that a slip is not mistaken for silence.
    fn say_what_matches_nothing(&self, moment: &Moment<'_>) {
        let params = moment.params();
        let names: Vec<_> = params.iter().map(|param| param.name().to_owned()).collect();
        let idle = self.filters.iter().filter(|filter| !names.iter().any(|name| filter.matches(name)));
        let idle: Vec<_> = idle.map(ToString::to_string).collect();
        if !idle.is_empty() && !names.is_empty() {
            let (idle, names) = (list(&idle), list(&names));
            moment.say(format!("`param_filter`: no parameter matches {idle}; there are: {names}"));
        }
    }
}

#[hook(state = "memory")]
impl Observer for GradientMonitor {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        let options = &self.options;
        let spec = spec
            .tier(Tier::BuiltIn)
            .wants_if(Event::GradientClip, options.log_clipping)
            .wants_if(Event::StepEnd, options.log_update_ratio);
        let clip = ["norm_before", "norm_after", "clipped", "share"].map(|what| format!("grad_clip/{what}"));
        let clip = clip.into_iter().filter(|_| options.log_clipping);
        let norms = ["grad_norm/total", "grad_norm/*"].iter().filter(|_| options.log_norm);
        let ratios = ["update_ratio/*"].iter().filter(|_| options.log_update_ratio);
        let fixed = ["grad_vanishing", "grad_exploding"].iter().chain(norms).chain(ratios);
        let percentiles = options.percentiles.iter().map(|percent| format!("grad_p{percent}/*"));
        let names = fixed.map(|name| (*name).to_owned()).chain(percentiles).chain(clip);
        names.fold(self.pace().declare(spec).leaves_grad_norm(), HookSpec::writes)
    }

    fn on_train_start(&mut self, cx: &TrainStart) -> HookResult {
        self.say_what_matches_nothing(cx);
        Ok(())
    }

    fn on_before_optimizer_step(&mut self, cx: &BeforeOptimizerStep) -> HookResult {
        if !cx.paced(self.is_due(cx)) {
            return Ok(());
        }
        self.turn_to(cx);
        let mut watched = self.look_at_all(cx);
        if watched.is_empty() {
            return Ok(());
        }
        cx.log("grad_vanishing", self.work.vanishing as f64);
        cx.log("grad_exploding", self.work.exploding as f64);
        self.memory.flags.say_news(cx, &self.options);
        if self.options.log_update_ratio {
            watched.sort_unstable();
            let params = cx.params();
            self.work.weights.resize(params.len(), None);
            for (param, followed) in params.iter().zip(&mut self.work.weights) {
                if watched.binary_search(&param.name()).is_ok() {
                    *followed = Some(param.follow());
                }
            }
        }
        Ok(())
    }

    fn on_gradient_clip(&mut self, cx: &GradientClip) -> HookResult {
        if cx.paced(cx.rule.is_some() && self.is_due(cx)) {
            self.turn_to(cx);
            self.memory.clips.note(&mut self.work.clip, cx);
        }
        Ok(())
    }

    fn on_step_end(&mut self, cx: &StepEnd) -> HookResult {
        if !cx.paced(self.is_due(cx)) {
            return Ok(());
        }
        let weights = std::mem::take(&mut self.work.weights);
        for (param, followed) in cx.params().iter().zip(weights) {
            let change = followed.and_then(|followed| param.change(&followed));
            if let Some(Change { from, by }) = change.filter(|change| change.from > 0.0) {
                cx.log(&format!("update_ratio/{}", param.name()), by / from);
            }
        }
        Ok(())
    }
}

/// The exact percentile of finite values, interpolated between the two nearest; it reorders them.
fn percentile(values: &mut [f32], percent: f64) -> Option<f64> {
    let last = values.len().checked_sub(1)?;
    let position = percent / 100.0 * last as f64;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // between 0 and the last index
    let below = (position as usize).min(last);
    let (_, low, above) = values.select_nth_unstable_by(below, f32::total_cmp);
    let low = f64::from(*low);
    let high = above.iter().copied().min_by(f32::total_cmp).map_or(low, f64::from);
    Some(low + (high - low) * (position - below as f64))
}

#[cfg(test)]
mod tests;
