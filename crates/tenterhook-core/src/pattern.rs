//! Patterns of dotted names, such as names of parameters, gradients and activations.

use std::fmt;
use std::str::FromStr;

/// A pattern of dotted names such as `blocks.3.mlp.fc1.weight`. `*` matches any text within a part of a name,
/// and a part `**` matches any number of parts.
///
/// ```
/// use tenterhook_core::Pattern;
///
/// let pattern: Pattern = "blocks.*.mlp.**".parse()?;
/// assert!(pattern.matches("blocks.3.mlp.fc1.weight"));
/// assert!(!pattern.matches("blocks.3.attn.weight"));
/// assert!("**.bias".parse::<Pattern>()?.matches("blocks.0.fc1.bias"));
/// assert!("**.bias".parse::<Pattern>()?.matches("bias"));
/// assert!("conv*.weight".parse::<Pattern>()?.matches("conv1.weight"));
/// # Ok::<(), tenterhook_core::pattern::PatternError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    text: String,
}

/// The error for a text that is not a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a pattern of dotted names: it has an empty part; write names as in `blocks.*.mlp` or `**.bias`"
)]
pub struct PatternError(String);

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Pattern, PatternError> {
        if text.split('.').any(str::is_empty) {
            return Err(PatternError(text.to_owned()));
        }
        Ok(Pattern { text: text.to_owned() })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl Pattern {
    /// Whether the pattern matches this name.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        parts_match(&self.text, name)
    }
}

/// The first part of a dotted text, and the rest of it.
fn split(text: &str) -> (&str, Option<&str>) {
    text.split_once('.').map_or((text, None), |(first, rest)| (first, Some(rest)))
}

/// Whether all parts match. Backtracks to the last `**` only, so the time is at most quadratic.
fn parts_match(pattern: &str, name: &str) -> bool {
    let (mut pattern, mut name) = (Some(pattern), Some(name));
    let mut back = None;
    loop {
        let (part, rest) = pattern.map(split).unzip();
        let rest = rest.flatten();
        if part == Some("**") {
            back = Some((rest, name));
            pattern = rest;
            continue;
        }
        match (part, name.map(split)) {
            (None, None) => return true,
            (Some(part), Some((first, left))) if text_matches(part.as_bytes(), first.as_bytes()) => {
                (pattern, name) = (rest, left);
            }
            // The last `**` matches one more part.
            _ => {
                let Some((behind, Some(taken))) = back else { return false };
                (pattern, name) = (behind, split(taken).1);
                back = Some((behind, name));
            }
        }
    }
}

/// Whether a part matches. Backtracks to the last `*` only.
fn text_matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut of, mut star) = (0, 0, None);
    while at < text.len() {
        if of < pattern.len() && pattern[of] == b'*' {
            star = Some((of, at));
            of += 1;
        } else if of < pattern.len() && pattern[of] == text[at] {
            (at, of) = (at + 1, of + 1);
        } else if let Some((back, taken)) = star {
            (of, at) = (back + 1, taken + 1);
            star = Some((back, taken + 1));
        } else {
            return false;
        }
    }
    pattern[of..].iter().all(|byte| *byte == b'*')
}

/// Whether two metric names or patterns match a common name. Parts are separated by `/`; `*` and `**` match
/// as in a [`Pattern`].
pub(crate) fn overlap(one: &str, other: &str) -> bool {
    let parts = |text| str::split(text, '/').collect::<Vec<_>>();
    let part = |one: &&str, other: &&str| {
        meet(one.as_bytes(), other.as_bytes(), |byte| *byte == b'*', |one, other| one == other)
    };
    meet(&parts(one), &parts(other), |part| *part == "**", part)
}

/// Whether two sequences match a common sequence, where an `any` item matches any number of items. Solved by
/// dynamic programming over all suffixes of both.
fn meet<T>(one: &[T], other: &[T], any: fn(&T) -> bool, same: fn(&T, &T) -> bool) -> bool {
    let width = other.len() + 1;
    let mut meets = vec![false; (one.len() + 1) * width];
    for (i, j) in (0..=one.len()).rev().flat_map(|i| (0..width).rev().map(move |j| (i, j))) {
        let at = |i: usize, j: usize| i <= one.len() && j < width && meets[i * width + j];
        meets[i * width + j] = match (one.get(i), other.get(j)) {
            (None, None) => true,
            (Some(first), _) if any(first) => at(i + 1, j) || at(i, j + 1),
            (_, Some(first)) if any(first) => at(i + 1, j) || at(i, j + 1),
            (Some(first), Some(second)) => same(first, second) && at(i + 1, j + 1),
            _ => false,
        };
    }
    meets[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_the_expected_names() {
        for (pattern, yes, no) in [
            ("fc1.weight", "fc1.weight", "fc1.weights"),
            ("*", "bias", "fc1.bias"),
            ("**", "a.b.c", ""),
            ("*.bias", "fc1.bias", "blocks.0.bias"),
            ("**.bias", "blocks.0.fc.bias", "bias.weight"),
            ("blocks.**.weight", "blocks.weight", "blocks.0.bias"),
            ("b*s.*.fc*", "blocks.3.fc", "blocks.3.x.fc"),
            ("a*b*c.w", "axbxbc.w", "axbxb.w"),
        ] {
            let pattern: Pattern = pattern.parse().expect("a pattern");
            assert!(pattern.matches(yes), "{pattern} {yes}");
            assert!(no.is_empty() || !pattern.matches(no), "{pattern} {no}");
        }
        assert!("a..b".parse::<Pattern>().is_err());
    }

    #[test]
    fn metric_names_and_patterns_overlap_if_one_name_matches_both() {
        for (one, other, expected) in [
            ("lr", "lr", true),
            ("lr", "lrs", false),
            ("lr/*", "lr/adamw", true),
            ("lr/*", "lr/adamw/decayed", false),
            ("lr/*/**", "lr/adamw/decayed", true),
            ("lr/*/**", "lr", false),
            ("lr/**", "lr", true),
            ("grad_norm/*", "grad_norm/fc1.weight", true),
            ("a*/x", "*b/x", true),
            ("a*/x", "b*/x", false),
            ("**/x", "y/**", true),
            ("a*c", "ab*", true),
            ("a*c", "ab", false),
        ] {
            assert_eq!(overlap(one, other), expected, "{one} {other}");
            assert_eq!(overlap(other, one), expected, "{other} {one}");
        }
    }

    #[test]
    fn no_pattern_takes_long() {
        let names = ["a"; 200].join(".");
        let pattern: Pattern = format!("{}.b", ["**"; 40].join(".a.")).parse().expect("a pattern");
        assert!(!pattern.matches(&names));
        assert!("**.a.**.a.**".parse::<Pattern>().expect("a pattern").matches(&names));
        let [one, other] = ["a", "b"].map(|end| format!("{}{end}", "*x".repeat(60)));
        assert!(!overlap(&one, &other) && overlap(&one, &one));
    }
}
