//! What serde says, in the words of somebody who has a file in front of him.

use tenterhook_core::plan::nearest;

use super::problem::Problem;
use super::read::Misread;
use super::render::Found;
use super::repair::{expected, missing_field};
use super::schema::Schema;
use crate::settings::lightning;

/// A table that is read, for those who are told about it.
pub(crate) struct Place<'a> {
    /// The dotted key of the table; empty for the whole.
    pub(crate) key: &'a str,
    /// What people call it.
    pub(crate) called: String,
    /// The keys it has besides those that its type knows.
    pub(crate) also: &'a [&'a str],
    /// All keys that its type knows, where the error does not list them.
    pub(crate) known: &'a dyn Fn(&[String]) -> Vec<String>,
    /// What it can hold, where that is known.
    pub(crate) schema: Option<Schema<'a>>,
}

impl Place<'_> {
    /// What was found, as a problem with a dotted key.
    pub(crate) fn found(&self, misread: &Misread) -> Found {
        let Misread { path, message } = misread;
        let key = path.join(".");
        let problem = if message.starts_with("unknown field `") {
            self.unknown_key(path, message)
        } else if let Some(field) = missing_field(message) {
            let table = self.table(&path[..path.len().saturating_sub(1)]);
            Problem::new(key, format!("missing key `{field}` in {table}")).fix(format!("set `{field}`"))
        } else if let Some(variant) = quoted(message, "unknown variant `") {
            let fix = suggestion(variant, &expected(message));
            Problem { fix, ..Problem::new(key, format!("unknown value `{variant}`")) }
        } else {
            Problem { fix: self.what_to_write(path, message), ..Problem::new(key, plainly(message)) }
        };
        let at_key = message.starts_with("unknown field `");
        let problem = if self.key.is_empty() { problem } else { problem.below(self.key) };
        Found { problem, at_key, origin: None }
    }

    fn unknown_key(&self, path: &[String], message: &str) -> Problem {
        let name = quoted(message, "unknown field `").unwrap_or_default();
        let parents = &path[..path.len().saturating_sub(1)];
        let mut known: Vec<String> = expected(message).into_iter().map(str::to_owned).collect();
        if known.is_empty() {
            known = (self.known)(parents);
        }
        if parents.is_empty() {
            known.extend(self.also.iter().map(|key| (*key).to_owned()));
        }
        let known: Vec<_> = known.iter().map(String::as_str).collect();
        let message = format!("unknown key `{name}` in {}", self.table(parents));
        let elsewhere = match self.key {
            "trainer" => lightning::setting(name),
            // At the top, a plural comes first: `devices` is `device`.
            "" if !known.iter().any(|known| name.strip_suffix('s') == Some(known)) => {
                lightning::setting(name)
            }
            _ => None,
        };
        let fix = elsewhere.filter(|_| parents.is_empty()).or_else(|| suggestion(name, &known));
        Problem { fix, ..Problem::new(path.join("."), message) }
    }

    /// What can stand there instead of something of another kind.
    fn what_to_write(&self, path: &[String], message: &str) -> Option<String> {
        let of_another_kind = ["invalid ", "wanted "].iter().any(|beginning| message.starts_with(beginning));
        if path.is_empty() || !of_another_kind {
            return None;
        }
        let own = path.iter().try_fold(self.schema?, |schema, step| schema.step(step, None))?;
        let kind = own.kind_in_words();
        if kind.is_empty() || own.is_table() {
            return None;
        }
        let article = if kind.starts_with('"') || kind.starts_with("true") { "" } else { "a " };
        let example = own.default().or_else(|| own.example()).filter(|_| !article.is_empty());
        if plainly(message).ends_with(&format!("expected {article}{kind}")) {
            // All is said but how it looks.
            return example.map(|value| format!("write for example {value}"));
        }
        let such_as = example.map(|value| format!(", such as {value}")).unwrap_or_default();
        Some(format!("write {article}{kind}{such_as}"))
    }

    fn table(&self, parents: &[String]) -> String {
        match (parents.is_empty(), self.key.is_empty()) {
            (true, _) => self.called.clone(),
            (false, true) => format!("[{}]", parents.join(".")),
            (false, false) => format!("[{}.{}]", self.key, parents.join(".")),
        }
    }
}

/// The nearest of the known names, or all of them.
pub(crate) fn suggestion(name: &str, known: &[&str]) -> Option<String> {
    if known.is_empty() {
        return None;
    }
    let near = nearest(name, known.iter().copied());
    Some(
        near.map_or_else(
            || format!("there are: {}", known.join(", ")),
            |near| format!("did you mean `{near}`?"),
        ),
    )
}

fn quoted<'a>(message: &'a str, before: &str) -> Option<&'a str> {
    message.strip_prefix(before)?.split('`').next()
}

/// What serde expects, and what people call it.
const EXPECTED: &[(&[&str], &str)] = &[
    (&["u8", "u16", "u32", "u64", "usize", "i8", "i16", "i32", "i64", "isize", "integer"], "a whole number"),
    (&["f32", "f64"], "a number"),
    (&["a string", "string", "path string", "a character", "string only"], "a text"),
    (&["a boolean"], "true or false"),
    (&["a sequence", "sequence"], "a list"),
    (&["a map", "map"], "a table"),
];

/// What serde calls a thing that was given, and what people call it.
const GIVEN: &[(&str, &str)] = &[
    ("invalid type: string ", "invalid type: text "),
    ("invalid type: integer ", "invalid type: whole number "),
    ("invalid type: floating point ", "invalid type: number "),
    ("invalid type: boolean ", "invalid type: "),
    ("invalid type: sequence,", "invalid type: a list,"),
    ("invalid type: map,", "invalid type: a table,"),
    ("invalid value: integer ", "invalid value: "),
];

/// Without the names of our types, which a user has never seen.
pub(crate) fn plainly(message: &str) -> String {
    if message.starts_with("data did not match any variant of untagged enum") {
        return "a value that cannot stand here".to_owned();
    }
    if message.starts_with("wanted ") || message.contains("unit variant, expected") {
        return "invalid type: expected a text".to_owned();
    }
    let said =
        GIVEN.iter().find_map(|(theirs, ours)| Some(format!("{ours}{}", message.strip_prefix(theirs)?)));
    let message = said.as_deref().unwrap_or(message);
    let Some((given, expected)) = message.rsplit_once(", expected ") else { return message.to_owned() };
    let is_table = ["struct ", "internally tagged enum ", "adjacently tagged enum "];
    let ours = EXPECTED.iter().find(|(theirs, _)| theirs.contains(&expected)).map(|(_, ours)| *ours);
    let ours = ours.or_else(|| is_table.iter().any(|kind| expected.starts_with(kind)).then_some("a table"));
    format!("{given}, expected {}", ours.unwrap_or(expected))
}
