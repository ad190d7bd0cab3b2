//! Renders a problem: its place, the line, and the fix.

use std::ops::Range;

use tenterhook_core::printable;

use super::masking::{self, FileText, hidden_in_line, scrubbed, shown_assignment};
use super::{ConfigError, Part, Problem};
use crate::config::secrets::MASK;
use crate::config::tree::{Node, Origin};

/// Where each key of a configuration was written.
#[derive(Clone, Debug)]
pub(crate) struct SourceMap {
    /// The name and the text of the file.
    pub(crate) file: Option<(String, String)>,
    /// The texts in the file, which may be secrets.
    pub(crate) file_texts: Vec<FileText>,
    /// The merged layers.
    pub(crate) tree: Node,
    pub(crate) task: String,
    /// Known secrets.
    pub(crate) secrets: Vec<String>,
}

impl Default for SourceMap {
    fn default() -> SourceMap {
        SourceMap {
            file: None,
            file_texts: Vec::new(),
            tree: Node::empty_table(Origin::Default),
            task: String::new(),
            secrets: Vec::new(),
        }
    }
}

impl SourceMap {
    /// Combines these problems into one error, in file order.
    pub(crate) fn error(&self, problems: &[Problem]) -> ConfigError {
        let placed = problems.iter().map(|found| (self.rank(found), self.text(found), self.masked(found)));
        let mut placed: Vec<_> = placed.collect();
        placed.sort_by_key(|(rank, ..)| *rank);
        placed.dedup_by(|later, earlier| later.1 == earlier.1);
        // If all problems are in environment variables or `--set`, the file is not named.
        let is_elsewhere = |found| matches!(self.origin(found).0, Origin::Environment(_) | Origin::Set(_));
        let elsewhere = !problems.is_empty() && problems.iter().all(is_elsewhere);
        let (texts, problems) = placed.into_iter().map(|(_, text, problem)| (text, problem)).unzip();
        let file = self.file.as_ref().filter(|_| !elsewhere).map(|(name, _)| name.clone());
        ConfigError { file, plain: false, problems, texts }
    }

    /// The origin of a problem, and whether the problem's key itself is set there; if not, the origin is that of
    /// the nearest enclosing table.
    fn origin<'a>(&'a self, found: &'a Problem) -> (&'a Origin, bool) {
        match &found.part {
            Part::Source(origin) => (origin, true),
            Part::Key | Part::Value => self.tree.origin_of(&found.key),
        }
    }

    fn rank(&self, found: &Problem) -> (u8, usize) {
        match self.origin(found).0 {
            Origin::File { key, .. } => (0, key.start),
            Origin::Environment(_) => (1, 0),
            Origin::Set(_) => (2, 0),
            Origin::Default => (3, 0),
        }
    }

    /// Masks texts that may be secrets.
    fn masked(&self, found: &Problem) -> Problem {
        let mut hidden = self.secrets.clone();
        match self.origin(found).0 {
            Origin::File { value, .. } => {
                let wrong_value = self.wrong_value_range(found);
                let within = |text: &&FileText| value.start <= text.at.start && text.at.end <= value.end;
                let texts = self.file_texts.iter().filter(within);
                let texts = texts.filter(|text| !text.is_shown(wrong_value, &self.secrets));
                hidden.extend(texts.map(|text| text.text.clone()));
            }
            Origin::Environment(assignment) | Origin::Set(assignment) => {
                let value = assignment.split_once('=').map(|(_, value)| value);
                let is_shown = |value: &&str| {
                    shown_assignment(assignment, self.is_wrong_value(found), &hidden).ends_with(value)
                };
                let secret = value.filter(|value| !is_shown(value)).map(str::to_owned);
                hidden.extend(secret);
            }
            Origin::Default => {}
        }
        hidden.retain(|text| !text.is_empty());
        let hide = |text: &str| {
            scrubbed(&hidden.iter().fold(text.to_owned(), |text, secret| text.replace(secret, MASK)))
        };
        Problem { message: hide(&found.message), fix: found.fix.as_deref().map(hide), ..found.clone() }
    }

    /// Whether the value of a key that is set is wrong.
    fn is_wrong_value(&self, found: &Problem) -> bool {
        found.part == Part::Value && self.origin(found).1
    }

    /// The place in the file of a wrong value, if its key is set.
    fn wrong_value_range<'a>(&'a self, found: &'a Problem) -> Option<&'a Range<usize>> {
        match self.origin(found).0 {
            Origin::File { value, .. } if self.is_wrong_value(found) => Some(value),
            _ => None,
        }
    }

    /// The text of a problem, with its place.
    pub(crate) fn text(&self, found: &Problem) -> String {
        let problem = self.masked(found);
        let assigned =
            |assignment: &str| shown_assignment(assignment, self.is_wrong_value(found), &self.secrets);
        match (self.origin(found).0, &self.file) {
            (Origin::File { key, .. }, Some((name, text))) => {
                let wrong_value = self.wrong_value_range(found);
                let hidden = self.file_texts.iter().filter(|text| !text.is_shown(wrong_value, &self.secrets));
                let mut hidden: Vec<_> = hidden.map(|text| text.at.clone()).collect();
                hidden.sort_by_key(|at| at.start);
                let at = wrong_value.unwrap_or(key);
                in_file(name, text, at.clone(), &hidden, &problem)
            }
            (Origin::Environment(assignment), _) if found.part != Part::Value => {
                format!("{}: {problem}", assignment.split('=').next().unwrap_or_default())
            }
            (Origin::Environment(assignment), _) => format!("{}: {problem}", assigned(assignment)),
            (Origin::Set(assignment), _) => format!("--set {}: {problem}", assigned(assignment)),
            _ if problem.key.is_empty() => problem.to_string(),
            _ if self.tree.lookup(&problem.key).is_some() => {
                format!("{}: {problem} (a default of task `{}`)", problem.key, self.task)
            }
            _ => format!("{}: {problem}", problem.key),
        }
    }
}

/// The error of a file that is not valid TOML.
pub(crate) fn file_error(name: &str, text: &str, at: Range<usize>, message: &str) -> ConfigError {
    let problem = Problem::new("", scrubbed(message));
    let start = text[..text.floor_char_boundary(at.start)].rfind('\n').map_or(0, |newline| newline + 1);
    let line = text[start..].lines().next().unwrap_or_default();
    let hidden: Vec<_> = hidden_in_line(line).iter().map(|at| at.start + start..at.end + start).collect();
    let shown = in_file(name, text, at, &hidden, &problem);
    let problems = vec![problem];
    ConfigError { file: Some(name.to_owned()), plain: false, problems, texts: vec![shown] }
}

/// The last characters of a text, at most [`printable::EXCERPT`].
fn tail(text: &str) -> String {
    let hidden = text.chars().count().saturating_sub(printable::EXCERPT);
    let shown = text.chars().skip(hidden);
    if hidden > 0 { std::iter::once('…').chain(shown).collect() } else { text.to_owned() }
}

/// The place, the line, and a mark below the wrong part. For a long line, only the surroundings of that part
/// are shown.
fn in_file(name: &str, text: &str, at: Range<usize>, hidden: &[Range<usize>], problem: &Problem) -> String {
    let start = text.floor_char_boundary(at.start.min(text.len()));
    let end = text.floor_char_boundary(at.end.clamp(start, text.len()));
    let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
    let line = text[line_start..].lines().next().unwrap_or_default();
    let before = &text[line_start..start];
    let (number, column) = (text[..start].matches('\n').count() + 1, before.chars().count() + 1);
    let marked_end = start + text[start..end].lines().next().unwrap_or_default().len();
    let line_end = (line_start + line.len()).max(marked_end);
    let piece = |at: Range<usize>| masking::piece(text, at, hidden);
    let shown = |text: String| printable::text(&text, usize::MAX);
    let before = shown(tail(&piece(line_start..start)));
    let marked = shown(printable::excerpt(&piece(start..marked_end)));
    let after = shown(printable::excerpt(&piece(marked_end..line_end)));
    let indent: String = before.chars().map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    let marks = "^".repeat(marked.chars().count().max(1));
    let message = &problem.message;
    let fix = problem.fix.as_ref().map(|fix| format!(" {fix}")).unwrap_or_default();
    format!(
        "{name}:{number}:{column}: {message}\n{number:>4} | {before}{marked}{after}\n     | {indent}{marks}{fix}"
    )
}
