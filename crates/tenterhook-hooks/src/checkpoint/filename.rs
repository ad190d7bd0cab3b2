//! Names of checkpoints from templates such as `epoch_{epoch}_loss_{val/loss:.2f}`.

use tenterhook_core::{Moment, OptionError};

pub(super) const DEFAULT: &str = "{epoch}-{step}";

enum Piece<'t> {
    Text(&'t str),
    Value { name: &'t str, spec: &'t str },
}

fn pieces(template: &str) -> Result<Vec<Piece<'_>>, String> {
    let mut pieces = Vec::new();
    let mut rest = template;
    while let Some(open) = rest.find('{') {
        pieces.push(Piece::Text(&rest[..open]));
        let inside = &rest[open + 1..];
        let close = inside
            .find('}')
            .ok_or_else(|| format!("`filename = \"{template}\"` has a `{{` without its `}}`"))?;
        let (name, spec) = inside[..close].split_once(':').unwrap_or((&inside[..close], ""));
        pieces.push(Piece::Value { name, spec });
        rest = &inside[close + 1..];
    }
    pieces.push(Piece::Text(rest));
    Ok(pieces)
}

/// Refuses a template that cannot be filled, or that leads out of the directory of checkpoints.
pub(super) fn check(template: &str) -> Result<(), OptionError> {
    let escapes = template.starts_with('/') || template.split('/').any(|part| part == "..");
    if template.is_empty() || escapes {
        let problem =
            "must be a name below the directory of checkpoints; to put them elsewhere, set `dirpath`";
        return Err(OptionError::new(format!("`filename = \"{template}\"` {problem}")));
    }
    for piece in pieces(template).map_err(OptionError::new)? {
        if let Piece::Value { name, spec } = piece {
            if name.is_empty() {
                return Err(OptionError::new(format!(
                    "`filename = \"{template}\"` has a `{{}}` without a name"
                )));
            }
            formatted(0.0, spec).ok_or_else(|| {
                OptionError::new(format!(
                    "`{spec}` in `filename = \"{template}\"` is no format; write for example `.2f` or `03d`"
                ))
            })?;
        }
    }
    Ok(())
}

/// The name at this moment. A metric that does not exist is 0.
pub(super) fn fill(template: &str, insert_names: bool, moment: &Moment<'_>) -> String {
    let value = |name: &str| match name {
        "epoch" => moment.epoch as f64,
        "step" => moment.step as f64,
        name => moment.metrics().get(name).unwrap_or(0.0),
    };
    fill_with(template, insert_names, value)
}

fn fill_with(template: &str, insert_names: bool, value: impl Fn(&str) -> f64) -> String {
    let mut filled = String::new();
    for piece in pieces(template).unwrap_or_default() {
        match piece {
            Piece::Text(text) => filled.push_str(text),
            Piece::Value { name, spec } => {
                if insert_names {
                    // A metric's own slash must not become a directory.
                    filled.push_str(&name.replace('/', "_"));
                    filled.push('=');
                }
                filled.push_str(&formatted(value(name), spec).unwrap_or_default());
            }
        }
    }
    filled
}

/// A number in a format like Python's: `03d`, `.2f`, `.1e`, or nothing.
fn formatted(value: f64, spec: &str) -> Option<String> {
    if spec.is_empty() {
        return Some(value.to_string());
    }
    let (numbers, kind) = match spec.char_indices().next_back() {
        Some((at, kind)) if kind.is_ascii_alphabetic() => (&spec[..at], kind),
        _ => (spec, 'f'),
    };
    let (width, precision) = numbers.split_once('.').unwrap_or((numbers, ""));
    let precision = if precision.is_empty() { None } else { Some(precision.parse::<usize>().ok()?) };
    let zeros = width.starts_with('0');
    let width = if width.is_empty() { 0 } else { width.parse::<usize>().ok()? };
    let number = match kind {
        'd' if precision.is_none() => format!("{value:.0}"),
        'f' => format!("{value:.*}", precision.unwrap_or(6)),
        'e' => format!("{value:.*e}", precision.unwrap_or(6)),
        _ => return None,
    };
    Some(if zeros { format!("{number:0>width$}") } else { format!("{number:>width$}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(template: &str, insert_names: bool) -> String {
        let value = |name: &str| match name {
            "epoch" => 7.0,
            "step" => 1234.0,
            "val/loss" => 0.123_456,
            _ => 0.0,
        };
        fill_with(template, insert_names, value)
    }

    #[test]
    fn a_template_is_filled_with_values_in_their_formats() {
        assert_eq!(filled(DEFAULT, true), "epoch=7-step=1234");
        assert_eq!(filled("epoch_{epoch}_loss_{val/loss:.2f}", false), "epoch_7_loss_0.12");
        assert_eq!(filled("{epoch:03d}-{val/loss:.1e}", false), "007-1.2e-1");
        assert_eq!(filled("{val/loss:.3f}", true), "val_loss=0.123");
    }

    #[test]
    fn what_cannot_be_filled_or_leads_away_is_refused() {
        for (template, hint) in [
            ("../{epoch}", "dirpath"),
            ("/tmp/{epoch}", "dirpath"),
            ("", "dirpath"),
            ("{epoch", "without its"),
            ("{}", "without a name"),
            ("{epoch:zz}", "no format"),
        ] {
            let error = check(template).expect_err(template);
            assert!(error.to_string().contains(hint), "{error}");
        }
        assert!(check("sub/{epoch}").is_ok());
    }
}
