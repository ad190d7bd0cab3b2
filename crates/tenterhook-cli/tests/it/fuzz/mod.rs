//! Fuzzing of all code that reads untrusted input: no input may cause a panic or a hang, or be wrongly
//! accepted.
//!
//! A few hundred inputs per target run with the other tests. `TENTERHOOK_FUZZ_SECONDS=60` sets the time per target,
//! `TENTERHOOK_FUZZ_SEED` the seed, and `TENTERHOOK_FUZZ_INPUT=FILE` runs a single input.

mod answers;
mod files;
mod harness;
mod mutate;
pub(crate) mod runs;
mod schema;
mod texts;
