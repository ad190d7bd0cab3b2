//! The options of the gradient monitor, and its filter of parameter names.

use tenterhook_core::{OptionError, Pattern};

use crate::support::checks;
use crate::support::options;

options! {
    /// The options of [`GradientMonitor`](super::GradientMonitor).
    pub struct GradientMonitorOptions {
        /// Number of optimizer steps between measurements.
        #[schemars(range(min = 1))]
        pub log_frequency: u64 = 100,
        /// Log the norm of each gradient as `grad_norm/<name>`, and the norm over all gradients, including those excluded by
        /// `param_filter`, as `grad_norm/total`.
        pub log_norm: bool = true,
        /// Log a histogram of each gradient as `grad/<name>` to `histograms.jsonl`.
        pub log_histogram: bool = false,
        /// Number of bins of a histogram.
        #[schemars(range(min = 1, max = 10_000))]
        pub histogram_bins: usize = 64,
        /// Percentiles of each gradient's values to log as `grad_p10/<name>`, from 0 to 100. They are exact, with linear
        /// interpolation; NaN and infinite values are ignored.
        #[schemars(inner(range(min = 0, max = 100)))]
        pub percentiles: Vec<f64> = Vec::new(),
        /// Parameters to monitor: parts of names such as `encoder`, or patterns with a `*` such as `conv*`,
        /// `blocks.*.mlp` or `**.bias`, which also select everything below a match. Empty: all.
        pub param_filter: Vec<String> = Vec::new(),
        /// Log the norm of each parameter's update relative to the parameter's norm as `update_ratio/<name>`.
        pub log_update_ratio: bool = true,
        /// Norm below which a gradient counts as vanishing. `grad_vanishing` is the number of such gradients.
        #[schemars(range(min = 0))]
        pub vanishing_threshold: f64 = 1e-7,
        /// Norm above which a gradient counts as exploding, as does a non-finite one. `grad_exploding` is the number of
        /// such gradients.
        #[schemars(extend("exclusiveMinimum" = 0))]
        pub exploding_threshold: f64 = 1e3,
        /// If gradients are clipped, log `grad_clip/norm_before`, `grad_clip/norm_after`, `grad_clip/clipped` (0 or 1) and
        /// `grad_clip/share`, the fraction of monitored steps that were clipped.
        pub log_clipping: bool = true,
    }
}

impl GradientMonitorOptions {
    /// Checks the options and returns the filters of `param_filter`.
    pub(super) fn check(&self) -> Result<Vec<NameFilter>, OptionError> {
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
        self.param_filter.iter().map(|text| NameFilter::new(text)).collect()
    }

    /// Whether the values are needed, not only the norms.
    pub(super) fn needs_values(&self) -> bool {
        self.log_histogram || !self.percentiles.is_empty()
    }
}

/// One entry of `param_filter`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum NameFilter {
    Part(String),
    /// The pattern as written, and the pattern of everything below a match: `conv*` matches `conv1.weight`.
    Pattern(Pattern, Pattern),
}

impl NameFilter {
    fn new(text: &str) -> Result<NameFilter, OptionError> {
        if text.is_empty() {
            return Err(OptionError::new("param_filter", "`param_filter` holds an empty text")
                .fix("leave it out, or write a part of a parameter's name"));
        }
        if !text.contains('*') {
            return Ok(NameFilter::Part(text.to_owned()));
        }
        let wrong = |error| OptionError::new("param_filter", format!("`param_filter`: {error}"));
        Ok(NameFilter::Pattern(text.parse().map_err(wrong)?, format!("{text}.**").parse().map_err(wrong)?))
    }

    pub(super) fn matches(&self, name: &str) -> bool {
        match self {
            NameFilter::Part(part) => name.contains(part),
            NameFilter::Pattern(_, below) => below.matches(name),
        }
    }
}

impl std::fmt::Display for NameFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NameFilter::Part(part) => f.write_str(part),
            NameFilter::Pattern(pattern, _) => pattern.fmt(f),
        }
    }
}
