//! The data of the toy: a few fixed points of a plane.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::{BoxError, NamedTensors, TensorSource, World};

use crate::data::{BatchData, DataModule, Loader, Loaders, Split};

/// A batch of the toy's data: samples of two inputs and one output.
#[derive(Clone, Debug, Default)]
pub struct ToyBatch {
    pub(super) samples: Vec<([f32; 2], f32)>,
    tensors: NamedTensors,
}

impl ToyBatch {
    /// A batch of these samples; hooks see them as `x` and `y`.
    #[must_use]
    pub fn of(samples: Vec<([f32; 2], f32)>) -> ToyBatch {
        let inputs: Vec<f32> = samples.iter().flat_map(|(x, _)| *x).collect();
        let outputs: Vec<f32> = samples.iter().map(|(_, y)| *y).collect();
        let tensors =
            NamedTensors::default().with("x", [samples.len(), 2], inputs).with("y", [samples.len()], outputs);
        ToyBatch { samples, tensors }
    }
}

impl BatchData for ToyBatch {
    fn size(&self) -> usize {
        self.samples.len()
    }
    fn tensors(&self) -> &dyn TensorSource {
        &self.tensors
    }
}

/// Data for the toy: `y = 2·x0 − 3·x1 + 0.5` on a few fixed points.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ToyData {
    /// Batches of each training loader.
    pub train: Vec<u64>,
    /// Batches of each validation loader.
    pub validate: Vec<u64>,
    /// Batches of each test loader.
    pub test: Vec<u64>,
    /// Batches of each prediction loader.
    pub predict: Vec<u64>,
    /// Whether the training loaders have a known length.
    #[serde(skip)]
    pub sized: bool,
    /// The rank, and the number of ranks.
    #[serde(skip)]
    pub world: World,
}

impl Default for ToyData {
    fn default() -> ToyData {
        ToyData {
            train: vec![8],
            validate: vec![2],
            test: vec![2],
            predict: vec![1],
            sized: true,
            world: World::SOLO,
        }
    }
}

impl DataModule<ToyBatch> for ToyData {
    fn loaders(&mut self, split: Split) -> Result<Loaders<ToyBatch>, BoxError> {
        let batches = match split {
            Split::Train => &self.train,
            Split::Validate => &self.validate,
            Split::Test => &self.test,
            Split::Predict => &self.predict,
        };
        let sized = self.sized || split != Split::Train;
        let loaders = batches.iter().enumerate().map(|(index, batches)| {
            let name = format!("{}{index}", split.key());
            Box::new(ToyLoader { name, batches: *batches, sized, next: 0, world: self.world })
                as Box<dyn Loader<ToyBatch>>
        });
        Ok(loaders.collect())
    }

    fn join(&mut self, world: World) {
        self.world = world;
    }
}

struct ToyLoader {
    name: String,
    batches: u64,
    sized: bool,
    next: u64,
    world: World,
}

impl Loader<ToyBatch> for ToyLoader {
    fn name(&self) -> &str {
        &self.name
    }

    fn batches(&self) -> Option<u64> {
        self.sized.then_some(self.batches)
    }

    fn seek(&mut self, _epoch: u64, batch: u64, _shuffled: bool) -> Result<(), BoxError> {
        self.next = batch;
        Ok(())
    }

    fn next(&mut self) -> Result<Option<ToyBatch>, BoxError> {
        if self.next >= self.batches {
            return Ok(None);
        }
        let start = self.next * 4;
        self.next += 1;
        // The four samples are split evenly among the ranks.
        let World { rank, size, .. } = self.world;
        let part = 4 * rank as u64 / size as u64..4 * (rank as u64 + 1) / size as u64;
        let samples = part.map(|i| start + i).map(|i| {
            let x = [(i % 7) as f32 / 7.0 - 0.4, (i % 5) as f32 / 5.0 - 0.3];
            (x, 2.0 * x[0] - 3.0 * x[1] + 0.5)
        });
        Ok(Some(ToyBatch::of(samples.collect())))
    }
}
