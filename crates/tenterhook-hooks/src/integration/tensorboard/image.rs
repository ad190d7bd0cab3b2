//! Images of a batch as PNG files.

use std::ops::Range;

use tenterhook_core::HookResult;

/// The layout of images in a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ImageLayout {
    /// Number of images; `None` if the tensor is a single image.
    count: Option<usize>,
    /// 1 or 3.
    channels: usize,
    height: usize,
    width: usize,
}

impl ImageLayout {
    /// The layout of a shape `[height, width]`, `[count, height, width]` or `[count, channels, height, width]`.
    pub(super) fn of(shape: &[usize]) -> Option<ImageLayout> {
        let (count, channels, height, width) = match *shape {
            [height, width] => (None, 1, height, width),
            [count, height, width] => (Some(count), 1, height, width),
            [count, channels @ (1 | 3), height, width] => (Some(count), channels, height, width),
            _ => return None,
        };
        let fits = |size: usize| size > 0 && u32::try_from(size).is_ok();
        (fits(height) && fits(width) && count != Some(0)).then_some(ImageLayout {
            count,
            channels,
            height,
            width,
        })
    }

    /// The slice that holds the first `max` images.
    pub(super) fn first(self, max: usize) -> Vec<Range<usize>> {
        self.count.map(|count| 0..count.min(max)).into_iter().collect()
    }

    /// Width and height.
    #[allow(clippy::cast_possible_truncation)] // checked by `of`
    pub(super) fn size(self) -> [u32; 2] {
        [self.width as u32, self.height as u32]
    }

    /// Encodes consecutive images as PNG files.
    pub(super) fn files(self, values: &[f32]) -> HookResult<Vec<Vec<u8>>> {
        values.chunks_exact(self.channels * self.height * self.width).map(|one| self.file(one)).collect()
    }

    fn file(self, values: &[f32]) -> HookResult<Vec<u8>> {
        let [width, height] = self.size();
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, width, height);
        encoder.set_color(if self.channels == 3 { png::ColorType::Rgb } else { png::ColorType::Grayscale });
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&self.pixels(values))?;
        writer.finish()?;
        Ok(file)
    }

    /// Scales values from the minimum (black) to the maximum; non-finite values are black. Converts channel-first tensors to
    /// the channel-last order of PNG.
    fn pixels(self, values: &[f32]) -> Vec<u8> {
        let finite = values.iter().copied().filter(|value| value.is_finite()).map(f64::from);
        let (low, high) = finite
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        let scale = if high > low { 255.0 / (high - low) } else { 0.0 };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // from 0 to 255
        let byte = |value: f32| {
            let value = f64::from(value);
            if value.is_finite() { ((value - low) * scale).round() as u8 } else { 0 }
        };
        let area = self.height * self.width;
        (0..area).flat_map(|at| values.iter().skip(at).step_by(area).map(|value| byte(*value))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(file: &[u8]) -> (png::ColorType, Vec<u8>) {
        let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().expect("a PNG");
        let mut pixels = vec![0; reader.output_buffer_size().expect("it is small")];
        let info = reader.next_frame(&mut pixels).expect("it is whole");
        (info.color_type, pixels)
    }

    #[test]
    fn images_have_two_to_four_dimensions_and_one_or_three_channels() {
        let read =
            |shape: &[usize]| ImageLayout::of(shape).map(|layout| (layout.first(2).pop(), layout.size()));
        assert_eq!(read(&[4, 5]), Some((None, [5, 4])));
        assert_eq!(read(&[7, 4, 5]), Some((Some(0..2), [5, 4])));
        assert_eq!(read(&[1, 3, 4, 5]), Some((Some(0..1), [5, 4])));
        for shape in [&[5][..], &[2, 2, 4, 5], &[1, 1, 1, 4, 5], &[0, 4, 5], &[2, 0, 5], &[]] {
            assert_eq!(read(shape), None, "{shape:?}");
        }
    }

    #[test]
    fn each_image_is_scaled_from_its_minimum_to_its_maximum() {
        let grey = ImageLayout::of(&[2, 1, 3]).expect("images");
        let files = grey.files(&[-1.0, 0.0, 1.0, 10.0, f32::NAN, 12.0]).expect("they are written");
        let expected = [vec![0, 128, 255], vec![0, 0, 255]];
        assert_eq!(files.iter().map(|file| decoded(file).1).collect::<Vec<_>>(), expected);
        assert_eq!(decoded(&files[0]).0, png::ColorType::Grayscale);
        let flat = grey.files(&[2.0; 3]).expect("it is written");
        assert_eq!(decoded(&flat[0]).1, [0; 3], "without any difference it is black");
    }

    #[test]
    fn channels_of_a_pixel_are_adjacent() {
        let layout = ImageLayout::of(&[1, 3, 1, 2]).expect("images");
        let files = layout.files(&[0.0, 51.0, 102.0, 153.0, 204.0, 255.0]).expect("they are written");
        assert_eq!(decoded(&files[0]), (png::ColorType::Rgb, vec![0, 102, 204, 51, 153, 255]));
    }
}
