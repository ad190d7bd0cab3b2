//! Patterns over dotted names: of parameters, gradients and hook points.

use std::fmt;
use std::str::FromStr;

/// Chooses dotted names such as `blocks.3.mlp.fc1.weight`. Within a part of a name `*` stands for
/// any text; a part that is `**` stands for any number of parts.
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

/// Why a text is no pattern.
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
    /// Whether it chooses this name.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        parts_match(Some(&self.text), Some(name))
    }
}

/// The first part of a dotted text, and the rest of it.
fn split(text: &str) -> (&str, Option<&str>) {
    text.split_once('.').map_or((text, None), |(first, rest)| (first, Some(rest)))
}

fn parts_match(pattern: Option<&str>, name: Option<&str>) -> bool {
    let Some(pattern) = pattern else { return name.is_none() };
    let (part, rest) = split(pattern);
    if part == "**" {
        let mut left = name;
        loop {
            if parts_match(rest, left) {
                return true;
            }
            let Some(name) = left else { return false };
            left = split(name).1;
        }
    }
    let Some(name) = name else { return false };
    let (first, left) = split(name);
    text_matches(part.as_bytes(), first.as_bytes()) && parts_match(rest, left)
}

/// Whether a part matches, remembering only the last `*` to go back to.
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

/// Whether two names of metrics, or patterns of them, can stand for the same name. Their parts are divided by
/// `/`; `*` and `**` stand for what they stand for in a [`Pattern`].
pub(crate) fn overlap(one: &str, other: &str) -> bool {
    let parts = |text| str::split(text, '/').collect::<Vec<_>>();
    let part = |one: &&str, other: &&str| {
        meet(one.as_bytes(), other.as_bytes(), |byte| *byte == b'*', |one, other| one == other)
    };
    meet(&parts(one), &parts(other), |part| *part == "**", part)
}

/// Whether two rows of items can stand for the same row, where an `any` stands for any number of items.
fn meet<T>(one: &[T], other: &[T], any: fn(&T) -> bool, same: fn(&T, &T) -> bool) -> bool {
    match (one.split_first(), other.split_first()) {
        (None, None) => true,
        (Some((first, rest)), _) if any(first) => {
            meet(rest, other, any, same) || other.get(1..).is_some_and(|left| meet(one, left, any, same))
        }
        (_, Some((first, _))) if any(first) => meet(other, one, any, same),
        (Some((first, one)), Some((second, other))) => same(first, second) && meet(one, other, any, same),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_chooses_what_it_says() {
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
    fn names_of_metrics_and_patterns_of_them_overlap_where_one_name_fits_both() {
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
}
