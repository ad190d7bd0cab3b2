//! The handwritten digits built into the program.

use std::path::Path;

use tenterhook::task::Problem;

use super::ImageDataset;
use super::csv::{self, LabelColumn};

/// The UCI handwritten digits; `assets/README.md` names their source and authors.
const FILE: &[u8] = include_bytes!("../../../assets/digits.csv.gz");
/// The largest pixel value: a pixel counts the set points of a 4×4 block.
const MAX_PIXEL: f32 = 16.0;
const SIDE: usize = 8;

pub(super) fn digits() -> Result<ImageDataset, Problem> {
    let name = Path::new("the built-in digits");
    let table = csv::parse("path", name, csv::decompressed(FILE), Some(false))?;
    let (pixels, labels) = csv::separate_labels(table, "path", name, Some(LabelColumn::Last))?;
    Ok(ImageDataset::from_floats((SIDE, SIDE), pixels, labels, MAX_PIXEL))
}
