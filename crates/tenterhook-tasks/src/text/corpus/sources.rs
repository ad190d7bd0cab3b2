//! Several texts, each with its own data loaders.

use std::collections::BTreeSet;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook::data::{Interleave, InterleaveOptions};
use tenterhook::task::Problem;

use super::{TextOptions, TextSplits, load};

/// One of several texts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TextSource {
    /// The name of its data loaders and the suffix of its metrics: `val/loss/NAME`.
    pub name: String,
    /// A file or a directory, like `data.path`. Default: the built-in handbook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
}

/// The texts to learn.
#[derive(Clone, Debug)]
pub struct Texts {
    /// The splits of each text. If there are several, each has a name.
    pub texts: Vec<(Option<String>, TextSplits)>,
    /// How their training batches are interleaved.
    pub interleave: Interleave,
}

/// Opens all texts of the options.
pub fn load_all(options: &TextOptions, context: usize) -> Result<Texts, Vec<Problem>> {
    let TextOptions { path, sources, mix, .. } = options;
    if sources.is_empty() {
        if *mix != InterleaveOptions::default() {
            let fix = "name several as `[[data.sources]]`, or remove `data.mix`";
            return Err(vec![Problem::new("data.mix", "one text cannot be interleaved").fix(fix)]);
        }
        let splits = load(options, context).map_err(|problem| vec![problem.below("data")])?;
        return Ok(Texts { texts: vec![(None, splits)], interleave: Interleave::default() });
    }
    let mut problems = Vec::new();
    problems.extend(options.check(context).err().map(|problem| problem.below("data")));
    if path.is_some() {
        let fix = "make it one of `[[data.sources]]`, or remove them";
        problems.push(Problem::new("data.path", "`data.sources` is set, too").fix(fix));
    }
    let interleave = mix.interleave(sources.len());
    let interleave = interleave.map_err(|error| {
        problems.push(Problem::new(format!("data.mix.{}", error.key()), error.to_string()));
    });
    let mut names = BTreeSet::new();
    for (index, TextSource { name, .. }) in sources.iter().enumerate() {
        let message = match name.as_str() {
            "" => "a text needs a name".to_owned(),
            name if name.contains('/') => {
                format!("`{name}` contains a `/`, and is a part of names such as `val/loss/NAME`")
            }
            name if !names.insert(name) => format!("two texts are called `{name}`; give each its own name"),
            _ => continue,
        };
        problems.push(Problem::new(format!("data.sources.{index}.name"), message));
    }
    let (Ok(interleave), true) = (interleave, problems.is_empty()) else { return Err(problems) };
    let mut texts = Vec::new();
    for (index, TextSource { name, path }) in sources.iter().enumerate() {
        match load(&TextOptions { path: path.clone(), ..options.clone() }, context) {
            Ok(splits) => texts.push((Some(name.clone()), splits)),
            Err(problem) => problems.push(problem.below(&format!("data.sources.{index}"))),
        }
    }
    if problems.is_empty() { Ok(Texts { texts, interleave }) } else { Err(problems) }
}
