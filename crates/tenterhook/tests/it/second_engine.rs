//! A second engine with plain vectors, built on public items only. It shows what an engine implements, and
//! tests groups, schedules, clipping, accumulation, configuration and resume with it.

// Settings are 64-bit, the engine's numbers 32-bit.
#![allow(clippy::cast_possible_truncation)]

use std::path::Path;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenterhook::config::{Config, Sources};
use tenterhook::module::{Horizon, Optimization};
use tenterhook::optim::{
    BuiltInOptimizer, Engine, OptimizerFactory, OptimizerOptions, OptimizerSet, OptimizerTable, ParamInfo,
    SavedState, SchedulerTable, StateParts, Update,
};
use tenterhook::registry::Registry;
use tenterhook::run_context::FixedClock;
use tenterhook::schedule::{Cosine, ScheduleStep, Scheduler};
use tenterhook::task::{AnyTask, BuildContext, Problem, Task};
use tenterhook::tensor::ReadScalar;
use tenterhook::toy::{ToyBatch, ToyData};
use tenterhook::{
    BatchData, BoxError, ClipRule, Cx, DataModule, GradientsMut, ModelView, Module, ModuleResult,
    NamedTensors, OptimizerSource, Split, StepOutput, TensorBytes, TensorMap, TensorSource,
};

/// The engine.
#[derive(Clone, Debug, PartialEq)]
struct Vectors;

/// Its algorithm.
#[derive(Clone)]
enum Rule {
    /// Gradient descent.
    Descent { momentum: f32, weight_decay: f32 },
    /// Steps of one length.
    Signs { threshold: f32 },
}

impl Rule {
    fn step(&self, values: &mut [f32], gradient: &[f32], lr: f32, state: &mut Option<Vec<f32>>) {
        match *self {
            Rule::Descent { momentum, weight_decay } => {
                let velocity = state.get_or_insert_with(|| vec![0.0; values.len()]);
                for ((value, gradient), velocity) in values.iter_mut().zip(gradient).zip(velocity) {
                    *velocity = momentum * *velocity + gradient + weight_decay * *value;
                    *value -= lr * *velocity;
                }
            }
            Rule::Signs { threshold } => {
                for (value, gradient) in values.iter_mut().zip(gradient).filter(|(_, g)| g.abs() > threshold)
                {
                    *value -= lr * gradient.signum();
                }
            }
        }
    }
}

/// Gradient descent.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Descent {
    /// Momentum. Unset: none.
    momentum: Option<f32>,
}

impl OptimizerOptions<Vectors> for Descent {
    fn algorithm(&self, weight_decay: f64) -> Result<Rule, BoxError> {
        Ok(Rule::Descent { momentum: self.momentum.unwrap_or(0.0), weight_decay: weight_decay as f32 })
    }

    fn momentum(&self) -> Option<f64> {
        self.momentum.map(f64::from)
    }
}

impl Engine for Vectors {
    type Algorithm = Rule;
    type State = Vec<f32>;
    type Tensor = TensorBytes;
    type Gradients = NamedTensors;

    fn optimizers() -> Vec<BuiltInOptimizer<Vectors>> {
        vec![BuiltInOptimizer::new::<Descent>("descent")]
    }

    fn gradients(&self, params: Vec<ParamInfo>) -> NamedTensors {
        let zeros = |shape: &[usize]| vec![0.0; shape.iter().product()];
        params.into_iter().fold(NamedTensors::default(), |all, ParamInfo { name, shape, .. }| {
            let values = zeros(&shape);
            all.with(name, shape, values)
        })
    }

    fn parts(&self, _: &Rule, parameter: &str, state: &Vec<f32>) -> StateParts<TensorBytes> {
        let velocity = TensorBytes::from_f32([state.len()], state);
        StateParts { tensors: vec![(format!("{parameter}.velocity"), velocity)], ..StateParts::default() }
    }

    fn load_state(
        &self,
        _: &Rule,
        parameter: &str,
        _: &[usize],
        saved: &mut SavedState<'_>,
    ) -> Result<Option<Vec<f32>>, BoxError> {
        let name = format!("{parameter}.velocity");
        saved.mark_used(&name);
        Ok(saved.tensor(&name).map(TensorBytes::to_f32).ok().transpose()?)
    }
}

/// The model: a plane.
struct Plane {
    params: NamedTensors,
    optimizers: OptimizerSet<Vectors>,
    optimizer_factory: OptimizerFactory<Vectors>,
}

#[derive(Clone)]
struct Loss {
    value: f64,
    gradients: [Vec<f32>; 2],
}

impl ReadScalar for Loss {
    fn read(&self) -> f64 {
        self.value
    }
}

fn start() -> NamedTensors {
    NamedTensors::from([("weight", vec![0.5, -0.25]), ("bias", vec![0.125])])
}

fn loss(params: &NamedTensors, batch: &ToyBatch) -> Loss {
    let (inputs, outputs) = (batch.tensors().read(0), batch.tensors().read(1));
    let (weight, bias) = (params.at(0), params.at(1)[0]);
    let mut loss = Loss { value: 0.0, gradients: [vec![0.0; 2], vec![0.0]] };
    let scale = 1.0 / outputs.len() as f32;
    for (x, y) in inputs.as_chunks::<2>().0.iter().zip(outputs) {
        let error = weight[0] * x[0] + weight[1] * x[1] + bias - y;
        loss.value += f64::from(error * error * scale);
        loss.gradients[0][0] += 2.0 * error * x[0] * scale;
        loss.gradients[0][1] += 2.0 * error * x[1] * scale;
        loss.gradients[1][0] += 2.0 * error * scale;
    }
    loss
}

fn add(gradients: &mut NamedTensors, index: usize, more: &[f32], divide_by: f64) {
    if !gradients.is_present(index) {
        gradients.replace(index, &vec![0.0; more.len()]);
    }
    gradients.edit(index, &mut |values| {
        values.iter_mut().zip(more).for_each(|(value, more)| *value += more / divide_by as f32);
    });
}

impl ModelView for Plane {
    fn params(&self) -> &dyn TensorSource {
        &self.params
    }
    fn optimizers(&self) -> &dyn OptimizerSource {
        &self.optimizers
    }
}

impl Module for Plane {
    type Batch = ToyBatch;
    type Scalar = Loss;
    type Prediction = ();

    // Written by the user of an engine.
    fn training_step(&mut self, batch: &ToyBatch, _: &mut Cx<'_, Self>) -> ModuleResult<StepOutput<Loss>> {
        Ok(StepOutput::Loss(loss(&self.params, batch)))
    }

    // Written by an engine.
    tenterhook::optimizer_set_methods! { optimizers }

    fn configure_optimizers(&mut self, horizon: Horizon) -> ModuleResult<Optimization> {
        let params = ParamInfo::of(&self.params);
        self.optimizers.configure(self.optimizer_factory.optimizers()?, &params, horizon)
    }

    fn backward(&mut self, loss: &Loss, divide_by: f64) -> ModuleResult {
        for (parameter, gradient) in loss.gradients.iter().enumerate() {
            if let Some((gradients, index)) = self.optimizers.gradient_of(parameter) {
                add(gradients, index, gradient, divide_by);
            }
        }
        Ok(())
    }

    fn optimizer_step(&mut self, optimizer: usize, _: bool) -> ModuleResult {
        for parameter in 0..self.params.count() {
            let Some(update) = self.optimizers.update(optimizer, parameter) else { continue };
            let Update { algorithm, lr, state, gradients, index } = update;
            if gradients.is_present(index) {
                self.params.edit(parameter, &mut |values| {
                    algorithm.step(values, gradients.at(index), lr as f32, state);
                });
            }
        }
        Ok(())
    }

    fn grad_norm(&self, optimizer: usize) -> Loss {
        Loss { value: self.optimizers.parts()[optimizer].norm(), gradients: Default::default() }
    }

    fn weights(&self) -> ModuleResult<TensorMap> {
        let tensors = self.params.iter();
        Ok(tensors.map(|(name, shape, values)| (name.into(), TensorBytes::from_f32(shape, values))).collect())
    }

    fn load_weights(&mut self, weights: &TensorMap) -> ModuleResult {
        for index in 0..self.params.count() {
            let values = weights.f32(self.params.name(index), self.params.shape(index))?;
            self.params.replace(index, &values);
        }
        Ok(())
    }
}

/// The model as a task.
struct PlaneTask;

#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Options {
    /// The optimizer.
    optimizer: OptimizerTable<Vectors>,
    /// Schedules of the learning rate.
    schedulers: Vec<SchedulerTable>,
}

impl Task for PlaneTask {
    type Options = Options;
    type Module = Plane;
    type Data = ToyData;

    fn name(&self) -> &'static str {
        "plane"
    }

    fn purpose(&self) -> &'static str {
        "finds a plane"
    }

    fn defaults(&self) -> &'static str {
        "[trainer]\nmax_epochs = 2\naccumulate_grad_batches = 2\ngradient_clip_val = 0.5\nbackground_saves = false\n\
         limit_val_batches = 0\n\
         [optimizer]\nuse = \"descent\"\nlr = 0.05\nmomentum = 0.9\n\
         [[optimizer.groups]]\nmatch = [\"b*\"]\nlr = 0.1\nweight_decay = 0.0\n\
         [[schedulers]]\nuse = \"cosine\"\n\
         [[hooks]]\nuse = \"checkpoint\"\nevery_n_train_steps = 1\nsave_top_k = -1\n"
    }

    fn build(&self, options: Options, build: &BuildContext<'_>) -> Result<(Plane, ToyData), Vec<Problem>> {
        let optimizer_factory = OptimizerFactory::new(options.optimizer, options.schedulers, build.registry)?;
        Ok((
            Plane { params: start(), optimizers: OptimizerSet::new(Vectors), optimizer_factory },
            ToyData::default(),
        ))
    }

    fn show(&self, (): &()) -> Vec<Value> {
        Vec::new()
    }
}

fn tasks() -> Vec<Box<dyn AnyTask>> {
    vec![Box::new(PlaneTask)]
}

fn resolve(sets: &[&str], registry: &Registry) -> Result<Config, String> {
    let sets = sets.iter().map(|set| (*set).to_owned()).collect();
    let sources = Sources { sets, ..Sources::default() };
    sources.resolve(&tasks(), registry).map_err(|error| error.to_string())
}

/// Trains what these settings describe, and returns the weights.
fn train(sets: &[&str], registry: &Registry, root: &Path, from: Option<&str>) -> TensorMap {
    let (resolved, tasks) = (resolve(sets, registry).unwrap(), tasks());
    let trainer = resolved.bare_trainer(registry).unwrap().with_notices(|_| {}).without_run_header();
    let mut trainer = trainer.with_checkpoints_in(root).with_clock(FixedClock(Duration::ZERO));
    if let Some(from) = from {
        trainer = trainer.restoring(root.join(from));
    }
    resolved.program(&tasks, registry).unwrap().fit(&mut trainer).unwrap();
    TensorMap::read(&root.join(LAST).join("weights.safetensors")).unwrap()
}

const LAST: &str = "epoch=1-step=8";

/// The same training as a plain loop.
fn by_hand() -> NamedTensors {
    let (mut params, mut gradients) = (start(), start());
    let rules = [0.01, 0.0].map(|weight_decay| Rule::Descent { momentum: 0.9, weight_decay });
    let (lrs, mut states, mut cosine) = ([0.05, 0.1], [None, None], Cosine::default());
    let (mut step, steps) = (0, Some(8));
    for _ in 0..2 {
        let mut batches = ToyData::default().loaders(Split::Train).unwrap().remove(0);
        for batch in 0..8 {
            if batch % 2 == 0 {
                gradients.zero();
            }
            let loss = loss(&params, &batches.next().unwrap().unwrap());
            (0..2).for_each(|index| add(&mut gradients, index, &loss.gradients[index], 2.0));
            if batch % 2 == 0 {
                continue;
            }
            gradients.clip(&[0, 1], ClipRule::Norm(0.5));
            let factor = cosine.factor(ScheduleStep { count: step, total: steps, metric: None }).unwrap();
            for index in 0..2 {
                let (lr, gradient) = ((lrs[index] * factor) as f32, gradients.at(index).to_vec());
                params
                    .edit(index, &mut |values| rules[index].step(values, &gradient, lr, &mut states[index]));
            }
            step += 1;
        }
    }
    params
}

#[test]
fn groups_schedules_clipping_and_accumulation_equal_plain_loops_to_the_bit() {
    let root = tempfile::tempdir().unwrap();
    let trained = train(&[], &Registry::default(), root.path(), None);
    for (name, shape, values) in by_hand().iter() {
        assert_eq!(trained.f32(name, shape).unwrap(), values, "{name}");
    }
}

#[test]
fn a_resumed_run_ends_up_with_the_same_bits() {
    let (root, registry) = (tempfile::tempdir().unwrap(), Registry::default());
    let files = ["weights.safetensors", "optimizer.safetensors"];
    let saved = || files.map(|file| std::fs::read(root.path().join(LAST).join(file)).unwrap());
    train(&[], &registry, root.path(), None);
    let whole = saved();
    for from in ["epoch=0-step=1", "epoch=0-step=3", "epoch=1-step=6"] {
        std::fs::remove_dir_all(root.path().join(LAST)).unwrap();
        train(&[], &registry, root.path(), Some(from));
        assert!(saved() == whole, "{from}");
    }
}

#[test]
fn gradients_are_saved_and_loaded_by_name() {
    let build = BuildContext { device: "cpu", seed: 0, registry: &Registry::default(), allow_large: false };
    let mut data = ToyData::default();
    let batch = data.loaders(Split::Train).unwrap().remove(0).next().unwrap().unwrap();
    let [mut first, mut second] = [(); 2].map(|()| {
        let (mut plane, _) = PlaneTask.build(Options::default(), &build).unwrap();
        plane.configure_optimizers(Horizon::default()).unwrap();
        plane
    });
    let loss = loss(&first.params, &batch);
    first.backward(&loss, 1.0).unwrap();
    first.gradients_mut(0).remove(1);
    let saved = first.gradients_state().unwrap();
    assert_eq!(saved.names().collect::<Vec<_>>(), ["weight"]);
    second.load_gradients(&saved).unwrap();
    assert_eq!(second.gradients_state().unwrap(), saved);
    assert_eq!(second.without_gradient(0), ["bias"]);
    let mut strange = TensorMap::default();
    strange.insert_f32("wait", [1], &[1.0]);
    let error = second.load_gradients(&strange).unwrap_err().to_string();
    assert_eq!(error, "these gradients do not fit this model: `wait` is no parameter of an optimizer");
}

/// Steps of one length, along the signs of the gradients.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Signs {
    /// Smallest gradient that changes a parameter.
    threshold: f32,
}

impl Default for Signs {
    fn default() -> Signs {
        Signs { threshold: 0.25 }
    }
}

impl OptimizerOptions<Vectors> for Signs {
    fn algorithm(&self, _: f64) -> Result<Rule, BoxError> {
        if self.threshold < 0.0 {
            return Err(tenterhook::OptionError::new("threshold", "it must be 0 or more").into());
        }
        Ok(Rule::Signs { threshold: self.threshold })
    }
}

fn with_signs() -> Registry {
    let mut registry = Registry::default();
    registry.add_optimizer::<Vectors, Signs>("signs").unwrap();
    registry
}

#[test]
fn a_user_defined_optimizer_trains_from_a_configuration() {
    let (root, registry) = (tempfile::tempdir().unwrap(), with_signs());
    let sets = [
        "optimizer.use=signs",
        "optimizer.lr=0.25",
        "optimizer.threshold=0.0",
        "optimizer.groups=[]",
        "schedulers=[]",
        "trainer.gradient_clip_val=0.0",
    ];
    let printed = resolve(&sets, &registry).unwrap().to_toml();
    for line in ["# Smallest gradient that changes a parameter.", "threshold = 0.0", "`descent`, `signs`"] {
        assert!(printed.contains(line), "`{line}` is not in: {printed}");
    }
    let weights = train(&sets, &registry, root.path(), None).f32("weight", &[2]).unwrap();
    let moved = weights.iter().zip(start().at(0).to_vec()).map(|(to, from)| (to - from) / 0.25);
    assert!(moved.clone().all(|steps| steps.fract() == 0.0), "{weights:?}");
    assert!(moved.into_iter().any(|steps| steps != 0.0), "{weights:?}");
}

#[test]
fn an_optimizer_error_names_its_key_and_the_nearest_name() {
    let registry = with_signs();
    let refused = |sets: &[&str]| {
        let resolved = match resolve(sets, &registry) {
            Ok(resolved) => resolved,
            Err(error) => return error,
        };
        let tasks = tasks();
        resolved.program(&tasks, &registry).map(|_| ()).unwrap_err().to_string()
    };
    for (sets, expected) in [
        (&["optimizer.use=sings"][..], "did you mean `signs`?"),
        (&["optimizer.momentun=0.5"], "did you mean `momentum`?"),
        (&["optimizer.threshold=0.5"], "`descent` has no such option; it is one of signs"),
        (&["optimizer.use=signs", "optimizer.threshold=-1.0"], "it must be 0 or more"),
        (&["optimizer.lr=-1.0"], "a learning rate must be 0 or more, not -1"),
        (&["optimizer.groups=[{ match = [] }]"], "a group needs a pattern"),
    ] {
        let error = refused(sets);
        assert!(error.contains(expected), "{sets:?}: `{expected}` is not in: {error}");
    }
    let mut registry = with_signs();
    for name in ["signs", "descent"] {
        let taken = registry.add_optimizer::<Vectors, Signs>(name).unwrap_err().to_string();
        assert!(taken.contains(&format!("there is an optimizer named `{name}` already")), "{taken}");
    }
}
