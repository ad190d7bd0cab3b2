//! Which parameters a hook works on, by patterns over their names.

use std::collections::BTreeMap;

use tenterhook_core::{Gradients, Moment, OptionError, Pattern, Update};

use crate::checks;
use crate::support::text::list;

/// What a hook without a choice works on.
pub(crate) fn everything() -> Vec<String> {
    vec!["**".to_owned()]
}

/// Whether gradients, which are 32-bit, can be clipped at this.
#[allow(clippy::cast_possible_truncation)]
pub(crate) fn is_limit(limit: f64) -> bool {
    let limit = limit as f32;
    limit > 0.0 && limit.is_finite()
}

/// The parameters that the option `params` chooses.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    patterns: Vec<Pattern>,
    /// Present until it is known whether every pattern matches something.
    lookout: Option<Lookout>,
}

/// What has been seen while it is open whether every pattern matches something.
#[derive(Clone, Debug, Default)]
struct Lookout {
    /// The optimizers that have come, each with the batch of its first time.
    optimizers: BTreeMap<usize, u64>,
    /// Their parameters.
    names: Vec<String>,
}

impl Chosen {
    /// By these patterns, which are the value of `params`.
    pub(crate) fn new(params: &[String]) -> Result<Chosen, OptionError> {
        let fix = "name parameters by patterns, such as \"**.bias\", or \"**\" for all of them";
        checks::filled("params", params.is_empty(), fix)?;
        let wrong = |error| OptionError::new("params", format!("`params`: {error}"));
        let patterns = params.iter().map(|text| text.parse().map_err(wrong));
        Ok(Chosen { patterns: patterns.collect::<Result<_, _>>()?, lookout: Some(Lookout::default()) })
    }

    /// Whether it chooses this parameter.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.patterns.iter().any(|pattern| pattern.matches(name))
    }

    /// Says which patterns choose none of the model's parameters, so that a slip is not mistaken for silence.
    pub(crate) fn say_what_matches_nothing(&self, moment: &Moment<'_>) {
        let names: Vec<_> = moment.params().iter().map(|param| param.name().to_owned()).collect();
        if names.is_empty() {
            return;
        }
        for pattern in idle(&self.patterns, &names) {
            let nearest = nearest(pattern, &names);
            moment.say(format!("`params`: no parameter matches `{pattern}`; nearest: {nearest}"));
        }
    }

    /// Looks out for patterns that choose nothing, and says so once. To be called in every update.
    ///
    /// A pattern may match in one of several optimizers only, and how many there are is not known. So it waits until
    /// one of them comes again in another batch: by then the others have had their turn.
    pub(crate) fn look_out(&mut self, gradients: &Gradients<'_>, cx: &Update<'_>) {
        let Some(lookout) = &mut self.lookout else { return };
        match lookout.optimizers.get(&cx.optimizer) {
            Some(batch) if *batch == cx.total_batches => return,
            Some(_) => {
                idle(&self.patterns, &lookout.names).for_each(|pattern| {
                    let nearest = nearest(pattern, &lookout.names);
                    cx.say(format!("`params`: no parameter so far matches `{pattern}`; nearest: {nearest}"));
                });
                self.lookout = None;
                return;
            }
            None => {}
        }
        lookout.optimizers.insert(cx.optimizer, cx.total_batches);
        lookout.names.extend(gradients.view().iter().map(|gradient| gradient.name().to_owned()));
        if idle(&self.patterns, &lookout.names).next().is_none() {
            self.lookout = None;
        }
    }
}

/// The patterns that match none of these names.
fn idle<'a>(patterns: &'a [Pattern], names: &'a [String]) -> impl Iterator<Item = &'a Pattern> {
    patterns.iter().filter(|pattern| !names.iter().any(|name| pattern.matches(name)))
}

/// The three names that are most like the pattern.
fn nearest(pattern: &Pattern, names: &[String]) -> String {
    let pattern = pattern.to_string();
    let mut names = names.to_vec();
    let likeness = |name: &String| strsim::jaro_winkler(&pattern, name);
    names.sort_by(|one, other| likeness(other).total_cmp(&likeness(one)));
    names.truncate(3);
    list(&names)
}

#[cfg(test)]
mod tests {
    use tenterhook_core::{HookResult, Progress, UpdateHook, hook};
    use tenterhook_testkit::{NamedTensors, Rig};

    use super::*;

    struct Looks(Chosen);

    #[hook]
    impl UpdateHook for Looks {
        fn update(&mut self, gradients: &mut Gradients, cx: &Update) -> HookResult {
            self.0.look_out(gradients, cx);
            Ok(())
        }
    }

    fn chosen(params: &[&str]) -> Result<Chosen, OptionError> {
        Chosen::new(&params.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    /// What it says in updates of these optimizers in these batches; the first owns `fc1`, the second `fc2`.
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
    fn a_parameter_is_chosen_by_any_of_the_patterns() {
        let chosen = chosen(&["**.bias", "fc1.*"]).unwrap();
        let names = ["fc1.weight", "fc2.weight", "blocks.0.bias"];
        assert_eq!(names.map(|name| chosen.has(name)), [true, false, true]);
    }

    #[test]
    fn what_is_no_choice_is_refused_with_the_key() {
        for (params, part) in [(&[][..], "`params` is empty"), (&["fc1", "a..b"], "`params`: `a..b` is not")]
        {
            let error = chosen(params).unwrap_err().to_string();
            assert!(error.starts_with(part), "{error}");
        }
    }

    #[test]
    fn a_pattern_that_matches_nothing_is_said_once_when_its_optimizer_comes_round_again() {
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
