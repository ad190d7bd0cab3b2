//! Tests of the Burn engine: the same numbers as a hand-written loop, state by parameter name, exact resume.

#![allow(clippy::unwrap_used, clippy::expect_used)]
// The compared numbers are exact in binary, or must be the same to the bit.
#![allow(clippy::float_cmp)]

mod accumulation;
mod by_hand;
mod changes;
mod clipping;
mod devices;
mod evaluation;
mod failures;
mod groups;
mod lab;
mod losses;
mod matching;
mod names;
mod points;
mod preludes;
mod rates;
mod resume;
mod snapshots;
mod updates;
mod weights;
