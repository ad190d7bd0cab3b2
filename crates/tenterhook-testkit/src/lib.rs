//! Test a hook without a trainer: set the state of a simulated run, deliver events, and inspect what the hook
//! decided, logged and saved.
//!
//! **Invariant.** Events are delivered by the real runner, so policies, disabling and toggles behave as in a real run. Only the
//! run around the hook is simulated.
//!
//! # A complete test
//!
//! The hook under test halves every learning rate once it has seen more than ten high losses:
//!
//! ```
//! use std::time::Duration;
//!
//! use tenterhook_core::{hook, Controller, Decision, Event, HookResult, TrainBatchEnd, TrainStart};
//! use tenterhook_testkit::Rig;
//!
//! struct HalveLr {
//!     threshold: f64,
//!     high_losses: u32,
//!     start_time: Option<Duration>,
//! }
//!
//! impl HalveLr {
//!     fn new(threshold: f64) -> HalveLr {
//!         HalveLr { threshold, high_losses: 0, start_time: None }
//!     }
//! }
//!
//! #[hook(reads = ["train/loss"])]
//! impl Controller for HalveLr {
//!     fn on_train_start(&mut self, cx: &TrainStart) -> HookResult<Decision> {
//!         self.start_time = Some(cx.elapsed());
//!         Ok(Decision::CONTINUE)
//!     }
//!
//!     fn on_train_batch_end(&mut self, cx: &TrainBatchEnd) -> HookResult<Decision> {
//!         if cx.loss.as_ref().is_none_or(|loss| loss.value() <= self.threshold) {
//!             return Ok(Decision::CONTINUE);
//!         }
//!         self.high_losses += 1;
//!         Ok(if self.high_losses > 10 { Decision::scale_lr(0.5) } else { Decision::CONTINUE })
//!     }
//! }
//!
//! // Create the rig: a run with one optimizer and the hook under test.
//! let mut rig = Rig::new(HalveLr::new(5.0));
//! rig.lr(0.001);
//!
//! // Test lifecycle methods.
//! rig.elapsed(Duration::from_secs(2)).on_train_start();
//! assert_eq!(rig.hook().start_time, Some(Duration::from_secs(2)));
//!
//! // Test batch processing.
//! rig.loss(15.0).on_train_batch_end();
//! assert_eq!(rig.hook().high_losses, 1);
//!
//! // Test threshold behaviour.
//! for _ in 0..10 {
//!     rig.on_train_batch_end();
//! }
//!
//! // Check that the learning rate was reduced, once.
//! assert_eq!(rig.decisions(), [(Event::TrainBatchEnd, Decision::scale_lr(0.5))]);
//! assert_eq!(rig.learning_rates(), [0.0005]);
//! assert!(rig.failures().is_empty());
//! ```
//!
//! # Where to look
//!
//! | question | answer |
//! |---|---|
//! | how do I set the values of a context? | the setters of [`Rig`] |
//! | how do I deliver the events of a whole run? | [`FitScript`], [`Rig::play`] |
//! | does my hook resume exactly? | [`check_resume`], or [`Rig::resumed`] step by step |
//! | how did it fail, and what did the policy do? | [`Rig::failures`], [`Delivery::failure`] |
//! | parameters, gradients, activations? | [`NamedTensors`] |
//!
//! The cargo feature `trainer` adds what tests of a trainer need: `recording`, a toy that records every call, `ranks`, a strategy
//! whose ranks are threads of one process, and `Scenario`, which `tenter trace FILE.json` runs.

// Only the app prints, in one place that escapes untrusted text.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod events;
mod fit_script;
mod model;
mod outcomes;
mod probe;
#[cfg(feature = "trainer")]
pub mod ranks;
#[cfg(feature = "trainer")]
pub mod recording;
mod resume;
mod rig;
#[cfg(feature = "trainer")]
mod scenario;
mod setters;
mod simulated_run;

pub use fit_script::{FitScript, ScriptEntry};
pub use outcomes::{Delivery, FailureEffect, RecordedFailure};
pub use resume::check_resume;
pub use rig::Rig;
#[cfg(feature = "trainer")]
pub use scenario::Scenario;
#[doc(no_inline)]
pub use tenterhook_core::NamedTensors;
