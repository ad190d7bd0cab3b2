//! Checks of option values.

use std::fmt::Display;

use tenterhook_core::{OptionError, TimeSpan};

/// Rejects an invalid value; `must` describes the valid ones.
pub(crate) fn fits(key: &str, value: impl Display, fits: bool, must: &str) -> Result<(), OptionError> {
    if fits { Ok(()) } else { Err(OptionError::new(key, format!("`{key}` is {value}")).fix(must)) }
}

/// Rejects a count of zero.
pub(crate) fn one_or_more(key: &str, count: u64) -> Result<(), OptionError> {
    if count == 0 { Err(OptionError::new(key, format!("`{key}` must be 1 or more"))) } else { Ok(()) }
}

/// Rejects an empty list or text, with this fix.
pub(crate) fn filled(key: &str, is_empty: bool, fix: &str) -> Result<(), OptionError> {
    if is_empty { Err(OptionError::new(key, format!("`{key}` is empty")).fix(fix)) } else { Ok(()) }
}

/// Rejects a time of zero.
pub(crate) fn above_zero(key: &str, time: TimeSpan) -> Result<(), OptionError> {
    fits(key, time, !time.0.is_zero(), "it must be above 0, such as \"90 s\"")
}

/// The maximum number of bins: a line of `histograms.jsonl` holds all of them.
const MAX_BINS: usize = 10_000;

/// Rejects a histogram with too many bins.
pub(crate) fn bins(count: usize) -> Result<(), OptionError> {
    let error = || OptionError::new("histogram_bins", format!("`histogram_bins` must be {MAX_BINS} or less"));
    if count > MAX_BINS { Err(error()) } else { Ok(()) }
}
