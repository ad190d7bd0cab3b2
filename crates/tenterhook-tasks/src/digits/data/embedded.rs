//! The handwritten digits built into the program.

use std::path::Path;

use super::csv::{self, LabelColumn};
use super::{DataError, ImageSet};

/// The UCI handwritten digits: see `assets/README.md` for where they come from and who made them.
const FILE: &[u8] = include_bytes!("../../../assets/digits.csv.gz");
/// What their pixels are divided by: each counts the set ones of 4×4 points.
const MOST: f32 = 16.0;
const SIDE: usize = 8;

pub(super) fn digits() -> Result<ImageSet, DataError> {
    let name = Path::new("the built-in digits");
    let table = csv::parse("path", name, csv::unpacked(FILE), Some(false))?;
    let (pixels, labels) = csv::labelled(table, "path", name, Some(LabelColumn::Last))?;
    Ok(ImageSet::of_floats((SIDE, SIDE), pixels, labels, MOST))
}
