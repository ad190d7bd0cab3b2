//! The strategy: how training is distributed over processes. [`Solo`], one process, is the default.
//!
//! A strategy receives events, and it carries out the collectives of the loop: every rank calls the same ones in the same order.
//! Each has the name of its call site, so that a strategy can find ranks that are at different ones ([`RankError::Apart`]). What
//! is added up is added in an order that the strategy fixes and that does not depend on which rank comes first.
//!
//! | call site | collective | what the ranks agree on |
//! |---|---|---|
//! | `start` | broadcast | run id, directory, seed, and the checkpoint to resume, as rank 0 has them |
//! | `plan` | gather | configuration, hooks and processor are the same |
//! | `parameters` | gather | names and shapes of the parameters, and the length of an epoch, are the same |
//! | `batch` | gather | whether there is a batch, and how large it is |
//! | `loss` | sum | the loss of the micro-batch: the mean over all samples |
//! | `gradients` | sum | the gradients of the micro-batch, before they are added to the accumulation window |
//! | `skipped batches`, `skipped updates`, `optimizer step`, `decisions` | gather | decisions of hooks, disabled hooks, signals, the time |
//! | `plateau` | broadcast | the metric of a scheduler that waits for a plateau |
//! | `metric names`, `metrics` | gather, sum | what an epoch or an evaluation has aggregated |
//! | `saves` | broadcast | which checkpoints are durable, and which could not be written |
//! | `end` | gather | that the call has succeeded on all ranks |
//!
//! Numbers that are logged at once within a step, besides the loss, are those of each rank. What rank 0 logged is recorded.

use tenterhook_core::{BoxError, Failure, Progress, Stage, World};

macro_rules! define_strategy {
    ($($handler:ident)*) => {
        /// Receives these events after hooks and module, and carries out the collectives of the loop.
        ///
        /// The defaults do nothing, which is right for one process. A strategy with a larger [`world`](Strategy::world)
        /// implements all collectives. An error of a collective ends the call.
        pub trait Strategy: Send {
            /// Which rank this is, and of how many. Asked at the beginning of a call, before anything else.
            fn world(&self) -> World {
                World::SOLO
            }

            /// Replaces the values by their sums over all ranks. The sums are the same on all ranks, to the bit.
            fn sum_f32(&mut self, _site: &str, _values: &mut [f32]) -> Result<(), BoxError> {
                alone(self.world(), "sum_f32")
            }

            /// The same for numbers of double precision.
            fn sum_f64(&mut self, _site: &str, _values: &mut [f64]) -> Result<(), BoxError> {
                alone(self.world(), "sum_f64")
            }

            /// The messages of all ranks, by rank. They are small, and need not be of one length.
            fn gather(&mut self, _site: &str, message: Vec<u8>) -> Result<Vec<Vec<u8>>, BoxError> {
                alone(self.world(), "gather").map(|()| vec![message])
            }

            /// The message of rank 0; those of the others are ignored.
            fn broadcast(&mut self, _site: &str, message: Vec<u8>) -> Result<Vec<u8>, BoxError> {
                alone(self.world(), "broadcast").map(|()| message)
            }

            /// Waits until all ranks are here.
            fn wait(&mut self, _site: &str) -> Result<(), BoxError> {
                alone(self.world(), "wait")
            }

            /// This rank has failed: the collective in which another rank waits, or its next one, must return
            /// [`RankError::Failed`]. Called once, before hooks are told of the failure; no collective follows.
            fn abort(&mut self, _reason: &str) {}

            /// After hooks and module are set up and the checkpoint's weights are restored.
            fn setup(&mut self, _stage: Stage) -> Result<(), BoxError> {
                Ok(())
            }

            /// Before everybody else is torn down.
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

/// Why a collective failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RankError {
    /// A rank has failed, which ends the job on all of them.
    #[error("rank {rank} has failed: {reason}")]
    Failed {
        /// The rank that failed first.
        rank: usize,
        /// Why.
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
    /// A rank did not come to a collective in time.
    #[error("rank {rank} did not come to `{site}` within {seconds} s")]
    Missing {
        /// The rank.
        rank: usize,
        /// The call site at which others waited.
        site: String,
        /// How long they waited.
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

/// A collective of one rank needs nothing.
fn alone(world: World, method: &'static str) -> Result<(), BoxError> {
    match world.size {
        1 => Ok(()),
        size => Err(RankError::Unimplemented { method, size }.into()),
    }
}
