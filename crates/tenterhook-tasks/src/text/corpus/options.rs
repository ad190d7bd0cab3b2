//! The `[data]` table.

use std::ops::Range;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook::data::InterleaveOptions;
use tenterhook::task::Problem;

use super::TextSource;

/// The text to learn, and how it is split.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TextOptions {
    /// A file or a directory. The files of a directory are concatenated in the order of their paths, without
    /// hidden files. Default: the built-in handbook.
    pub path: Option<PathBuf>,
    /// Fraction of the text for validation: the part before the test set.
    pub val_fraction: f64,
    /// Fraction of the text for testing: its end.
    pub test_fraction: f64,
    /// Distance in bytes between the starts of consecutive windows. Smaller values give more, overlapping
    /// windows. Default: the context of the model, which predicts every byte once per epoch.
    pub stride: Option<usize>,
    /// Several texts instead of `path`. Each is split separately and has its own data loaders, so metrics are logged for each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<TextSource>,
    /// How the training batches of several texts are interleaved.
    // The default is not serialized, so older configurations compare as equal.
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
    /// Checks the options independently of the text.
    pub(super) fn check(&self, context: usize) -> Result<(), Problem> {
        let wrong = |key, problem: &str| Err(Problem::new(key, format!("`{key}` {problem}")));
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

    /// The training, validation and test ranges in a text of this length.
    pub(super) fn parts(&self, len: u64) -> [Range<u64>; 3] {
        let test = len - share(len, self.test_fraction);
        let validate = test - share(len, self.val_fraction).min(test);
        [0..validate, validate..test, test..len]
    }

    /// The length of the shortest text in which every part holds a window.
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
        // Parts grow with the text, so a binary search finds the length.
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
