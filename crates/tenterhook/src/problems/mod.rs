//! What is wrong with a configuration: where, what, and how to mend it.
//!
//! A [`Problem`] is made where it is found, and is data until it is rendered: nothing learns from a message what
//! happened. [`render::Places`] knows where each key was written, and makes the text with its line and a mark below
//! the part that is wrong; [`masking`] decides which texts of the user it shows.

pub(crate) mod masking;
pub(crate) mod render;

use crate::config::tree::Origin;

/// One thing that is wrong with a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problem {
    /// Where: a dotted path such as `data.path` or `hooks.1.monitor`.
    pub key: String,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub fix: Option<String>,
    pub(crate) of: Part,
}

/// What exactly is wrong at a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Part {
    #[default]
    Value,
    /// The key itself, not its value.
    Key,
    /// Something that set no key, such as a variable that names none.
    Source(Box<Origin>),
}

impl Problem {
    /// Something wrong at a dotted key.
    pub fn new(key: impl Into<String>, message: impl Into<String>) -> Problem {
        Problem { key: key.into(), message: message.into(), ..Problem::default() }
    }

    /// A dotted key that is wrong itself, not its value.
    pub(crate) fn of_key(key: impl Into<String>, message: impl Into<String>) -> Problem {
        Problem { of: Part::Key, ..Problem::new(key, message) }
    }

    /// The same with what to do about it, where that is known.
    #[must_use]
    pub(crate) fn fixed(self, fix: Option<String>) -> Problem {
        Problem { fix, ..self }
    }

    /// The same, said by this source.
    #[must_use]
    pub(crate) fn said_by(self, origin: Origin) -> Problem {
        Problem { of: Part::Source(Box::new(origin)), ..self }
    }

    /// The same with what to do about it.
    #[must_use]
    pub fn fix(self, fix: impl Into<String>) -> Problem {
        Problem { fix: Some(fix.into()), ..self }
    }

    /// The same, with its key taken as one below another.
    #[must_use]
    pub fn below(mut self, key: &str) -> Problem {
        self.key = if self.key.is_empty() { key.to_owned() } else { format!("{key}.{}", self.key) };
        self
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)?;
        self.fix.iter().try_for_each(|fix| write!(f, "; {fix}"))
    }
}

/// Why a configuration cannot be used: every reason, with its place and its fix.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct ConfigError {
    /// The first line, where one is needed.
    pub(crate) file: Option<String>,
    /// Whether the texts say all there is to say.
    pub(crate) plain: bool,
    pub(crate) problems: Vec<Problem>,
    /// The problems as people read them.
    pub(crate) texts: Vec<String>,
}

impl ConfigError {
    /// One sentence, about no key in particular.
    pub(crate) fn plain(text: String) -> ConfigError {
        let problems = vec![Problem::new("", text.clone())];
        ConfigError { file: None, plain: true, problems, texts: vec![text] }
    }

    /// The problems, for programs.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Adds what another look has found.
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
        let (count, of) = (self.texts.len(), self.file.as_deref().unwrap_or("the configuration"));
        format!("{count} problem{} in {of}\n{all}", if count == 1 { "" } else { "s" })
    }
}

/// The same text as for people: it is what `main` prints when it returns an error.
impl std::fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}
