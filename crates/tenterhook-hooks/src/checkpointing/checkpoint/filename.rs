//! Checkpoint names from templates such as `epoch_{epoch}_loss_{val/loss:.2f}`.

use tenterhook_core::plan::TRAIN_LOSS;
use tenterhook_core::{OptionError, RunContext};
use tenterhook_files::RelPath;

use crate::support::number_format::{EXAMPLES, formatted};

pub(super) const DEFAULT: &str = "{epoch}-{step}";

enum Piece<'t> {
    Text(&'t str),
    Value { name: &'t str, spec: &'t str },
}

fn pieces(template: &str) -> Option<Vec<Piece<'_>>> {
    let mut pieces = Vec::new();
    let mut rest = template;
    while let Some(open) = rest.find('{') {
        pieces.push(Piece::Text(&rest[..open]));
        let inside = &rest[open + 1..];
        let close = inside.find('}')?;
        let (name, spec) = inside[..close].split_once(':').unwrap_or((&inside[..close], ""));
        pieces.push(Piece::Value { name, spec });
        rest = &inside[close + 1..];
    }
    pieces.push(Piece::Text(rest));
    Some(pieces)
}

/// Rejects a template that cannot be filled, or that leads out of the checkpoint directory.
pub(super) fn check(template: &str) -> Result<(), OptionError> {
    let refuse = |problem: &str| {
        OptionError::new("filename", format!("`filename` is \"{template}\", which {problem}"))
    };
    let pieces = pieces(template).ok_or_else(|| refuse("has a `{` without its `}`"))?;
    // Slashes in metric names are replaced, so only the text counts.
    let outline: String =
        pieces.iter().map(|piece| if let Piece::Text(text) = piece { text } else { "0" }).collect();
    if RelPath::new(outline).is_err() {
        let error = refuse("must be a name below the directory of checkpoints");
        return Err(error.fix("to put them elsewhere, set `dirpath`"));
    }
    for piece in pieces {
        let Piece::Value { name, spec } = piece else { continue };
        if name.is_empty() {
            return Err(refuse("has a `{}` without a name"));
        }
        if formatted(0.0, spec).is_none() {
            let error = refuse(&format!("has `{spec}`, which is not a format"));
            return Err(error.fix(format!("for example, write {EXAMPLES}")));
        }
    }
    Ok(())
}

/// The template filled with zeros.
pub(super) fn outline(template: &str, insert_names: bool) -> String {
    fill_with(template, insert_names, |_| Some(0.0))
}

/// The common prefix of all names from the template.
pub(super) fn prefix(template: &str, insert_names: bool) -> String {
    fill_with(template, insert_names, |_| None)
}

/// The metrics in the template.
pub(super) fn metrics(template: &str) -> Vec<&str> {
    let named = pieces(template).unwrap_or_default().into_iter().filter_map(|piece| match piece {
        Piece::Value { name, .. } if name != "epoch" && name != "step" => Some(name),
        _ => None,
    });
    named.collect()
}

/// The name for the current state. A missing metric is NaN.
pub(super) fn fill(template: &str, insert_names: bool, run_cx: &RunContext<'_>) -> String {
    let value = |name: &str| match name {
        "epoch" => run_cx.epoch as f64,
        "step" => run_cx.step as f64,
        TRAIN_LOSS => train_loss(run_cx).unwrap_or(f64::NAN),
        name => run_cx.metrics().get(name).unwrap_or(f64::NAN),
    };
    fill_with(template, insert_names, |name| Some(value(name)))
}

/// The loss of this step. If it was not logged, it is read now.
fn train_loss(run_cx: &RunContext<'_>) -> Option<f64> {
    let logged = run_cx.metrics().step_of(TRAIN_LOSS).filter(|step| *step >= run_cx.step);
    let logged = logged.and_then(|_| run_cx.metrics().get(TRAIN_LOSS));
    logged.or_else(|| run_cx.latest_loss())
}

/// Fills the template up to the first name without a value.
fn fill_with(template: &str, insert_names: bool, value: impl Fn(&str) -> Option<f64>) -> String {
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
                let Some(value) = value(name) else { break };
                filled.push_str(&formatted(value, spec).unwrap_or_default());
            }
        }
    }
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(template: &str, insert_names: bool) -> String {
        let value = |name: &str| match name {
            "epoch" => 7.0,
            "step" => 1234.0,
            "val/loss" => 0.123_456,
            _ => f64::NAN,
        };
        fill_with(template, insert_names, |name| Some(value(name)))
    }

    #[test]
    fn a_template_is_filled_with_values_in_their_formats() {
        assert_eq!(filled(DEFAULT, true), "epoch=7-step=1234");
        assert_eq!(filled("epoch_{epoch}_loss_{val/loss:.2f}", false), "epoch_7_loss_0.12");
        assert_eq!(filled("{epoch:03d}-{val/loss:.1e}", false), "007-1.2e-01");
        assert_eq!(filled("{val/loss:.3f}", true), "val_loss=0.123");
        assert_eq!(filled("{../../loss}/{val/loss:.1f}", true), ".._.._loss=nan/val_loss=0.1");
    }

    #[test]
    fn a_template_that_cannot_be_filled_or_leads_out_is_refused() {
        for (template, hint) in [
            ("../{epoch}", "dirpath"),
            ("a/../../{epoch}", "dirpath"),
            ("/tmp/{epoch}", "dirpath"),
            ("a//{epoch}", "dirpath"),
            ("{epoch}/", "dirpath"),
            ("./{epoch}", "dirpath"),
            ("..", "dirpath"),
            ("", "dirpath"),
            ("{epoch", "without its"),
            ("{}", "without a name"),
            ("{epoch:zz}", "`zz`, which is not a format; for example, write `.2f`"),
        ] {
            let error = check(template).expect_err(template).to_string();
            assert!(error.starts_with("`filename` is ") && error.contains(hint), "{error}");
        }
        for template in ["sub/{epoch}", "{val/loss:.2f}", "a..b"] {
            assert_eq!(check(template), Ok(()), "{template}");
        }
    }

    #[test]
    fn the_prefix_of_a_template_is_found() {
        assert_eq!(prefix(DEFAULT, true), "epoch=");
        assert_eq!(prefix("a/b_{val/loss:.2f}", true), "a/b_val_loss=");
        assert_eq!(prefix("a/b_{val/loss:.2f}", false), "a/b_");
        assert_eq!(prefix("model", true), "model");
    }

    #[test]
    fn the_metrics_of_a_template_are_found() {
        assert_eq!(metrics("{epoch}-{step:04d}_{val/loss:.2f}/{acc}"), ["val/loss", "acc"]);
    }
}
