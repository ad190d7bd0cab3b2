//! What several ranks do together: the call sites of the strategy's collectives, one method each.
//!
//! Every rank goes through the same events in the same order, so all of them come to the same call sites. With one rank each
//! call site is one branch. After a failure of this rank no collective follows: the strategy is told, which ends the others.
//!
//! Decisions of hooks are held until the next place at which the ranks [agree](Loop::agree); there all ranks carry out the
//! decisions of all ranks in one order, those that several ranks made alike only once. Only swapped weights are not held: what is
//! swapped in is this rank's own copy, so a hook that asks for it must run on all ranks.

mod gradients;
mod start;

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tenterhook_core::metrics::Aggregates;
use tenterhook_core::random::seed_at;
use tenterhook_core::tensor::ReadScalar;
use tenterhook_core::{
    BoxError, Decision, Failure, HookDecision, Phase, Request, RequestedChange, RosterRequest, World,
};

use super::update::purpose;
use super::{Loop, Who};
use crate::data::{BatchData, Waited};
use crate::journal::{Recording, RunNotice};
use crate::losses::Once;
use crate::module::Module;
use crate::strategy::{RankError, Strategy};

/// The ranks of the call, and what is held until they agree.
pub(crate) struct Ranks {
    pub(crate) strategy: Box<dyn Strategy>,
    pub(crate) world: World,
    /// There are several ranks, and this one has not failed.
    pub(crate) several: bool,
    held: Vec<HookDecision>,
    /// The signal that some rank has received.
    pub(crate) signal: Option<String>,
    /// The time of rank 0 when the ranks agreed last.
    elapsed: Duration,
    /// How many samples the micro-batch has on this rank, and on all.
    samples: (u64, u64),
    /// How many tokens it has on all.
    tokens: u64,
    /// The recorder of a rank that records nothing.
    pub(crate) unused_recording: Option<Recording>,
}

impl Ranks {
    pub(crate) fn new(strategy: Box<dyn Strategy>) -> Ranks {
        let world = strategy.world();
        let (held, signal, elapsed, samples, tokens, unused_recording) = Default::default();
        Ranks {
            strategy,
            world,
            several: world.is_distributed(),
            held,
            signal,
            elapsed,
            samples,
            tokens,
            unused_recording,
        }
    }

    fn gather<T: Serialize + DeserializeOwned>(
        &mut self,
        site: &str,
        message: &T,
    ) -> Result<Vec<T>, BoxError> {
        let messages = self.strategy.gather(site, serde_json::to_vec(message)?)?;
        if messages.len() != self.world.size {
            return Err(format!(
                "`{site}` gathered {} messages of {} ranks",
                messages.len(),
                self.world.size
            )
            .into());
        }
        messages.iter().map(|message| Ok(serde_json::from_slice(message)?)).collect()
    }

    pub(crate) fn broadcast<T: Serialize + DeserializeOwned>(
        &mut self,
        site: &str,
        message: &T,
    ) -> Result<T, BoxError> {
        let message = if self.world.is_main() { serde_json::to_vec(message)? } else { Vec::new() };
        Ok(serde_json::from_slice(&self.strategy.broadcast(site, message)?)?)
    }
}

/// What a rank brings to the others where they agree.
#[derive(Serialize, Deserialize)]
struct Word {
    decided: Vec<HookDecision>,
    requested: Vec<RequestedChange>,
    disabled: Vec<String>,
    signal: Option<String>,
    elapsed: Duration,
}

/// What a rank's loader has given.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
enum Given {
    Batch { size: u64, tokens: u64, is_last: bool },
    Nothing,
    GaveUp,
}

impl Given {
    fn in_words(self) -> &'static str {
        match self {
            Given::Batch { is_last: true, .. } => "the last batch",
            Given::Batch { is_last: false, .. } => "a batch that is not the last",
            Given::Nothing => "no batch any more",
            Given::GaveUp => "no batch yet",
        }
    }
}

/// The decisions of all ranks: those of rank 0, then those that only later ranks made.
fn together<T: PartialEq>(by_rank: impl IntoIterator<Item = Vec<T>>) -> Vec<T> {
    let mut all: Vec<T> = Vec::new();
    for of_rank in by_rank {
        let mut unmatched: Vec<usize> = (0..all.len()).collect();
        for one in of_rank {
            match unmatched.iter().position(|at| all[*at] == one) {
                Some(at) => drop(unmatched.remove(at)),
                None => all.push(one),
            }
        }
    }
    all
}

impl<M: Module> Loop<M> {
    /// Runs a collective; its failure is the strategy's, and whoever was noted before is noted again afterwards.
    pub(crate) fn collective<T>(
        &mut self,
        site: &'static str,
        collective: impl FnOnce(&mut Ranks) -> Result<T, BoxError>,
    ) -> Result<T, Failure> {
        let caller = self.caller;
        self.at(Who::Strategy, site);
        let done = collective(&mut self.ranks);
        let done = self.checked(done)?;
        self.caller = caller;
        Ok(done)
    }

    /// Call sites `skipped batches`, `skipped updates`, `optimizer step` and `decisions`: carries out the decisions and the
    /// changes of the list of hooks that any rank asked for.
    #[inline]
    pub(crate) fn agree(&mut self, module: &mut M, site: &'static str) -> Result<(), Failure> {
        if self.ranks.several { self.agree_on_decisions(module, site) } else { Ok(()) }
    }

    #[cold]
    fn agree_on_decisions(&mut self, module: &mut M, site: &'static str) -> Result<(), Failure> {
        let word = Word {
            decided: std::mem::take(&mut self.ranks.held),
            requested: self.hooks.requested(&self.shared),
            disabled: self.hooks.disabled(),
            signal: self.ending.interrupt.is_requested().then(|| self.ending.interrupt.signal()),
            elapsed: self.shared.elapsed(),
        };
        let words = self.collective(site, |ranks| ranks.gather(site, &word))?;
        self.ranks.elapsed = words.first().map_or(word.elapsed, |main| main.elapsed);
        let signal = words.iter().find_map(|word| word.signal.clone());
        self.ranks.signal = self.ranks.signal.take().or(signal);
        self.disable_as_elsewhere(&words);
        let (mut decided, mut requested) = (Vec::new(), Vec::new());
        for word in words {
            decided.push(word.decided);
            requested.push(word.requested);
        }
        let requested = together(requested);
        if !requested.is_empty() {
            self.hooks.apply_roster_changes_of_all_ranks(requested, &run_cx!(self, module));
        }
        for decided in together(decided) {
            self.absorb(module, &decided)?;
        }
        self.after_event(module)
    }

    /// A hook that failed once too often or took too long on one rank is disabled on all.
    fn disable_as_elsewhere(&mut self, words: &[Word]) {
        let own = &words[self.ranks.world.rank];
        for (rank, word) in words.iter().enumerate() {
            let failed = word.requested.iter().filter_map(|(by, request)| match request {
                RosterRequest::Disable(hook) if by.is_none() => Some(hook),
                _ => None,
            });
            let failed_here =
                |hook: &String| own.requested.contains(&(None, RosterRequest::Disable(hook.clone())));
            for hook in word.disabled.iter().chain(failed) {
                if own.disabled.contains(hook) || failed_here(hook) || self.hooks.disable(hook).is_err() {
                    continue;
                }
                let reason = format!("it was disabled on rank {rank}");
                self.note(RunNotice::Said { hook: hook.clone(), text: reason.clone() });
                self.journal.disabled.push((hook.clone(), reason));
            }
        }
    }

    /// What a hook or the module decided waits until the ranks agree; swapped weights do not.
    pub(super) fn hold(&mut self, module: &mut M, decided: HookDecision) -> Result<(), Failure> {
        let HookDecision { hook, event, decision } = decided;
        let (flows, requests) = decision.into_parts();
        let (swaps, requests): (Vec<_>, Vec<_>) = requests
            .into_iter()
            .partition(|request| matches!(request, Request::SwapWeights(_) | Request::SwapBack));
        let decision = flows.into_iter().fold(Decision::CONTINUE, Decision::and);
        let decision = requests.into_iter().fold(decision, Decision::request);
        if !decision.is_continue() {
            self.ranks.held.push(HookDecision { hook: hook.clone(), event, decision });
        }
        if swaps.is_empty() {
            return Ok(());
        }
        let decision = swaps.into_iter().fold(Decision::CONTINUE, Decision::request);
        let decided = HookDecision { hook, event, decision };
        if !self.hooks.ranks_of(&decided.hook).is_all() {
            return self.refuse(&decided, "only a hook that runs on all ranks can swap weights".into());
        }
        self.absorb(module, &decided)
    }

    /// Call site `batch`: all ranks have a batch, or none has.
    /// `describe` tells a batch from what was fetched, and whether it is known to be the last.
    #[inline]
    pub(crate) fn agree_on_batch<T>(
        &mut self,
        module: &mut M,
        fetched: Waited<T>,
        describe: impl Fn(&T) -> (&M::Batch, bool),
    ) -> Result<Waited<T>, Failure> {
        if !self.ranks.several {
            return Ok(fetched);
        }
        let given = match &fetched {
            Waited::Batch(fetched) => {
                let (batch, is_last) = describe(fetched);
                Given::Batch { size: batch.size() as u64, tokens: batch.tokens(), is_last }
            }
            Waited::Ended => Given::Nothing,
            Waited::GaveUp => Given::GaveUp,
        };
        let goes_on = self.all_are_given(module, given)?;
        Ok(if goes_on { fetched } else { Waited::GaveUp })
    }

    /// `false` where a rank gave up waiting, which it does when the run is to end.
    fn all_are_given(&mut self, module: &mut M, given: Given) -> Result<bool, Failure> {
        let all = self.collective("batch", |ranks| ranks.gather("batch", &given))?;
        self.agree(module, "decisions")?;
        if all.contains(&Given::GaveUp) {
            return Ok(false);
        }
        let alike = |one: Given, other: Given| match (one, other) {
            (Given::Batch { is_last: one, .. }, Given::Batch { is_last: other, .. }) => one == other,
            (one, other) => one == other,
        };
        if let Some(other) = all.iter().position(|other| !alike(*other, all[0])) {
            let [one, text] = [all[0], all[other]].map(Given::in_words);
            let error =
                format!("the data differs between ranks: rank 0 has {one}, and rank {other} has {text}");
            self.at(Who::Data, "next");
            return Err(self.failed(error.into(), false));
        }
        let sizes = all.iter().filter_map(|given| match given {
            Given::Batch { size, tokens, .. } => Some((size, tokens)),
            _ => None,
        });
        let (size, tokens) = sizes.fold((0, 0), |sum, of_rank| (sum.0 + of_rank.0, sum.1 + of_rank.1));
        if let Given::Batch { size: own, .. } = given {
            self.ranks.samples = (own, size);
            self.ranks.tokens = tokens;
        }
        Ok(true)
    }

    /// How many samples and tokens the micro-batch has on all ranks.
    pub(crate) fn samples_and_tokens(&self, batch: &M::Batch) -> (u64, u64) {
        if self.ranks.several {
            (self.ranks.samples.1, self.ranks.tokens)
        } else {
            (batch.size() as u64, batch.tokens())
        }
    }

    /// The share of this rank in the samples of the micro-batch.
    fn share(&self) -> f64 {
        let (own, all) = self.ranks.samples;
        own as f64 / all.max(1) as f64
    }

    /// Call site `loss`: the mean over the samples of all ranks, which is what hooks read. The scalar itself stays this
    /// rank's, to be propagated back.
    pub(crate) fn loss_of_all(
        &mut self,
        loss: Option<Once<M::Scalar>>,
    ) -> Result<Option<Once<M::Scalar>>, Failure> {
        if !self.ranks.several {
            return Ok(loss);
        }
        let mut sums = loss.as_ref().map_or([0.0; 2], |loss| [loss.read() * self.share(), 1.0]);
        self.collective("loss", |ranks| ranks.strategy.sum_f64("loss", &mut sums))?;
        let [mean, count] = sums;
        if count > 0.0 && count < self.ranks.world.size as f64 {
            let error = format!(
                "`training_step` returned a loss on {count} of {} ranks; it must on all of them or on none",
                self.ranks.world.size
            );
            self.at(Who::Module, "training_step");
            return Err(self.failed(error.into(), false));
        }
        Ok(loss.map(|loss| loss.known_as(mean)))
    }

    /// Call sites `metric names` and `metrics`: what the epoch or the evaluation has aggregated on all ranks.
    pub(crate) fn reduce_metrics(&mut self) -> Result<(), Failure> {
        if !self.ranks.several {
            return Ok(());
        }
        let own = self.shared.metrics.aggregates();
        let rank = self.ranks.world.rank;
        let all = self.collective("metric names", |ranks| ranks.gather("metric names", &own))?;
        let reduced = self.collective("metrics", |ranks| {
            Aggregates::over_ranks(&all, rank, |values| ranks.strategy.sum_f64("metrics", values))
        })?;
        self.shared.metrics.set_aggregates(reduced);
        Ok(())
    }

    /// Call site `plateau`: the metric that rank 0 has.
    pub(crate) fn plateau_of_all(&mut self, metric: Option<f64>) -> Result<Option<f64>, Failure> {
        if !self.ranks.several {
            return Ok(metric);
        }
        let bits = metric.map(f64::to_bits);
        let bits = self.collective("plateau", |ranks| ranks.broadcast("plateau", &bits))?;
        Ok(bits.map(f64::from_bits))
    }

    /// The time by which training ends or validates: that of rank 0.
    pub(crate) fn time_of_all(&self) -> Duration {
        if self.ranks.several { self.ranks.elapsed } else { self.shared.elapsed() }
    }

    /// The engine's seed for a step. Each rank has its own.
    pub(crate) fn step_seed(&self, phase: Phase, position: u64) -> u64 {
        let seed = seed_at(self.shared.streams.borrow().seed(), purpose(phase), position);
        match self.ranks.world.rank {
            0 => seed,
            rank => seed_at(seed, rank as u64, position),
        }
    }

    /// This rank has failed, so the others must end. A rank that was told of another's failure tells nobody.
    pub(crate) fn leave_ranks(&mut self, failure: &Failure) {
        if !std::mem::replace(&mut self.ranks.several, false) {
            return;
        }
        if !matches!(failure.error.downcast_ref(), Some(RankError::Failed { .. })) {
            self.ranks.strategy.abort(&failure.to_string());
        }
    }

    /// Call site `end`: the call has succeeded when it has on all ranks.
    pub(crate) fn end_on_all(
        &mut self,
        ended: Result<(), (Failure, Vec<Failure>)>,
    ) -> Result<(), (Failure, Vec<Failure>)> {
        match &ended {
            Err((failure, _)) => self.leave_ranks(failure),
            Ok(()) if self.ranks.several => {
                let met = self.collective("end", |ranks| ranks.strategy.gather("end", Vec::new()));
                return met.map(|_| ()).map_err(|failure| (failure, Vec::new()));
            }
            Ok(()) => {}
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_ranks_decide_alike_counts_once_and_everything_else_in_the_order_of_ranks() {
        assert_eq!(together([vec!["a", "b"], vec!["b", "c"], vec!["c", "c"]]), ["a", "b", "c", "c"]);
        assert_eq!(together([vec!["a", "a"], vec!["a"]]), ["a", "a"], "twice on one rank is twice");
        assert_eq!(together([vec![], vec!["x"]]), ["x"]);
    }
}
