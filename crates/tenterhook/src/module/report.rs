//! Matches weights with the parameters of a module.

use super::LoadReport;
use crate::tensors::TensorMap;

impl LoadReport {
    /// Matches weights with these parameters, given by name and shape. The caller then loads those in
    /// [`LoadReport::loaded`]. The order is that of the parameters, then that of the weights.
    ///
    /// ```
    /// use tenterhook::TensorMap;
    /// use tenterhook::module::LoadReport;
    ///
    /// let mut weights = TensorMap::default();
    /// weights.insert_f32("body.weight", [2], &[1.0, 2.0]);
    /// weights.insert_f32("head.weight", [3], &[1.0, 2.0, 3.0]);
    /// let report = LoadReport::of([("body.weight", &[2][..]), ("head.weight", &[5])], &weights);
    /// assert_eq!(report.loaded, ["body.weight"]);
    /// assert_eq!(report.mismatched, ["`head.weight` has the shape [3] instead of [5]"]);
    /// ```
    #[must_use]
    pub fn of<'a>(
        parameters: impl IntoIterator<Item = (&'a str, &'a [usize])>,
        weights: &TensorMap,
    ) -> LoadReport {
        let mut report = LoadReport::default();
        let mut known = std::collections::BTreeSet::new();
        for (name, shape) in parameters {
            known.insert(name);
            match weights.get(name) {
                Err(_) => report.missing.push(name.to_owned()),
                Ok(given) if given.shape != shape => {
                    let given = &given.shape;
                    report.mismatched.push(format!("`{name}` has the shape {given:?} instead of {shape:?}"));
                }
                Ok(_) => report.loaded.push(name.to_owned()),
            }
        }
        report.unexpected = weights.names().filter(|name| !known.contains(name)).map(str::to_owned).collect();
        report
    }
}
