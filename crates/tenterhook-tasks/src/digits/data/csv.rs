//! Images in CSV files: a row holds the pixel values and the label of an image.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook::memory;
use tenterhook::printable::excerpt;
use tenterhook::task::Problem;

use super::{in_file, unreadable};

/// The column of a CSV file that holds the labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LabelColumn {
    /// The first.
    First,
    /// The last.
    Last,
}

/// The longest line that is read, in bytes; enough for four million pixels.
const LONGEST_LINE: u64 = 64 << 20;
/// Names of the label column in a header.
const NAMES: [&str; 3] = ["label", "target", "class"];

/// The values of a file, row by row.
pub(super) struct Table {
    values: Vec<f32>,
    columns: usize,
    /// The line number of each row.
    lines: Vec<usize>,
    /// The label column according to the header.
    named: Option<usize>,
}

/// A reader that decompresses gzip.
pub(super) fn decompressed<'a>(file: impl Read + 'a) -> Box<dyn BufRead + 'a> {
    let mut file = BufReader::with_capacity(1 << 16, file);
    match file.fill_buf() {
        Ok([0x1f, 0x8b, ..]) => Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(file))),
        // An error occurs again when the file is read, and is reported there.
        _ => Box::new(file),
    }
}

/// Reads all values. Without `header`, the first line is a header if it names a label column or contains
/// mostly text.
pub(super) fn parse(
    key: &'static str,
    path: &Path,
    mut file: impl BufRead,
    header: Option<bool>,
) -> Result<Table, Problem> {
    let mut table = Table { values: Vec::new(), columns: 0, lines: Vec::new(), named: None };
    let mut separator = ',';
    // Several copies of the values are in memory while they are sorted into images.
    let most = memory::limit_in_bytes() / (4 * size_of::<f32>());
    let (mut number, mut bytes) = (0, Vec::new());
    loop {
        bytes.clear();
        number += 1;
        let read = file.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut bytes);
        if read.map_err(|error| unreadable(key, path, &error))? == 0 {
            break;
        }
        let wrong = |key, problem: &str| in_line(key, path, number, problem);
        let line = std::str::from_utf8(&bytes)
            .map_err(|_| wrong("format", "is not text; is this a CSV file? set `format` if not"))?;
        if bytes.len() as u64 == LONGEST_LINE {
            let problem = format!("is longer than {LONGEST_LINE} bytes; give each image a line of its own");
            return Err(wrong(key, &problem));
        }
        if table.values.len() > most {
            return Err(wrong(key, "does not fit into memory with the lines before it; give fewer images"));
        }
        let line = line.trim_start_matches('\u{feff}').trim();
        if line.is_empty() {
            continue;
        }
        if table.columns == 0 {
            separator =
                [',', ';', '\t'].into_iter().find(|separator| line.contains(*separator)).unwrap_or(' ');
            let fields: Vec<&str> = line.split(separator).map(bare).collect();
            table.columns = fields.len();
            if header.unwrap_or_else(|| is_header(&fields)) {
                table.named = fields.iter().position(|field| names_label(field));
                continue;
            }
        }
        table.push(line.split(separator).map(bare), number).map_err(|problem| wrong(key, &problem))?;
    }
    if table.lines.is_empty() {
        let problem = "is empty; give a file with a row of pixel values and a label for each image";
        return Err(in_file(key, path, problem));
    }
    Ok(table)
}

impl Table {
    fn push<'a>(&mut self, fields: impl Iterator<Item = &'a str>, line: usize) -> Result<(), String> {
        let before = self.values.len();
        for (column, field) in fields.enumerate() {
            let value = field.parse::<f32>().ok().filter(|value| value.is_finite());
            let value = value.ok_or_else(|| {
                let (cell, column) = (excerpt(field), column + 1);
                format!("`{cell}` in column {column} is not a number; give every pixel a number")
            })?;
            self.values.push(value);
        }
        let (expected, found) = (self.columns, self.values.len() - before);
        if expected != found {
            return Err(format!(
                "expected {expected} values, as in the first row, found {found}; give every row as many"
            ));
        }
        self.lines.push(line);
        Ok(())
    }

    /// The column of labels. If neither an option nor the header names it, it is the last column, unless that
    /// column holds a single value and the first does not: a corner pixel is often empty in all images.
    fn label_column(&self, wanted: Option<LabelColumn>) -> usize {
        let last = self.columns - 1;
        match (wanted, self.named) {
            (Some(LabelColumn::First), _) => 0,
            (None, Some(named)) => named,
            (None, None) if self.is_constant(last) && !self.is_constant(0) => 0,
            (Some(LabelColumn::Last), _) | (None, None) => last,
        }
    }

    #[allow(clippy::float_cmp)] // the same text is the same number
    fn is_constant(&self, column: usize) -> bool {
        let mut values = self.values.iter().skip(column).step_by(self.columns);
        let first = values.next();
        values.all(|value| Some(value) == first)
    }
}

/// Separates the pixels from the labels.
pub(super) fn separate_labels(
    table: Table,
    key: &'static str,
    path: &Path,
    wanted: Option<LabelColumn>,
) -> Result<(Vec<f32>, Vec<u32>), Problem> {
    if table.columns < 2 {
        let problem = "has one column only; a row is the pixel values and the label, separated by commas";
        return Err(in_file(key, path, problem));
    }
    let column = table.label_column(wanted);
    let mut labels = Vec::with_capacity(table.lines.len());
    for (row, line) in table.values.chunks_exact(table.columns).zip(&table.lines) {
        labels.push(as_label(row[column]).map_err(|problem| {
            in_line("label", path, *line, &format!("column {}: {problem}", column + 1))
        })?);
    }
    let mut columns = (0..table.columns).cycle();
    let mut pixels = table.values;
    pixels.retain(|_| columns.next() != Some(column));
    Ok((pixels, labels))
}

/// A problem in a line of a file.
fn in_line(key: &str, path: &Path, line: usize, problem: &str) -> Problem {
    Problem::new(key, format!("{}, line {line}: {problem}", path.display()))
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn as_label(value: f32) -> Result<u32, String> {
    // An f32 does not represent all whole numbers beyond 2^24.
    if value >= 0.0 && value.fract() == 0.0 && value < 16_777_216.0 {
        return Ok(value as u32);
    }
    Err(format!(
        "label {value} is not a whole number from 0; number the classes, or set `label` to the right column"
    ))
}

fn bare(field: &str) -> &str {
    field.trim().trim_matches('"')
}

fn names_label(field: &str) -> bool {
    NAMES.iter().any(|name| field.eq_ignore_ascii_case(name))
}

fn is_header(fields: &[&str]) -> bool {
    let words = fields.iter().filter(|field| field.parse::<f32>().is_err()).count();
    words * 2 > fields.len() || fields.iter().any(|field| names_label(field))
}
