//! Prints a summary of the model.

use std::collections::BTreeMap;

use tenterhook_core::printable::{Side, table};
use tenterhook_core::{FitStart, HookResult, Observer, OptionError, Tensor, Tensors, hook};

use crate::support::text;
use crate::support::{from_options, options};

options! {
    /// The options of [`ModelSummary`].
    #[derive(Eq)]
    pub struct ModelSummaryOptions {
        /// Depth of the submodules to show: 1 shows the outermost modules, 0 only the totals, -1 every tensor.
        #[schemars(range(min = -1))]
        pub max_depth: i64 = 1,
    }
}

/// Prints a table of the model's parameters before training.
///
/// - **Fires** at `on_fit_start`, also of a resumed run.
/// - **Reads** the names, shapes and types of the parameters, not their values; writes nothing. Which parameters an
///   optimizer trains is not shown: parameter groups do not list their parameters.
/// - **Cost**: one pass over the names.
/// - **When it fails**: it cannot fail.
///
/// ```toml
/// [[hooks]]
/// use = "model_summary"
/// max_depth = 1
/// ```
#[derive(Clone, Debug)]
pub struct ModelSummary {
    options: ModelSummaryOptions,
}

from_options! {
    ModelSummary from ModelSummaryOptions,
    purpose: "prints the model's modules, shapes and parameters before training",
    example: "max_depth = 2"
}

impl ModelSummary {
    /// Creates the hook, or reports an invalid option.
    pub fn new(options: ModelSummaryOptions) -> Result<ModelSummary, OptionError> {
        if options.max_depth < -1 {
            return Err(OptionError::new(
                "max_depth",
                "`max_depth` must be -1 (every tensor), 0 (only totals) or more",
            ));
        }
        Ok(ModelSummary { options })
    }
}

/// The parameters of one row.
#[derive(Default)]
struct Group {
    name: String,
    shapes: Vec<String>,
    /// The number of trainable values.
    parameters: u64,
    /// The number of tensors that hold them.
    trained_tensors: u64,
    /// The number of other values: buffers and frozen parameters.
    untrained: u64,
    bytes: u64,
}

impl Group {
    fn add(&mut self, tensor: &Tensor<'_>) {
        let size: usize = tensor.shape().iter().product();
        let shape: Vec<_> = tensor.shape().iter().map(ToString::to_string).collect();
        self.shapes.push(format!("[{}]", shape.join(", ")));
        let count = if tensor.is_trained() { &mut self.parameters } else { &mut self.untrained };
        *count += size as u64;
        self.trained_tensors += u64::from(tensor.is_trained());
        self.bytes += (size * tensor.dtype().size()) as u64;
    }

    /// The shapes, or their number if there are more than three.
    fn shape(&self) -> String {
        if self.shapes.len() <= 3 { self.shapes.join(" ") } else { format!("{} tensors", self.shapes.len()) }
    }
}

/// The module of a parameter, up to this depth. A parameter outside of modules is its own group.
fn group_of(name: &str, depth: i64) -> &str {
    let Some(depth) = usize::try_from(depth).ok() else { return name };
    let module_ends = name.match_indices('.').map(|(at, _)| at);
    module_ends.take(depth).last().map_or(name, |end| &name[..end])
}

/// The rows, in the order of their first parameters.
fn groups(params: &Tensors<'_>, depth: i64) -> Vec<Group> {
    let mut indexes = BTreeMap::new();
    let mut groups: Vec<Group> = Vec::new();
    for tensor in params.iter() {
        let name = group_of(tensor.name(), depth);
        let at = *indexes.entry(name).or_insert(groups.len());
        if at == groups.len() {
            groups.push(Group { name: name.to_owned(), ..Group::default() });
        }
        groups[at].add(&tensor);
    }
    groups
}

fn lines(params: &Tensors<'_>, depth: i64) -> Vec<String> {
    let mut whole = Group::default();
    let mut types: BTreeMap<&str, Group> = BTreeMap::new();
    for tensor in params.iter() {
        whole.add(&tensor);
        types.entry(tensor.dtype().name()).or_default().add(&tensor);
    }
    let mut lines = Vec::new();
    if depth != 0 && whole.parameters > 0 {
        let mut rows = vec![["name", "shape", "parameters", "share"].map(str::to_owned).to_vec()];
        for group in groups(params, depth) {
            let share = format!("{:.1} %", group.parameters as f64 / whole.parameters as f64 * 100.0);
            rows.push(vec![group.name.clone(), group.shape(), text::count(group.parameters), share]);
        }
        lines = table(&rows, &[Side::Left, Side::Right, Side::Right, Side::Right]);
    }
    let types = types.iter().map(|(name, group)| {
        format!("{name} {} ({})", text::count(group.parameters), text::bytes(group.bytes))
    });
    let types: Vec<_> = types.collect();
    let untrained = match whole.untrained {
        0 => String::new(),
        count => format!("; {}", text::plural(count, "non-trainable value")),
    };
    lines.push(format!(
        "model: {} in {}, {}: {}{untrained}",
        text::plural(whole.parameters, "parameter"),
        text::plural(whole.trained_tensors, "tensor"),
        text::bytes(whole.bytes),
        types.join(", ")
    ));
    lines
}

#[hook(tier = "built_in")]
impl Observer for ModelSummary {
    fn on_fit_start(&mut self, cx: &FitStart) -> HookResult {
        for line in lines(&cx.params(), self.options.max_depth) {
            cx.print(line);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tenterhook_testkit::{NamedTensors, Rig};

    use super::*;

    fn printed(max_depth: i64) -> Vec<String> {
        let hook = ModelSummary::new(ModelSummaryOptions { max_depth }).expect("it fits");
        let zeros = |number: usize| vec![0.0; number];
        let mut rig = Rig::new(hook);
        rig.params(
            NamedTensors::default()
                .with("embed.weight", [100, 10], zeros(1000))
                .with("blocks.0.fc.weight", [10, 20], zeros(200))
                .with("blocks.0.fc.bias", [20], zeros(20))
                .with("blocks.1.fc.weight", [10, 20], zeros(200))
                .with("blocks.1.fc.bias", [20], zeros(20))
                .with("scale", [], zeros(1)),
        );
        rig.on_fit_start();
        rig.printed()
    }

    const TOTALS: &str = "model: 1,441 parameters in 6 tensors, 5.6 KiB: F32 1,441 (5.6 KiB)";

    #[test]
    fn modules_are_grouped_to_the_depth() {
        let depth_1 = [
            "name        shape  parameters   share",
            "embed   [100, 10]       1,000  69.4 %",
            "blocks  4 tensors         440  30.5 %",
            "scale          []           1   0.1 %",
            TOTALS,
        ];
        assert_eq!(printed(1), depth_1);
        let depth_2 = [
            "name               shape  parameters   share",
            "embed          [100, 10]       1,000  69.4 %",
            "blocks.0  [10, 20] [20]         220  15.3 %",
        ];
        let names = |lines: Vec<String>| {
            lines.iter().map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(printed(2))[..3], names(depth_2.map(str::to_owned).to_vec()));
        assert_eq!(printed(2)[2], "blocks.0  [10, 20] [20]         220  15.3 %");
        assert_eq!(names(printed(3))[2..4], ["blocks.0.fc", "blocks.1.fc"]);
        assert_eq!(printed(99), printed(3));
    }

    #[test]
    fn depth_0_is_only_the_totals_and_minus_1_every_tensor() {
        assert_eq!(printed(0), [TOTALS]);
        assert_eq!(printed(-1).len(), 8);
        assert_eq!(printed(-1)[2], "blocks.0.fc.weight   [10, 20]         200  13.9 %");
    }

    #[test]
    fn another_depth_is_refused_by_the_name_of_the_option() {
        let error = ModelSummary::new(ModelSummaryOptions { max_depth: -2 }).expect_err("refused");
        assert!(error.to_string().starts_with("`max_depth` must be -1"), "{error}");
    }
}
