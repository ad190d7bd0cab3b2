//! Fuzzing of everything that reads what others have written: no input may panic, hang or be accepted wrongly.
//!
//! A few hundred inputs per target run with the other tests. `TENTERHOOK_FUZZ_SECONDS=60` fuzzes each target for that
//! long, `TENTERHOOK_FUZZ_SEED` chooses other inputs, and `TENTERHOOK_FUZZ_INPUT=FILE` tries one file again.

mod answers;
mod files;
mod harness;
mod mutate;
pub(crate) mod runs;
mod schema;
mod texts;
