//! Seeded random streams, one per purpose. A checkpoint saves their positions.

use std::collections::BTreeMap;

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use serde::{Deserialize, Serialize};

/// A random stream: a function of the run's seed, the purpose and the position.
#[derive(Clone, Debug, PartialEq)]
pub struct RandomStream(ChaCha8Rng);

impl RandomStream {
    /// The stream for this purpose and name, at its beginning.
    #[must_use]
    pub fn new(seed: u64, purpose: &str, name: &str) -> RandomStream {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..16].copy_from_slice(&fingerprint(purpose).to_le_bytes());
        key[16..24].copy_from_slice(&fingerprint(name).to_le_bytes());
        key[24..].copy_from_slice(&(name.len() as u64).to_le_bytes());
        RandomStream(ChaCha8Rng::from_seed(key))
    }

    /// The position in the stream.
    #[must_use]
    pub fn position(&self) -> u128 {
        self.0.get_word_pos()
    }

    /// Sets the position.
    pub fn seek(&mut self, position: u128) {
        self.0.set_word_pos(position);
    }

    /// A uniformly distributed number in [0, 1).
    pub fn uniform(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

impl RngCore for RandomStream {
    fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }
    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }
    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }
}

/// FNV-1a, which is sufficient for the few names of a run.
fn fingerprint(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A seed for the engine, as a function of the run's seed, a purpose and a position (`SplitMix64`). Cheap
/// enough for every step.
#[must_use]
pub fn seed_at(seed: u64, purpose: u64, position: u64) -> u64 {
    let mut mixed = seed ^ purpose.rotate_left(56) ^ position.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The random streams of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RandomStreams {
    seed: u64,
    open: BTreeMap<String, RandomStream>,
}

/// The positions of a run's random streams, for a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RandomPositions {
    /// The run's seed.
    pub seed: u64,
    /// Position by purpose and name, as decimal text, since JSON has no 128-bit integers.
    pub positions: BTreeMap<String, String>,
}

impl RandomStreams {
    /// The streams of a run with this seed.
    #[must_use]
    pub fn new(seed: u64) -> RandomStreams {
        RandomStreams { seed, open: BTreeMap::new() }
    }

    /// The run's seed.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The stream for this purpose and name, at its current position.
    pub fn stream(&mut self, purpose: &str, name: &str) -> &mut RandomStream {
        let seed = self.seed;
        self.open.entry(format!("{purpose}/{name}")).or_insert_with(|| RandomStream::new(seed, purpose, name))
    }

    /// The positions of all streams.
    #[must_use]
    pub fn positions(&self) -> RandomPositions {
        let positions = self.open.iter().map(|(key, stream)| (key.clone(), stream.position().to_string()));
        RandomPositions { seed: self.seed, positions: positions.collect() }
    }

    /// Restores streams from saved positions.
    #[must_use]
    pub fn at(positions: &RandomPositions) -> RandomStreams {
        let mut streams = RandomStreams::new(positions.seed);
        for (key, position) in &positions.positions {
            if let (Some((purpose, name)), Ok(position)) = (key.split_once('/'), position.parse()) {
                streams.stream(purpose, name).seek(position);
            }
        }
        streams
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(streams: &mut RandomStreams, name: &str) -> u64 {
        streams.stream("hook", name).next_u64()
    }

    #[test]
    fn drawing_from_a_stream_affects_no_other() {
        let (mut alone, mut together) = (RandomStreams::new(7), RandomStreams::new(7));
        let expected = [draw(&mut alone, "a"), draw(&mut alone, "a")];
        let first = draw(&mut together, "a");
        draw(&mut together, "b");
        assert_eq!([first, draw(&mut together, "a")], expected);
        assert_ne!(draw(&mut RandomStreams::new(8), "a"), expected[0]);
    }

    #[test]
    fn streams_continue_from_saved_positions() {
        let mut streams = RandomStreams::new(3);
        draw(&mut streams, "a");
        let mut copy = RandomStreams::at(&streams.positions());
        assert_eq!(draw(&mut copy, "a"), draw(&mut streams, "a"));
        assert_eq!(draw(&mut copy, "new"), draw(&mut streams, "new"));
    }
}
