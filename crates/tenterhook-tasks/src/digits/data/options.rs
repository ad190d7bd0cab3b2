//! The `[data]` table.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook::task::Problem;

use super::{LabelColumn, in_file};

/// The images.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DataOptions {
    /// A CSV or IDX file, which may be compressed with gzip, or a directory with the four files of MNIST. Default: the
    /// built-in handwritten digits, 1,797 images of 8×8.
    pub path: Option<PathBuf>,
    /// The file format: "csv" or "idx". Default: inferred from the file name.
    pub format: Option<Format>,
    /// CSV: the column of labels, "first" or "last". Default: the column named label, target or class in the
    /// header; otherwise the last, or the first if the last holds a single value.
    pub label: Option<LabelColumn>,
    /// CSV: whether the first line is a header. Default: it is one if it names a label column or contains
    /// mostly text.
    pub header: Option<bool>,
    /// CSV: the width of an image in pixels. Default: images are square.
    pub width: Option<usize>,
    /// CSV: the height of an image in pixels. Default: images are square.
    pub height: Option<usize>,
    /// The divisor that scales pixel values to the range from 0 to 1. Default: the smallest of 1, 16 and 255
    /// that is at least the largest value of the file; otherwise the largest value.
    pub scale: Option<f32>,
    /// IDX: the file of labels. Default: `path` with "labels-idx1" in place of "images-idx3".
    pub labels_path: Option<PathBuf>,
    /// The test set. `path` is then split 80/20 into training and validation. Default: `path` is split 60/20/20.
    pub test_path: Option<PathBuf>,
    /// IDX: the file of labels of `test_path`.
    pub test_labels_path: Option<PathBuf>,
}

/// The file format of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// A line of text per image.
    Csv,
    /// The format of MNIST.
    Idx,
}

impl DataOptions {
    /// Checks the options independently of the files.
    pub(super) fn check(&self) -> Result<(), Problem> {
        if self.scale.is_some_and(|scale| !scale.is_finite() || scale <= 0.0) {
            return Err(option("scale", "must be a positive number; leave it out to find it"));
        }
        for (key, size) in [("width", self.width), ("height", self.height)] {
            if size == Some(0) {
                return Err(option(key, "must be at least 1; leave it out for square images"));
            }
        }
        if self.test_labels_path.is_some() && self.test_path.is_none() {
            return Err(option("test_labels_path", "has no effect without `test_path`; set that too"));
        }
        if self.path.is_none() {
            let problem = "has no effect on the built-in digits; set `path`, or remove it";
            let given = self.of_csv().into_iter().chain(self.of_idx()).chain([
                ("format", self.format.is_some()),
                ("scale", self.scale.is_some()),
                ("test_path", self.test_path.is_some()),
            ]);
            return refuse(given, problem);
        }
        Ok(())
    }

    pub(super) fn check_format(&self, format: Format) -> Result<(), Problem> {
        match format {
            Format::Csv => refuse(self.of_idx(), "has no effect on CSV files; remove it"),
            Format::Idx => refuse(self.of_csv(), "has no effect on IDX files; remove it"),
        }
    }

    fn of_csv(&self) -> [(&'static str, bool); 4] {
        [
            ("label", self.label.is_some()),
            ("header", self.header.is_some()),
            ("width", self.width.is_some()),
            ("height", self.height.is_some()),
        ]
    }

    fn of_idx(&self) -> [(&'static str, bool); 2] {
        [("labels_path", self.labels_path.is_some()), ("test_labels_path", self.test_labels_path.is_some())]
    }

    pub(super) fn format_of(&self, path: &Path, is_directory: bool) -> Result<Format, Problem> {
        if is_directory {
            let of_directory =
                [("test_path", self.test_path.is_some()), ("labels_path", self.labels_path.is_some())];
            refuse(of_directory, "has no effect when `path` is a directory; remove it")?;
            if self.format == Some(Format::Csv) {
                let problem = "is a directory; give the path of the CSV file";
                return Err(in_file("path", path, problem));
            }
            return Ok(Format::Idx);
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let bare = name.strip_suffix(".gz").unwrap_or(&name);
        let is_csv = [".csv", ".tsv", ".txt", ".data"].iter().any(|ending| bare.ends_with(ending));
        let is_idx = bare.contains("idx") || bare.ends_with("ubyte");
        let inferred = if is_csv { Some(Format::Csv) } else { is_idx.then_some(Format::Idx) };
        self.format.or(inferred).ok_or_else(|| {
            let problem = "has a name that does not show its format; set `format` to \"csv\" or \"idx\"";
            in_file("format", path, problem)
        })
    }
}

/// A problem of an option that does not depend on the files.
fn option(key: &str, problem: &str) -> Problem {
    Problem::new(key, format!("`{key}` {problem}"))
}

/// Refuses options that have no effect.
fn refuse(given: impl IntoIterator<Item = (&'static str, bool)>, problem: &str) -> Result<(), Problem> {
    let found = given.into_iter().find(|(_, given)| *given);
    found.map_or(Ok(()), |(key, _)| Err(option(key, problem)))
}
