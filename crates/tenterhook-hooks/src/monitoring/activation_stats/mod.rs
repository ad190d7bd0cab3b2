//! Logs statistics of activations: mean, standard deviation, norm, zeros, dead units.

mod dead_units;
mod options;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use tenterhook_core::{
    Activation, Cadence, Events, Histogram, HookResult, HookSpec, LogOptions, Observer, OptionError, Phase,
    PredictBatchEnd, Progress, RunContext, Tensor, TensorStats, TestBatchEnd, Tier, TrainBatchEnd,
    ValidationBatchEnd, hook,
};

use dead_units::{DeadUnits, Layout};
pub use options::{ActivationStatistic, ActivationStatsOptions};

use crate::support::activation_stage::{self, ActivationStage};
use crate::support::from_options;
use crate::support::log_every::LogEvery;
use crate::support::point_filter::PointFilter;

/// Logs statistics of the activations that a module exposes at its hook points.
///
/// - **Fires** at `on_activation`: in training in steps that are multiples of `log_frequency`, in the other `stages` in
///   every batch, never in a sanity check. At the end of the first logged batch it reports `points` that match nothing,
///   with the existing names. A `log_frequency` that exceeds the length of the run is an error; for the default it is a
///   warning.
/// - **Reads** activations. **Writes** `act_mean/<point>`, `act_std/<point>`, `act_min/<point>`, `act_max/<point>`,
///   `act_norm/<point>`, `act_zeros/<point>`, `act_non_finite/<point>`, `act_dead/<point>`, and histograms
///   `act/<point>`; outside of training `val/act_mean/<point>`, `test/…` and `predict/…`. An evaluation logs the mean over
///   its batches, weighted by their size, the smallest `min` and the largest `max`, and the histogram of the last batch.
///   In training, the last batch of a step counts, and the last tensor if a point occurs several times in a batch. Mean,
///   standard deviation, minimum and maximum are over the finite values, or NaN if there are none. If a point exposes
///   several tensors at once, the second is `<point>#2`, and so on.
/// - **Dead** units have only zeros in the batch. Units are counted along the last of up to three dimensions
///   (`[batch, tokens, features]`), otherwise along the second (`[batch, channels, height, width]`), or along `unit_axis`.
///   A point without that dimension is reported once and has no `act_dead`.
/// - **Cost**: the statistics of each point, computed once for all hooks. The values are read only for a histogram, and
///   for dead units if there are enough zeros: first those of the first sample, then all if necessary.
/// - **When it fails** it is disabled after three failures; training continues.
///
/// ```toml
/// [[hooks]]
/// use = "activation_stats"
/// points = ["**"]
/// log_frequency = 100
/// stages = ["train"]
/// statistics = ["mean", "std", "min", "max", "norm", "zeros", "non_finite", "dead"]
/// histogram_bins = 0
/// ```
#[derive(Clone, Debug)]
pub struct ActivationStats {
    options: ActivationStatsOptions,
    points: PointFilter,
    /// Metric names by stage and point, made on first use.
    names: [BTreeMap<String, Names>; 4],
    dead: DeadUnits,
    /// Points reported for having no unit dimension.
    without_units: BTreeSet<String>,
}

/// The metric names of one point in one stage.
#[derive(Clone, Debug)]
struct Names {
    statistics: Vec<(ActivationStatistic, String)>,
    histogram: String,
}

from_options! {
    ActivationStats from ActivationStatsOptions,
    purpose: "logs statistics of activations: mean, deviation, zeros, dead units and more",
    example: r#"
points = ["**"]
log_frequency = 10
stages = ["train", "validate"]
statistics = ["mean", "std", "dead"]
histogram_bins = 32
"#
}

impl ActivationStats {
    /// Creates the hook, or reports an invalid option.
    pub fn new(options: ActivationStatsOptions) -> Result<ActivationStats, OptionError> {
        Ok(ActivationStats {
            points: options.check()?,
            options,
            names: Default::default(),
            dead: DeadUnits::default(),
            without_units: BTreeSet::new(),
        })
    }

    fn log_every(&self) -> LogEvery {
        LogEvery(self.options.log_frequency)
    }

    /// The current stage, if it is logged now.
    fn logged_stage(&self, phase: Phase, progress: &Progress) -> Option<ActivationStage> {
        let stage = ActivationStage::of(phase, &self.options.stages)?;
        (stage != ActivationStage::Train || self.log_every().is_due(progress)).then_some(stage)
    }

    fn after_batch(&mut self, run_cx: &RunContext<'_>) {
        if self.logged_stage(run_cx.phase, &run_cx.progress).is_some() {
            self.points.report_unmatched(run_cx);
        }
    }

    /// Logs the statistics of one tensor of an activation.
    fn record(&mut self, cx: &Activation<'_>, stage: ActivationStage, point: &str, tensor: &Tensor<'_>) {
        let of_stage = &mut self.names[stage as usize];
        if !of_stage.contains_key(point) {
            of_stage.insert(point.to_owned(), Names::new(&self.options.statistics, stage, point));
        }
        let Some(names) = of_stage.get(point) else { return };
        // The copy for the histogram is also used for dead units.
        let bins = self.options.histogram_bins;
        let values = (bins > 0).then(|| tensor.to_vec());
        if let Some(values) = &values {
            cx.log_histogram(&names.histogram, Histogram::of(values, bins));
        }
        if names.statistics.is_empty() {
            return;
        }
        let stats: TensorStats = tensor.stats();
        for (statistic, name) in &names.statistics {
            let value = statistic.of(&stats).or_else(|| {
                let layout = Layout::of(tensor.shape(), self.options.unit_axis)?;
                Some(self.dead.fraction(tensor, &stats, layout, values.as_deref()))
            });
            match value {
                Some(value) => {
                    let options = LogOptions::usual(cx.phase).reduce(statistic.reduce());
                    cx.log_with(name, value, options);
                }
                None if self.without_units.insert(point.to_owned()) => {
                    report_no_units(cx, point, tensor, self.options.unit_axis);
                }
                None => {}
            }
        }
    }
}

impl Names {
    fn new(statistics: &[ActivationStatistic], stage: ActivationStage, point: &str) -> Names {
        let prefix = stage.prefix();
        let named = |what: &ActivationStatistic| (*what, format!("{prefix}{}/{point}", what.metric()));
        Names {
            statistics: statistics.iter().map(named).collect(),
            histogram: format!("{prefix}act/{point}"),
        }
    }
}

#[cold]
fn report_no_units(cx: &RunContext<'_>, point: &str, tensor: &Tensor<'_>, axis: Option<i64>) {
    let (shape, axis) = (tensor.shape(), axis.unwrap_or(-1));
    cx.say(format!(
        "`unit_axis` is {axis}, and `{point}` of shape {shape:?} has no such dimension, so its dead units are not \
         counted"
    ));
}

/// Converts a pattern of points to one of metric names, in which dots do not separate parts.
fn in_metrics(pattern: &str) -> String {
    pattern.replace(".**", "*").replace("**.", "*").replace("**", "*")
}

impl ActivationStats {
    /// The handled events that these options do not need.
    fn idle(&self) -> Events {
        // The default pattern needs no check for unmatched points.
        activation_stage::unused_events(if self.options.has_default_points() {
            &[]
        } else {
            &self.options.stages
        })
    }
}

#[hook]
impl Observer for ActivationStats {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        let spec = spec.tier(Tier::BuiltIn).without_events(self.idle());
        let ActivationStatsOptions { points, stages, statistics, histogram_bins, .. } = &self.options;
        let mut spec = if stages.contains(&ActivationStage::Train) {
            self.log_every().declare(spec)
        } else {
            // Disables the hook in training, so that no activations are prepared there.
            spec.throttle(Cadence::Steps(u64::MAX))
        };
        for stage in stages {
            // With several loaders, each has its own metrics.
            let loaders = if *stage == ActivationStage::Train { "" } else { "/**" };
            for (what, point) in statistics.iter().flat_map(|what| points.iter().map(move |at| (what, at))) {
                let (prefix, metric, point) = (stage.prefix(), what.metric(), in_metrics(point));
                spec = spec.writes(format!("{prefix}{metric}/{point}{loaders}"));
            }
            for point in points.iter().filter(|_| *histogram_bins > 0) {
                spec = spec.writes(format!("{}act/{}", stage.prefix(), in_metrics(point)));
            }
        }
        spec
    }

    fn wants_point(&self, point: &str) -> bool {
        self.points.matches(point)
    }

    fn wants_activations(&self, phase: Phase, progress: &Progress) -> bool {
        self.logged_stage(phase, progress).is_some()
    }

    fn on_activation(&mut self, cx: &Activation) -> HookResult {
        let Some(stage) = self.logged_stage(cx.phase, &cx.progress) else { return Ok(()) };
        for (number, tensor) in (1..).zip(cx.values.iter()) {
            // An empty tensor has no statistics.
            if tensor.shape().contains(&0) {
                continue;
            }
            match number {
                1 => self.record(cx, stage, cx.point, &tensor),
                _ => self.record(cx, stage, &format!("{}#{number}", cx.point), &tensor),
            }
        }
        Ok(())
    }

    fn on_train_batch_end(&mut self, cx: &TrainBatchEnd) -> HookResult {
        self.after_batch(cx);
        Ok(())
    }

    fn on_validation_batch_end(&mut self, cx: &ValidationBatchEnd) -> HookResult {
        self.after_batch(cx);
        Ok(())
    }

    fn on_test_batch_end(&mut self, cx: &TestBatchEnd) -> HookResult {
        self.after_batch(cx);
        Ok(())
    }

    fn on_predict_batch_end(&mut self, cx: &PredictBatchEnd) -> HookResult {
        self.after_batch(cx);
        Ok(())
    }
}
