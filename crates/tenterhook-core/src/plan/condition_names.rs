//! Likely typos among the names in conditions.

use super::check::{PlanError, RunFacts, TRAIN_LOSS};
use crate::spec::HookSpec;
use crate::wrap::FIELDS;

/// Errors for undeclared names in the hook's conditions that are nearly equal to a known name. Other
/// undeclared names are allowed, since they may still be logged.
pub(super) fn likely_typos(spec: &HookSpec, hooks: &[HookSpec], facts: &RunFacts) -> Vec<PlanError> {
    let Some(metrics) = &facts.metrics else { return Vec::new() };
    let written = hooks.iter().flat_map(|spec| spec.writes.iter().map(String::as_str));
    let mut known: Vec<&str> = FIELDS.iter().copied().chain([TRAIN_LOSS]).collect();
    known.extend(metrics.iter().map(|metric| metric.name.as_str()).chain(written));
    let unknown = spec.gated_by.iter().filter(|name| !known.iter().any(|known| covers(known, name)));
    let typo = |name: &String| {
        let near = known.iter().find(|known| is_likely_typo(name, known))?;
        Some(PlanError::unwritten(spec, name, format!("did you mean `{near}`?")))
    };
    unknown.filter_map(typo).collect()
}

/// Whether a declared name or pattern covers a name. A pattern covers all names with the text before its `*`.
fn covers(known: &str, name: &str) -> bool {
    known.split_once('*').map_or(known == name, |(before, _)| name.starts_with(before))
}

/// Whether a name is a likely typo of a known one: they differ by one or two letters, and not only by digits
/// like `top1` and `top5`.
fn is_likely_typo(name: &str, known: &str) -> bool {
    let letters = |text: &str| text.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
    let allowed = if known.len() < 6 { 1 } else { 2 };
    known.len() > 2
        && !known.contains('*')
        && letters(name) != letters(known)
        && strsim::osa_distance(name, known) <= allowed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{DeclaredMetric, check};
    use crate::progress::Phase;

    fn refused(name: &str) -> Vec<String> {
        let metrics = Some(vec![
            DeclaredMetric::new("val/loss", Phase::Validate),
            DeclaredMetric::new("val/top5", Phase::Validate),
        ]);
        let hooks = [HookSpec::observer("rates").writes("lr/**"), HookSpec::observer("gate").gated_by(name)];
        check(&hooks, &RunFacts { metrics, ..RunFacts::default() }).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_typo_in_a_condition_is_refused_with_a_suggestion() {
        for (name, meant) in [
            ("val/los", "val/loss"),
            ("val_loss", "val/loss"),
            ("train/lsos", "train/loss"),
            ("epoc", "epoch"),
            ("epochs", "epoch"),
        ] {
            let expected =
                format!("hook `gate` reads `{name}`, which nothing writes; did you mean `{meant}`?");
            assert_eq!(refused(name), [expected]);
        }
    }

    #[test]
    fn an_undeclared_name_that_is_no_typo_passes() {
        for name in ["val/loss", "loss", "lr/adam", "grad_norm/total", "val/loss_ema", "val/top1", "best"] {
            assert!(refused(name).is_empty(), "{name}");
        }
    }
}
