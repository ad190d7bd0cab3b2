//! A part of a text, divided into windows.

use std::ops::Range;
use std::sync::Arc;

use tenterhook::BoxError;
use tenterhook::data::{Dataset, Fingerprint, Sample};

use super::Corpus;

/// A part of a text, divided into windows of `context + 1` bytes. Each window is a sample: all bytes but the
/// last are the input, all but the first are the targets.
#[derive(Clone, Debug)]
pub struct Windows {
    corpus: Arc<Corpus>,
    part: Range<u64>,
    context: usize,
    stride: usize,
}

impl Windows {
    /// The windows of a part of a text, `stride` bytes apart. Bytes after the last whole window are not used.
    #[must_use]
    pub fn new(corpus: Arc<Corpus>, part: Range<u64>, context: usize, stride: usize) -> Windows {
        Windows { corpus, part, context, stride: stride.max(1) }
    }

    /// The range of the part within the text.
    #[must_use]
    pub fn part(&self) -> Range<u64> {
        self.part.clone()
    }
}

impl Dataset for Windows {
    type Item = Vec<u8>;

    fn len(&self) -> usize {
        let bytes = self.part.end.saturating_sub(self.part.start);
        let Some(room) = bytes.checked_sub(self.context as u64 + 1) else { return 0 };
        usize::try_from(room / self.stride as u64 + 1).unwrap_or(usize::MAX)
    }

    fn load(&self, sample: Sample) -> Result<Vec<u8>, BoxError> {
        if sample.index >= self.len() {
            return Err(format!("there is no window {} among {}", sample.index, self.len()).into());
        }
        let mut window = vec![0; self.context + 1];
        let position = self.part.start + sample.index as u64 * self.stride as u64;
        self.corpus.read(position, &mut window).map_err(|problem| problem.to_string())?;
        Ok(window)
    }

    /// The fingerprint of the whole text. Its length and the configuration determine the part.
    fn fingerprint(&self) -> Result<Option<Fingerprint>, BoxError> {
        Ok(Some(self.corpus.fingerprint().map_err(|problem| problem.to_string())?))
    }
}
