//! Checks that many options have in common.

use std::fmt::Display;

use tenterhook_core::{OptionError, TimeSpan};

/// Refuses an option whose value does not fit; `must` says which values do.
pub(crate) fn fits(key: &str, value: impl Display, fits: bool, must: &str) -> Result<(), OptionError> {
    if fits { Ok(()) } else { Err(OptionError::new(key, format!("`{key}` is {value}")).fix(must)) }
}

/// Refuses a count of zero.
pub(crate) fn one_or_more(key: &str, count: u64) -> Result<(), OptionError> {
    if count == 0 { Err(OptionError::new(key, format!("`{key}` must be 1 or more"))) } else { Ok(()) }
}

/// Refuses a list or text that is empty; `fix` says what to write.
pub(crate) fn filled(key: &str, is_empty: bool, fix: &str) -> Result<(), OptionError> {
    if is_empty { Err(OptionError::new(key, format!("`{key}` is empty")).fix(fix)) } else { Ok(()) }
}

/// Refuses a time of zero.
pub(crate) fn above_zero(key: &str, time: TimeSpan) -> Result<(), OptionError> {
    fits(key, time, !time.0.is_zero(), "it must be above 0, such as \"90 s\"")
}

/// The most bins that a histogram may have: a line of `histograms.jsonl` holds all of them.
const MOST_BINS: usize = 10_000;

/// Refuses a histogram with too many bins.
pub(crate) fn bins(count: usize) -> Result<(), OptionError> {
    let error =
        || OptionError::new("histogram_bins", format!("`histogram_bins` must be {MOST_BINS} or less"));
    if count > MOST_BINS { Err(error()) } else { Ok(()) }
}
