//! The options of the activation statistics.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::{OptionError, Reduce, TensorStats};

use crate::support::activation_stage::{self, ActivationStage};
use crate::support::checks;
use crate::support::options;
use crate::support::point_filter::PointFilter;

/// A statistic of one activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ActivationStatistic {
    /// The mean of the finite values.
    Mean,
    /// The standard deviation of the finite values.
    Std,
    /// The smallest finite value.
    Min,
    /// The largest finite value.
    Max,
    /// The Euclidean norm.
    Norm,
    /// The fraction of values that are zero.
    Zeros,
    /// The fraction of values that are NaN or infinite.
    NonFinite,
    /// The fraction of dead units: those with only zeros.
    Dead,
}

impl ActivationStatistic {
    /// All statistics.
    pub const ALL: [ActivationStatistic; 8] = [
        ActivationStatistic::Mean,
        ActivationStatistic::Std,
        ActivationStatistic::Min,
        ActivationStatistic::Max,
        ActivationStatistic::Norm,
        ActivationStatistic::Zeros,
        ActivationStatistic::NonFinite,
        ActivationStatistic::Dead,
    ];

    /// The prefix of its metric names, before the name of the point.
    pub(super) fn metric(self) -> &'static str {
        const METRICS: [&str; 8] = [
            "act_mean",
            "act_std",
            "act_min",
            "act_max",
            "act_norm",
            "act_zeros",
            "act_non_finite",
            "act_dead",
        ];
        METRICS[self as usize]
    }

    /// How the batches of an evaluation are combined.
    pub(super) fn reduce(self) -> Reduce {
        match self {
            ActivationStatistic::Min => Reduce::Min,
            ActivationStatistic::Max => Reduce::Max,
            _ => Reduce::Mean,
        }
    }

    /// The value, or `None` for dead units, which need the values themselves.
    pub(super) fn of(self, stats: &TensorStats) -> Option<f64> {
        Some(match self {
            ActivationStatistic::Mean => stats.mean,
            ActivationStatistic::Std => stats.std,
            ActivationStatistic::Min => stats.min,
            ActivationStatistic::Max => stats.max,
            ActivationStatistic::Norm => stats.norm,
            ActivationStatistic::Zeros => stats.zero_fraction(),
            ActivationStatistic::NonFinite => stats.non_finite_fraction(),
            ActivationStatistic::Dead => return None,
        })
    }
}

options! {
    /// The options of [`ActivationStats`](super::ActivationStats).
    #[derive(Eq)]
    // The combinations that `check` rejects.
    #[schemars(extend("not" = {
        "required": ["statistics"], "properties": { "statistics": { "maxItems": 0 } },
        "not": { "required": ["histogram_bins"], "properties": { "histogram_bins": { "minimum": 1 } } },
    }))]
    pub struct ActivationStatsOptions {
        /// Patterns of the hook points to log: `*` matches within a part of a dotted name, `**` across parts.
        #[schemars(length(min = 1))]
        pub points: Vec<String> = vec!["**".to_owned()],
        /// Number of optimizer steps between measurements in training. Evaluations are measured in every batch.
        #[schemars(range(min = 1))]
        pub log_frequency: u64 = 100,
        /// The stages to log. Outside of training, metric names begin with `val/`, `test/` or `predict/`.
        #[schemars(length(min = 1))]
        pub stages: Vec<ActivationStage> = vec![ActivationStage::Train],
        /// The statistics to log for each point, as `act_mean/<point>` and so on. `zeros`, `non_finite` and `dead` are
        /// shares from 0 to 1.
        pub statistics: Vec<ActivationStatistic> = ActivationStatistic::ALL.into(),
        /// Number of bins of a histogram of each point, logged as `act/<point>` to `histograms.jsonl`; 0 disables.
        #[schemars(range(max = 10_000))]
        pub histogram_bins: usize = 0,
        /// The dimension of the units for `dead`; -1 is the last. Unset: the last of up to three dimensions, otherwise the
        /// second (channels).
        #[schemars(example = -1)]
        pub unit_axis: Option<i64> = None,
    }
}

impl ActivationStatsOptions {
    /// Whether `points` is the default.
    pub(super) fn has_default_points(&self) -> bool {
        self.points == ActivationStatsOptions::default().points
    }

    /// Checks the options and returns the filter of hook points.
    pub(super) fn check(&self) -> Result<PointFilter, OptionError> {
        let fix = "write [\"**\"] for all of them, or `enabled = false`";
        checks::filled("points", self.points.is_empty(), fix)?;
        checks::one_or_more("log_frequency", self.log_frequency)?;
        if self.statistics.is_empty() && self.histogram_bins == 0 {
            return Err(OptionError::new(
                "statistics",
                "`statistics` is empty and `histogram_bins` is 0, so nothing is logged",
            )
            .and("histogram_bins")
            .fix("set one of them"));
        }
        checks::bins(self.histogram_bins)?;
        activation_stage::check(&self.stages)?;
        PointFilter::new(&self.points, !self.has_default_points())
    }
}
