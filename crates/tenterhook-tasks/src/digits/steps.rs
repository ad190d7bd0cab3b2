//! The steps of the classifier: training, validation, test and prediction.

use burn::tensor::activation::softmax;
use burn::tensor::{Device, Int, Tensor, TensorData};
use serde::Serialize;
use tenterhook::plan::DeclaredMetric;
use tenterhook::{BatchData, ModuleResult, Phase, TensorSource};
use tenterhook_burn::{BurnCx, BurnModule, HookPoints, Step, TensorList};

use super::model::{Classifier, correct, loss};

/// A batch of images and labels.
#[derive(Clone, Debug)]
pub struct ImageBatch {
    pixels: Tensor<4>,
    labels: Tensor<1, Int>,
    size: usize,
    shown: TensorList,
}

impl ImageBatch {
    /// Makes a batch of images of `height`×`width` pixels, row by row, and their classes.
    #[must_use]
    pub fn new(samples: Vec<(Vec<f32>, u32)>, [height, width]: [usize; 2], device: &Device) -> ImageBatch {
        let size = samples.len();
        let labels: Vec<i64> = samples.iter().map(|(_, label)| i64::from(*label)).collect();
        let pixels: Vec<f32> = samples.into_iter().flat_map(|(pixels, _)| pixels).collect();
        let pixels = Tensor::from_data(TensorData::new(pixels, [size, 1, height, width]), device);
        let labels: Tensor<1, Int> = Tensor::from_data(TensorData::new(labels, [size]), device);
        // Hooks see floats only.
        let shown =
            TensorList::default().with("images", pixels.clone()).with("labels", labels.clone().float());
        ImageBatch { pixels, labels, size, shown }
    }

    /// The images, `[batch, 1, height, width]`.
    #[must_use]
    pub fn pixels(&self) -> &Tensor<4> {
        &self.pixels
    }

    /// The classes of the images.
    #[must_use]
    pub fn labels(&self) -> &Tensor<1, Int> {
        &self.labels
    }
}

impl BatchData for ImageBatch {
    fn size(&self) -> usize {
        self.size
    }

    fn tensors(&self) -> &dyn TensorSource {
        &self.shown
    }
}

/// The prediction for one image.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// The class with the highest probability.
    pub class: usize,
    /// The probability of that class.
    pub probability: f32,
    /// The true class.
    pub label: usize,
}

impl Classifier {
    /// Logs the loss and the accuracy of a batch, as `val/loss` for the stage `val`.
    fn evaluate(&self, batch: &ImageBatch, stage: &str, cx: &mut BurnCx<'_, Classifier>) {
        let logits = self.forward_with(batch.pixels.clone(), cx);
        cx.output("logits", &logits);
        let correct: f64 = correct(logits.clone(), batch.labels.clone()).into_scalar();
        cx.log(&format!("{stage}/loss"), loss(logits, batch.labels.clone()).into_scalar());
        cx.log(&format!("{stage}/accuracy"), correct / batch.size as f64);
    }
}

impl BurnModule for Classifier {
    type Batch = ImageBatch;
    type Prediction = Vec<Prediction>;

    fn training_step(&mut self, batch: &ImageBatch, cx: &mut BurnCx<'_, Self>) -> ModuleResult<Step> {
        let logits = self.forward_with(batch.pixels.clone().autodiff(), cx);
        Ok(loss(logits, batch.labels.clone().autodiff()).into())
    }

    fn validation_step(&self, batch: &ImageBatch, cx: &mut BurnCx<'_, Self>) -> ModuleResult {
        self.evaluate(batch, "val", cx);
        Ok(())
    }

    fn test_step(&self, batch: &ImageBatch, cx: &mut BurnCx<'_, Self>) -> ModuleResult {
        self.evaluate(batch, "test", cx);
        Ok(())
    }

    fn predict_step(&self, batch: &ImageBatch, cx: &mut BurnCx<'_, Self>) -> ModuleResult<Vec<Prediction>> {
        let logits = self.forward_with(batch.pixels.clone(), cx);
        cx.output("logits", &logits);
        let probabilities = softmax(logits, 1);
        let [_, classes] = probabilities.dims();
        let probabilities: Vec<f32> = probabilities.into_data().iter::<f32>().collect();
        let labels = batch.labels.to_data();
        let predictions = probabilities.chunks(classes).zip(labels.iter::<i64>()).map(|(image, label)| {
            let best = image.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
            let (class, probability) = best.map_or((0, 0.0), |(class, probability)| (class, *probability));
            Prediction { class, probability, label: usize::try_from(label).unwrap_or(0) }
        });
        Ok(predictions.collect())
    }

    fn metrics(&self) -> Option<Vec<DeclaredMetric>> {
        Some(vec![
            DeclaredMetric::new("val/loss", Phase::Validate),
            DeclaredMetric::new("val/accuracy", Phase::Validate),
            DeclaredMetric::new("test/loss", Phase::Test),
            DeclaredMetric::new("test/accuracy", Phase::Test),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_see_the_images_and_their_labels() {
        let images = ImageBatch::new(vec![(vec![0.5; 4], 3), (vec![1.0; 4], 7)], [2, 2], &Device::flex());
        let shown = images.tensors();
        assert_eq!(shown.count(), 2);
        assert_eq!((shown.name(0), shown.shape(0)), ("images", &[2, 1, 2, 2][..]));
        assert_eq!((shown.name(1), shown.read(1)), ("labels", vec![3.0, 7.0]));
    }
}
