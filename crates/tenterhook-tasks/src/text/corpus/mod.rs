//! The text to learn: the built-in handbook, or any file or directory by path.
//!
//! Bytes are bytes: nothing is decoded, so any file will do. Large files are read where they are needed and
//! never as a whole, so a corpus of any size is there at once.

mod bytes;
mod error;
mod options;
mod sources;
#[cfg(test)]
mod tests;
mod windows;

use std::sync::Arc;

use tenterhook::data::Dataset;

pub use self::bytes::Corpus;
pub use self::error::CorpusError;
pub use self::options::TextOptions;
pub use self::sources::{TextSource, Texts, load_all};
pub use self::windows::Windows;

/// The text, by what it is for: its beginning, what follows, and its end.
#[derive(Clone, Debug)]
pub struct TextSplits {
    /// To train on.
    pub train: Windows,
    /// To choose by; nothing if `val_fraction` is 0.
    pub validate: Windows,
    /// To report on; nothing if `test_fraction` is 0.
    pub test: Windows,
}

/// Opens the text and cuts it into windows of `context` bytes and the one that follows them.
pub fn load(options: &TextOptions, context: usize) -> Result<TextSplits, CorpusError> {
    options.check(context)?;
    let corpus = match &options.path {
        Some(path) => Corpus::open(path)?,
        None => Corpus::handbook(),
    };
    let corpus = Arc::new(corpus);
    let [train, validate, test] = options.parts(corpus.len());
    let stride = options.stride.unwrap_or(context);
    let windows = |part| Windows::new(corpus.clone(), part, context, stride);
    let splits = TextSplits { train: windows(train), validate: windows(validate), test: windows(test) };
    let wanted = [
        (&splits.train, true),
        (&splits.validate, options.val_fraction > 0.0),
        (&splits.test, options.test_fraction > 0.0),
    ];
    if wanted.iter().any(|(windows, wanted)| *wanted && windows.is_empty()) {
        let path = corpus.name().to_owned();
        return Err(CorpusError::TooShort {
            path,
            len: corpus.len(),
            context,
            needed: options.needed(context),
        });
    }
    Ok(splits)
}
