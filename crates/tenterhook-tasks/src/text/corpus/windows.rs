//! A part of a text, cut into windows.

use std::ops::Range;
use std::sync::Arc;

use tenterhook::BoxError;
use tenterhook::data::{Dataset, Fingerprint, Sample};

use super::Corpus;

/// A part of a text, cut into windows of a model's context and the byte that follows it. A sample is the bytes
/// of a window: all but the last are read, all but the first predicted.
#[derive(Clone, Debug)]
pub struct Windows {
    corpus: Arc<Corpus>,
    part: Range<u64>,
    context: usize,
    stride: usize,
}

impl Windows {
    /// The windows of this part of a text, each beginning `stride` bytes after the one before. What is left
    /// behind the last whole window is not used.
    #[must_use]
    pub fn new(corpus: Arc<Corpus>, part: Range<u64>, context: usize, stride: usize) -> Windows {
        Windows { corpus, part, context, stride: stride.max(1) }
    }

    /// Where in the text this part is.
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
        self.corpus.read(self.part.start + sample.index as u64 * self.stride as u64, &mut window)?;
        Ok(window)
    }

    /// That of the whole text: which part of it this is follows from its length and the configuration.
    fn fingerprint(&self) -> Result<Option<Fingerprint>, BoxError> {
        Ok(Some(self.corpus.fingerprint()?))
    }
}
