//! Converts a [`DecodeError`] to a [`Problem`] with a message and a fix.

use tenterhook_core::plan::nearest;
use toml::{Table, Value};

use super::check::read_all;
use super::decode::{DecodeError, ErrorKind};
use super::schema::Schema;
use super::schema_words::{takes_article, with_article};
use crate::problems::Problem;
use crate::settings::lightning;

/// The table that is decoded, for messages about it.
pub(crate) struct TableContext<'a> {
    /// The dotted key of the table; empty for the whole configuration.
    pub(crate) key: &'a str,
    /// Its name in messages.
    pub(crate) called: String,
    /// Keys that are allowed besides those of its schema.
    pub(crate) also: &'a [&'a str],
    pub(crate) schema: Schema<'a>,
}

impl TableContext<'_> {
    /// Decodes the table and adds its problems to `found`.
    pub(crate) fn read<T>(
        &self,
        table: Value,
        read: &dyn Fn(Value) -> Result<T, DecodeError>,
        found: &mut Vec<Problem>,
    ) -> Option<T> {
        let (decoded, errors) = read_all(table, self.schema, &Table::new(), read);
        found.extend(errors.iter().map(|error| self.problem(error)));
        decoded
    }

    /// The error as a problem with a dotted key.
    pub(crate) fn problem(&self, DecodeError { path, kind, .. }: &DecodeError) -> Problem {
        let table = || self.table(&path[..path.len().saturating_sub(1)]);
        let (what, fix) = match kind {
            ErrorKind::UnknownKey { name, known } => {
                let what = format!("unknown key `{name}` in {}", table());
                let problem =
                    Problem::of_key(path.join("."), what).with_fix(self.instead_of(path, name, known));
                return problem.below(self.key);
            }
            ErrorKind::MissingKey(name) => {
                (format!("missing key `{name}` in {}", table()), Some(format!("set `{name}`")))
            }
            ErrorKind::UnknownWord { word, known } => (kind.to_string(), suggestion(word, known)),
            ErrorKind::TwoNames(_) => (kind.to_string(), Some("keep only one of them".to_owned())),
            ErrorKind::WrongType { expected, .. } | ErrorKind::WrongValue { expected, .. } => {
                (kind.to_string(), self.value_fix(path, expected))
            }
            ErrorKind::Rejected { what, fix } => (what.clone(), fix.clone()),
        };
        Problem::new(path.join("."), what).with_fix(fix).below(self.key)
    }

    fn instead_of(&self, path: &[String], name: &str, known: &[String]) -> Option<String> {
        let mut known: Vec<_> = known.iter().map(String::as_str).collect();
        if path.len() > 1 {
            return suggestion(name, &known);
        }
        known.extend(self.also);
        let elsewhere = match self.key {
            "trainer" => lightning::setting(name),
            // At the top level, `devices` means `device`.
            "" if !known.iter().any(|known| name.strip_suffix('s') == Some(known)) => {
                lightning::setting(name).or_else(|| lightning::misplaced_setting(name))
            }
            _ => None,
        };
        elsewhere.or_else(|| suggestion(name, &known))
    }

    /// A valid value for the option at this path.
    fn value_fix(&self, path: &[String], expected: &str) -> Option<String> {
        let own = path.iter().try_fold(self.schema, |schema, step| schema.step(step, None))?;
        let kind = own.kind_in_words();
        if path.is_empty() || kind.is_empty() || own.is_table() {
            return None;
        }
        let example = own.default().or_else(|| own.example()).filter(|_| takes_article(&kind));
        let kind = with_article(&kind);
        if expected == kind {
            // The kind is already in the message.
            return example.map(|value| format!("for example, write {value}"));
        }
        let such_as = example.map(|value| format!(", such as {value}")).unwrap_or_default();
        Some(format!("write {kind}{such_as}"))
    }

    fn table(&self, parents: &[String]) -> String {
        match (parents.is_empty(), self.key.is_empty()) {
            (true, _) => self.called.clone(),
            (false, true) => format!("[{}]", parents.join(".")),
            (false, false) => format!("[{}.{}]", self.key, parents.join(".")),
        }
    }
}

/// A fix for an unknown name: the nearest known one, or the list of all.
pub(crate) fn suggestion(name: &str, known: &[impl AsRef<str>]) -> Option<String> {
    let known: Vec<_> = known.iter().map(AsRef::as_ref).collect();
    if known.is_empty() {
        return None;
    }
    let near = nearest(name, known.iter().copied()).map(|near| format!("did you mean `{near}`?"));
    near.or_else(|| Some(format!("there are: {}", known.join(", "))))
}

/// The name itself if it is free, or else with the first free number from 2 on.
pub(crate) fn free_name(name: &str, is_free: impl Fn(&str) -> bool) -> String {
    let mut numbered = (2_u64..).map(|number| format!("{name}_{number}"));
    if is_free(name) { name.to_owned() } else { numbered.find(|name| is_free(name)).unwrap_or_default() }
}
