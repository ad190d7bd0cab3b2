//! The layers of a configuration, from the lowest to the highest: the task's defaults, the file, environment
//! variables, `--set`.

use std::path::Path;

use tenterhook_files::{SMALL_FILE, read_input_text};
use toml::Value;
use toml::de::{DeTable, DeValue};

use super::key_path::{position, resolve_path};
use super::tree::{Kind, Node, Origin, ParseError, USE};
use crate::problems::masking::FileText;
use crate::problems::render::{SourceMap, file_error};
use crate::problems::{ConfigError, Problem};
use crate::registry::Registry;

/// The prefix of our environment variables.
pub(crate) const PREFIX: &str = "TENTER__";

/// Reads a file into a tree.
pub(crate) fn file(path: &Path) -> Result<(Node, SourceMap), ConfigError> {
    let shown = path.display().to_string();
    let text = read_input_text(path, SMALL_FILE)
        .map_err(|error| ConfigError::plain(format!("cannot read {shown}: {error}")))?;
    let wrong = |error: ParseError| file_error(&shown, &text, error.at, &error.message);
    let parsed = DeTable::parse(&text).map_err(|error| wrong(error.into()))?;
    let origin = |key, value| Origin::File { key, value };
    let entries = Node::of_table(parsed.get_ref(), &origin).map_err(wrong)?;
    let root = Node { kind: Kind::Table(entries), origin: Origin::Default };
    let file_texts = FileText::all(&root);
    Ok((root, SourceMap { file: Some((shown, text)), file_texts, ..SourceMap::default() }))
}

/// Reads the defaults of a task into a tree.
pub(crate) fn defaults(text: &str) -> Result<Node, ParseError> {
    let parsed = DeTable::parse(text).map_err(ParseError::from)?;
    let entries = Node::of_table(parsed.get_ref(), &|_, _| Origin::Default)?;
    Ok(Node { kind: Kind::Table(entries), origin: Origin::Default })
}

/// The value of a key from an environment variable or from `--set`.
pub(crate) struct Assignment {
    pub(crate) steps: Vec<String>,
    value: String,
    origin: Origin,
}

/// The assignments of our environment variables and then of `--set`, and the problems of those without key or
/// value.
pub(crate) fn assignments(
    environment: &[(String, String)],
    sets: &[String],
) -> (Vec<Assignment>, Vec<Problem>) {
    let (mut assignments, mut problems) = (Vec::new(), Vec::new());
    let variables = environment.iter().filter_map(|(name, value)| {
        let key = name.strip_prefix(PREFIX)?;
        let steps = key.split("__").map(str::to_lowercase).collect();
        Some((steps, Some(value.clone()), Origin::Environment(format!("{name}={value}"))))
    });
    let sets = sets.iter().map(|set| {
        let (key, value) =
            set.split_once('=').map_or((set.as_str(), None), |(key, value)| (key, Some(value)));
        (steps_of(key.trim()), value.map(str::to_owned), Origin::Set(set.clone()))
    });
    for (steps, value, origin) in variables.chain(sets) {
        let nameless = steps.iter().any(String::is_empty);
        match value {
            Some(value) if !nameless => assignments.push(Assignment { steps, value, origin }),
            _ => {
                let problem = Problem::new("", "it has no key and value")
                    .fix("for example, write trainer.max_epochs=3");
                problems.push(problem.of_source(origin));
            }
        }
    }
    // In each layer `use` comes first, because another `use` replaces its table.
    assignments.sort_by_key(|assignment| {
        let layer = matches!(assignment.origin, Origin::Set(_));
        (layer, assignment.steps.last().is_none_or(|last| last != USE))
    });
    (assignments, problems)
}

/// The steps of a dotted key. A step with dots in it must be quoted.
fn steps_of(key: &str) -> Vec<String> {
    let (mut steps, mut quote) = (vec![String::new()], None);
    for c in key.chars() {
        let last = steps.len() - 1;
        match (c, quote) {
            ('"' | '\'', None) => quote = Some(c),
            (_, Some(open)) if c == open => quote = None,
            ('.', None) => steps.push(String::new()),
            _ => steps[last].push(c),
        }
    }
    steps
}

impl Assignment {
    /// Sets the value in a tree.
    pub(crate) fn apply(&self, tree: &mut Node, registry: &Registry) -> Result<(), Problem> {
        let in_any_case = matches!(self.origin, Origin::Environment(_));
        let of_source = |problem: Problem| problem.of_source(self.origin.clone());
        let steps = resolve_path(&self.steps, tree, in_any_case, registry).map_err(of_source)?;
        let origin = |_, _| self.origin.clone();
        let parsed = DeValue::parse(&self.value).ok();
        let parsed = parsed.and_then(|value| Node::of(value.get_ref(), &(0..0), &(0..0), &origin).ok());
        let text =
            || Node { kind: Kind::Leaf(Value::String(self.value.clone())), origin: self.origin.clone() };
        assign(tree, &steps, parsed.unwrap_or_else(text)).map_err(of_source)
    }
}

fn assign(node: &mut Node, steps: &[String], value: Node) -> Result<(), Problem> {
    let Some((step, rest)) = steps.split_first() else {
        node.merge(value);
        return Ok(());
    };
    let origin = value.origin.clone();
    match &mut node.kind {
        Kind::Array(items) => {
            let index = position(items, step, false, &[])?;
            if index == items.len() {
                items.push(Node::empty_table(origin));
            }
            assign(&mut items[index], rest, value)
        }
        Kind::Table(_) if rest.is_empty() => {
            let mut table = Node::empty_table(origin);
            if let Kind::Table(entries) = &mut table.kind {
                entries.insert(step.clone(), value);
            }
            node.merge(table);
            Ok(())
        }
        Kind::Table(entries) => {
            let entry = entries.entry(step.clone()).or_insert_with(|| {
                let mut made = Node::empty_table(origin);
                if rest.first().is_some_and(|next| next.parse::<usize>().is_ok()) {
                    made.kind = Kind::Array(Vec::new());
                }
                made
            });
            assign(entry, rest, value)
        }
        Kind::Leaf(_) => {
            *node = Node::empty_table(origin);
            assign(node, steps, value)
        }
    }
}
