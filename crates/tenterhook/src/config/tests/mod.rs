mod changes;
mod common_keys;
mod error_places;
mod full_schema;
mod hashing;
mod hooks_config;
mod key_paths;
mod layering;
#[cfg(all(feature = "http", feature = "upload"))]
mod masking;
mod mistakes;
mod printing;
/// Python that reads written files, shared with the tests of the hooks.
#[path = "../../../../tenterhook-hooks/src/support/python.rs"]
mod python;
mod stubs;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::*;
use crate::registry::Registry;
use crate::task::{AnyTask, BuildContext, Task};
use crate::toy::{Toy, ToyData, ToyTask};

/// A task with all kinds of options.
struct Lab;

#[derive(Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct LabOptions {
    /// A remark.
    #[schemars(example = &"a remark")]
    note: Option<String>,
    /// The network.
    model: Model,
    /// The optimizer.
    optimizer: Optimizer,
    /// The learning-rate schedules.
    schedulers: Vec<Schedule>,
    /// Weights of the classes, by name.
    weights: BTreeMap<String, f64>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Model {
    /// The sizes of the hidden layers.
    hidden: Vec<u64>,
    /// How much is dropped, from 0 to 1. This sentence is here to make the comment so long that it must be
    /// broken into several lines, none of which may be longer than a hundred characters.
    dropout: f64,
    /// The kind of network.
    kind: Net,
    /// The last layer.
    head: Head,
}

impl Default for Model {
    fn default() -> Model {
        Model { hidden: vec![32, 16], dropout: 0.1, kind: Net::Cnn, head: Head::default() }
    }
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Net {
    #[default]
    Cnn,
    Mlp,
}

/// Lacks `deny_unknown_fields`.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct Head {
    /// Whether it has a bias.
    bias: bool,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "use", rename_all = "lowercase", deny_unknown_fields)]
enum Optimizer {
    Sgd {
        /// The learning rate.
        lr: f64,
        /// The momentum.
        #[serde(default)]
        momentum: f64,
    },
    Adam {
        /// The learning rate of Adam.
        lr: f64,
        /// The decay rates.
        #[serde(default)]
        betas: (f64, f64),
    },
}

impl Default for Optimizer {
    fn default() -> Optimizer {
        Optimizer::Sgd { lr: 0.1, momentum: 0.0 }
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Schedule {
    /// Which schedule.
    #[serde(rename = "use")]
    name: String,
    #[serde(flatten)]
    options: serde_json::Map<String, serde_json::Value>,
}

impl Task for Lab {
    type Options = LabOptions;
    type Module = Toy;
    type Data = ToyData;

    fn name(&self) -> &'static str {
        "lab"
    }

    fn purpose(&self) -> &'static str {
        "tests configurations"
    }

    fn defaults(&self) -> &'static str {
        "[trainer]\nmax_epochs = 7\nlog_every_n_steps = 5\n\
         [optimizer]\nuse = \"adam\"\nlr = 0.001\nbetas = [0.9, 0.99]\n\
         [[hooks]]\nuse = \"early_stopping\"\nmonitor = \"val/loss\"\n"
    }

    fn build(&self, options: LabOptions, _: &BuildContext<'_>) -> Result<(Toy, ToyData), Vec<Problem>> {
        if options.model.dropout > 1.0 {
            return Err(vec![Problem::new("model.dropout", "`dropout` is above 1")]);
        }
        Ok((Toy::default(), ToyData::default()))
    }

    fn show(&self, prediction: &Vec<f32>) -> Vec<serde_json::Value> {
        prediction.iter().map(|y| serde_json::json!(y)).collect()
    }
}

fn tasks() -> Vec<Box<dyn AnyTask>> {
    vec![Box::new(Lab), Box::new(ToyTask)]
}

/// Resolves a file `train.toml` with this text, variables and sets.
fn resolve(file: &str, environment: &[(&str, &str)], sets: &[&str]) -> Result<Config, String> {
    resolve_with(&Registry::default(), file, environment, sets)
}

fn resolve_with(
    registry: &Registry,
    file: &str,
    environment: &[(&str, &str)],
    sets: &[&str],
) -> Result<Config, String> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("train.toml");
    std::fs::write(&path, file).expect("it writes");
    let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let sets = sets.iter().map(|set| (*set).to_owned()).collect();
    let sources = Sources { file: Some(path), environment: environment.collect(), sets };
    let shown = format!("{}/", directory.path().display());
    sources.resolve(&tasks(), registry).map_err(|error| error.to_string().replace(&shown, ""))
}

fn works(file: &str, environment: &[(&str, &str)], sets: &[&str]) -> Config {
    resolve(file, environment, sets).unwrap_or_else(|error| panic!("{error}"))
}

fn error(file: &str, environment: &[(&str, &str)], sets: &[&str]) -> String {
    resolve(file, environment, sets).map(|resolved| resolved.to_toml()).expect_err("it is wrong")
}

/// The errors of the plan of a configuration, as text.
fn refused(resolved: &Config, registry: &Registry) -> Vec<String> {
    let (mut trainer, tasks) = (resolved.bare_trainer(registry).expect("a trainer"), tasks());
    let mut program = resolved.program(&tasks, registry).expect("a program");
    let refused = program.plan_errors(&mut trainer).expect("a plan");
    refused.iter().map(|refused| resolved.problem_text(&resolved.problem_of(refused, &trainer))).collect()
}
