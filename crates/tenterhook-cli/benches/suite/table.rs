//! The printed table: each line with its result, its target and its command.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::measure::Measured;

/// One line of the table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    /// The row that measures this line.
    pub row: String,
    /// A description.
    pub what: String,
    /// The unit of the measurement and of the target.
    pub unit: String,
    /// `None` if the measurement failed.
    pub measured: Option<Measured>,
    /// The upper limit; `None` if the number is only reported.
    pub target: Option<f64>,
    /// A count, which is reproducible and can be checked against its target.
    pub counted: bool,
    /// A remark, or the reason why the measurement failed.
    pub note: Option<String>,
}

impl Line {
    pub fn new(what: impl Into<String>, unit: &str, measured: Measured, target: Option<f64>) -> Line {
        Line {
            row: String::new(),
            what: what.into(),
            unit: unit.to_owned(),
            measured: Some(measured),
            target,
            counted: false,
            note: None,
        }
    }

    /// A count.
    pub fn counted(what: impl Into<String>, unit: &str, count: f64, target: f64) -> Line {
        Line { counted: true, ..Line::new(what, unit, Measured::counted(count), Some(target)) }
    }

    pub fn with_note(mut self, note: impl Into<String>) -> Line {
        self.note = Some(note.into());
        self
    }

    /// A row whose measurement failed.
    pub fn missing(row: &str, why: impl Into<String>) -> Line {
        Line {
            row: row.to_owned(),
            what: row.to_owned(),
            unit: String::new(),
            measured: None,
            target: None,
            counted: false,
            note: Some(why.into()),
        }
    }

    /// Whether the target is met, if there is one.
    pub fn is_met(&self) -> Option<bool> {
        Some(self.measured?.median <= self.target?)
    }

    fn cells(&self) -> [String; 5] {
        let unit = &self.unit;
        let measured = match self.measured {
            Some(Measured { median, low, high, .. }) if low < high => {
                format!("{} {unit} [{}, {}]", short(median), short(low), short(high))
            }
            Some(Measured { median, .. }) => format!("{} {unit}", short(median)),
            None => "not measured".to_owned(),
        };
        let target = self.target.map(|target| format!("≤ {} {unit}", short(target))).unwrap_or_default();
        let met = match self.is_met() {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "",
        };
        let what = match &self.note {
            Some(note) => format!("{} ({note})", self.what),
            None => self.what.clone(),
        };
        [what, measured, target, met.to_owned(), format!("`cargo bench -- {}`", self.row)]
    }
}

/// Four significant digits, or all digits before the point.
fn short(number: f64) -> String {
    let digits: usize = match number.abs() {
        size if size >= 1000.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        _ => 3,
    };
    let text = format!("{number:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// The lines as an aligned Markdown table.
pub fn table(lines: &[Line]) -> String {
    let mut rows = vec![["row", "measured", "target", "met", "command"].map(str::to_owned)];
    rows.extend(lines.iter().map(Line::cells));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(text, "| {cell}{} ", " ".repeat(width - cell.chars().count()));
        }
        text.push_str("|\n");
        if number == 0 {
            for width in widths {
                let _ = write!(text, "|{}", "-".repeat(width + 2));
            }
            text.push_str("|\n");
        }
    }
    text
}
