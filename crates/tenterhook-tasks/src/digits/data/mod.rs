//! The images to classify: the built-in digits, or CSV and IDX files.
//!
//! This module does not depend on Burn. The split into training, validation and test depends on the data
//! only.

mod csv;
mod embedded;
mod idx;
mod images;
mod options;
mod split;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use tenterhook::task::Problem;
use tenterhook_files::open_regular;

pub use self::csv::LabelColumn;
pub use self::images::ImageDataset;
pub use self::options::{DataOptions, Format};

/// The three splits of the images. All have the same image size and the same classes.
#[derive(Clone, Debug, PartialEq)]
pub struct Splits {
    /// For training.
    pub train: ImageDataset,
    /// For selection, such as of the best checkpoint.
    pub validate: ImageDataset,
    /// For reporting only, not for selection.
    pub test: ImageDataset,
}

/// Loads the images and splits them, always in the same way. The key of a [`Problem`] is an option of [`DataOptions`].
pub fn load(options: &DataOptions) -> Result<Splits, Problem> {
    options.check()?;
    let Some(path) = &options.path else {
        return split("path", Path::new("the built-in digits"), &embedded::digits()?, None);
    };
    let metadata = path.metadata().map_err(|error| unreadable("path", path, &error))?;
    let format = options.format_of(path, metadata.is_dir())?;
    options.check_format(format)?;
    if format == Format::Csv {
        let all = options.csv("path", path)?;
        let divisor = options.divisor(&all.pixels);
        let test = options.test_path.as_ref().map(|path| options.csv("test_path", path)).transpose()?;
        let test = test.map(|test| test.images(options, divisor)).transpose()?;
        return split("path", path, &all.images(options, divisor)?, test.zip(options.test_path.as_deref()));
    }
    let (pair, test) = if metadata.is_dir() {
        (idx::Pair::within(path, "train")?, Some(idx::Pair::within(path, "t10k")?))
    } else {
        let test =
            |path| idx::Pair::of(["test_path", "test_labels_path"], path, options.test_labels_path.as_ref());
        let pair = idx::Pair::of(["path", "labels_path"], path, options.labels_path.as_ref())?;
        (pair, options.test_path.as_deref().map(test).transpose()?)
    };
    let divisor = options.scale.unwrap_or(255.0);
    let images_of_test = test.as_ref().map(|pair| pair.read(divisor)).transpose()?;
    let test = images_of_test.zip(test.as_ref().map(|pair| pair.images.as_path()));
    split("path", &pair.images, &pair.read(divisor)?, test)
}

/// A file that cannot be read.
fn unreadable(key: &str, path: &Path, error: &io::Error) -> Problem {
    let fix = match error.kind() {
        io::ErrorKind::NotFound => "check the path",
        io::ErrorKind::PermissionDenied => "check its permissions",
        _ => "the file may be damaged or incomplete",
    };
    Problem::new(key, format!("cannot read {}: {error}; {fix}", path.display()))
}

/// A problem of a whole file.
fn in_file(key: &str, path: &Path, problem: impl AsRef<str>) -> Problem {
    Problem::new(key, format!("{}: {}", path.display(), problem.as_ref()))
}

/// The contents of a CSV file.
struct Rows {
    key: &'static str,
    path: PathBuf,
    pixels: Vec<f32>,
    labels: Vec<u32>,
}

impl Rows {
    fn images(self, options: &DataOptions, divisor: f32) -> Result<ImageDataset, Problem> {
        let pixels = self.pixels.len() / self.labels.len();
        let size = match (options.height, options.width) {
            (Some(height), Some(width)) => (height, width),
            (Some(height), None) => (height, pixels / height),
            (None, Some(width)) => (pixels / width, width),
            (None, None) => (pixels.isqrt(), pixels.isqrt()),
        };
        if size.0.checked_mul(size.1) == Some(pixels) {
            return Ok(ImageDataset::from_floats(size, self.pixels, self.labels, divisor));
        }
        let given = options.height.is_some() || options.width.is_some();
        let problem = if given {
            format!(
                "has {pixels} pixel values per row, not {}×{}; correct `height` and `width`",
                size.0, size.1
            )
        } else {
            format!("has {pixels} pixel values per row, which make no square; set `height` and `width`")
        };
        let key = if options.height.is_some() && options.width.is_none() { "height" } else { "width" };
        Err(in_file(if self.key == "path" { key } else { self.key }, &self.path, problem))
    }
}

impl DataOptions {
    fn csv(&self, key: &'static str, path: &Path) -> Result<Rows, Problem> {
        let file = open_regular(path).map_err(|error| unreadable(key, path, &error))?;
        let table = csv::parse(key, path, csv::decompressed(file), self.header)?;
        let (pixels, labels) = csv::separate_labels(table, key, path, self.label)?;
        Ok(Rows { key, path: path.to_owned(), pixels, labels })
    }

    fn divisor(&self, pixels: &[f32]) -> f32 {
        let largest = pixels.iter().copied().fold(0.0, f32::max);
        self.scale.unwrap_or(match largest {
            ..=1.0 => 1.0,
            ..=16.0 => 16.0,
            ..=255.0 => 255.0,
            _ => largest,
        })
    }
}

/// Splits a dataset: 80/20 if there is a separate test set, otherwise 60/20/20.
fn split(
    key: &str,
    path: &Path,
    all: &ImageDataset,
    test: Option<(ImageDataset, &Path)>,
) -> Result<Splits, Problem> {
    if all.classes > all.len() {
        let problem = format!(
            "has a label {} but only {} images; labels are class numbers from 0; is `label` the right column?",
            all.classes - 1,
            all.len()
        );
        return Err(in_file("label", path, problem));
    }
    if all.labels.iter().all(|label| Some(label) == all.labels.first()) {
        let problem = "holds one class only; is the label in another column? set `label`, or give more data";
        return Err(in_file("label", path, problem));
    }
    let [train, validate, rest] = split::stratified(&all.labels, test.is_none()).map_err(|few| {
        let problem = format!(
            "has {} of class {}; a split needs at least {} of each: give more, or remove that class",
            few.samples, few.class, few.needed
        );
        in_file(key, path, problem)
    })?;
    let test = match test {
        None => all.pick(&rest),
        Some((mut test, path)) => {
            if (test.height, test.width) != (all.height, all.width) {
                let problem = format!(
                    "has images of {}×{}, those to train on have {}×{}; give the same size",
                    test.height, test.width, all.height, all.width
                );
                return Err(in_file("test_path", path, problem));
            }
            let known: BTreeSet<_> = all.labels.iter().collect();
            if let Some(unknown) = test.labels.iter().find(|label| !known.contains(label)) {
                let problem = format!("has a label {unknown}, which the data to train on have not");
                return Err(in_file("test_path", path, problem));
            }
            test.classes = all.classes;
            test
        }
    };
    Ok(Splits { train: all.pick(&train), validate: all.pick(&validate), test })
}
