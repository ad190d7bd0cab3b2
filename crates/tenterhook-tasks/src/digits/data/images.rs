//! Images and their labels, in memory.

use tenterhook::BoxError;
use tenterhook::data::{Dataset, Fingerprint, Sample};

/// Greyscale images of one size, each with the number of its class.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageSet {
    /// Rows of an image.
    pub height: usize,
    /// Columns of an image.
    pub width: usize,
    /// Always 1: grey.
    pub channels: usize,
    /// How many classes there are; labels are below it.
    pub classes: usize,
    /// The class of each image.
    pub labels: Vec<u32>,
    pixels: Pixels,
    /// The fingerprint of everything that was read, of which these may be a part.
    contents: Fingerprint,
}

/// As they were read; what they are divided by makes them numbers from 0 to 1.
#[derive(Clone, Debug, PartialEq)]
enum Pixels {
    /// Four times smaller, and most images are bytes.
    Bytes(Vec<u8>, f32),
    Floats(Vec<f32>, f32),
}

impl ImageSet {
    /// Images given as bytes, row by row, image by image.
    #[must_use]
    pub fn of_bytes(
        (height, width): (usize, usize),
        pixels: Vec<u8>,
        labels: Vec<u32>,
        divisor: f32,
    ) -> ImageSet {
        ImageSet::new((height, width), Pixels::Bytes(pixels, divisor), labels)
    }

    /// Images given as numbers, row by row, image by image.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::float_cmp)]
    pub fn of_floats(
        (height, width): (usize, usize),
        pixels: Vec<f32>,
        labels: Vec<u32>,
        divisor: f32,
    ) -> ImageSet {
        let are_bytes = pixels.iter().all(|pixel| f32::from(*pixel as u8) == *pixel);
        let pixels = if are_bytes {
            Pixels::Bytes(pixels.into_iter().map(|pixel| pixel as u8).collect(), divisor)
        } else {
            Pixels::Floats(pixels, divisor)
        };
        ImageSet::new((height, width), pixels, labels)
    }

    fn new((height, width): (usize, usize), pixels: Pixels, labels: Vec<u32>) -> ImageSet {
        let classes = labels.iter().max().map_or(0, |most| *most as usize + 1);
        let contents = contents((height, width), &pixels, &labels);
        ImageSet { height, width, channels: 1, classes, labels, pixels, contents }
    }

    /// How many images there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The pixels of an image, row by row, from 0 to 1; nothing when there is no such image.
    #[must_use]
    pub fn image(&self, index: usize) -> Vec<f32> {
        let size = self.height * self.width;
        let range = index * size..(index + 1) * size;
        match &self.pixels {
            Pixels::Bytes(pixels, divisor) => pixels
                .get(range)
                .map(|image| image.iter().map(|pixel| f32::from(*pixel) / divisor).collect())
                .unwrap_or_default(),
            Pixels::Floats(pixels, divisor) => pixels
                .get(range)
                .map(|image| image.iter().map(|pixel| pixel / divisor).collect())
                .unwrap_or_default(),
        }
    }

    /// These images of the set, with the same classes.
    pub(super) fn pick(&self, indices: &[usize]) -> ImageSet {
        let size = self.height * self.width;
        let pixels = match &self.pixels {
            Pixels::Bytes(pixels, divisor) => Pixels::Bytes(picked(pixels, indices, size), *divisor),
            Pixels::Floats(pixels, divisor) => Pixels::Floats(picked(pixels, indices, size), *divisor),
        };
        let labels = picked(&self.labels, indices, 1);
        ImageSet { labels, pixels, contents: self.contents.clone(), ..*self }
    }
}

fn contents((height, width): (usize, usize), pixels: &Pixels, labels: &[u32]) -> Fingerprint {
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

impl Dataset for ImageSet {
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
        Ok(Some(self.contents.clone()))
    }
}
