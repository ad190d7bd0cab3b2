//! How a problem is shown: its place, the line, and what to do about it.

use std::ops::Range;

use tenterhook_core::printable;

use super::problem::{ConfigError, Problem};
use super::secrets::MASK;
use super::tree::{Node, Origin};

/// Everything that is needed to say where a key was written.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// The name and the text of the file.
    pub(crate) file: Option<(String, String)>,
    /// The merged tree.
    pub(crate) tree: Node,
    pub(crate) task: String,
    /// Texts that are never written down.
    pub(crate) secrets: Vec<String>,
}

impl Default for Places {
    fn default() -> Places {
        Places {
            file: None,
            tree: Node::empty_table(Origin::Default),
            task: String::new(),
            secrets: Vec::new(),
        }
    }
}

/// A problem, and how exactly it is placed.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) problem: Problem,
    /// The key itself is wrong, not its value.
    pub(crate) at_key: bool,
    /// Where it is said, when the tree cannot know.
    pub(crate) origin: Option<Origin>,
}

impl From<Problem> for Found {
    fn from(problem: Problem) -> Found {
        Found { problem, at_key: false, origin: None }
    }
}

impl Places {
    /// All of them as one error, in the order in which they are written.
    pub(crate) fn error(&self, found: Vec<Found>) -> ConfigError {
        let mut placed: Vec<_> = found
            .into_iter()
            .map(|found| {
                let text = self.text(&found);
                (self.rank(&found), text, found.problem)
            })
            .collect();
        placed.sort_by_key(|(rank, ..)| *rank);
        placed.dedup_by(|later, earlier| later.1 == earlier.1);
        // A fault that is nowhere in the file is none of the file's.
        let elsewhere = !placed.is_empty() && placed.iter().all(|((layer, _), ..)| [1, 2].contains(layer));
        let (texts, problems) = placed.into_iter().map(|(_, text, problem)| (text, problem)).unzip();
        let file = self.file.as_ref().filter(|_| !elsewhere).map(|(name, _)| name.clone());
        ConfigError { file, plain: false, problems, texts }
    }

    fn origin<'a>(&'a self, found: &'a Found) -> (&'a Origin, bool) {
        match &found.origin {
            Some(origin) => (origin, true),
            None => self.tree.origin_of(&found.problem.key),
        }
    }

    fn rank(&self, found: &Found) -> (u8, usize) {
        match self.origin(found).0 {
            Origin::File { key, .. } => (0, key.start),
            Origin::Environment(_) => (1, 0),
            Origin::Set(_) => (2, 0),
            Origin::Default => (3, 0),
        }
    }

    fn hiding_secrets(&self, text: String) -> String {
        self.secrets.iter().fold(text, |text, secret| text.replace(secret, MASK))
    }

    /// A problem as people read it.
    pub(crate) fn text(&self, found: &Found) -> String {
        let Found { problem, at_key, .. } = found;
        match (self.origin(found), &self.file) {
            ((Origin::File { key, value }, exact), Some((name, text))) => {
                let at = if *at_key || !exact { key } else { value };
                in_file(name, text, at.clone(), &problem.message, problem.fix.as_deref())
            }
            ((origin @ Origin::Environment(_), _), _) if *at_key => match origin.without_value() {
                Origin::Environment(name) => format!("{name}: {problem}"),
                _ => problem.to_string(),
            },
            ((Origin::Environment(said), _), _) => self.hiding_secrets(format!("{said}: {problem}")),
            ((Origin::Set(said), _), _) => self.hiding_secrets(format!("--set {said}: {problem}")),
            _ if problem.key.is_empty() => problem.to_string(),
            _ if self.tree.follow(&problem.key).is_some() => {
                format!("{}: {problem} (a default of task `{}`)", problem.key, self.task)
            }
            _ => format!("{}: {problem}", problem.key),
        }
    }
}

/// A file that is no TOML at all.
pub(crate) fn file_error(name: &str, text: &str, at: Range<usize>, message: &str) -> ConfigError {
    let shown = in_file(name, text, at, message, None);
    let problems = vec![Problem::new("", message)];
    ConfigError { file: Some(name.to_owned()), plain: false, problems, texts: vec![shown] }
}

/// The end of a text of at most [`printable::EXCERPT`] characters.
fn tail(text: &str) -> String {
    let hidden = text.chars().count().saturating_sub(printable::EXCERPT);
    let shown = text.chars().skip(hidden);
    if hidden > 0 { std::iter::once('…').chain(shown).collect() } else { text.to_owned() }
}

/// The place, the line, and a mark below the part that is wrong. Of a long line, the surroundings of that part.
fn in_file(name: &str, text: &str, at: Range<usize>, message: &str, fix: Option<&str>) -> String {
    let start = text.floor_char_boundary(at.start.min(text.len()));
    let end = text.floor_char_boundary(at.end.clamp(start, text.len()));
    let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
    let line = text[line_start..].lines().next().unwrap_or_default();
    let before = &text[line_start..start];
    let (number, column) = (text[..start].matches('\n').count() + 1, before.chars().count() + 1);
    let marked = text[start..end].lines().next().unwrap_or_default();
    let after = &line[(before.len() + marked.len()).min(line.len())..];
    let (before, marked, after) = (tail(before), printable::excerpt(marked), printable::excerpt(after));
    let shown = |text: &str| printable::text(text, usize::MAX);
    let (before, marked, after) = (shown(&before), shown(&marked), shown(&after));
    let indent: String = before.chars().map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    let marks = "^".repeat(marked.chars().count().max(1));
    let fix = fix.map(|fix| format!(" {fix}")).unwrap_or_default();
    format!(
        "{name}:{number}:{column}: {message}\n{number:>4} | {before}{marked}{after}\n     | {indent}{marks}{fix}"
    )
}
