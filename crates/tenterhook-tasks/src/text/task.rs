//! The task `text`: what a configuration can say about it, and how it is built.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tenterhook::Module;
use tenterhook::data::{Batches, DataLoaders, Dataset};
use tenterhook::optim::{Recipe, SchedulerTable};
use tenterhook::task::{Build, Problem, Task};
use tenterhook_burn::{Burn, OptimizerTable, device};

use super::corpus::{TextOptions, Texts, Windows, load_all};
use super::model::{Gpt, GptOptions};
use super::steps::{Prompt, TextBatch};
use crate::LoaderOptions;

/// Learns to write like a text, byte by byte.
#[derive(Clone, Copy, Debug, Default)]
pub struct Text;

/// What a configuration says about the task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TextTaskOptions {
    /// The language model.
    pub model: GptOptions,
    /// The text.
    pub data: TextOptions,
    /// How pieces of the text become batches.
    pub loader: LoaderOptions,
    /// The optimizer.
    pub optimizer: OptimizerTable,
    /// Schedules of the learning rate. Several multiply.
    pub schedulers: Vec<SchedulerTable>,
    /// What `tenter predict` writes.
    pub generate: GenerateOptions,
}

/// What `tenter predict` writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GenerateOptions {
    /// Where to go on from.
    pub prompt: String,
    /// How many bytes to write.
    pub bytes: usize,
    /// How daring to be: 0 always takes the likeliest byte.
    pub temperature: f64,
    /// Consider only so many of the likeliest bytes.
    pub top_k: Option<usize>,
    /// How many texts to write.
    pub count: usize,
}

impl Default for GenerateOptions {
    fn default() -> GenerateOptions {
        GenerateOptions { prompt: "A hook ".into(), bytes: 200, temperature: 0.7, top_k: Some(40), count: 1 }
    }
}

impl GenerateOptions {
    fn problems(&self) -> Vec<Problem> {
        let daring = self.temperature.is_finite() && self.temperature >= 0.0;
        let wrong =
            |wrong: bool, key: &str, text: &str| wrong.then(|| Problem::new(format!("generate.{key}"), text));
        [
            wrong(!daring, "temperature", "must be 0 or more"),
            wrong(self.top_k == Some(0), "top_k", "must be 1 or more; leave it out to consider every byte"),
        ]
        .into_iter()
        .flatten()
        .collect()
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
        "learns to write like a text, byte by byte: a file, a directory, or the built-in handbook"
    }

    fn defaults(&self) -> &'static str {
        include_str!("defaults.toml")
    }

    fn build(
        &self,
        options: TextTaskOptions,
        build: &Build<'_>,
    ) -> Result<(Burn<Gpt>, DataLoaders<TextBatch>), Vec<Problem>> {
        let TextTaskOptions { model, data, loader, optimizer, schedulers, generate } = options;
        let mut problems: Vec<_> = model
            .problems()
            .into_iter()
            .map(|(key, message)| Problem::new(format!("model.{key}"), message))
            .chain(loader.problems())
            .chain(generate.problems())
            .collect();
        let recipe = Recipe::new(optimizer, schedulers, build.registry).map_err(|more| problems.extend(more));
        let device =
            device(build.device).map_err(|error| problems.push(Problem::new("device", error.to_string())));
        // Before the text is divided into windows of this size; a batch has at least one of them.
        let prompts = generate.count as f64 * (generate.prompt.len() + size_of::<Prompt>()) as f64;
        let estimate = model.memory(1.0).part("generate.count", "the prompts", prompts);
        let estimate = estimate.part("generate.bytes", "the text to generate", generate.bytes as f64);
        if let Err(problem) = build.check_memory(&estimate) {
            problems.push(problem);
            return Err(problems);
        }
        let texts = load_all(&data, model.context.max(1)).map_err(|more| problems.extend(more));
        let (Ok(recipe), Ok(device), Ok(Texts { texts, turns })) = (recipe, device, texts) else {
            return Err(problems);
        };
        if !problems.is_empty() {
            return Err(problems);
        }
        let most = texts.iter().map(|(_, splits)| splits.train.len()).max().unwrap_or(0);
        let (batch, batches) = loader.largest_batch(most);
        let estimate = model.memory(batch);
        let ahead = loader.sizes_ahead(batch);
        let windows = batch * batches * model.context as f64;
        let estimate = estimate.part_of(&ahead, "the batches that are loaded ahead", windows);
        build.check_memory(&estimate).map_err(|problem| vec![problem])?;
        device.seed(build.seed);
        let module = Burn::new(Gpt::new(&model, &device.clone().autodiff()), &device)
            .with_optimizers(move |_| recipe.optimizers().map_err(Into::into));
        let batches = |name: &str, windows: Windows| {
            let device = device.clone();
            Batches::new(name, windows, move |windows| Ok(TextBatch::windows(&windows, &device)))
        };
        let prompts: Vec<_> = (0..generate.count as u64)
            .map(|number| Prompt {
                text: generate.prompt.clone(),
                bytes: generate.bytes,
                temperature: generate.temperature,
                top_k: generate.top_k,
                seed: build.seed.wrapping_add(number),
            })
            .collect();
        let prompts = Batches::new("prompts", prompts, |mut prompts: Vec<Prompt>| {
            prompts.pop().map(TextBatch::Prompt).ok_or_else(|| "there is no prompt".into())
        });
        let mut data = DataLoaders::new().interleave(turns).predict(prompts.size(1));
        for (at, (name, splits)) in texts.into_iter().enumerate() {
            // Each shuffles in its own way.
            let seed = build.seed.wrapping_add(at as u64);
            let named = |otherwise: &'static str| name.as_deref().unwrap_or(otherwise);
            data = data
                .train(loader.training(batches(named("train"), splits.train), seed))
                .validate(loader.evaluating(batches(named("val"), splits.validate)))
                .test(loader.evaluating(batches(named("test"), splits.test)));
        }
        Ok((module, data))
    }

    fn show(&self, prediction: &<Self::Module as Module>::Prediction) -> Vec<Value> {
        vec![json!({ "text": prediction })]
    }
}
