//! What serde says, in the words of somebody who has a file in front of him.

use tenterhook_core::plan::nearest;

use super::problem::Problem;
use super::read::Misread;
use super::render::Found;
use super::repair::{expected, missing_field};

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
            Problem::new(key, plainly(message))
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
        Problem { fix: suggestion(name, &known), ..Problem::new(path.join("."), message) }
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

/// Without the names of our types, which a user has never seen.
fn plainly(message: &str) -> String {
    if message.starts_with("data did not match any variant of untagged enum") {
        return "a value that cannot stand here".to_owned();
    }
    for kind in ["struct ", "internally tagged enum ", "adjacently tagged enum ", "a map", "map"] {
        if let Some((before, _)) = message.split_once(&format!(", expected {kind}")) {
            return format!("{before}, expected a table");
        }
    }
    message.replace(", expected a sequence", ", expected a list").replace(": map,", ": table,")
}
