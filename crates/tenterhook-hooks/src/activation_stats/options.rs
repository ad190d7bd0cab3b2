//! The options of the statistics of activations, and what is wrong with them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::{OptionError, Reduce, TensorStats};

use crate::checks;
use crate::points::Points;
use crate::stages::{self, ActivationStage};

/// A statistic of one activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
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
    /// The share of values that are zero.
    Zeros,
    /// The share of values that are NaN or infinite.
    NonFinite,
    /// The share of units that are dead: all their values are zero.
    Dead,
}

impl ActivationStatistic {
    /// All of them.
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

    /// What its metrics are called, before the point's name.
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

    /// What the batches of an evaluation come to.
    pub(super) fn reduce(self) -> Reduce {
        match self {
            ActivationStatistic::Min => Reduce::Min,
            ActivationStatistic::Max => Reduce::Max,
            _ => Reduce::Mean,
        }
    }

    /// Its value, where these statistics have it: dead units need the values themselves.
    pub(super) fn of(self, stats: &TensorStats) -> Option<f64> {
        Some(match self {
            ActivationStatistic::Mean => stats.mean,
            ActivationStatistic::Std => stats.std,
            ActivationStatistic::Min => stats.min,
            ActivationStatistic::Max => stats.max,
            ActivationStatistic::Norm => stats.norm,
            ActivationStatistic::Zeros => stats.zero_share(),
            ActivationStatistic::NonFinite => stats.non_finite_share(),
            ActivationStatistic::Dead => return None,
        })
    }
}

/// The options of [`ActivationStats`](super::ActivationStats).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
// What the check below refuses of two options together.
#[schemars(extend("not" = {
    "required": ["statistics"], "properties": { "statistics": { "maxItems": 0 } },
    "not": { "required": ["histogram_bins"], "properties": { "histogram_bins": { "minimum": 1 } } },
}))]
pub struct ActivationStatsOptions {
    /// Which hook points to look at: dotted names, `*` within a part of a name, `**` across parts.
    #[schemars(length(min = 1))]
    pub points: Vec<String>,
    /// In training, look every so many optimizer steps. An evaluation is looked at in every batch.
    #[schemars(range(min = 1))]
    pub log_frequency: u64,
    /// In which stages to look. The names of metrics begin with `val/`, `test/` and `predict/` outside of
    /// training.
    #[schemars(length(min = 1))]
    pub stages: Vec<ActivationStage>,
    /// What to log of each point, as `act_mean/<point>` and so on. `zeros`, `non_finite` and `dead` are shares, from
    /// 0 to 1.
    pub statistics: Vec<ActivationStatistic>,
    /// Log a histogram of each point with so many bins as `act/<point>`, into `histograms.jsonl`; 0 is none.
    #[schemars(range(max = 10_000))]
    pub histogram_bins: usize,
    /// The dimension that counts the units of which some may be dead; -1 is the last. Unset: the last of up to
    /// three dimensions, and of more the second, which has the channels.
    #[schemars(example = -1)]
    pub unit_axis: Option<i64>,
}

impl Default for ActivationStatsOptions {
    fn default() -> ActivationStatsOptions {
        ActivationStatsOptions {
            points: vec!["**".to_owned()],
            log_frequency: 100,
            stages: vec![ActivationStage::Train],
            statistics: ActivationStatistic::ALL.into(),
            histogram_bins: 0,
            unit_axis: None,
        }
    }
}

impl ActivationStatsOptions {
    /// Whether nobody chose the points.
    pub(super) fn looks_at_all(&self) -> bool {
        self.points == ActivationStatsOptions::default().points
    }

    /// The points, or what is wrong with the options.
    pub(super) fn check(&self) -> Result<Points, OptionError> {
        let fix = "write [\"**\"] for all of them, or `enabled = false`";
        checks::filled("points", self.points.is_empty(), fix)?;
        checks::one_or_more("log_frequency", self.log_frequency)?;
        if self.statistics.is_empty() && self.histogram_bins == 0 {
            return Err(OptionError::new(
                "statistics",
                "`statistics` is empty and `histogram_bins` is 0, so there is nothing to log",
            )
            .and("histogram_bins")
            .fix("set one of them"));
        }
        checks::bins(self.histogram_bins)?;
        stages::check(&self.stages)?;
        Points::new(&self.points, !self.looks_at_all())
    }
}
