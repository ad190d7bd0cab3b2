//! Named tensors in host memory, for engines without devices and for tests.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::tensor::{TensorSource, TensorStats, Tensors, norm};
use crate::update::GradientsMut;

/// A list of named tensors in host memory. Clones share the values until one of them is changed.
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
    /// Shared by clones. A change copies the values of the changed tensor only.
    values: Arc<Vec<f32>>,
}

impl NamedTensors {
    /// Adds a tensor of this shape, with values in row-major order.
    ///
    /// # Panics
    ///
    /// If the number of values does not match the shape.
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
        self.0.push(Named { name, shape, values: Arc::new(values) });
        self
    }

    /// Copies the tensors of an event.
    #[must_use]
    pub fn copied(tensors: &Tensors<'_>) -> NamedTensors {
        let copied = tensors.iter().map(|tensor| Named {
            name: tensor.name().to_owned(),
            shape: tensor.shape().to_vec(),
            values: Arc::new(tensor.to_vec()),
        });
        NamedTensors(copied.collect())
    }

    /// Whether there are no tensors.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Name, shape and values of each tensor, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[usize], &[f32])> {
        self.0.iter().map(|tensor| (tensor.name.as_str(), tensor.shape.as_slice(), tensor.values.as_slice()))
    }

    /// Name and mutable values of each tensor.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut [f32])> {
        self.0
            .iter_mut()
            .map(|tensor| (tensor.name.as_str(), Arc::make_mut(&mut tensor.values).as_mut_slice()))
    }

    /// The values of the tensor of this name; `None` if there is none, or if it is a gradient that was
    /// removed.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&[f32]> {
        let index = self.0.iter().position(|tensor| tensor.name == name)?;
        self.is_present(index).then(|| self.at(index))
    }

    /// Sets all values to zero, including those of removed gradients.
    pub fn zero(&mut self) {
        for Named { shape, values, .. } in &mut self.0 {
            *values = Arc::new(vec![0.0; shape.iter().product()]);
        }
    }

    /// The values of the tensor at this index; empty if it is a gradient that was removed.
    #[must_use]
    pub fn at(&self, index: usize) -> &[f32] {
        &self.0[index].values
    }

    /// The number of values of all tensors together.
    #[must_use]
    pub fn values(&self) -> usize {
        self.0.iter().map(|tensor| tensor.values.len()).sum()
    }

    /// The Euclidean norm of all tensors together.
    #[must_use]
    pub fn norm(&self) -> f64 {
        self.0.iter().map(|tensor| norm(&tensor.values).powi(2)).sum::<f64>().sqrt()
    }
}

/// Makes one-dimensional tensors.
impl<S: Into<String>, V: Into<Vec<f32>>, const N: usize> From<[(S, V); N]> for NamedTensors {
    fn from(tensors: [(S, V); N]) -> NamedTensors {
        let named = tensors.map(|(name, values)| {
            let values: Vec<f32> = values.into();
            Named { name: name.into(), shape: vec![values.len()], values: Arc::new(values) }
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
        if values.is_empty() { vec![0.0; shape.iter().product()] } else { values.to_vec() }
    }
    fn stats(&self, index: usize) -> TensorStats {
        let values = &self.0[index].values;
        if values.is_empty() { TensorStats::of(&self.read(index)) } else { TensorStats::of(values) }
    }
    fn norm(&self, index: usize) -> f64 {
        norm(&self.0[index].values)
    }
}

impl GradientsMut for NamedTensors {
    fn view(&self) -> &dyn TensorSource {
        self
    }
    fn edit(&mut self, index: usize, change: &mut dyn FnMut(&mut [f32])) {
        change(Arc::make_mut(&mut self.0[index].values).as_mut_slice());
    }
    fn replace(&mut self, index: usize, values: &[f32]) {
        self.0[index].values = Arc::new(values.to_vec());
    }
    fn remove(&mut self, index: usize) {
        self.0[index].values = Arc::default();
    }
    fn is_present(&self, index: usize) -> bool {
        let Named { shape, values, .. } = &self.0[index];
        !values.is_empty() || shape.contains(&0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> NamedTensors {
        NamedTensors::from([("weight", vec![1.0, 2.0]), ("bias", vec![3.0])])
    }

    fn places(tensors: &NamedTensors) -> Vec<*const f32> {
        tensors.iter().map(|(_, _, values)| values.as_ptr()).collect()
    }

    #[test]
    fn a_clone_shares_all_values_until_one_is_changed() {
        let first = some();
        let mut second = first.clone();
        assert_eq!(places(&first), places(&second));
        second.edit(1, &mut |values| values[0] = 9.0);
        assert_eq!(places(&first)[0], places(&second)[0], "unchanged tensors are still shared");
        assert_eq!((first.get("bias"), second.get("bias")), (Some(&[3.0][..]), Some(&[9.0][..])));
        assert_eq!(first, some());
    }

    #[test]
    fn no_change_of_a_clone_reaches_the_other() {
        let changes: [fn(&mut NamedTensors); 5] = [
            |tensors| tensors.iter_mut().for_each(|(_, values)| values.fill(7.0)),
            |tensors| tensors.edit(0, &mut |values| values.fill(7.0)),
            |tensors| tensors.replace(0, &[7.0, 7.0]),
            |tensors| tensors.remove(0),
            NamedTensors::zero,
        ];
        for (at, change) in changes.into_iter().enumerate() {
            let first = some();
            let mut second = first.clone();
            change(&mut second);
            assert_ne!(second, first, "change {at}");
            assert_eq!(first, some(), "change {at}");
        }
    }

    #[test]
    fn values_that_are_not_shared_are_changed_in_place() {
        let mut alone = some();
        let before = places(&alone);
        alone.iter_mut().for_each(|(_, values)| values.fill(0.5));
        alone.edit(0, &mut |values| values.fill(0.25));
        assert_eq!(places(&alone), before);
    }

    #[test]
    fn tensors_are_serialized_as_lists_of_numbers() {
        let text = serde_json::to_string(&NamedTensors::from([("w", [1.5])])).expect("it is written");
        assert_eq!(text, r#"[{"name":"w","shape":[1],"values":[1.5]}]"#);
        assert_eq!(
            serde_json::from_str::<NamedTensors>(&text).expect("it is read").get("w"),
            Some(&[1.5][..])
        );
    }
}
