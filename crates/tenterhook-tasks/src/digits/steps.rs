//! How the classifier trains, validates, tests and predicts.

use burn::tensor::activation::softmax;
use burn::tensor::{Device, Int, Tensor, TensorData};
use tenterhook::plan::DeclaredMetric;
use tenterhook::{BatchData, ModuleResult, Phase, TensorSource};
use tenterhook_burn::{BurnCx, BurnModule, Points, Step, TensorList};

use super::model::{Classifier, correct, loss};

/// A batch of images with their labels.
#[derive(Clone, Debug)]
pub struct Images {
    pixels: Tensor<4>,
    labels: Tensor<1, Int>,
    size: usize,
    shown: TensorList,
}

impl Images {
    /// Images of `height`×`width` pixels, row by row, and the class of each.
    #[must_use]
    pub fn new(samples: Vec<(Vec<f32>, u32)>, [height, width]: [usize; 2], device: &Device) -> Images {
        let size = samples.len();
        let labels: Vec<i64> = samples.iter().map(|(_, label)| i64::from(*label)).collect();
        let pixels: Vec<f32> = samples.into_iter().flat_map(|(pixels, _)| pixels).collect();
        let pixels = Tensor::from_data(TensorData::new(pixels, [size, 1, height, width]), device);
        let labels: Tensor<1, Int> = Tensor::from_data(TensorData::new(labels, [size]), device);
        // Hooks see numbers of one kind: classes are shown as floats.
        let shown =
            TensorList::default().with("images", pixels.clone()).with("labels", labels.clone().float());
        Images { pixels, labels, size, shown }
    }

    /// The images, `[batch, 1, height, width]`.
    #[must_use]
    pub fn pixels(&self) -> &Tensor<4> {
        &self.pixels
    }

    /// The class of each.
    #[must_use]
    pub fn labels(&self) -> &Tensor<1, Int> {
        &self.labels
    }
}

impl BatchData for Images {
    fn size(&self) -> usize {
        self.size
    }

    fn tensors(&self) -> &dyn TensorSource {
        &self.shown
    }
}

/// What the classifier thinks of one image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Predicted {
    /// The likeliest class.
    pub class: usize,
    /// How likely it is held to be.
    pub probability: f32,
    /// The class it has.
    pub label: usize,
}

impl Classifier {
    fn evaluate(&self, batch: &Images, names: [&str; 2], cx: &mut BurnCx<'_, Classifier>) {
        let logits = self.forward_with(batch.pixels.clone(), cx);
        cx.output("logits", &logits);
        let correct: f64 = correct(logits.clone(), batch.labels.clone()).into_scalar();
        cx.log(names[0], loss(logits, batch.labels.clone()).into_scalar());
        cx.log(names[1], correct / batch.size as f64);
    }
}

impl BurnModule for Classifier {
    type Batch = Images;
    type Prediction = Vec<Predicted>;

    fn training_step(&mut self, batch: &Images, cx: &mut BurnCx<'_, Self>) -> ModuleResult<Step> {
        let logits = self.forward_with(batch.pixels.clone().autodiff(), cx);
        Ok(loss(logits, batch.labels.clone().autodiff()).into())
    }

    fn validation_step(&self, batch: &Images, cx: &mut BurnCx<'_, Self>) -> ModuleResult {
        self.evaluate(batch, ["val/loss", "val/accuracy"], cx);
        Ok(())
    }

    fn test_step(&self, batch: &Images, cx: &mut BurnCx<'_, Self>) -> ModuleResult {
        self.evaluate(batch, ["test/loss", "test/accuracy"], cx);
        Ok(())
    }

    fn predict_step(&self, batch: &Images, cx: &mut BurnCx<'_, Self>) -> ModuleResult<Vec<Predicted>> {
        let logits = self.forward_with(batch.pixels.clone(), cx);
        cx.output("logits", &logits);
        let probabilities = softmax(logits, 1);
        let [_, classes] = probabilities.dims();
        let probabilities: Vec<f32> = probabilities.into_data().iter::<f32>().collect();
        let labels: Vec<usize> =
            batch.labels.to_data().iter::<i64>().map(|label| usize::try_from(label).unwrap_or(0)).collect();
        let of_images = probabilities.chunks(classes).zip(labels);
        Ok(of_images
            .map(|(of_classes, label)| {
                let best = of_classes.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
                let (class, probability) =
                    best.map_or((0, 0.0), |(class, probability)| (class, *probability));
                Predicted { class, probability, label }
            })
            .collect())
    }

    fn metrics(&self) -> Option<Vec<DeclaredMetric>> {
        let of = |phase, names: [&str; 2]| names.map(|name| DeclaredMetric::new(name, phase));
        let validated = of(Phase::Validate, ["val/loss", "val/accuracy"]);
        let tested = of(Phase::Test, ["test/loss", "test/accuracy"]);
        Some(validated.into_iter().chain(tested).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_see_the_images_and_their_labels() {
        let images = Images::new(vec![(vec![0.5; 4], 3), (vec![1.0; 4], 7)], [2, 2], &Device::flex());
        let shown = images.tensors();
        assert_eq!(shown.count(), 2);
        assert_eq!((shown.name(0), shown.shape(0)), ("images", &[2, 1, 2, 2][..]));
        assert_eq!((shown.name(1), shown.read(1)), ("labels", vec![3.0, 7.0]));
    }
}
