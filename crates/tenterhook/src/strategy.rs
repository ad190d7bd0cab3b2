//! The strategy: how training is distributed. One process is the default; a user can pass his own.

use tenterhook_core::{BoxError, Failure, Progress, Stage};

macro_rules! define_strategy {
    ($($handler:ident)*) => {
        /// Receives these events after hooks and module. All handlers do nothing unless overridden.
        pub trait Strategy: Send {
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

/// Everything in this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct SingleProcess;

impl Strategy for SingleProcess {}
