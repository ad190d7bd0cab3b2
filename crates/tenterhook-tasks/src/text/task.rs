//! The task `text`: its options, and the module and data built from them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tenterhook::Module;
use tenterhook::data::{Batches, DataLoaders, Dataset};
use tenterhook::memory::Estimate;
use tenterhook::optim::{OptimizerFactory, SchedulerTable};
use tenterhook::task::{BuildContext, Problem, Task};
use tenterhook_burn::{Burn, OptimizerTable, device};

use super::corpus::{TextOptions, Texts, Windows, load_all};
use super::model::{Gpt, GptOptions, Sampling};
use super::steps::{Prompt, TextBatch};
use crate::LoaderOptions;

/// The task `text`: trains a byte-level language model on a text.
#[derive(Clone, Copy, Debug, Default)]
pub struct Text;

/// The options of the task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TextTaskOptions {
    /// The language model.
    pub model: GptOptions,
    /// The text.
    pub data: TextOptions,
    /// The data loaders.
    pub loader: LoaderOptions,
    /// The optimizer.
    pub optimizer: OptimizerTable,
    /// Learning rate schedules. The factors of several schedules are multiplied.
    pub schedulers: Vec<SchedulerTable>,
    /// The text that `tenter predict` generates.
    pub generate: GenerateOptions,
}

/// The text that `tenter predict` generates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GenerateOptions {
    /// The text to continue.
    pub prompt: String,
    /// The number of bytes to generate.
    pub bytes: usize,
    /// Sampling temperature. Lower values favour likely bytes; 0 always takes the most likely one.
    pub temperature: f64,
    /// Samples from the k most likely bytes only.
    pub top_k: Option<usize>,
    /// The number of texts to generate.
    pub count: usize,
}

impl Default for GenerateOptions {
    fn default() -> GenerateOptions {
        GenerateOptions { prompt: "A hook ".into(), bytes: 200, temperature: 0.7, top_k: Some(40), count: 1 }
    }
}

impl GenerateOptions {
    fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if !self.temperature.is_finite() || self.temperature < 0.0 {
            problems.push(Problem::new("generate.temperature", "must be 0 or more"));
        }
        if self.top_k == Some(0) {
            let message = "must be 1 or more; leave it out to consider every byte";
            problems.push(Problem::new("generate.top_k", message));
        }
        problems
    }

    /// Adds the memory of the prompts and of the generated text.
    fn with_memory(&self, estimate: Estimate) -> Estimate {
        let prompts = self.count as f64 * (self.prompt.len() + size_of::<Prompt>()) as f64;
        let estimate = estimate.part("generate.count", "the prompts", prompts);
        estimate.part("generate.bytes", "the text to generate", self.bytes as f64)
    }

    fn prompts(&self, seed: u64) -> Batches<TextBatch> {
        let sampling = Sampling { bytes: self.bytes, temperature: self.temperature, top_k: self.top_k };
        let prompt = |number| Prompt {
            text: self.prompt.clone(),
            sampling: sampling.clone(),
            seed: seed.wrapping_add(number),
        };
        let prompts: Vec<_> = (0..self.count as u64).map(prompt).collect();
        let collate = |mut prompts: Vec<Prompt>| {
            prompts.pop().map(TextBatch::Prompt).ok_or_else(|| "there is no prompt".into())
        };
        Batches::new("prompts", prompts, collate).size(1)
    }
}

impl Task for Text {
    type Options = TextTaskOptions;
    type Module = Burn<Gpt>;
    type Data = DataLoaders<TextBatch>;

    fn name(&self) -> &'static str {
        "text"
    }

    fn purpose(&self) -> &'static str {
        "trains a byte-level language model on a file, a directory, or the built-in handbook"
    }

    fn defaults(&self) -> &'static str {
        include_str!("defaults.toml")
    }

    fn build(
        &self,
        options: TextTaskOptions,
        build: &BuildContext<'_>,
    ) -> Result<(Burn<Gpt>, DataLoaders<TextBatch>), Vec<Problem>> {
        let TextTaskOptions { model, data, loader, optimizer, schedulers, generate } = options;
        let mut problems = [model.problems(), loader.problems(), generate.problems()].concat();
        let recipe = OptimizerFactory::new(optimizer, schedulers, build.registry)
            .map_err(|more| problems.extend(more));
        let device =
            device(build.device).map_err(|error| problems.push(Problem::new("device", error.to_string())));
        // One window is checked first, because the division of the text into windows depends on their size.
        if let Err(problem) = build.check_memory(&generate.with_memory(model.memory(1.0))) {
            problems.push(problem);
            return Err(problems);
        }
        let texts = load_all(&data, model.context.max(1)).map_err(|more| problems.extend(more));
        let (Ok(recipe), Ok(device), Ok(Texts { texts, interleave }), true) =
            (recipe, device, texts, problems.is_empty())
        else {
            return Err(problems);
        };

        let windows = texts.iter().map(|(_, splits)| splits.train.len()).max().unwrap_or(0);
        let estimate = model.memory(loader.largest_batch(windows));
        let estimate = loader.with_batches(estimate, windows, model.context as f64);
        build.check_memory(&estimate).map_err(|problem| vec![problem])?;

        device.seed(build.seed);
        let module = Burn::new(Gpt::new(&model, &device.clone().autodiff()), &device)
            .with_optimizers(move |_| recipe.optimizers().map_err(Into::into));
        let batches = |name: &str, windows: Windows| {
            let device = device.clone();
            Batches::new(name, windows, move |windows| Ok(TextBatch::windows(&windows, &device)))
        };
        let mut data = DataLoaders::new().interleave(interleave).predict(generate.prompts(build.seed));
        for (index, (name, splits)) in texts.into_iter().enumerate() {
            // A separate seed for each text shuffles them independently.
            let seed = build.seed.wrapping_add(index as u64);
            let name_or = |default: &'static str| name.as_deref().unwrap_or(default);
            data = data
                .train(loader.training(batches(name_or("train"), splits.train), seed))
                .validate(loader.evaluating(batches(name_or("val"), splits.validate)))
                .test(loader.evaluating(batches(name_or("test"), splits.test)));
        }
        Ok((module, data))
    }

    fn show(&self, prediction: &<Self::Module as Module>::Prediction) -> Vec<Value> {
        vec![json!({ "text": prediction })]
    }
}
