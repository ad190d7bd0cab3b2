//! Several texts, each with loaders of its own.

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
    /// What its loaders are called, and with it what is logged of each of several: `val/loss/NAME`.
    pub name: String,
    /// A file or a directory, as in `data.path`. Without it: the built-in handbook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
}

/// Everything to learn.
#[derive(Clone, Debug)]
pub struct Texts {
    /// The texts; a name for each, where there are several to be told apart.
    pub texts: Vec<(Option<String>, TextSplits)>,
    /// How their training batches take turns.
    pub turns: Interleave,
}

/// Opens all texts that the options name.
pub fn load_all(options: &TextOptions, context: usize) -> Result<Texts, Vec<Problem>> {
    let TextOptions { path, sources, mix, .. } = options;
    let problem = |key: &str, text: String| Problem::new(format!("data.{key}"), text);
    if sources.is_empty() {
        if *mix != InterleaveOptions::default() {
            let fix = "name several as `[[data.sources]]`, or remove `data.mix`";
            return Err(vec![problem("mix", "one text has nobody to take turns with".into()).fix(fix)]);
        }
        let splits = load(options, context).map_err(|error| vec![problem(error.key(), error.to_string())])?;
        return Ok(Texts { texts: vec![(None, splits)], turns: Interleave::default() });
    }
    let mut problems: Vec<_> = options
        .check(context)
        .err()
        .map(|error| problem(error.key(), error.to_string()))
        .into_iter()
        .collect();
    if path.is_some() {
        let fix = "make it one of `[[data.sources]]`, or remove them";
        problems.push(problem("path", "there are `sources`, too".into()).fix(fix));
    }
    let turns = mix.interleave(sources.len());
    let turns =
        turns.map_err(|error| problems.push(problem(&format!("mix.{}", error.key()), error.to_string())));
    let mut names = BTreeSet::new();
    for (at, TextSource { name, .. }) in sources.iter().enumerate() {
        let wrong = match name.as_str() {
            "" => "a text needs a name".to_owned(),
            name if name.contains('/') => {
                format!("`{name}` holds a `/`, and becomes a part of names such as `val/loss/NAME`")
            }
            name if !names.insert(name) => format!("two texts are called `{name}`; give each its own name"),
            _ => continue,
        };
        problems.push(problem(&format!("sources.{at}.name"), wrong));
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut texts = Vec::new();
    for (at, TextSource { name, path }) in sources.iter().enumerate() {
        match load(&TextOptions { path: path.clone(), ..options.clone() }, context) {
            Ok(splits) => texts.push((Some(name.clone()), splits)),
            Err(error) => problems.push(problem(&format!("sources.{at}.{}", error.key()), error.to_string())),
        }
    }
    match turns {
        Ok(turns) if problems.is_empty() => Ok(Texts { texts, turns }),
        _ => Err(problems),
    }
}
