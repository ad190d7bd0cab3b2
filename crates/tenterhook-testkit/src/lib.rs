//! Test a hook without a trainer: made-up contexts, scripted events, and what the hook decided, logged
//! and kept.
//!
//! **Invariant.** Events are delivered by the real runner, so what a test sees of policies, disabling and
//! toggles is what a run will do. Only the run around the hook is made up.
//!
//! # A test, from beginning to end
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
//! | how do I say what the event finds? | the setters of [`Rig`] |
//! | how do I send a whole run? | [`Fit`], [`Rig::play`] |
//! | does my hook resume to the same? | [`check_resume`]; by hand, [`Rig::resumed`] |
//! | what did it do wrong, and what came of it? | [`Rig::failures`], [`Reply::failure`] |
//! | parameters, gradients, activations? | [`NamedTensors`] |
//!
//! With the cargo feature `trainer` there is also what tests of a trainer need: `recording`, a toy that records every call,
//! `ranks`, a strategy whose ranks are threads of one process, and `Scenario`, which `tenter trace FILE.json` runs.

// Only one place prints, which makes untrusted text harmless.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod events;
mod findings;
mod given;
mod kinds;
mod model;
mod probe;
#[cfg(feature = "trainer")]
pub mod ranks;
#[cfg(feature = "trainer")]
pub mod recording;
mod resume;
mod rig;
#[cfg(feature = "trainer")]
mod scenario;
mod script;
mod world;

pub use findings::{Effect, Failed, Reply};
pub use resume::check_resume;
pub use rig::Rig;
#[cfg(feature = "trainer")]
pub use scenario::Scenario;
pub use script::{Cue, Fit};
#[doc(no_inline)]
pub use tenterhook_core::NamedTensors;
