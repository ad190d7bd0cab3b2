//! Images and their labels, in memory.

use tenterhook::BoxError;
use tenterhook::data::{Dataset, Fingerprint, Sample};

/// Greyscale images of one size with their classes.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageDataset {
    /// The rows of an image.
    pub height: usize,
    /// The columns of an image.
    pub width: usize,
    /// The number of classes. Labels are in `0..classes`.
    pub classes: usize,
    /// The class of each image.
    pub labels: Vec<u32>,
    pixels: Pixels,
    /// The fingerprint of the complete files, of which this dataset may be a split.
    fingerprint: Fingerprint,
}

/// Pixels as they were read, with the divisor that scales them to the range from 0 to 1.
#[derive(Clone, Debug, PartialEq)]
enum Pixels {
    /// Bytes, which take a quarter of the memory of floats.
    Bytes(Vec<u8>, f32),
    Floats(Vec<f32>, f32),
}

impl ImageDataset {
    /// Images of bytes, row by row, image by image.
    #[must_use]
    pub fn from_bytes(
        (height, width): (usize, usize),
        pixels: Vec<u8>,
        labels: Vec<u32>,
        divisor: f32,
    ) -> ImageDataset {
        ImageDataset::new((height, width), Pixels::Bytes(pixels, divisor), labels)
    }

    /// Images of floats, row by row, image by image. If all floats are whole bytes, they are stored as bytes.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::float_cmp)]
    pub fn from_floats(
        (height, width): (usize, usize),
        pixels: Vec<f32>,
        labels: Vec<u32>,
        divisor: f32,
    ) -> ImageDataset {
        let are_bytes = pixels.iter().all(|pixel| f32::from(*pixel as u8) == *pixel);
        let pixels = if are_bytes {
            Pixels::Bytes(pixels.into_iter().map(|pixel| pixel as u8).collect(), divisor)
        } else {
            Pixels::Floats(pixels, divisor)
        };
        ImageDataset::new((height, width), pixels, labels)
    }

    fn new((height, width): (usize, usize), pixels: Pixels, labels: Vec<u32>) -> ImageDataset {
        let classes = labels.iter().max().map_or(0, |most| *most as usize + 1);
        let fingerprint = compute_fingerprint((height, width), &pixels, &labels);
        ImageDataset { height, width, classes, labels, pixels, fingerprint }
    }

    /// The number of images.
    #[must_use]
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The pixels of an image, row by row, from 0 to 1. Empty if there is no such image.
    #[must_use]
    pub fn image(&self, index: usize) -> Vec<f32> {
        match &self.pixels {
            Pixels::Bytes(pixels, divisor) => self.scaled(pixels, index, *divisor),
            Pixels::Floats(pixels, divisor) => self.scaled(pixels, index, *divisor),
        }
    }

    fn scaled<T: Copy + Into<f32>>(&self, pixels: &[T], index: usize, divisor: f32) -> Vec<f32> {
        let size = self.height * self.width;
        let image = pixels.get(index * size..(index + 1) * size).unwrap_or_default();
        image.iter().map(|pixel| (*pixel).into() / divisor).collect()
    }

    /// The images with these indices, with the same classes.
    pub(super) fn pick(&self, indices: &[usize]) -> ImageDataset {
        let size = self.height * self.width;
        let pixels = match &self.pixels {
            Pixels::Bytes(pixels, divisor) => Pixels::Bytes(picked(pixels, indices, size), *divisor),
            Pixels::Floats(pixels, divisor) => Pixels::Floats(picked(pixels, indices, size), *divisor),
        };
        let labels = picked(&self.labels, indices, 1);
        ImageDataset { labels, pixels, fingerprint: self.fingerprint.clone(), ..*self }
    }
}

fn compute_fingerprint((height, width): (usize, usize), pixels: &Pixels, labels: &[u32]) -> Fingerprint {
    let (pixels, divisor) = match pixels {
        Pixels::Bytes(pixels, divisor) => (Fingerprint::of_bytes([pixels]), divisor),
        Pixels::Floats(pixels, divisor) => (of_numbers(pixels, f32::to_le_bytes), divisor),
    };
    let shape = Fingerprint::named(format!("{height}x{width} / {divisor}"));
    Fingerprint::of_parts([shape, pixels, of_numbers(labels, u32::to_le_bytes)])
}

fn of_numbers<T: Copy>(numbers: &[T], bytes: impl Fn(T) -> [u8; 4]) -> Fingerprint {
    let chunks = numbers.chunks(1 << 14);
    Fingerprint::of_bytes(
        chunks.map(|chunk| chunk.iter().flat_map(|number| bytes(*number)).collect::<Vec<_>>()),
    )
}

fn picked<T: Copy>(values: &[T], indices: &[usize], size: usize) -> Vec<T> {
    indices.iter().flat_map(|index| &values[index * size..(index + 1) * size]).copied().collect()
}

impl Dataset for ImageDataset {
    type Item = (Vec<f32>, u32);

    fn len(&self) -> usize {
        self.labels.len()
    }

    fn load(&self, sample: Sample) -> Result<(Vec<f32>, u32), BoxError> {
        let missing = || format!("there is no image {} among {}", sample.index, self.labels.len());
        let label = self.labels.get(sample.index).ok_or_else(missing)?;
        Ok((self.image(sample.index), *label))
    }

    fn fingerprint(&self) -> Result<Option<Fingerprint>, BoxError> {
        Ok(Some(self.fingerprint.clone()))
    }
}
