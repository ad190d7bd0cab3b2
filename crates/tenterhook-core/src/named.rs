//! Named tensors in plain memory: for engines without devices, and for tests.

use serde::{Deserialize, Serialize};

use crate::tensor::{Stats, TensorSource, Tensors, norm};
use crate::update::GradientsMut;

/// A list of named tensors that holds its values itself.
///
/// ```
/// use tenterhook_core::NamedTensors;
///
/// let flat = NamedTensors::from([("weight", vec![3.0, 4.0]), ("bias", vec![0.0])]);
/// assert_eq!(flat.get("weight"), Some(&[3.0, 4.0][..]));
///
/// let shaped = NamedTensors::default().with("weight", [2, 2], [1.0, 0.0, 0.0, 1.0]);
/// assert_eq!(shaped.get("weight").map(<[f32]>::len), Some(4));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NamedTensors(Vec<Named>);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Named {
    name: String,
    shape: Vec<usize>,
    values: Vec<f32>,
}

impl NamedTensors {
    /// The same and one more, of this shape, its values in row-major order.
    ///
    /// # Panics
    ///
    /// When the shape holds another number of values.
    #[must_use]
    #[track_caller]
    pub fn with(
        mut self,
        name: impl Into<String>,
        shape: impl Into<Vec<usize>>,
        values: impl Into<Vec<f32>>,
    ) -> NamedTensors {
        let (name, shape, values) = (name.into(), shape.into(), values.into());
        assert_eq!(
            shape.iter().product::<usize>(),
            values.len(),
            "`{name}` of shape {shape:?} was given {} values",
            values.len()
        );
        self.0.push(Named { name, shape, values });
        self
    }

    /// A copy of what an event shows.
    #[must_use]
    pub fn copied(tensors: &Tensors<'_>) -> NamedTensors {
        let copied = tensors.iter().map(|tensor| Named {
            name: tensor.name().to_owned(),
            shape: tensor.shape().to_vec(),
            values: tensor.to_vec(),
        });
        NamedTensors(copied.collect())
    }

    /// Whether there is not a single tensor.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Name, shape and values of each, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[usize], &[f32])> {
        self.0.iter().map(|tensor| (tensor.name.as_str(), tensor.shape.as_slice(), tensor.values.as_slice()))
    }

    /// The values of each, to be changed in place, with its name.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut [f32])> {
        self.0.iter_mut().map(|tensor| (tensor.name.as_str(), tensor.values.as_mut_slice()))
    }

    /// The values of one; none of a gradient that was taken away.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&[f32]> {
        let index = self.0.iter().position(|tensor| tensor.name == name)?;
        self.is_present(index).then(|| self.at(index))
    }

    /// Makes them all zeros, also those that were taken away.
    pub fn zero(&mut self) {
        for Named { shape, values, .. } in &mut self.0 {
            values.clear();
            values.resize(shape.iter().product(), 0.0);
        }
    }

    /// The values of the one at this index; none where it was taken away.
    #[must_use]
    pub fn at(&self, index: usize) -> &[f32] {
        &self.0[index].values
    }

    /// How many values there are in all of them.
    #[must_use]
    pub fn values(&self) -> usize {
        self.0.iter().map(|tensor| tensor.values.len()).sum()
    }

    /// The Euclidean norm of all of them together.
    #[must_use]
    pub fn norm(&self) -> f64 {
        self.0.iter().map(|tensor| norm(&tensor.values).powi(2)).sum::<f64>().sqrt()
    }
}

/// Each of one dimension.
impl<S: Into<String>, V: Into<Vec<f32>>, const N: usize> From<[(S, V); N]> for NamedTensors {
    fn from(tensors: [(S, V); N]) -> NamedTensors {
        let named = tensors.map(|(name, values)| {
            let values = values.into();
            Named { name: name.into(), shape: vec![values.len()], values }
        });
        NamedTensors(named.into())
    }
}

impl TensorSource for NamedTensors {
    fn count(&self) -> usize {
        self.0.len()
    }
    fn name(&self, index: usize) -> &str {
        &self.0[index].name
    }
    fn shape(&self, index: usize) -> &[usize] {
        &self.0[index].shape
    }
    fn read(&self, index: usize) -> Vec<f32> {
        let Named { shape, values, .. } = &self.0[index];
        if values.is_empty() { vec![0.0; shape.iter().product()] } else { values.clone() }
    }
    fn stats(&self, index: usize) -> Stats {
        let values = &self.0[index].values;
        if values.is_empty() { Stats::of(&self.read(index)) } else { Stats::of(values) }
    }
}

impl GradientsMut for NamedTensors {
    fn view(&self) -> &dyn TensorSource {
        self
    }
    fn edit(&mut self, index: usize, change: &mut dyn FnMut(&mut [f32])) {
        change(&mut self.0[index].values);
    }
    fn replace(&mut self, index: usize, values: &[f32]) {
        self.0[index].values = values.to_vec();
    }
    fn remove(&mut self, index: usize) {
        self.0[index].values = Vec::new();
    }
    fn is_present(&self, index: usize) -> bool {
        let Named { shape, values, .. } = &self.0[index];
        !values.is_empty() || shape.contains(&0)
    }
}
