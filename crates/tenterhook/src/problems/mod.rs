//! Problems of a configuration: where, what, and how to fix it.
//!
//! A [`Problem`] is made where it is found, and is data until it is rendered; no code parses its message.
//! [`render::SourceMap`] stores where each key was written, and renders the text with its line and a mark
//! below the wrong part; [`masking`] decides which of the user's texts are shown.

pub(crate) mod masking;
pub(crate) mod render;

use tenterhook_core::readable::plural;

use crate::config::tree::Origin;

/// A problem of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problem {
    /// Where: a dotted path such as `data.path` or `hooks.1.monitor`.
    pub key: String,
    /// The problem.
    pub message: String,
    /// How to fix it.
    pub fix: Option<String>,
    pub(crate) part: Part,
}

/// The part that is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Part {
    #[default]
    Value,
    /// The key itself, not its value.
    Key,
    /// A source that sets no key, such as an environment variable without one.
    Source(Box<Origin>),
}

impl Problem {
    /// A problem with the value of a dotted key.
    pub fn new(key: impl Into<String>, message: impl Into<String>) -> Problem {
        Problem { key: key.into(), message: message.into(), ..Problem::default() }
    }

    /// A problem with a dotted key itself, not with its value.
    pub(crate) fn of_key(key: impl Into<String>, message: impl Into<String>) -> Problem {
        Problem { part: Part::Key, ..Problem::new(key, message) }
    }

    /// Adds the fix, if there is one.
    #[must_use]
    pub(crate) fn with_fix(self, fix: Option<String>) -> Problem {
        Problem { fix, ..self }
    }

    /// Marks the problem as one of this source.
    #[must_use]
    pub(crate) fn of_source(self, origin: Origin) -> Problem {
        Problem { part: Part::Source(Box::new(origin)), ..self }
    }

    /// Adds the fix.
    #[must_use]
    pub fn fix(self, fix: impl Into<String>) -> Problem {
        Problem { fix: Some(fix.into()), ..self }
    }

    /// Prefixes its key with the key of the enclosing table; an empty one changes nothing.
    #[must_use]
    pub fn below(mut self, key: &str) -> Problem {
        let steps: Vec<_> = [key, &self.key].into_iter().filter(|step| !step.is_empty()).collect();
        self.key = steps.join(".");
        self
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)?;
        self.fix.iter().try_for_each(|fix| write!(f, "; {fix}"))
    }
}

/// All problems of a configuration, with place and fix.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct ConfigError {
    /// The name of the file, for the first line.
    pub(crate) file: Option<String>,
    /// Whether the text has no first line with the number of problems.
    pub(crate) plain: bool,
    pub(crate) problems: Vec<Problem>,
    /// The rendered problems.
    pub(crate) texts: Vec<String>,
}

impl ConfigError {
    /// An error of one sentence that belongs to no key.
    pub(crate) fn plain(text: String) -> ConfigError {
        let problems = vec![Problem::new("", text.clone())];
        ConfigError { file: None, plain: true, problems, texts: vec![text] }
    }

    /// The problems as data.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Adds the problems of another error.
    pub fn extend(&mut self, other: ConfigError) {
        self.plain &= other.plain;
        self.file = self.file.take().or(other.file);
        self.problems.extend(other.problems);
        self.texts.extend(other.texts);
    }

    fn text(&self) -> String {
        let all = self.texts.join("\n");
        if self.plain {
            return all;
        }
        let (problems, of) =
            (plural(self.texts.len() as u64, "problem"), self.file.as_deref().unwrap_or("the configuration"));
        format!("{problems} in {of}\n{all}")
    }
}

/// The same as `Display`, because `main` prints an error with `Debug`.
impl std::fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}
