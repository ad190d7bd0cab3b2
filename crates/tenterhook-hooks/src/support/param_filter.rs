//! The option `params`: selects parameters by patterns of their names.

use std::collections::BTreeMap;

use tenterhook_core::{Gradient, Gradients, HookResult, OptionError, Pattern, RunContext, Update};

use crate::support::checks;
use crate::support::text::list;

/// The default of `params`: all parameters.
pub(crate) fn all_params() -> Vec<String> {
    vec!["**".to_owned()]
}

/// Whether gradients, which are 32-bit, can be clipped to this limit.
#[allow(clippy::cast_possible_truncation)]
pub(crate) fn is_clip_limit(limit: f64) -> bool {
    let limit = limit as f32;
    limit > 0.0 && limit.is_finite()
}

/// The parameters selected by the option `params`.
#[derive(Clone, Debug)]
pub(crate) struct ParamFilter {
    patterns: Vec<Pattern>,
    /// `None` once every pattern has matched, or the unmatched ones were reported.
    unmatched: Option<SeenGradients>,
}

/// The gradients seen so far, to find patterns that match none.
#[derive(Clone, Debug, Default)]
struct SeenGradients {
    /// The batch in which each optimizer was first seen.
    optimizers: BTreeMap<usize, u64>,
    /// The names of their parameters.
    names: Vec<String>,
}

impl ParamFilter {
    /// Parses the value of `params`.
    pub(crate) fn new(params: &[String]) -> Result<ParamFilter, OptionError> {
        let fix = "name parameters by patterns, such as \"**.bias\", or \"**\" for all of them";
        checks::filled("params", params.is_empty(), fix)?;
        let invalid = |error| OptionError::new("params", format!("`params`: {error}"));
        let patterns = params.iter().map(|text| text.parse().map_err(invalid));
        let unmatched = Some(SeenGradients::default());
        Ok(ParamFilter { patterns: patterns.collect::<Result<_, _>>()?, unmatched })
    }

    /// Whether the parameter is selected.
    pub(crate) fn matches(&self, name: &str) -> bool {
        self.patterns.iter().any(|pattern| pattern.matches(name))
    }

    /// Changes each selected gradient, and reports unmatched patterns.
    pub(crate) fn each(
        &mut self,
        gradients: &mut Gradients<'_>,
        cx: &Update<'_>,
        mut change: impl FnMut(&mut Gradient<'_>) -> HookResult,
    ) -> HookResult {
        self.report_unmatched_gradients(gradients, cx);
        gradients.each(|gradient| if self.matches(gradient.name()) { change(gradient) } else { Ok(()) })
    }

    /// Reports patterns that match none of the model's parameters, such as a misspelt name.
    pub(crate) fn report_unmatched(&self, run_cx: &RunContext<'_>) {
        let names: Vec<_> = run_cx.params().iter().map(|param| param.name().to_owned()).collect();
        if names.is_empty() {
            return;
        }
        for pattern in unmatched(&self.patterns, &names) {
            let nearest = nearest(pattern, &names);
            run_cx.say(format!("`params`: no parameter matches `{pattern}`; nearest: {nearest}"));
        }
    }

    /// Reports once the patterns that match no gradient. To be called in every update.
    ///
    /// With several optimizers a pattern may match in one of them only, and their number is unknown. So the report waits
    /// until an optimizer is seen again in another batch: by then every optimizer was seen.
    pub(crate) fn report_unmatched_gradients(&mut self, gradients: &Gradients<'_>, cx: &Update<'_>) {
        let Some(seen) = &mut self.unmatched else { return };
        match seen.optimizers.get(&cx.optimizer) {
            Some(batch) if *batch == cx.total_batches => return,
            Some(_) => {
                unmatched(&self.patterns, &seen.names).for_each(|pattern| {
                    let nearest = nearest(pattern, &seen.names);
                    cx.say(format!("`params`: no parameter so far matches `{pattern}`; nearest: {nearest}"));
                });
                self.unmatched = None;
                return;
            }
            None => {}
        }
        seen.optimizers.insert(cx.optimizer, cx.total_batches);
        seen.names.extend(gradients.view().iter().map(|gradient| gradient.name().to_owned()));
        if unmatched(&self.patterns, &seen.names).next().is_none() {
            self.unmatched = None;
        }
    }
}

/// The patterns that match none of these names.
fn unmatched<'a>(patterns: &'a [Pattern], names: &'a [String]) -> impl Iterator<Item = &'a Pattern> {
    patterns.iter().filter(|pattern| !names.iter().any(|name| pattern.matches(name)))
}

/// The three names most similar to the pattern.
fn nearest(pattern: &Pattern, names: &[String]) -> String {
    let pattern = pattern.to_string();
    let mut names = names.to_vec();
    let similarity = |name: &String| strsim::jaro_winkler(&pattern, name);
    names.sort_by(|one, other| similarity(other).total_cmp(&similarity(one)));
    names.truncate(3);
    list(&names)
}

#[cfg(test)]
mod tests {
    use tenterhook_core::{HookResult, Progress, UpdateHook, hook};
    use tenterhook_testkit::{NamedTensors, Rig};

    use super::*;

    struct Looks(ParamFilter);

    #[hook]
    impl UpdateHook for Looks {
        fn update(&mut self, gradients: &mut Gradients, cx: &Update) -> HookResult {
            self.0.report_unmatched_gradients(gradients, cx);
            Ok(())
        }
    }

    fn chosen(params: &[&str]) -> Result<ParamFilter, OptionError> {
        ParamFilter::new(&params.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    /// The notices in updates of these (batch, optimizer) pairs; the first optimizer has `fc1`, the second `fc2`.
    fn said(params: &[&str], turns: &[(u64, usize)]) -> Vec<String> {
        let mut rig = Rig::new(Looks(chosen(params).unwrap()));
        for (batch, optimizer) in turns {
            let names = if *optimizer == 0 { ["fc1.weight", "fc1.bias"] } else { ["fc2.weight", "fc2.bias"] };
            let gradients: NamedTensors = names.map(|name| (name, [1.0])).into();
            rig.progress(Progress { total_batches: *batch, ..Progress::default() });
            rig.optimizer(*optimizer).gradients(gradients).update();
        }
        rig.said().into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn a_parameter_is_selected_by_any_pattern() {
        let chosen = chosen(&["**.bias", "fc1.*"]).unwrap();
        let names = ["fc1.weight", "fc2.weight", "blocks.0.bias"];
        assert_eq!(names.map(|name| chosen.matches(name)), [true, false, true]);
    }

    #[test]
    fn invalid_params_are_refused_with_the_key() {
        for (params, part) in [(&[][..], "`params` is empty"), (&["fc1", "a..b"], "`params`: `a..b` is not")]
        {
            let error = chosen(params).unwrap_err().to_string();
            assert!(error.starts_with(part), "{error}");
        }
    }

    #[test]
    fn an_unmatched_pattern_is_reported_once_when_its_optimizer_is_seen_again() {
        let params = ["**.bias", "fc1.wieght"];
        assert!(said(&params, &[(1, 0)]).is_empty(), "others may follow");
        let turns = [(1, 0), (2, 0), (3, 0)];
        let expected =
            "`params`: no parameter so far matches `fc1.wieght`; nearest: `fc1.weight`, `fc1.bias`";
        assert_eq!(said(&params, &turns), [expected]);
        assert!(said(&["**.bias", "fc1.weight"], &turns).is_empty());
    }

    #[test]
    fn a_pattern_may_match_in_one_of_several_optimizers_only() {
        for turns in [
            &[(1, 0), (1, 1), (2, 0), (2, 1), (3, 0)][..],
            &[(1, 0), (2, 1), (3, 0), (4, 1)],
            &[(1, 0), (1, 0), (1, 0), (1, 1), (2, 0)],
        ] {
            assert!(said(&["fc2.weight"], turns).is_empty(), "{turns:?}");
            let missed = said(&["fc3.weight"], turns);
            assert_eq!(missed.len(), 1, "{turns:?}");
            assert!(missed[0].contains("`fc1.weight`, `fc2.weight`"), "{missed:?}");
        }
    }
}
