//! The classifiers of small greyscale images: a convolutional network and a multilayer perceptron.
//!
//! Both are a [`Classifier`], the perceptron without convolutions, so parameters have the same names in both,
//! such as `fc1.weight`.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::activation::relu;
use burn::tensor::module::{adaptive_avg_pool2d, max_pool2d};
use burn::tensor::ops::MaxPoolOptions;
use burn::tensor::{Device, Int, Tensor};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook::memory::Estimate;
use tenterhook::task::Problem;
use tenterhook_burn::HookPoints;

use crate::loader::LoaderOptions;
use crate::{KEPT_BYTES, TRAINED_BYTES};

/// Height and width of the features between the convolutions and `fc1`, for every image size.
const GRID: usize = 4;
/// Images of at least this height and width are also pooled after the first convolution.
const LARGE: usize = 16;

/// The architecture of the classifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A convolutional network: two convolutions with pooling, then a hidden layer.
    #[default]
    Cnn,
    /// A multilayer perceptron: a hidden layer on the pixels.
    Mlp,
}

/// The model that classifies images.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ModelOptions {
    /// The architecture: "cnn" (two convolutions, then a hidden layer) or "mlp" (a hidden layer only).
    pub kind: Kind,
    /// Output channels of the two convolutions. Unused by "mlp".
    pub channels: [usize; 2],
    /// Width of the hidden layer.
    pub hidden: usize,
    /// Dropout probability after the convolutions and after the hidden layer.
    pub dropout: f64,
}

impl Default for ModelOptions {
    fn default() -> Self {
        Self { kind: Kind::Cnn, channels: [16, 32], hidden: 128, dropout: 0.4 }
    }
}

impl ModelOptions {
    /// All invalid options.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.channels.contains(&0) {
            problems.push(Problem::new("model.channels", "must both be at least 1"));
        }
        if self.hidden == 0 {
            problems.push(Problem::new("model.hidden", "must be at least 1"));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            let message = format!("must be at least 0 and below 1, not {}", self.dropout);
            problems.push(Problem::new("model.dropout", message));
        }
        problems
    }

    /// An estimate of the memory for training with this image size, number of classes and batch size: the
    /// parameters, and the activations that are kept for the backward pass.
    #[must_use]
    pub fn memory(&self, [height, width]: [usize; 2], classes: usize, batch: f64) -> Estimate {
        let [first, second] = self.channels.map(|channels| channels as f64);
        let (pixels, hidden, classes) = (height as f64 * width as f64, self.hidden as f64, classes as f64);
        let convolved = self.kind == Kind::Cnn;
        let features = if convolved { second * (GRID * GRID) as f64 } else { pixels };
        let convolutions = if convolved { 10.0 * first + 9.0 * first * second + second } else { 0.0 };
        let layers = (features + 1.0) * hidden + (hidden + 1.0) * classes;
        let maps = if convolved { 3.0 * pixels * (first + second) } else { 0.0 };
        let kept = batch * (2.0 * pixels + maps + features + 4.0 * hidden + 4.0 * classes);
        let default = ModelOptions::default();
        let [of_first, of_second] = default.channels.map(|channels| channels as f64);
        let channels = if convolved { (first / of_first).max(second / of_second) } else { 0.0 };
        let (channels, hidden) =
            (("model.channels", channels), ("model.hidden", hidden / default.hidden as f64));
        let batch = LoaderOptions::batch_size_key(batch);
        let weights = "weights, gradients and optimizer state";
        Estimate::new()
            .part_of(&[channels], weights, TRAINED_BYTES * convolutions)
            .part_of(&[channels, hidden], weights, TRAINED_BYTES * layers)
            .part_of(&[channels, hidden, batch], "the activations of a batch", 2.0 * KEPT_BYTES * kept)
    }
}

/// Computes logits from images: a CNN with convolutions, or an MLP without.
#[derive(Module, Debug)]
pub struct Classifier {
    conv1: Option<Conv2d>,
    conv2: Option<Conv2d>,
    fc1: Linear,
    fc2: Linear,
    dropout: Dropout,
}

impl Classifier {
    /// A model for greyscale images of `height`×`width` and this number of classes.
    ///
    /// Parameters are initialised at first use from the device's random generator, as in all Burn models. Panics on
    /// options that [`ModelOptions::problems`] refuses.
    #[must_use]
    pub fn new(options: &ModelOptions, [height, width]: [usize; 2], classes: usize, device: &Device) -> Self {
        let [first, second] = options.channels;
        let conv =
            |channels| Conv2dConfig::new(channels, [3, 3]).with_padding(PaddingConfig2d::Same).init(device);
        let (conv1, conv2, features) = match options.kind {
            Kind::Cnn => (Some(conv([1, first])), Some(conv([first, second])), second * GRID * GRID),
            Kind::Mlp => (None, None, height * width),
        };
        Self {
            conv1,
            conv2,
            fc1: LinearConfig::new(features, options.hidden).init(device),
            fc2: LinearConfig::new(options.hidden, classes).init(device),
            dropout: DropoutConfig::new(options.dropout).init(),
        }
    }

    /// Logits `[batch, classes]` of images `[batch, 1, height, width]` with values from 0 to 1.
    #[must_use]
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        self.forward_with(images, &mut ())
    }

    /// [`forward`](Self::forward) with the hook points `images`, `conv1`, `conv2`, `features`, `fc1` and
    /// `logits`. The values of layers are taken after the nonlinearity.
    pub fn forward_with(&self, images: Tensor<4>, points: &mut impl HookPoints) -> Tensor<2> {
        points.point("images", &images);
        let mut x = images;
        if let Some(conv1) = &self.conv1 {
            x = relu(conv1.forward(x));
            points.point("conv1", &x);
            x = pool_from(LARGE, x);
        }
        if let Some(conv2) = &self.conv2 {
            x = relu(conv2.forward(x));
            points.point("conv2", &x);
            x = self.dropout.forward(to_grid(pool_from(2 * GRID, x)));
        }
        let x: Tensor<2> = x.flatten(1, 3);
        points.point("features", &x);
        let x = relu(self.fc1.forward(x));
        points.point("fc1", &x);
        let logits = self.fc2.forward(self.dropout.forward(x));
        points.point("logits", &logits);
        logits
    }
}

/// Mean cross-entropy of logits `[batch, classes]` against labels `[batch]`.
#[must_use]
pub fn loss(logits: Tensor<2>, labels: Tensor<1, Int>) -> Tensor<1> {
    let device = logits.device();
    CrossEntropyLossConfig::new().init(&device).forward(logits, labels)
}

/// The number of correctly classified images, as a tensor of one element.
#[must_use]
pub fn correct(logits: Tensor<2>, labels: Tensor<1, Int>) -> Tensor<1, Int> {
    let classes: Tensor<1, Int> = logits.argmax(1).squeeze_dim(1);
    classes.equal(labels).int().sum()
}

/// Max pooling with stride 2, if height and width are at least `side`.
fn pool_from(side: usize, x: Tensor<4>) -> Tensor<4> {
    let [_, _, height, width] = x.dims();
    if height.min(width) < side {
        return x;
    }
    max_pool2d(x, MaxPoolOptions::new([2, 2]))
}

/// Average pooling to `GRID`×`GRID`.
fn to_grid(x: Tensor<4>) -> Tensor<4> {
    let [_, _, height, width] = x.dims();
    if [height, width] == [GRID; 2] {
        return x;
    }
    adaptive_avg_pool2d(x, [GRID; 2])
}

#[cfg(test)]
mod tests {
    use burn::optim::GradientsParams;

    use super::*;
    use crate::recorded_points::{RecordedPoints, names};

    fn model(kind: Kind, device: &Device) -> Classifier {
        let options = ModelOptions { kind, ..ModelOptions::default() };
        Classifier::new(&options, [8, 8], 10, device)
    }

    #[test]
    fn parameters_are_named_for_their_layer_alone() {
        let device = Device::flex();
        let full = ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"];
        assert_eq!(names(&model(Kind::Mlp, &device)), full);
        let cnn = names(&model(Kind::Cnn, &device));
        let convolutions = ["conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias"];
        assert_eq!(cnn[..4], convolutions);
        assert_eq!(cnn[4..], full);
    }

    #[test]
    fn the_estimate_of_memory_counts_every_parameter() {
        let device = Device::flex();
        for kind in [Kind::Cnn, Kind::Mlp] {
            let options = ModelOptions { kind, ..ModelOptions::default() };
            let parameters = model(kind, &device).num_params() as f64;
            let estimate = options.memory([8, 8], 10, 0.0);
            assert!((estimate.bytes() - TRAINED_BYTES * parameters).abs() < 1.0, "{kind:?}: {estimate:?}");
            assert!(options.memory([8, 8], 10, 32.0).bytes() > estimate.bytes());
        }
    }

    #[test]
    fn a_hundred_million_hidden_units_are_too_much_for_a_machine_of_24_gb() {
        for kind in [Kind::Cnn, Kind::Mlp] {
            let of = |hidden| {
                let options = ModelOptions { kind, hidden, ..ModelOptions::default() };
                options.memory([8, 8], 10, 64.0).check(Some(24_000_000_000))
            };
            assert!(of(100_000_000).is_err());
            assert_eq!(of(128), Ok(()));
        }
    }

    #[test]
    fn too_little_memory_is_attributed_to_the_disproportionate_size() {
        let blamed = |channels, hidden, batch| {
            let options = ModelOptions { channels, hidden, ..ModelOptions::default() };
            options.memory([28, 28], 10, batch).check(Some(1_000_000_000)).unwrap_err().key
        };
        assert_eq!(blamed([16, 32], 128, 100_000.0), "loader.batch_size");
        // Their activations and the next layer need the most memory.
        assert_eq!(blamed([4096, 64], 128, 64.0), "model.channels");
        assert_eq!(blamed([16, 100_000], 128, 64.0), "model.channels");
        assert_eq!(blamed([1, 1], 1_000_000, 64.0), "model.hidden");
    }

    #[test]
    fn a_cnn_takes_images_of_any_size() {
        let device = Device::flex();
        let cnn = model(Kind::Cnn, &device);
        for [height, width] in [[1, 1], [5, 9], [8, 8], [28, 28], [16, 40]] {
            let logits = cnn.forward(Tensor::ones([3, 1, height, width], &device));
            assert_eq!(logits.dims(), [3, 10], "{height}x{width}");
        }
    }

    #[test]
    fn every_parameter_of_both_networks_gets_a_gradient() {
        let device = Device::flex().autodiff();
        for kind in [Kind::Cnn, Kind::Mlp] {
            let model = model(kind, &device);
            let logits = model.forward(Tensor::ones([2, 1, 8, 8], &device));
            let loss = loss(logits, Tensor::from_data([3, 7], &device));
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            assert_eq!(gradients.len(), names(&model).len(), "{kind:?}");
        }
    }

    #[test]
    fn every_layer_is_a_hook_point_and_observing_it_changes_nothing() {
        let device = Device::flex();
        let cnn = model(Kind::Cnn, &device);
        let images = Tensor::ones([1, 1, 8, 8], &device);
        let mut points = RecordedPoints::default();
        let watched = cnn.forward_with(images.clone(), &mut points);
        assert_eq!(points.names(), ["images", "conv1", "conv2", "features", "fc1", "logits"]);
        assert_eq!(watched.into_data(), cnn.forward(images).into_data());
    }

    #[test]
    fn correct_counts_the_images_whose_label_has_the_largest_logit() {
        let device = Device::flex();
        let logits = Tensor::from_data([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]], &device);
        let labels = Tensor::from_data([1, 1, 1], &device);
        assert_eq!(correct(logits, labels).into_scalar::<i64>(), 2);
    }

    #[test]
    fn dropout_acts_while_training_and_not_while_validating() {
        let device = Device::flex().autodiff();
        let model = model(Kind::Mlp, &device);
        let twice = |model: &Classifier| {
            [0, 1].map(|_| model.forward(Tensor::ones([4, 1, 8, 8], &device)).into_data())
        };
        let [first, second] = twice(&model);
        assert_ne!(first, second);
        let [first, second] = twice(&model.valid());
        assert_eq!(first, second);
    }

    #[test]
    fn impossible_options_are_named_by_key() {
        assert!(ModelOptions::default().problems().is_empty());
        let options =
            ModelOptions { channels: [0, 8], hidden: 0, dropout: f64::NAN, ..ModelOptions::default() };
        let keys: Vec<_> = options.problems().iter().map(|problem| problem.key.clone()).collect();
        assert_eq!(keys, ["model.channels", "model.hidden", "model.dropout"]);
    }
}
