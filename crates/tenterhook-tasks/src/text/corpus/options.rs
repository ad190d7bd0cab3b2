//! Which text, and how it is divided, as configuration has it.

use std::ops::Range;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook::data::InterleaveOptions;

use super::{CorpusError, TextSource};

/// Which text to learn, and how it is divided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TextOptions {
    /// A file, or a directory: then all files below it one after the other, sorted by path, without hidden
    /// ones. Without it: the built-in handbook.
    pub path: Option<PathBuf>,
    /// How much of the text is to validate on: what stands before the part to test on.
    pub val_fraction: f64,
    /// How much of the text is to test on: its end.
    pub test_fraction: f64,
    /// How many bytes after one window the next begins. Without it, the model's context: then every byte is
    /// predicted once per epoch. Less gives more, overlapping windows.
    pub stride: Option<usize>,
    /// Several texts in the place of `path`: each is divided for itself and has loaders of its own, so that it is
    /// validated and tested for itself, too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<TextSource>,
    /// How the training batches of several texts take turns.
    // What nobody set is not written, so that configurations from before it existed are the same as now.
    #[serde(skip_serializing_if = "is_unset")]
    pub mix: InterleaveOptions,
}

fn is_unset(mix: &InterleaveOptions) -> bool {
    *mix == InterleaveOptions::default()
}

impl Default for TextOptions {
    fn default() -> TextOptions {
        let (sources, mix) = Default::default();
        TextOptions { path: None, val_fraction: 0.1, test_fraction: 0.1, stride: None, sources, mix }
    }
}

impl TextOptions {
    /// What is wrong whatever the text is.
    pub(super) fn check(&self, context: usize) -> Result<(), CorpusError> {
        let wrong = |key, problem: &str| Err(CorpusError::Option { key, problem: problem.to_owned() });
        if context == 0 {
            return wrong("context", "must be at least 1");
        }
        if self.stride == Some(0) {
            return wrong("stride", "must be at least 1; leave it out for windows side by side");
        }
        for (key, fraction) in [("val_fraction", self.val_fraction), ("test_fraction", self.test_fraction)] {
            if !(0.0..1.0).contains(&fraction) {
                return wrong(key, "must be a fraction from 0 up to, not including, 1");
            }
        }
        if self.val_fraction + self.test_fraction >= 1.0 {
            return wrong("val_fraction", "and `test_fraction` leave nothing to train on; lower them");
        }
        Ok(())
    }

    /// Where in a text of this length to train, validate and test.
    pub(super) fn parts(&self, len: u64) -> [Range<u64>; 3] {
        let test = len - share(len, self.test_fraction);
        let validate = test - share(len, self.val_fraction).min(test);
        [0..validate, validate..test, test..len]
    }

    /// The shortest text of which every part holds a window.
    pub(super) fn needed(&self, context: usize) -> u64 {
        let window = context as u64 + 1;
        let enough = |len: u64| {
            let wanted = [1.0, self.val_fraction, self.test_fraction];
            let parts = self.parts(len);
            parts.iter().zip(wanted).all(|(part, share)| share <= 0.0 || part.end - part.start >= window)
        };
        let mut needed = window;
        while !enough(needed) && needed < u64::MAX / 2 {
            needed *= 2;
        }
        // Parts only grow with the text, so the border lies between.
        let (mut short, mut long) = (needed / 2, needed);
        while short < long {
            let middle = short.midpoint(long);
            if enough(middle) { long = middle } else { short = middle + 1 }
        }
        long
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn share(len: u64, fraction: f64) -> u64 {
    (len as f64 * fraction) as u64
}
