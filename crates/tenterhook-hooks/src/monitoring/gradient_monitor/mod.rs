//! Monitors gradients every n steps: norms, percentiles, histograms, clipping and update ratios.

mod clipping;
mod options;
mod out_of_range;

use serde::{Deserialize, Serialize};
use tenterhook_core::metrics::Histogram;
use tenterhook_core::tensor::{Tensor, TrackedUpdate, UpdateNorms, norm};
use tenterhook_core::{
    BeforeOptimizerStep, Event, GradientClip, HookResult, HookSpec, Observer, OptionError, RunContext,
    StepEnd, Tier, TrainStart, hook,
};

use clipping::{Clips, StepClip};
pub use options::GradientMonitorOptions;
use options::NameFilter;
use out_of_range::OutOfRange;

use crate::support::from_options;
use crate::support::log_every::LogEvery;
use crate::support::text::list;

/// Monitors the gradients every `log_frequency` optimizer steps.
///
/// - **Fires** in steps that are multiples of `log_frequency`: at `on_before_optimizer_step` (before update hooks and
///   clipping, once per accumulation window), with `log_clipping` at `on_gradient_clip`, and with `log_update_ratio` at
///   `on_step_end`. At `on_train_start` it reports filters that match no parameter. With manual optimization every
///   optimizer's step counts: with two alternating optimizers, an odd `log_frequency` covers both. A `log_frequency` that
///   exceeds the length of the run is an error; for the default it is a warning.
/// - **Reads** gradients, and parameters for the update ratio. **Writes** `grad_norm/<name>` and `grad_norm/total` (over
///   all gradients of all optimizers, including filtered ones), `grad_p10/<name>`, histograms `grad/<name>`,
///   `update_ratio/<name>` (the norm of the update divided by the norm of the parameter, unless that is 0),
///   `grad_vanishing`, `grad_exploding` and `grad_clip/…`. It reports the names of gradients that begin to vanish or
///   explode.
/// - **Cost** in monitored steps: a pass over each gradient, without a copy if only norms are needed; for histograms and
///   percentiles a copy of each monitored gradient and a pass per percentile. For the update ratio, a pass over each
///   parameter before and after its update: Burn's engine makes it during the update, other engines copy the parameters.
///   In all other steps, a comparison.
/// - **When it fails** it is disabled after three failures; training continues.
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
    filters: Vec<NameFilter>,
    step: StepRecord,
    state: SavedState,
}

/// The data collected over the optimizers of one step.
#[derive(Debug, Default)]
struct StepRecord {
    /// The step and the number of batches: a step whose update was skipped is repeated by another batch.
    at: (u64, u64),
    /// The sum of the squared norms.
    squares: f64,
    vanishing: usize,
    exploding: usize,
    clip: StepClip,
    /// The monitored parameters before the update, in the module's order.
    params: Vec<Option<TrackedUpdate>>,
}

/// State saved in checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct SavedState {
    out_of_range: OutOfRange,
    clips: Clips,
}

from_options! {
    GradientMonitor from GradientMonitorOptions,
    purpose: "monitors gradients: norms, percentiles, histograms, clipping and update ratios",
    example: r#"
log_frequency = 10
log_norm = true
log_histogram = true
percentiles = [10, 50, 90]
param_filter = ["encoder", "blocks.*.mlp.**"]
"#
}

impl GradientMonitor {
    /// Creates the hook, or reports an invalid option.
    pub fn new(options: GradientMonitorOptions) -> Result<GradientMonitor, OptionError> {
        let filters = options.check()?;
        Ok(GradientMonitor { options, filters, step: StepRecord::default(), state: SavedState::default() })
    }

    fn log_every(&self) -> LogEvery {
        LogEvery(self.options.log_frequency)
    }

    fn is_due(&self, run_cx: &RunContext<'_>) -> bool {
        self.log_every().is_due(&run_cx.progress)
    }

    fn is_monitored(&self, name: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| filter.matches(name))
    }

    /// Starts a new record if the step or the batch has changed.
    fn begin_step(&mut self, run_cx: &RunContext<'_>) {
        let at = (run_cx.progress.current_step(), run_cx.progress.total_batches);
        if self.step.at != at {
            self.step = StepRecord { at, ..StepRecord::default() };
        }
    }

    /// The norm of a gradient. Histogram and percentiles are logged from the same copy.
    fn measure(&self, run_cx: &RunContext<'_>, gradient: &Tensor<'_>) -> f64 {
        if !self.options.needs_values() {
            return gradient.norm();
        }
        let (name, mut values) = (gradient.name(), gradient.to_vec());
        let norm = norm(&values);
        if self.options.log_histogram {
            let histogram = Histogram::of(&values, self.options.histogram_bins);
            run_cx.log_histogram(&format!("grad/{name}"), histogram);
        }
        values.retain(|value| value.is_finite());
        for percent in &self.options.percentiles {
            if let Some(value) = percentile(&mut values, *percent) {
                run_cx.log(&format!("grad_p{percent}/{name}"), value);
            }
        }
        norm
    }

    /// Logs one monitored gradient and returns its norm.
    fn record(&mut self, run_cx: &RunContext<'_>, gradient: &Tensor<'_>) -> f64 {
        let (name, norm) = (gradient.name(), self.measure(run_cx, gradient));
        if self.options.log_norm {
            run_cx.log(&format!("grad_norm/{name}"), norm);
        }
        let vanishes = norm < self.options.vanishing_threshold;
        let explodes = norm > self.options.exploding_threshold || !norm.is_finite();
        self.step.vanishing += usize::from(vanishes);
        self.step.exploding += usize::from(explodes);
        self.state.out_of_range.record(name, vanishes, explodes);
        norm
    }

    /// Logs the gradients of one optimizer and returns the names of the monitored ones.
    fn record_all<'a>(&mut self, cx: &'a BeforeOptimizerStep<'_>) -> Vec<&'a str> {
        let mut monitored = Vec::new();
        for gradient in cx.gradients.iter() {
            let norm = if self.is_monitored(gradient.name()) {
                monitored.push(gradient.name());
                self.record(cx, &gradient)
            } else if self.options.log_norm {
                gradient.norm()
            } else {
                continue;
            };
            self.step.squares += norm.powi(2);
        }
        if self.options.log_norm && !cx.gradients.is_empty() {
            cx.log("grad_norm/total", self.step.squares.sqrt());
        }
        monitored
    }

    /// Reports filters that match no parameter, such as a misspelt name.
    fn report_unmatched(&self, run_cx: &RunContext<'_>) {
        let params = run_cx.params();
        let names: Vec<_> = params.iter().map(|param| param.name().to_owned()).collect();
        let unmatched = self.filters.iter().filter(|filter| !names.iter().any(|name| filter.matches(name)));
        let unmatched: Vec<_> = unmatched.map(ToString::to_string).collect();
        if !unmatched.is_empty() && !names.is_empty() {
            let (unmatched, names) = (list(&unmatched), list(&names));
            run_cx.say(format!("`param_filter`: no parameter matches {unmatched}; there are: {names}"));
        }
    }
}

#[hook(state = "state", version = 2)]
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
        names.fold(self.log_every().declare(spec).ignores_grad_norm(), HookSpec::writes)
    }

    fn on_train_start(&mut self, cx: &TrainStart) -> HookResult {
        self.report_unmatched(cx);
        Ok(())
    }

    fn on_before_optimizer_step(&mut self, cx: &BeforeOptimizerStep) -> HookResult {
        if !cx.count_call_if(self.is_due(cx)) {
            return Ok(());
        }
        self.begin_step(cx);
        let mut monitored = self.record_all(cx);
        if monitored.is_empty() {
            return Ok(());
        }
        cx.log("grad_vanishing", self.step.vanishing as f64);
        cx.log("grad_exploding", self.step.exploding as f64);
        self.state.out_of_range.report_new(cx, &self.options);
        if self.options.log_update_ratio {
            monitored.sort_unstable();
            let params = cx.params();
            self.step.params.resize(params.len(), None);
            for (param, followed) in params.iter().zip(&mut self.step.params) {
                if monitored.binary_search(&param.name()).is_ok() {
                    *followed = Some(param.track_update());
                }
            }
        }
        Ok(())
    }

    fn on_gradient_clip(&mut self, cx: &GradientClip) -> HookResult {
        if cx.count_call_if(cx.rule.is_some() && self.is_due(cx)) {
            self.begin_step(cx);
            self.state.clips.record(&mut self.step.clip, cx);
        }
        Ok(())
    }

    fn on_step_end(&mut self, cx: &StepEnd) -> HookResult {
        if !cx.count_call_if(self.is_due(cx)) {
            return Ok(());
        }
        let before = std::mem::take(&mut self.step.params);
        for (param, followed) in cx.params().iter().zip(before) {
            let change = followed.and_then(|followed| param.update_norms(&followed));
            if let Some(UpdateNorms { before: from, update: by }) = change.filter(|norms| norms.before > 0.0)
            {
                cx.log(&format!("update_ratio/{}", param.name()), by / from);
            }
        }
        Ok(())
    }
}

/// The exact percentile of finite values, interpolated linearly. Reorders the values.
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
