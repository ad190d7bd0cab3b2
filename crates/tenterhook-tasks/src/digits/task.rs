//! The task `digits`: what a configuration can say about it, and how it is built.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tenterhook::Module;
use tenterhook::data::{Batches, DataLoaders};
use tenterhook::optim::{Recipe, SchedulerTable};
use tenterhook::task::{Build, Problem, Task};
use tenterhook_burn::{Burn, OptimizerTable, device};

use super::data::{DataOptions, ImageSet, load};
use super::model::{Classifier, ModelOptions};
use super::steps::{Images, Predicted};
use crate::{KEPT_BYTES, LoaderOptions};

/// Classifies small images: the UCI handwritten digits, or a CSV or IDX file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Digits;

/// What a configuration says about the task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DigitsOptions {
    /// The network.
    pub model: ModelOptions,
    /// The images.
    pub data: DataOptions,
    /// How images become batches.
    pub loader: LoaderOptions,
    /// The optimizer.
    pub optimizer: OptimizerTable,
    /// Schedules of the learning rate. Several multiply.
    pub schedulers: Vec<SchedulerTable>,
}

impl Task for Digits {
    type Options = DigitsOptions;
    type Module = Burn<Classifier>;
    type Data = DataLoaders<Images>;

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
        build: &Build<'_>,
    ) -> Result<(Burn<Classifier>, DataLoaders<Images>), Vec<Problem>> {
        let DigitsOptions { model, data, loader, optimizer, schedulers } = options;
        let mut problems: Vec<_> = model
            .problems()
            .into_iter()
            .map(|(key, message)| Problem::new(format!("model.{key}"), message))
            .chain(loader.problems())
            .collect();
        let recipe = Recipe::new(optimizer, schedulers, build.registry).map_err(|more| problems.extend(more));
        let device =
            device(build.device).map_err(|error| problems.push(Problem::new("device", error.to_string())));
        let splits = load(&data)
            .map_err(|error| problems.push(Problem::new(format!("data.{}", error.key()), error.to_string())));
        let (Ok(recipe), Ok(device), Ok(splits)) = (recipe, device, splits) else { return Err(problems) };
        if !problems.is_empty() {
            return Err(problems);
        }
        let size = [splits.train.height, splits.train.width];
        let (batch, batches) = loader.largest_batch(splits.train.len());
        let images = KEPT_BYTES * batch * batches * (size[0] as f64 * size[1] as f64);
        let estimate = model.memory(size, splits.train.classes, batch);
        let ahead = loader.sizes_ahead(batch);
        let estimate = estimate.part_of(&ahead, "the batches that are loaded ahead", images);
        build.check_memory(&estimate).map_err(|problem| vec![problem])?;
        device.seed(build.seed);
        let classifier = Classifier::new(&model, size, splits.train.classes, &device.clone().autodiff());
        let module =
            Burn::new(classifier, &device).with_optimizers(move |_| recipe.optimizers().map_err(Into::into));
        let batches = |name: &str, images: ImageSet| {
            let device = device.clone();
            Batches::new(name, images, move |samples| Ok(Images::new(samples, size, &device)))
        };
        let data = DataLoaders::new()
            .train(loader.training(batches("train", splits.train), build.seed))
            .validate(loader.evaluating(batches("val", splits.validate)))
            .test(loader.evaluating(batches("test", splits.test.clone())))
            .predict(loader.evaluating(batches("test", splits.test)));
        Ok((module, data))
    }

    fn show(&self, prediction: &<Self::Module as Module>::Prediction) -> Vec<Value> {
        let shown = |predicted: &Predicted| {
            let Predicted { class, probability, label } = predicted;
            json!({ "class": class, "probability": probability, "label": label })
        };
        prediction.iter().map(shown).collect()
    }
}
