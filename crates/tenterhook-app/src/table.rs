//! Tables of text, and text that is safe to print.

use tenterhook::printable;
pub(crate) use tenterhook::printable::{Side, table};

/// Text from a file on one line, without anything that a terminal would obey.
pub(crate) fn plain(text: &str) -> String {
    printable::line(text)
}

/// So much of a text that it has this many characters at the most.
pub(crate) fn clipped(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(3)).chain("...".chars()).collect()
}

/// A moment as `run.json` has it, as people read it: UTC, to the second.
pub(crate) fn moment(written: &str) -> String {
    plain(written.get(..19).unwrap_or(written)).replace('T', " ")
}

/// A number in JSON, which has none for what is not finite: that is written as `run.json` does.
pub(crate) fn json_number(value: f64) -> serde_json::Value {
    if value.is_finite() { value.into() } else { value.to_string().to_lowercase().into() }
}

/// So many bytes, as people say it.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut size = count as f64 / 1024.0;
    let mut units = UNITS.into_iter();
    let mut unit = units.next().unwrap_or_default();
    // What would be written as 1024 of one unit is 1 of the next.
    while size >= 1023.95
        && let Some(next) = units.next()
    {
        (size, unit) = (size / 1024.0, next);
    }
    format!("{size:.1} {unit}")
}

/// A count and its noun.
pub(crate) fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_for_people() {
        let sizes = [0, 1023, 1024, 1536, 1024 * 1024 - 1, 5 << 20, 7 << 30, 3 << 50].map(bytes);
        assert_eq!(
            sizes,
            ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "5.0 MiB", "7.0 GiB", "3072.0 TiB"]
        );
    }

    #[test]
    fn nothing_from_a_file_reaches_the_terminal_as_an_order() {
        assert_eq!(plain("a\x1b[31m\tb\nc\n"), "a\\u{1b}[31m\\tb / c");
        assert_eq!((clipped("längere", 6).as_str(), clipped("länge", 5).as_str()), ("län...", "länge"));
        assert_eq!(moment("2026-11-16T02:37:41.123Z"), "2026-11-16 02:37:41");
        assert_eq!(moment("soon"), "soon");
        assert_eq!(json_number(f64::NEG_INFINITY), "-inf");
    }
}
