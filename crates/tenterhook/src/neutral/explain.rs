//! Where a difference comes from. Nobody is blamed for what shows only once.

use std::sync::Arc;

use tenterhook_core::BoxError;

use super::judgement::{Difference, Finding};
use super::runs::{Runs, Trial};
use super::witness::{Found, Trace, Watch};
use super::{NeutralError, Training, blame};

fn not_deterministic(trial: &Trial, difference: Difference) -> Finding {
    Finding::NotDeterministic { run: trial.to_string(), difference }
}

impl<T: Training, F: FnMut() -> Result<T, BoxError>> Runs<'_, F> {
    /// What a difference between the run without observers and that with all of them comes to: the program's own
    /// doing, or that of some of them.
    pub(super) fn explain(
        &mut self,
        all: &[String],
        baseline: &Arc<Trace>,
        found: Found,
    ) -> Result<Finding, NeutralError> {
        let (shown, sign, first) = ((found.step, found.place), found.sign(), found.unmeasured());
        let measuring = Watch::measuring(baseline, found).until_shown(shown);
        let again = self.run(&Trial::Again, &[], measuring)?.watch;
        if let Some(found) = again.found {
            return Ok(not_deterministic(&Trial::Without, found.unmeasured()));
        }

        let comparing = || Watch::comparing(baseline).until_shown(shown);
        let with_again = self.run(&Trial::WithAgain, all, comparing())?.watch.found;
        if with_again.as_ref().map(Found::sign) != Some(sign) {
            let earlier = with_again.map_or(first.step, |found| found.unmeasured().step.min(first.step));
            return Ok(not_deterministic(&Trial::With, Difference::unknown(earlier)));
        }

        let mut differs = |some: &[String]| {
            let trial = Trial::Suspects(some.to_vec());
            self.run(&trial, some, comparing()).map(|ran| ran.watch.found.is_some())
        };
        let causes = blame::causes(all, &mut differs)?;
        for cause in causes.iter().filter(|cause| cause.len() < all.len()) {
            if !differs(cause)? {
                let trial = Trial::Suspects(cause.clone());
                return Ok(not_deterministic(&trial, Difference::unknown(first.step)));
            }
        }
        Ok(Finding::Differs { difference: again.measured.unwrap_or(first), causes })
    }
}
