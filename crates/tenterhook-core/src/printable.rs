//! Makes untrusted text harmless for a terminal.
//!
//! Metric names, cells of a file, and output of a server or a child process may contain control characters,
//! which a terminal interprets. All output of the program is passed through [`text`] or [`json`].

use std::fmt::Write as _;

/// The maximum number of characters of a value in a message.
pub const EXCERPT: usize = 80;

/// Whether the character is a control character (C0, DEL, C1), which a terminal interprets, or a format
/// character that is invisible or changes the direction of writing.
#[must_use]
pub fn is_harmful(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// Lines of text, each of at most `longest` characters. Line breaks and tabs are kept; other harmful
/// characters are escaped as in Rust, such as `\u{1b}`.
#[must_use]
pub fn text(text: &str, longest: usize) -> String {
    let mut shown = String::with_capacity(text.len().min(1 << 16));
    for (index, line) in text.split('\n').enumerate() {
        if index > 0 {
            shown.push('\n');
        }
        push_line(&mut shown, line, longest);
    }
    shown
}

fn push_line(shown: &mut String, line: &str, longest: usize) {
    let mut characters = line.chars();
    for character in characters.by_ref().take(longest) {
        if character == '\t' || !is_harmful(character) {
            shown.push(character);
        } else {
            shown.extend(character.escape_default());
        }
    }
    let rest = characters.count();
    if rest > 0 {
        let _ = write!(shown, "… ({rest} more characters)");
    }
}

/// Text on one line: line breaks become ` / `, other harmful characters and tabs are escaped.
#[must_use]
pub fn line(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.trim().chars() {
        match character {
            '\n' => shown.push_str(" / "),
            character if is_harmful(character) => shown.extend(character.escape_default()),
            character => shown.push(character),
        }
    }
    shown
}

/// The first [`EXCERPT`] characters of a value, to quote it in a message.
#[must_use]
pub fn excerpt(value: &str) -> String {
    let mut shown: String = value.chars().take(EXCERPT).collect();
    if shown.len() < value.len() {
        shown.push('…');
    }
    shown
}

/// JSON text with harmful characters escaped. Nothing is shortened.
#[must_use]
pub fn json(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character == '\n' || !is_harmful(character) {
            shown.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            let _ = write!(shown, "\\u{unit:04x}");
        }
    }
    shown
}

/// The alignment of a column of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Left, for words.
    Left,
    /// Right, for numbers.
    Right,
}

/// Formats rows as lines with aligned columns, two spaces apart. A row may have fewer cells than others.
#[must_use]
pub fn table(rows: &[Vec<String>], sides: &[Side]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let width = widths[column];
            match sides.get(column) {
                Some(Side::Right) => format!("{cell:>width$}"),
                _ => format!("{cell:<width$}"),
            }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn columns_are_aligned_also_with_wide_characters() {
        let rows = [vec!["a".into(), "×10".into(), "x".into()], vec!["long".into(), "1".into()]];
        assert_eq!(table(&rows, &[Side::Left, Side::Right]), ["a     ×10  x", "long    1"]);
        assert!(table(&[], &[]).is_empty());
    }

    /// Sets the title, clears the screen, reverses the direction, and so on.
    const HARMFUL: &str = "\u{1b}]0;title\u{7}\r\u{8}\u{7f}\u{9b}2J\u{202e}\u{2066}\u{200b}\u{feff}\u{e0041}";

    #[test]
    fn control_characters_are_escaped_and_line_breaks_kept() {
        assert_eq!(text("a\x1b[31m\tb\r\nc\n", 100), "a\\u{1b}[31m\tb\\r\nc\n");
        assert_eq!(line(" a\x1b[31m\tb\nc\n"), "a\\u{1b}[31m\\tb / c");
        assert_eq!(text("größer 日本 😀", 100), "größer 日本 😀");
        assert!(!text(HARMFUL, 100).contains(is_harmful) && !line(HARMFUL).contains(is_harmful));
    }

    #[test]
    fn long_texts_are_shortened() {
        assert_eq!(text("12345\n123456", 5), "12345\n12345… (1 more characters)");
        assert_eq!(excerpt(&"x".repeat(1_000_000)).chars().count(), EXCERPT + 1);
        assert_eq!(excerpt("short"), "short");
    }

    #[test]
    fn json_keeps_its_meaning() {
        let value = serde_json::json!({ HARMFUL: ["a\nb", HARMFUL] });
        for written in [value.to_string(), format!("{value:#}")] {
            let shown = json(&written);
            assert!(!shown.replace('\n', "").contains(is_harmful), "{shown}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
        }
    }

    proptest! {
        #[test]
        fn no_harmful_character_remains(any in "\\PC*|[\u{0}-\u{ff}\u{2000}-\u{2070}]*") {
            let left = |shown: String| shown.chars().any(|c| is_harmful(c) && !matches!(c, '\n' | '\t'));
            prop_assert!(!left(text(&any, 50)));
            prop_assert!(!left(line(&any)));
            prop_assert!(!left(json(&any)));
        }
    }
}
