//! The text to learn: the built-in handbook, or any file or directory.
//!
//! Tokens are bytes. Nothing is decoded, so any file is valid. Large files are read in windows, never as a
//! whole.

mod bytes;
mod options;
mod sources;
#[cfg(test)]
mod tests;
mod windows;

use std::sync::Arc;

use tenterhook::data::Dataset;
use tenterhook::task::Problem;

pub use self::bytes::Corpus;
pub use self::options::TextOptions;
pub use self::sources::{TextSource, Texts, load_all};
pub use self::windows::Windows;

/// The three splits of a text, in order: training, validation and test.
#[derive(Clone, Debug)]
pub struct TextSplits {
    /// For training.
    pub train: Windows,
    /// For selection, such as of the best checkpoint. Empty if `val_fraction` is 0.
    pub validate: Windows,
    /// For reporting only. Empty if `test_fraction` is 0.
    pub test: Windows,
}

/// Opens the text and divides it into windows of `context` bytes and the next byte. The key of a [`Problem`]
/// is an option of [`TextOptions`].
pub fn load(options: &TextOptions, context: usize) -> Result<TextSplits, Problem> {
    options.check(context)?;
    let corpus = Arc::new(match &options.path {
        Some(path) => Corpus::open(path)?,
        None => Corpus::handbook(),
    });
    let [train, validate, test] = options.parts(corpus.len());
    let stride = options.stride.unwrap_or(context);
    let windows = |part| Windows::new(corpus.clone(), part, context, stride);
    let splits = TextSplits { train: windows(train), validate: windows(validate), test: windows(test) };
    let too_short = splits.train.is_empty()
        || (splits.validate.is_empty() && options.val_fraction > 0.0)
        || (splits.test.is_empty() && options.test_fraction > 0.0);
    if too_short {
        let (path, len, needed) = (corpus.name().display(), corpus.len(), options.needed(context));
        let message = format!(
            "{path} is {len} bytes long; with `context = {context}` at least {needed} are needed to train, validate and \
             test: give more text, or lower `context`"
        );
        return Err(Problem::new("path", message));
    }
    Ok(splits)
}
