//! From a plain value to a type, with the path of what does not fit.

use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;
use toml::Value;

use super::schema::Schema;

/// What does not fit, as serde says it, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Misread {
    pub(crate) path: Vec<String>,
    pub(crate) message: String,
}

/// Reads a value. A key that a type would silently ignore does not fit either.
pub(crate) fn read<T: DeserializeOwned>(value: Value) -> Result<T, Misread> {
    let (shape, mut ignored) = (value.clone(), Vec::new());
    let mut note = |path: serde_ignored::Path<'_>| ignored.push(steps_of(&path));
    let outcome = serde_path_to_error::deserialize(serde_ignored::Deserializer::new(value, &mut note));
    let read = outcome.map_err(|error| Misread {
        path: along(error.path().iter(), &shape),
        message: error.inner().message().to_owned(),
    })?;
    match ignored.into_iter().next() {
        Some(path) => {
            let message = format!("unknown field `{}`", path.last().map(String::as_str).unwrap_or_default());
            Err(Misread { path, message })
        }
        None => Ok(read),
    }
}

/// Reads a value whose schema is known. Serde takes a list for a table and reads it by position; nobody means
/// that, so a list does not fit where only a table can stand.
pub(crate) fn read_shaped<T: DeserializeOwned>(
    value: Value,
    schema: &serde_json::Value,
) -> Result<T, Misread> {
    no_list_for_a_table(&value, Schema::new(schema))?;
    read(value)
}

/// Refuses the first list that stands where the schema knows only a table.
pub(crate) fn no_list_for_a_table(value: &Value, schema: Schema<'_>) -> Result<(), Misread> {
    let below = |step: &str, child: &Value, own: Schema<'_>| {
        no_list_for_a_table(child, own).map_err(|mut misread| {
            misread.path.insert(0, step.to_owned());
            misread
        })
    };
    match value {
        Value::Array(_) if schema.is_table() => {
            Err(Misread { path: Vec::new(), message: "invalid type: sequence, expected a map".to_owned() })
        }
        Value::Array(items) => schema.items().map_or(Ok(()), |own| {
            items.iter().enumerate().try_for_each(|(index, item)| below(&index.to_string(), item, own))
        }),
        Value::Table(table) => {
            let mut children = table.iter();
            children.try_for_each(|(key, child)| {
                schema.step(key, Some(table)).map_or(Ok(()), |own| below(key, child, own))
            })
        }
        _ => Ok(()),
    }
}

/// The steps of a path that exist in the value: the variant of an enum may be a key of the file or not.
fn along<'a>(segments: impl Iterator<Item = &'a Segment>, mut shape: &Value) -> Vec<String> {
    let mut path = Vec::new();
    for segment in segments {
        let (step, child) = match segment {
            Segment::Seq { index } => (index.to_string(), shape.get(*index)),
            Segment::Map { key } | Segment::Enum { variant: key } => (key.clone(), shape.get(key.as_str())),
            Segment::Unknown => break,
        };
        let Some(child) = child else { continue };
        shape = child;
        path.push(step);
    }
    path
}

fn steps_of(path: &serde_ignored::Path<'_>) -> Vec<String> {
    use serde_ignored::Path;
    let (parent, step) = match path {
        Path::Root => return Vec::new(),
        Path::Seq { parent, index } => (parent, Some(index.to_string())),
        Path::Map { parent, key } => (parent, Some(key.clone())),
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            (parent, None)
        }
    };
    let mut steps = steps_of(parent);
    steps.extend(step);
    steps
}
