//! A CSV table to which rows and columns can be added.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufReader, ErrorKind};
use std::path::Path;

use ::csv::{ByteRecord, Reader, ReaderBuilder, Writer};
use tenterhook_core::Phase;
use tenterhook_files::{ResumableFile, TextLines, open_regular, open_regular_with, write_durably};

use crate::support::sink::Records;

#[cfg(test)]
mod tests;

/// The first columns of every table.
pub(super) const FIXED: [&str; 4] = ["step", "epoch", "stage", "time"];
const TIME: usize = 3;

/// The non-empty cells of a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cells {
    fixed: [String; 4],
    /// Column and text of each cell.
    metrics: Vec<(String, String)>,
}

impl Cells {
    pub(super) fn new(
        [step, epoch]: [u64; 2],
        stage: Phase,
        time: f64,
        metrics: &BTreeMap<String, f64>,
    ) -> Cells {
        let fixed = [step.to_string(), epoch.to_string(), stage.to_string(), number(time)];
        let metrics = metrics.iter().map(|(name, value)| (column_of(name).into_owned(), number(*value)));
        Cells { fixed, metrics: metrics.collect() }
    }

    fn read(header: &[String], row: &ByteRecord) -> Cells {
        let cell = |at: usize| String::from_utf8_lossy(row.get(at).unwrap_or_default()).into_owned();
        let metrics = (FIXED.len()..header.len()).map(|at| (header[at].clone(), cell(at)));
        Cells {
            fixed: [0, 1, 2, 3].map(cell),
            metrics: metrics.filter(|(_, cell)| !cell.is_empty()).collect(),
        }
    }

    /// A hash of the row that does not depend on the order of columns.
    pub(super) fn key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.fixed.hash(&mut hasher);
        self.metrics.iter().collect::<BTreeSet<_>>().hash(&mut hasher);
        hasher.finish()
    }

    pub(super) fn time(&self) -> f64 {
        self.fixed[TIME].parse().unwrap_or(f64::NAN)
    }

    /// The row in a table with these columns.
    fn row(&self, columns: &BTreeMap<String, usize>) -> Vec<&str> {
        let mut row = vec![""; FIXED.len() + columns.len()];
        row.iter_mut().zip(&self.fixed).for_each(|(cell, text)| *cell = text);
        for (name, text) in &self.metrics {
            if let Some(cell) = columns.get(name).and_then(|at| row.get_mut(*at)) {
                *cell = text;
            }
        }
        row
    }
}

#[derive(Debug)]
pub(super) struct Table {
    file: ResumableFile<TextLines>,
    /// The column index of each metric.
    columns: BTreeMap<String, usize>,
}

impl Table {
    /// Opens a table at its end. An empty file gets a header.
    pub(super) fn open(mut file: ResumableFile<TextLines>) -> io::Result<Table> {
        if file.length() == 0 {
            file.push(&line(&FIXED)?)?;
        }
        let header = header(&mut reader(file.path())?)?;
        Ok(Table { file, columns: numbered(&header[FIXED.len()..]) })
    }

    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Appends a row. New metrics get columns first.
    pub(super) fn push(&mut self, row: &Cells) -> io::Result<()> {
        if row.metrics.iter().any(|(name, _)| !self.columns.contains_key(name)) {
            self.add_columns(row)?;
        }
        self.file.push(&line(&row.row(&self.columns))?)
    }

    /// Rewrites the table with the columns of this row, atomically.
    fn add_columns(&mut self, row: &Cells) -> io::Result<()> {
        let path = self.path();
        let mut columns = header(&mut reader(path)?)?.split_off(FIXED.len());
        for (name, _) in &row.metrics {
            if !columns.contains(name) {
                columns.push(name.clone());
            }
        }
        write(path, &columns, &|| read(path))?;
        let file = open_regular_with(OpenOptions::new().read(true).append(true), path)?;
        *self = Table::open(ResumableFile::of(path, file)?)?;
        Ok(())
    }
}

/// The rows of a file.
pub(super) fn read(path: &Path) -> io::Result<Records<'static, Cells>> {
    let mut reader = reader(path)?;
    let header = header(&mut reader)?;
    let rows = reader.into_byte_records();
    Ok(Box::new(rows.map(move |row| Ok(Cells::read(&header, &row?)))))
}

/// The metric columns of these rows, in order of appearance.
pub(super) fn columns(rows: Records<'_, Cells>) -> io::Result<Vec<String>> {
    let (mut columns, mut known) = (Vec::new(), BTreeSet::new());
    for row in rows {
        for (name, _) in row?.metrics {
            if known.insert(name.clone()) {
                columns.push(name);
            }
        }
    }
    Ok(columns)
}

/// Replaces the table with one of these columns and rows.
pub(super) fn write<'r>(
    path: &Path,
    columns: &[String],
    rows: &dyn Fn() -> io::Result<Records<'r, Cells>>,
) -> io::Result<()> {
    let numbers = numbered(columns);
    write_durably(path, |file| {
        let mut writer = Writer::from_writer(file);
        writer.write_record(FIXED.iter().copied().chain(columns.iter().map(String::as_str)))?;
        for row in rows()? {
            writer.write_record(row?.row(&numbers))?;
        }
        writer.flush()
    })
}

fn numbered(columns: &[String]) -> BTreeMap<String, usize> {
    columns.iter().zip(FIXED.len()..).map(|(name, at)| (name.clone(), at)).collect()
}

fn line(cells: &[&str]) -> io::Result<Vec<u8>> {
    let mut writer = Writer::from_writer(Vec::new());
    writer.write_record(cells)?;
    writer.into_inner().map_err(|error| io::Error::other(error.to_string()))
}

/// A number with all its digits.
fn number(value: f64) -> String {
    if value.is_nan() { "nan".to_owned() } else { format!("{value:?}") }
}

/// The column of a metric; names of fixed columns get a prefix.
fn column_of(name: &str) -> Cow<'_, str> {
    if FIXED.contains(&name) { format!("metric/{name}").into() } else { name.into() }
}

fn reader(path: &Path) -> io::Result<Reader<BufReader<File>>> {
    let reader = BufReader::new(open_regular(path)?);
    Ok(ReaderBuilder::new().has_headers(false).flexible(true).from_reader(reader))
}

/// The header of a table; that of an empty file is `FIXED`.
fn header(reader: &mut Reader<BufReader<File>>) -> io::Result<Vec<String>> {
    let mut header = ByteRecord::new();
    if !reader.read_byte_record(&mut header)? {
        return Ok(FIXED.map(str::to_owned).to_vec());
    }
    let header: Vec<_> = header.iter().map(|cell| String::from_utf8_lossy(cell).into_owned()).collect();
    if header.iter().take(FIXED.len()).eq(FIXED.iter()) {
        return Ok(header);
    }
    let problem = format!("it is another table: its header does not begin with {}", FIXED.join(","));
    Err(io::Error::new(ErrorKind::InvalidData, problem))
}
