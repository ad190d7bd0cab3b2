//! Masks secrets in messages about a configuration.
//!
//! A secret may be written under a wrong key, in a wrong table, or in a line that does not parse. So the rule
//! lists the texts that may be shown: **a message shows a text of the user only if it is the value that the
//! message is about and its key takes no secret, or if it [is harmless](is_harmless).** Anything that looks
//! like a secret is always masked ([`scrubbed`]).

use std::ops::Range;

use toml::Value;

use crate::config::secrets::MASK;
use crate::config::tree::{Kind, Node, Origin};

/// A key that contains one of these may take a secret, in any table.
const SECRET_KEYS: [&str; 12] =
    ["apikey", "auth", "cookie", "cred", "dsn", "passw", "pwd", "secret", "token", "uri", "url", "webhook"];
/// The longest word of a harmless text, in letters.
const LONGEST_WORD: usize = 16;
/// The longest harmless text, in characters.
const LONGEST_TEXT: usize = 40;
/// The shortest word of letters and digits that looks like a token.
const SHORTEST_TOKEN: usize = 20;

/// A text in the file, with its place and key.
#[derive(Clone, Debug)]
pub(crate) struct FileText {
    pub(crate) key: String,
    pub(crate) at: Range<usize>,
    pub(crate) text: String,
    /// Whether it is an element of a list.
    pub(crate) is_item: bool,
}

impl FileText {
    /// All texts of a file's tree.
    pub(crate) fn all(tree: &Node) -> Vec<FileText> {
        let mut texts = Vec::new();
        collect(tree, "", false, &mut texts);
        texts
    }

    /// Whether a message about the value at `about` may show it.
    pub(crate) fn is_shown(&self, about: Option<&Range<usize>>, secrets: &[String]) -> bool {
        let is_about = |value: &Range<usize>| {
            *value == self.at || self.is_item && value.start <= self.at.start && self.at.end <= value.end
        };
        if may_take_secret(&self.key) || secrets.contains(&self.text) {
            return false;
        }
        is_harmless(&self.text) || about.is_some_and(is_about)
    }
}

fn collect(node: &Node, key: &str, is_item: bool, texts: &mut Vec<FileText>) {
    match (&node.kind, &node.origin) {
        (Kind::Leaf(Value::String(text)), Origin::File { value, .. }) => {
            texts.push(FileText { key: key.to_owned(), at: value.clone(), text: text.clone(), is_item });
        }
        (Kind::Leaf(_), _) => {}
        (Kind::Array(items), _) => items.iter().for_each(|item| collect(item, key, true, texts)),
        (Kind::Table(entries), _) => {
            for (key, entry) in entries {
                collect(entry, key, false, texts);
            }
        }
    }
}

/// Whether a key may take a secret, by its last part.
pub(crate) fn may_take_secret(key: &str) -> bool {
    let last = key.rsplit(['.', ' ']).next().unwrap_or_default().to_ascii_lowercase();
    let words = || last.split(|c: char| !c.is_ascii_alphanumeric());
    let joined: String = words().collect();
    SECRET_KEYS.iter().any(|part| joined.contains(part))
        || words().any(|word| ["key", "pass"].contains(&word))
}

/// Whether a text cannot be a secret: a number, or a few plain words.
pub(crate) fn is_harmless(text: &str) -> bool {
    let is_plain = |word: &str| {
        let letters = word.chars().all(char::is_alphabetic) && word.chars().count() <= LONGEST_WORD;
        letters || word.len() <= 8 && word.bytes().all(|byte| byte.is_ascii_digit())
    };
    let is_text =
        text.chars().count() <= LONGEST_TEXT && !text.contains(['@', '\\']) && !text.contains("://");
    text.parse::<f64>().is_ok() || is_text && text.split(|c: char| !c.is_alphanumeric()).all(is_plain)
}

/// `KEY=value` of an environment variable or of `--set`, with the value masked unless it may be shown.
pub(crate) fn shown_assignment(assignment: &str, is_about_value: bool, secrets: &[String]) -> String {
    let Some((key, value)) = assignment.split_once('=') else { return scrubbed(assignment) };
    let is_secret =
        may_take_secret(&key.replace("__", ".")) || secrets.iter().any(|secret| value.contains(secret));
    let is_shown = !is_secret && (is_about_value || is_harmless(value));
    format!("{key}={}", if is_shown { scrubbed(value) } else { MASK.to_owned() })
}

/// The places in an invalid line to mask: texts that are not harmless, or follow a key that may take a
/// secret.
pub(crate) fn hidden_in_line(line: &str) -> Vec<Range<usize>> {
    let ends_word = |c: char| c.is_whitespace() || "\"'=,[]{}#".contains(c);
    let (mut hidden, mut secret, mut at) = (Vec::new(), false, 0);
    while at < line.len() {
        let rest = &line[at..];
        let word = &rest[..rest.find(ends_word).unwrap_or(rest.len())];
        let after =
            rest[word.len()..].trim_start_matches(|c: char| c.is_whitespace() || c == '"' || c == '\'');
        if word.is_empty() {
            at += rest.chars().next().map_or(1, char::len_utf8);
        } else {
            if after.starts_with('=') && !word.contains("://") {
                secret = may_take_secret(word);
            } else if secret || !is_harmless(word) {
                hidden.push(at..at + word.len());
            }
            at += word.len();
        }
    }
    hidden
}

/// Masks everything that looks like a secret: the path of an address, a password before an `@`, long words of
/// letters and digits.
pub(crate) fn scrubbed(text: &str) -> String {
    let ends_chunk = |c: char| c.is_whitespace() || "\"'`(),;<>[]{}".contains(c);
    let mut shown = String::with_capacity(text.len());
    for piece in text.split_inclusive(ends_chunk) {
        let chunk = piece.trim_end_matches(ends_chunk);
        push_chunk(&mut shown, chunk);
        shown.push_str(&piece[chunk.len()..]);
    }
    shown
}

fn push_chunk(shown: &mut String, chunk: &str) {
    let Some((before, rest)) = chunk.split_once("://") else {
        match chunk.rsplit_once('@').and_then(|(user, host)| Some((user.split_once(':')?.0, host))) {
            Some((user, host)) if !user.contains('/') => shown.extend([user, ":", MASK, "@", host]),
            _ => push_words(shown, chunk),
        }
        return;
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (host, path) = rest.split_at(end);
    push_words(shown, before);
    *shown += "://";
    match host.rsplit_once('@') {
        Some((_, host)) => shown.extend([MASK, "@", host]),
        None => push_words(shown, host),
    }
    if before.to_ascii_lowercase().ends_with("s3") || before.ends_with("file") {
        let (path, query) = path.split_at(path.find(['?', '#']).unwrap_or(path.len()));
        push_words(shown, path);
        *shown += if query.is_empty() { "" } else { MASK };
    } else if path.len() > 1 {
        *shown += "/";
        *shown += MASK;
    } else {
        *shown += path;
    }
}

fn push_words(shown: &mut String, text: &str) {
    for piece in text.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
        let word = piece.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        let has = |kind: fn(&u8) -> bool| word.as_bytes().iter().any(kind);
        let is_token =
            word.len() >= SHORTEST_TOKEN && has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic);
        *shown += if is_token { MASK } else { word };
        *shown += &piece[word.len()..];
    }
}

/// A piece of a text with masks at these places, which are sorted.
pub(crate) fn piece(text: &str, piece: Range<usize>, hidden: &[Range<usize>]) -> String {
    let (mut shown, mut end) = (String::new(), piece.start);
    for range in hidden {
        let (start, stop) = (range.start.max(end), range.end.min(piece.end));
        if start < stop {
            shown += &scrubbed(&text[end..start]);
            let quote = if text[start..].starts_with(['"', '\'']) { "\"" } else { "" };
            shown.extend([quote, MASK, quote]);
            end = stop;
        }
    }
    shown + &scrubbed(&text[end..piece.end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_look_like_secrets_are_masked_and_others_are_not() {
        for (text, shown) in [
            ("to \"https://hooks.example/services/T0/B0/x\"; do", "to \"https://hooks.example/***\"; do"),
            ("a=https://host?token=x", "a=https://host/***"),
            ("https://user:pw@host", "https://***@host"),
            ("export X=https://…", "export X=https://…"),
            ("me:pw@host", "me:***@host"),
            (
                "s3://bucket/checkpoints and s3://a:b@bucket/x",
                "s3://bucket/checkpoints and s3://***@bucket/x",
            ),
            ("s3://bucket/x?key=1", "s3://bucket/x***"),
            ("AKIAIOSFODNN7EXAMPLE", "***"),
            ("xoxb-17653672481-pdFZKVeTuEk8sAOeXDBwXs", "xoxb-17653672481-***"),
            (
                "/tmp/run-7/train-images-idx3-ubyte: `val/loss`",
                "/tmp/run-7/train-images-idx3-ubyte: `val/loss`",
            ),
        ] {
            assert_eq!(scrubbed(text), shown);
        }
    }

    #[test]
    fn plain_words_and_numbers_are_harmless() {
        for text in ["val/loss", "early_stopping", "100 steps", "1e-3", "", "runs", "true", "5 min"] {
            assert!(is_harmless(text), "{text}");
        }
        for text in ["hunter2", "https://host", "me@host", "aVeryLongWordWithoutAnEnd", "123456789abc"] {
            assert!(!is_harmless(text), "{text}");
        }
    }

    #[test]
    fn keys_that_may_take_secrets_are_known_by_their_names() {
        for key in
            ["url", "hooks.0.webhook_url", "url_env", "api_key", "apiKey", "PASSWORD", "auth", "TENTER.A.URL"]
        {
            assert!(may_take_secret(key), "{key}");
        }
        for key in ["monitor", "hooks", "path", "to", "monkey", "bypass"] {
            assert!(!may_take_secret(key), "{key}");
        }
    }

    #[test]
    fn words_and_numbers_of_an_invalid_line_are_shown() {
        let masked = |line: &str| piece(line, 0..line.len(), &hidden_in_line(line));
        for (line, shown) in [
            ("max_epochs = = 3", "max_epochs = = 3"),
            ("monitor = val/loss", "monitor = val/loss"),
            ("url = https://host/x", "url = ***"),
            ("password = \"letmein", "password = \"***"),
            ("x = { pasword = hunter2 }", "x = { pasword = *** }"),
            ("\"token\" = a b", "\"token\" = *** ***"),
        ] {
            assert_eq!(masked(line), shown);
        }
    }
}
