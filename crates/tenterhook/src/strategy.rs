//! The strategy: how training is distributed over processes. The default is [`Solo`], one process.
//!
//! A strategy receives events and implements the collectives of the loop. All ranks call the same collectives
//! in the same order. Each gets the name of its call site, so that a strategy can detect ranks at different
//! call sites ([`RankError::Apart`]). The strategy fixes the order of summation, which must not depend on the
//! order in which ranks arrive.
//!
//! | call site | collective | purpose |
//! |---|---|---|
//! | `start` | broadcast | run id, directory, seed, and the checkpoint to resume, of rank 0 |
//! | `plan` | gather | compares configuration, hooks and processor |
//! | `parameters` | gather | compares names and shapes of the parameters, and the length of an epoch |
//! | `batch` | gather | whether all ranks have a batch, and its size |
//! | `loss` | sum | the loss of the micro-batch: the mean over all samples |
//! | `gradients` | sum | the gradients of the micro-batch, before they are added to the accumulation window |
//! | `skipped batches`, `skipped updates`, `optimizer step`, `decisions` | gather | decisions of hooks, disabled hooks, signals, the time |
//! | `plateau` | broadcast | the metric of a plateau scheduler |
//! | `metric names`, `metrics` | gather, sum | the aggregated metrics of an epoch or evaluation |
//! | `saves` | broadcast | checkpoints that are durable, and those that could not be written |
//! | `end` | gather | whether the call has succeeded on all ranks |
//!
//! Metrics that are logged per step, other than the loss, are not reduced. Those of rank 0 are recorded.

use tenterhook_core::{BoxError, Failure, Progress, Stage, World};

macro_rules! define_strategy {
    ($($handler:ident)*) => {
        /// Receives events after hooks and module, and implements the collectives of the loop.
        ///
        /// The defaults do nothing, which is right for one process. A strategy with a larger
        /// [`world`](Strategy::world) implements all collectives. An error of a collective ends the call.
        pub trait Strategy: Send {
            /// The rank of this process, and the number of ranks. Called first in every call of the trainer.
            fn world(&self) -> World {
                World::SOLO
            }

            /// Replaces the values by their sums over all ranks. The sums are bit-identical on all ranks.
            fn sum_f32(&mut self, _site: &str, _values: &mut [f32]) -> Result<(), BoxError> {
                alone(self.world(), "sum_f32")
            }

            /// The same for double precision.
            fn sum_f64(&mut self, _site: &str, _values: &mut [f64]) -> Result<(), BoxError> {
                alone(self.world(), "sum_f64")
            }

            /// Returns the messages of all ranks, by rank. They are small and may differ in length.
            fn gather(&mut self, _site: &str, message: Vec<u8>) -> Result<Vec<Vec<u8>>, BoxError> {
                alone(self.world(), "gather").map(|()| vec![message])
            }

            /// Returns the message of rank 0. Those of the others are ignored.
            fn broadcast(&mut self, _site: &str, message: Vec<u8>) -> Result<Vec<u8>, BoxError> {
                alone(self.world(), "broadcast").map(|()| message)
            }

            /// Waits until all ranks have called it: a barrier.
            fn wait(&mut self, _site: &str) -> Result<(), BoxError> {
                alone(self.world(), "wait")
            }

            /// Aborts the other ranks after a failure of this one: the current or next collective of each
            /// must return [`RankError::Failed`]. Called once, before `on_exception`; no collective follows.
            fn abort(&mut self, _reason: &str) {}

            /// Called when hooks and module are set up and the checkpoint's weights are restored.
            fn setup(&mut self, _stage: Stage) -> Result<(), BoxError> {
                Ok(())
            }

            /// Called before all other parts are torn down.
            fn teardown(&mut self, _stage: Stage) -> Result<(), BoxError> {
                Ok(())
            }

            /// The run has failed.
            fn on_exception(&mut self, _failure: &Failure) -> Result<(), BoxError> {
                Ok(())
            }

            $(
                /// See the event of this name.
                fn $handler(&mut self, _at: &Progress) -> Result<(), BoxError> {
                    Ok(())
                }
            )*
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! for_each_strategy_handler {
    ($then:ident) => {
        $crate::for_each_handler_of! { strategy $then }
    };
}

for_each_strategy_handler!(define_strategy);

/// One process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Solo;

impl Strategy for Solo {}

/// An error of a collective.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RankError {
    /// A rank has failed, which ends the job on all of them.
    #[error("rank {rank} has failed: {reason}")]
    Failed {
        /// The rank that failed first.
        rank: usize,
        /// The failure.
        reason: String,
    },
    /// Two ranks are at different collectives.
    #[error("rank {} is at `{}`, and rank {} is at `{}`", one.0, one.1, other.0, other.1)]
    Apart {
        /// A rank, and its collective.
        one: (usize, String),
        /// Another.
        other: (usize, String),
    },
    /// A rank did not reach a collective in time.
    #[error("rank {rank} did not reach `{site}` within {seconds} s")]
    Missing {
        /// The rank.
        rank: usize,
        /// The call site at which others waited.
        site: String,
        /// The time that they waited.
        seconds: u64,
    },
    /// The strategy lacks a collective that several ranks need.
    #[error("this strategy has {size} ranks, and does not implement `{method}`")]
    Unimplemented {
        /// The method.
        method: &'static str,
        /// The number of ranks.
        size: usize,
    },
}

/// The default of all collectives, which is allowed only with one rank.
fn alone(world: World, method: &'static str) -> Result<(), BoxError> {
    match world.size {
        1 => Ok(()),
        size => Err(RankError::Unimplemented { method, size }.into()),
    }
}
