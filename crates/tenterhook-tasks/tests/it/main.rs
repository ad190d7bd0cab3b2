//! The built-in tasks under the trainer.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod neutrality;
