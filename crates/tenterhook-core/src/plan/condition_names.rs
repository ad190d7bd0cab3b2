//! Names that a condition asks for and that are slips of the pen.

use super::check::{PlanError, RunFacts, TRAIN_LOSS};
use crate::spec::HookSpec;
use crate::wrap::FIELDS;

/// The names that this hook's conditions ask for, that nobody writes, and that are almost one that there is.
/// Whatever else nobody declares may be logged all the same, so it passes.
pub(super) fn likely_typos(spec: &HookSpec, hooks: &[HookSpec], world: &RunFacts) -> Vec<PlanError> {
    let Some(metrics) = &world.metrics else { return Vec::new() };
    let written = hooks.iter().flat_map(|spec| spec.writes.iter().map(String::as_str));
    let mut known: Vec<&str> = FIELDS.iter().copied().chain([TRAIN_LOSS]).collect();
    known.extend(metrics.iter().map(|metric| metric.name.as_str()).chain(written));
    let unknown = spec.gated_by.iter().filter(|name| !known.iter().any(|known| covers(known, name)));
    let slip = |name: &String| {
        let near = known.iter().find(|known| is_slip(name, known))?;
        Some(PlanError::nobody_writes(spec, name, format!("did you mean `{near}`?")))
    };
    unknown.filter_map(slip).collect()
}

/// Whether a declared name is this one; a pattern covers everything that begins like it.
fn covers(known: &str, name: &str) -> bool {
    known.split_once('*').map_or(known == name, |(before, _)| name.starts_with(before))
}

/// Whether one was meant to be the other: they differ by a letter or two, and not by a number, as in `top1` and
/// `top5`.
fn is_slip(name: &str, known: &str) -> bool {
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
    fn a_slip_of_the_pen_in_a_condition_is_refused_with_the_name_that_was_meant() {
        for (name, meant) in [
            ("val/los", "val/loss"),
            ("val_loss", "val/loss"),
            ("train/lsos", "train/loss"),
            ("epoc", "epoch"),
            ("epochs", "epoch"),
        ] {
            let expected =
                format!("hook `gate` reads `{name}`, which nobody writes; did you mean `{meant}`?");
            assert_eq!(refused(name), [expected]);
        }
    }

    #[test]
    fn what_may_be_logged_without_being_declared_passes() {
        for name in ["val/loss", "loss", "lr/adam", "grad_norm/total", "val/loss_ema", "val/top1", "best"] {
            assert!(refused(name).is_empty(), "{name}");
        }
    }
}
