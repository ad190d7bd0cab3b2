//! What does not fit, in the words of the user who has a file in front of him.

use tenterhook_core::plan::nearest;

use super::read::{Fault, Misfit};
use super::schema::Schema;
use crate::problems::Problem;
use crate::settings::lightning;

/// A table that is read, for messages about it.
pub(crate) struct Place<'a> {
    /// The dotted key of the table; empty for the whole.
    pub(crate) key: &'a str,
    /// What people call it.
    pub(crate) called: String,
    /// The keys it has besides those of its schema.
    pub(crate) also: &'a [&'a str],
    pub(crate) schema: Schema<'a>,
}

impl Place<'_> {
    /// A misfit as a problem with a dotted key.
    pub(crate) fn problem(&self, Misfit { path, fault, .. }: &Misfit) -> Problem {
        let table = || self.table(&path[..path.len().saturating_sub(1)]);
        let (what, fix) = match fault {
            Fault::UnknownKey { name, known } => {
                let what = format!("unknown key `{name}` in {}", table());
                let problem = Problem::of_key(path.join("."), what).fixed(self.instead_of(path, name, known));
                return self.below(problem);
            }
            Fault::MissingKey(name) => {
                (format!("missing key `{name}` in {}", table()), Some(format!("set `{name}`")))
            }
            Fault::UnknownWord { word, known } => (fault.to_string(), suggestion(word, known)),
            Fault::TwoNames(_) => (fault.to_string(), Some("leave all but one of them out".to_owned())),
            Fault::WrongType { expected, .. } | Fault::WrongValue { expected, .. } => {
                (fault.to_string(), self.what_to_write(path, expected))
            }
            Fault::Refused { what, fix } => (what.clone(), fix.clone()),
        };
        self.below(Problem::new(path.join("."), what).fixed(fix))
    }

    fn below(&self, problem: Problem) -> Problem {
        if self.key.is_empty() { problem } else { problem.below(self.key) }
    }

    fn instead_of(&self, path: &[String], name: &str, known: &[String]) -> Option<String> {
        let mut known: Vec<_> = known.iter().map(String::as_str).collect();
        if path.len() > 1 {
            return suggestion(name, &known);
        }
        known.extend(self.also);
        let elsewhere = match self.key {
            "trainer" => lightning::setting(name),
            // At the top, a plural comes first: `devices` is `device`.
            "" if !known.iter().any(|known| name.strip_suffix('s') == Some(known)) => {
                lightning::setting(name).or_else(|| lightning::below_the_top(name))
            }
            _ => None,
        };
        elsewhere.or_else(|| suggestion(name, &known))
    }

    /// What can stand there instead of something of another type.
    fn what_to_write(&self, path: &[String], expected: &str) -> Option<String> {
        let own = path.iter().try_fold(self.schema, |schema, step| schema.step(step, None))?;
        let kind = own.kind_in_words();
        if path.is_empty() || kind.is_empty() || own.is_table() {
            return None;
        }
        let article = if kind.starts_with('"') || kind.starts_with("true") { "" } else { "a " };
        let example = own.default().or_else(|| own.example()).filter(|_| !article.is_empty());
        if expected == format!("{article}{kind}") {
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
pub(crate) fn suggestion(name: &str, known: &[impl AsRef<str>]) -> Option<String> {
    let known: Vec<_> = known.iter().map(AsRef::as_ref).collect();
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

/// A name that is free: this one, or else with the first number from 2 on.
pub(crate) fn free_name(name: &str, is_free: impl Fn(&str) -> bool) -> String {
    let mut number = 1;
    let mut free = name.to_owned();
    while !is_free(&free) {
        number += 1;
        free = format!("{name}_{number}");
    }
    free
}
