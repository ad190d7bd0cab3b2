//! The options of the gradient monitor, and which parameters they choose.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::{OptionError, Pattern};

use crate::checks;

/// The options of [`GradientMonitor`](super::GradientMonitor).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GradientMonitorOptions {
    /// Look at the gradients every so many optimizer steps.
    #[schemars(range(min = 1))]
    pub log_frequency: u64,
    /// Log the norm of each gradient as `grad_norm/<name>`, and of all together, also of those that
    /// `param_filter` leaves out, as `grad_norm/total`.
    pub log_norm: bool,
    /// Log a histogram of each gradient as `grad/<name>`, into `histograms.jsonl`.
    pub log_histogram: bool,
    /// How many bins a histogram has.
    #[schemars(range(min = 1, max = 10_000))]
    pub histogram_bins: usize,
    /// Percentiles of each gradient's values, from 0 to 100, logged as `grad_p10/<name>`. They are exact:
    /// between two values it interpolates linearly. NaN and infinities are left out.
    #[schemars(inner(range(min = 0, max = 100)))]
    pub percentiles: Vec<f64>,
    /// Only parameters whose names contain one of these, or where it has a `*` match it or lie below what
    /// matches it: `encoder`, `conv*`, `blocks.*.mlp`, `**.bias`. Empty: all.
    pub param_filter: Vec<String>,
    /// Log by how much of its norm each parameter changed as `update_ratio/<name>`.
    pub log_update_ratio: bool,
    /// A gradient vanishes when its norm is below this. `grad_vanishing` says how many do.
    #[schemars(range(min = 0))]
    pub vanishing_threshold: f64,
    /// A gradient explodes when its norm is above this, or not finite. `grad_exploding` says how many do.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub exploding_threshold: f64,
    /// Where gradients are clipped, log `grad_clip/norm_before`, `grad_clip/norm_after`, `grad_clip/clipped`
    /// (0 or 1) and `grad_clip/share`: of the steps looked at, how many clipped.
    pub log_clipping: bool,
}

impl Default for GradientMonitorOptions {
    fn default() -> GradientMonitorOptions {
        GradientMonitorOptions {
            log_frequency: 100,
            log_norm: true,
            log_histogram: false,
            histogram_bins: 64,
            percentiles: Vec::new(),
            param_filter: Vec::new(),
            log_update_ratio: true,
            vanishing_threshold: 1e-7,
            exploding_threshold: 1e3,
            log_clipping: true,
        }
    }
}

impl GradientMonitorOptions {
    /// What chooses parameters by these options, or what is wrong with them.
    pub(super) fn check(&self) -> Result<Vec<Filter>, OptionError> {
        checks::one_or_more("log_frequency", self.log_frequency)?;
        checks::one_or_more("histogram_bins", self.histogram_bins as u64)?;
        checks::bins(self.histogram_bins)?;
        if let Some(wrong) = self.percentiles.iter().find(|percent| !(0.0..=100.0).contains(*percent)) {
            return Err(OptionError::new("percentiles", format!("`percentiles` holds {wrong}"))
                .fix("each must be from 0 to 100"));
        }
        let (low, high) = (self.vanishing_threshold, self.exploding_threshold);
        checks::fits("vanishing_threshold", low, low.is_finite() && low >= 0.0, "it must be 0 or more")?;
        if !(high.is_finite() && high > low) {
            return Err(OptionError::new("exploding_threshold", format!("`exploding_threshold` is {high}"))
                .and("vanishing_threshold")
                .fix("it must be above `vanishing_threshold`"));
        }
        self.param_filter.iter().map(|text| Filter::new(text)).collect()
    }

    /// Whether the values themselves are needed, and not only their norms.
    pub(super) fn wants_values(&self) -> bool {
        self.log_histogram || !self.percentiles.is_empty()
    }
}

/// One entry of `param_filter`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Filter {
    Part(String),
    /// As it was written, and everything below what it chooses: `conv*` chooses `conv1.weight`.
    Pattern(Pattern, Pattern),
}

impl Filter {
    fn new(text: &str) -> Result<Filter, OptionError> {
        if text.is_empty() {
            return Err(OptionError::new("param_filter", "`param_filter` holds an empty text")
                .fix("leave it out, or write a part of a parameter's name"));
        }
        if !text.contains('*') {
            return Ok(Filter::Part(text.to_owned()));
        }
        let wrong = |error| OptionError::new("param_filter", format!("`param_filter`: {error}"));
        Ok(Filter::Pattern(text.parse().map_err(wrong)?, format!("{text}.**").parse().map_err(wrong)?))
    }

    pub(super) fn matches(&self, name: &str) -> bool {
        match self {
            Filter::Part(part) => name.contains(part),
            Filter::Pattern(_, below) => below.matches(name),
        }
    }
}

impl std::fmt::Display for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Filter::Part(part) => f.write_str(part),
            Filter::Pattern(pattern, _) => pattern.fmt(f),
        }
    }
}
