//! The task `digits`: its options, and the module and data built from them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tenterhook::Module;
use tenterhook::data::{Batches, DataLoaders};
use tenterhook::optim::{OptimizerFactory, SchedulerTable};
use tenterhook::task::{BuildContext, Problem, Task};
use tenterhook_burn::{Burn, OptimizerTable, device};

use super::data::{DataOptions, ImageDataset, Splits, load};
use super::model::{Classifier, ModelOptions};
use super::steps::ImageBatch;
use crate::{KEPT_BYTES, LoaderOptions};

/// The task `digits`: classifies the UCI handwritten digits, or other small images from a CSV or IDX file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Digits;

/// The options of the task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DigitsOptions {
    /// The classifier.
    pub model: ModelOptions,
    /// The images.
    pub data: DataOptions,
    /// The data loaders.
    pub loader: LoaderOptions,
    /// The optimizer.
    pub optimizer: OptimizerTable,
    /// Learning rate schedules. The factors of several schedules are multiplied.
    pub schedulers: Vec<SchedulerTable>,
}

impl Task for Digits {
    type Options = DigitsOptions;
    type Module = Burn<Classifier>;
    type Data = DataLoaders<ImageBatch>;

    fn name(&self) -> &'static str {
        "digits"
    }

    fn purpose(&self) -> &'static str {
        "classifies small images: handwritten digits, or a CSV or IDX file"
    }

    fn defaults(&self) -> &'static str {
        include_str!("defaults.toml")
    }

    fn build(
        &self,
        options: DigitsOptions,
        build: &BuildContext<'_>,
    ) -> Result<(Burn<Classifier>, DataLoaders<ImageBatch>), Vec<Problem>> {
        let DigitsOptions { model, data, loader, optimizer, schedulers } = options;
        let mut problems = [model.problems(), loader.problems()].concat();
        let recipe = OptimizerFactory::new(optimizer, schedulers, build.registry)
            .map_err(|more| problems.extend(more));
        let device =
            device(build.device).map_err(|error| problems.push(Problem::new("device", error.to_string())));
        let splits = load(&data).map_err(|problem| problems.push(problem.below("data")));
        let (Ok(recipe), Ok(device), Ok(Splits { train, validate, test }), true) =
            (recipe, device, splits, problems.is_empty())
        else {
            return Err(problems);
        };

        let (size, classes) = ([train.height, train.width], train.classes);
        let estimate = model.memory(size, classes, loader.largest_batch(train.len()));
        let bytes_of_image = KEPT_BYTES * size[0] as f64 * size[1] as f64;
        let estimate = loader.with_batches(estimate, train.len(), bytes_of_image);
        build.check_memory(&estimate).map_err(|problem| vec![problem])?;

        device.seed(build.seed);
        let classifier = Classifier::new(&model, size, classes, &device.clone().autodiff());
        let module =
            Burn::new(classifier, &device).with_optimizers(move |_| recipe.optimizers().map_err(Into::into));
        let batches = |name: &str, images: ImageDataset| {
            let device = device.clone();
            Batches::new(name, images, move |samples| Ok(ImageBatch::new(samples, size, &device)))
        };
        let data = DataLoaders::new()
            .train(loader.training(batches("train", train), build.seed))
            .validate(loader.evaluating(batches("val", validate)))
            .test(loader.evaluating(batches("test", test.clone())))
            .predict(loader.evaluating(batches("test", test)));
        Ok((module, data))
    }

    fn show(&self, prediction: &<Self::Module as Module>::Prediction) -> Vec<Value> {
        prediction.iter().map(|prediction| json!(prediction)).collect()
    }
}
