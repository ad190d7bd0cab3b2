//! The collectives of several ranks: one method per call site.
//!
//! All ranks run through the same events in the same order, and so through the same call sites. With one rank
//! each call site is one branch. After a failure of this rank no collective follows: the strategy aborts,
//! which ends the other ranks.
//!
//! Decisions are deferred until the ranks [agree](Loop::agree). Then all ranks apply the decisions of all
//! ranks in the same order; a decision that several ranks made alike is applied once. Swaps of weights are
//! not deferred: each rank swaps its own copy, so a hook that requests a swap must run on all ranks.

mod gradients;
mod start;

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tenterhook_core::metrics::Aggregates;
use tenterhook_core::random::seed_at;
use tenterhook_core::tensor::ReadScalar;
use tenterhook_core::{
    BoxError, Decision, Failure, HookDecision, Phase, Request, RequestedChange, RosterRequest, RunState,
    World,
};

use super::update::purpose;
use super::{Callee, Loop};
use crate::data::{BatchData, Fetch};
use crate::journal::{Recording, RunNotice};
use crate::losses::LazyScalar;
use crate::module::Module;
use crate::strategy::{RankError, Strategy};

/// This rank, its strategy, and the decisions that are deferred until the ranks agree.
pub(crate) struct Ranks {
    pub(crate) strategy: Box<dyn Strategy>,
    pub(crate) world: World,
    /// There are several ranks, and this one has not failed.
    pub(crate) several: bool,
    deferred: Vec<HookDecision>,
    /// A signal that any rank has received.
    pub(crate) signal: Option<String>,
    /// The time of rank 0 when the ranks last agreed.
    elapsed: Duration,
    /// The number of samples in the micro-batch, on this rank and on all.
    samples: (u64, u64),
    /// The number of tokens in the micro-batch, on all ranks.
    tokens: u64,
    /// The recorder of a rank other than 0, which is not used.
    pub(crate) unused_recording: Option<Recording>,
}

impl Ranks {
    pub(crate) fn new(strategy: Box<dyn Strategy>) -> Ranks {
        let world = strategy.world();
        Ranks {
            strategy,
            world,
            several: world.is_distributed(),
            deferred: Vec::new(),
            signal: None,
            elapsed: Duration::ZERO,
            samples: (0, 0),
            tokens: 0,
            unused_recording: None,
        }
    }

    fn gather<T: Serialize + DeserializeOwned>(
        &mut self,
        site: &str,
        message: &T,
    ) -> Result<Vec<T>, BoxError> {
        let messages = self.strategy.gather(site, serde_json::to_vec(message)?)?;
        let (count, ranks) = (messages.len(), self.world.size);
        if count != ranks {
            return Err(format!("`{site}` gathered {count} messages of {ranks} ranks").into());
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

    /// The number of samples and tokens in the micro-batch, on all ranks.
    pub(crate) fn samples_and_tokens(&self, batch: &impl BatchData) -> (u64, u64) {
        if self.several { (self.samples.1, self.tokens) } else { (batch.size() as u64, batch.tokens()) }
    }

    /// The fraction of the micro-batch's samples that this rank has.
    fn share(&self) -> f64 {
        let (own, all) = self.samples;
        own as f64 / all.max(1) as f64
    }

    /// The time for `max_time` and `val_check_interval`: that of rank 0.
    pub(crate) fn time(&self, shared: &RunState) -> Duration {
        if self.several { self.elapsed } else { shared.elapsed() }
    }

    /// The engine's seed of a step. Each rank has its own.
    #[inline]
    pub(crate) fn step_seed(&self, shared: &RunState, phase: Phase, position: u64) -> u64 {
        let seed = seed_at(shared.streams.borrow().seed(), purpose(phase), position);
        match self.world.rank {
            0 => seed,
            rank => seed_at(seed, rank as u64, position),
        }
    }

    /// Aborts the other ranks after a failure of this one. A failure of another rank is not passed on.
    pub(crate) fn leave(&mut self, failure: &Failure) {
        if !std::mem::replace(&mut self.several, false) {
            return;
        }
        if !matches!(failure.error.downcast_ref(), Some(RankError::Failed { .. })) {
            self.strategy.abort(&failure.to_string());
        }
    }
}

/// The message of a rank when the ranks agree on decisions.
#[derive(Serialize, Deserialize)]
struct DecisionMessage {
    decided: Vec<HookDecision>,
    requested: Vec<RequestedChange>,
    disabled: Vec<String>,
    signal: Option<String>,
    elapsed: Duration,
}

/// The result of fetching a batch on a rank.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
enum RankFetch {
    Batch { size: u64, tokens: u64, is_last: bool },
    End,
    Cancelled,
}

impl RankFetch {
    fn describe(self) -> &'static str {
        match self {
            RankFetch::Batch { is_last: true, .. } => "the last batch",
            RankFetch::Batch { is_last: false, .. } => "a batch that is not the last",
            RankFetch::End => "no further batch",
            RankFetch::Cancelled => "no batch yet",
        }
    }
}

/// Merges the decisions of all ranks: those of rank 0, then those that only later ranks made.
fn merged<T: PartialEq>(by_rank: impl IntoIterator<Item = Vec<T>>) -> Vec<T> {
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
    /// Runs a collective. Its error is a failure of the strategy.
    pub(crate) fn collective<T>(
        &mut self,
        site: &'static str,
        collective: impl FnOnce(&mut Ranks) -> Result<T, BoxError>,
    ) -> Result<T, Failure> {
        let calling = self.calling;
        let result = call!(self, Strategy, site, collective(&mut self.ranks))?;
        self.calling = calling;
        Ok(result)
    }

    /// Call sites `skipped batches`, `skipped updates`, `optimizer step` and `decisions`: applies the
    /// decisions of all ranks, and the changes of the list of hooks that they requested.
    #[inline]
    pub(crate) fn agree(&mut self, module: &mut M, site: &'static str) -> Result<(), Failure> {
        if self.ranks.several { self.agree_on_decisions(module, site) } else { Ok(()) }
    }

    #[cold]
    fn agree_on_decisions(&mut self, module: &mut M, site: &'static str) -> Result<(), Failure> {
        let message = DecisionMessage {
            decided: std::mem::take(&mut self.ranks.deferred),
            requested: self.hooks.requested(&self.shared),
            disabled: self.hooks.disabled(),
            signal: self.ending.interrupt.is_requested().then(|| self.ending.interrupt.signal()),
            elapsed: self.shared.elapsed(),
        };
        let messages = self.collective(site, |ranks| ranks.gather(site, &message))?;
        self.ranks.elapsed = messages[0].elapsed;
        let signal = messages.iter().find_map(|message| message.signal.clone());
        self.ranks.signal = self.ranks.signal.take().or(signal);
        self.disable_as_on_other_ranks(&messages);
        let (decided, requested): (Vec<_>, Vec<_>) =
            messages.into_iter().map(|message| (message.decided, message.requested)).unzip();
        let requested = merged(requested);
        if !requested.is_empty() {
            self.hooks.apply_roster_changes_of_all_ranks(requested, &run_cx!(self, module));
        }
        for decided in merged(decided) {
            self.apply_decision(module, &decided)?;
        }
        self.after_event(module)
    }

    /// Disables hooks that another rank has disabled, because they failed too often or exceeded their budget.
    fn disable_as_on_other_ranks(&mut self, messages: &[DecisionMessage]) {
        let own = &messages[self.ranks.world.rank];
        for (rank, message) in messages.iter().enumerate() {
            let failed = message.requested.iter().filter_map(|(by, request)| match request {
                RosterRequest::Disable(hook) if by.is_none() => Some(hook),
                _ => None,
            });
            let failed_here =
                |hook: &String| own.requested.contains(&(None, RosterRequest::Disable(hook.clone())));
            for hook in message.disabled.iter().chain(failed) {
                if own.disabled.contains(hook) || failed_here(hook) || self.hooks.disable(hook).is_err() {
                    continue;
                }
                let reason = format!("it was disabled on rank {rank}");
                self.note(RunNotice::Said { hook: hook.clone(), text: reason.clone() });
                self.journal.disabled.push((hook.clone(), reason));
            }
        }
    }

    /// Defers a decision until the ranks agree. Swaps of weights are applied at once.
    pub(super) fn defer_decision(&mut self, module: &mut M, decided: HookDecision) -> Result<(), Failure> {
        let HookDecision { hook, event, decision } = decided;
        let (flows, requests) = decision.into_parts();
        let (swaps, requests): (Vec<_>, Vec<_>) = requests
            .into_iter()
            .partition(|request| matches!(request, Request::SwapWeights(_) | Request::SwapBack));
        let decision = flows.into_iter().fold(Decision::CONTINUE, Decision::and);
        let decision = requests.into_iter().fold(decision, Decision::request);
        if !decision.is_continue() {
            self.ranks.deferred.push(HookDecision { hook: hook.clone(), event, decision });
        }
        if swaps.is_empty() {
            return Ok(());
        }
        let decision = swaps.into_iter().fold(Decision::CONTINUE, Decision::request);
        let decided = HookDecision { hook, event, decision };
        if !self.hooks.ranks_of(&decided.hook).is_all() {
            return self
                .refuse_decision(&decided, "only a hook that runs on all ranks can swap weights".into());
        }
        self.apply_decision(module, &decided)
    }

    /// Call site `batch`: all ranks have a batch, or none has. `describe` returns the fetched batch, and
    /// whether it is known to be the last.
    #[inline]
    pub(crate) fn agree_on_batch<T>(
        &mut self,
        module: &mut M,
        fetched: Fetch<T>,
        describe: impl Fn(&T) -> (&M::Batch, bool),
    ) -> Result<Fetch<T>, Failure> {
        if !self.ranks.several {
            return Ok(fetched);
        }
        let own = match &fetched {
            Fetch::Batch(fetched) => {
                let (batch, is_last) = describe(fetched);
                RankFetch::Batch { size: batch.size() as u64, tokens: batch.tokens(), is_last }
            }
            Fetch::End => RankFetch::End,
            Fetch::Cancelled => RankFetch::Cancelled,
        };
        let all_fetched = self.compare_fetches(module, own)?;
        Ok(if all_fetched { fetched } else { Fetch::Cancelled })
    }

    /// Returns `false` if a rank has cancelled its fetch because the run ends.
    fn compare_fetches(&mut self, module: &mut M, own: RankFetch) -> Result<bool, Failure> {
        let all = self.collective("batch", |ranks| ranks.gather("batch", &own))?;
        self.agree(module, "decisions")?;
        if all.contains(&RankFetch::Cancelled) {
            return Ok(false);
        }
        // Fetches that are described alike differ at most in the size of the batch.
        let main = all[0].describe();
        if let Some(rank) = all.iter().position(|other| other.describe() != main) {
            let other = all[rank].describe();
            let error =
                format!("the data differs between ranks: rank 0 has {main}, and rank {rank} has {other}");
            return self.fail(Callee::Data, "next", error);
        }
        if let RankFetch::Batch { size: own, .. } = own {
            self.ranks.samples = (own, 0);
            self.ranks.tokens = 0;
            for fetch in all {
                let RankFetch::Batch { size, tokens, .. } = fetch else { continue };
                self.ranks.samples.1 += size;
                self.ranks.tokens += tokens;
            }
        }
        Ok(true)
    }

    /// Call site `loss`: the mean over the samples of all ranks, which hooks read. The scalar itself remains
    /// this rank's, for `backward`.
    pub(crate) fn loss_of_all(
        &mut self,
        loss: Option<LazyScalar<M::Scalar>>,
    ) -> Result<Option<LazyScalar<M::Scalar>>, Failure> {
        if !self.ranks.several {
            return Ok(loss);
        }
        let mut sums = loss.as_ref().map_or([0.0; 2], |loss| [loss.read() * self.ranks.share(), 1.0]);
        self.collective("loss", |ranks| ranks.strategy.sum_f64("loss", &mut sums))?;
        let [mean, count] = sums;
        if count > 0.0 && count < self.ranks.world.size as f64 {
            let error = format!(
                "`training_step` returned a loss on {count} of {} ranks; it must on all of them or on none",
                self.ranks.world.size
            );
            return self.fail(Callee::Module, "training_step", error);
        }
        Ok(loss.map(|loss| loss.known_as(mean)))
    }

    /// Call sites `metric names` and `metrics`: reduces the metrics of the epoch or evaluation over all
    /// ranks.
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

    /// Call site `plateau`: the metric of rank 0.
    pub(crate) fn plateau_of_all(&mut self, metric: Option<f64>) -> Result<Option<f64>, Failure> {
        if !self.ranks.several {
            return Ok(metric);
        }
        let bits = metric.map(f64::to_bits);
        let bits = self.collective("plateau", |ranks| ranks.broadcast("plateau", &bits))?;
        Ok(bits.map(f64::from_bits))
    }

    /// Call site `end`: the call succeeds if it does on all ranks.
    pub(crate) fn end_on_all(
        &mut self,
        ended: Result<(), (Failure, Vec<Failure>)>,
    ) -> Result<(), (Failure, Vec<Failure>)> {
        match &ended {
            Err((failure, _)) => self.ranks.leave(failure),
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
    fn a_decision_of_several_ranks_counts_once_and_others_keep_the_order_of_ranks() {
        assert_eq!(merged([vec!["a", "b"], vec!["b", "c"], vec!["c", "c"]]), ["a", "b", "c", "c"]);
        assert_eq!(merged([vec!["a", "a"], vec!["a"]]), ["a", "a"], "twice on one rank is twice");
        assert_eq!(merged([vec![], vec!["x"]]), ["x"]);
    }
}
