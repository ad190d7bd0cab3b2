//! Logs statistics of activations: how large they are, how they are spread, and which units are dead.

mod dead;
mod options;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use tenterhook_core::{
    Activation, Cadence, Events, FromOptions, Histogram, HookResult, HookSpec, LogOptions, Observer,
    OptionError, Phase, PredictBatchEnd, Progress, RunContext, Tensor, TensorStats, TestBatchEnd, Tier,
    TrainBatchEnd, ValidationBatchEnd, hook,
};

use dead::{DeadUnits, Layout};
pub use options::{ActivationStatistic, ActivationStatsOptions};

use crate::pace::Pace;
use crate::points::Points;
use crate::stages::{self, ActivationStage};

/// Logs statistics of the activations that a module names.
///
/// - **Fires** at `on_activation`: in training on the steps that are multiples of `log_frequency`, in the other
///   `stages` in every batch, never in a sanity check. At the end of the first batch that it looked at it says which
///   of the `points` that were chosen there are not, with the names there are. A `log_frequency` that the run is too
///   short for is refused; the default is not, and then it says at `on_train_start` that it will see nothing.
/// - **Reads** activations. **Writes** `act_mean/<point>`, `act_std/<point>`, `act_min/<point>`, `act_max/<point>`,
///   `act_norm/<point>`, `act_zeros/<point>`, `act_non_finite/<point>`, `act_dead/<point>`, and histograms
///   `act/<point>`; outside of training `val/act_mean/<point>`, `test/…` and `predict/…`, where the batches of the
///   evaluation come to their mean, weighted by their size, to the smallest `min` and to the largest `max`, and the
///   histogram is that of the last batch. In training, of several batches in one step the last one counts, and so it
///   is with a point that is shown several times in a batch. Mean, deviation, smallest and largest are over the
///   finite values; where there are none they are NaN. Of a point that shows several tensors at once the second
///   is `<point>#2`, and so on.
/// - **Dead** is a unit whose values are all exactly zero in the batch. Units are counted along the last of up to three
///   dimensions (`[batch, tokens, features]`), and of more along the second (`[batch, channels, height, width]`);
///   `unit_axis` chooses another. A point that does not have that dimension is said once, and has no `act_dead`.
/// - **Cost**: the statistics of each point, once for all hooks that ask for them. The values themselves are read only
///   for a histogram, and for dead units where there are zeros enough for one: first those of the batch's first
///   sample, then all of them if that leaves doubt.
/// - **When it fails** it is disabled after three failures, and training goes on.
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
    points: Points,
    /// By stage and point; made when they are first needed.
    names: [BTreeMap<String, Names>; 4],
    dead: DeadUnits,
    /// The points of which it was said that they lack the units' dimension.
    without_units: BTreeSet<String>,
}

/// The names of what is logged of one point in one stage.
#[derive(Clone, Debug)]
struct Names {
    statistics: Vec<(ActivationStatistic, String)>,
    histogram: String,
}

impl FromOptions for ActivationStats {
    type Options = ActivationStatsOptions;
    const PURPOSE: &str = "logs statistics of activations: mean, deviation, zeros, dead units and more";
    const EXAMPLE: &str = r#"
points = ["**"]
log_frequency = 10
stages = ["train", "validate"]
statistics = ["mean", "std", "dead"]
histogram_bins = 32
"#;

    fn from_options(options: ActivationStatsOptions) -> Result<ActivationStats, OptionError> {
        ActivationStats::new(options)
    }
}

impl ActivationStats {
    /// With these options, which are checked.
    pub fn new(options: ActivationStatsOptions) -> Result<ActivationStats, OptionError> {
        Ok(ActivationStats {
            points: options.check()?,
            options,
            names: Default::default(),
            dead: DeadUnits::default(),
            without_units: BTreeSet::new(),
        })
    }

    fn pace(&self) -> Pace {
        Pace(self.options.log_frequency)
    }

    /// The stage at hand, if it is to be looked at now.
    fn looks(&self, phase: Phase, progress: &Progress) -> Option<ActivationStage> {
        let stage = ActivationStage::of(phase, &self.options.stages)?;
        (stage != ActivationStage::Train || self.pace().is_due(progress)).then_some(stage)
    }

    fn after_batch(&mut self, run_cx: &RunContext<'_>) {
        if self.looks(run_cx.phase, &run_cx.progress).is_some() {
            self.points.say_what_matches_nothing(run_cx);
        }
    }

    /// Logs what is wanted of one tensor of an activation.
    fn look(&mut self, cx: &Activation<'_>, stage: ActivationStage, point: &str, tensor: &Tensor<'_>) {
        let of_stage = &mut self.names[stage as usize];
        if !of_stage.contains_key(point) {
            of_stage.insert(point.to_owned(), Names::new(&self.options.statistics, stage, point));
        }
        let Some(names) = of_stage.get(point) else { return };
        // A histogram needs the values; what else needs them then uses the same copy.
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
                Some(self.dead.share(tensor, &stats, layout, values.as_deref()))
            });
            match value {
                Some(value) => {
                    let options = LogOptions::usual(cx.phase).reduce(statistic.reduce());
                    cx.log_with(name, value, options);
                }
                None if self.without_units.insert(point.to_owned()) => {
                    say_that_it_has_no_units(cx, point, tensor, self.options.unit_axis);
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
fn say_that_it_has_no_units(cx: &RunContext<'_>, point: &str, tensor: &Tensor<'_>, axis: Option<i64>) {
    let (shape, axis) = (tensor.shape(), axis.unwrap_or(-1));
    cx.say(format!(
        "`unit_axis` is {axis}, and `{point}` of shape {shape:?} has no such dimension, so its dead units are not \
         counted"
    ));
}

/// A pattern of points as a part of the name of a metric: there the dots mean nothing.
fn in_metrics(pattern: &str) -> String {
    pattern.replace(".**", "*").replace("**.", "*").replace("**", "*")
}

impl ActivationStats {
    /// The events that its options leave nothing to do at.
    fn idle(&self) -> Events {
        // What nobody chose needs no look at the end of a batch.
        stages::idle(if self.options.looks_at_all() { &[] } else { &self.options.stages })
    }
}

#[hook]
impl Observer for ActivationStats {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        let spec = spec.tier(Tier::BuiltIn).without_events(self.idle());
        let ActivationStatsOptions { points, stages, statistics, histogram_bins, .. } = &self.options;
        let mut spec = if stages.contains(&ActivationStage::Train) {
            self.pace().declare(spec)
        } else {
            // In no step of training, so nothing is prepared for it there.
            spec.throttle(Cadence::Steps(u64::MAX))
        };
        for stage in stages {
            // With several loaders, each has its own.
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
        self.points.want(point)
    }

    fn wants_activations(&self, phase: Phase, progress: &Progress) -> bool {
        self.looks(phase, progress).is_some()
    }

    fn on_activation(&mut self, cx: &Activation) -> HookResult {
        let Some(stage) = self.looks(cx.phase, &cx.progress) else { return Ok(()) };
        for (number, tensor) in (1..).zip(cx.values.iter()) {
            // What holds nothing has no statistics.
            if tensor.shape().contains(&0) {
                continue;
            }
            match number {
                1 => self.look(cx, stage, cx.point, &tensor),
                _ => self.look(cx, stage, &format!("{}#{number}", cx.point), &tensor),
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
