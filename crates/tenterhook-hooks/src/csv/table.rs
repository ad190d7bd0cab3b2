//! A table in a file that grows by rows, and now and then by columns.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use ::csv::{ByteRecord, Reader, ReaderBuilder, Writer};
use tenterhook_core::Phase;
use tenterhook_files::{create_own, open_regular, open_regular_with};

use crate::bookmark::Keep;

#[cfg(test)]
mod tests;

/// What every row has, before the metrics.
pub(super) const FIXED: [&str; 4] = ["step", "epoch", "stage", "time"];
const TIME: usize = 3;

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) step: u64,
    pub(super) epoch: u64,
    pub(super) stage: Phase,
    pub(super) time: f64,
    pub(super) metrics: BTreeMap<String, f64>,
}

#[derive(Debug)]
pub(super) struct Table {
    path: PathBuf,
    file: File,
    /// How many bytes of whole rows it holds.
    length: u64,
    /// Which column each metric has.
    columns: BTreeMap<String, usize>,
    /// How many rows it had when it was opened.
    pub(super) found: u64,
}

impl Table {
    /// Opens the file at the end of what is kept, or makes it. Half a row at its end, which a killed run may have
    /// left, goes in any case.
    pub(super) fn open(path: &Path, keep: &Keep) -> io::Result<Table> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        // A link stays, and what it leads to is written.
        let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let size = match fs::metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => 0,
            Ok(found) if !found.is_file() => {
                return Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file"));
            }
            found => found?.len(),
        };
        // Of a table that was being written anew when its run was killed.
        let _ = fs::remove_file(unfinished(path));
        if size == 0 || *keep == Keep::Nothing {
            let header = FIXED.map(str::to_owned);
            write_whole(path, |writer| writer.write_record(&header))?;
            return Table::at_end(path, &header, 0);
        }
        let found = Found::read(path, keep)?;
        let stays = |column: usize| !found.cuts || found.is_used(column);
        let chosen: Vec<usize> = (0..found.header.len()).filter(|column| stays(*column)).collect();
        let header: Vec<_> = chosen.iter().map(|column| found.header[*column].clone()).collect();
        if found.cuts {
            copy(path, &header, found.kept, |row, cells| {
                cells.extend(chosen.iter().map(|column| row.get(*column).unwrap_or_default()));
            })?;
        }
        Table::at_end(path, &header, found.kept)
    }

    fn at_end(path: &Path, header: &[String], found: u64) -> io::Result<Table> {
        let file = open_regular_with(OpenOptions::new().append(true), path)?;
        let length = file.metadata()?.len();
        let metrics = header.iter().enumerate().skip(FIXED.len());
        let columns = metrics.map(|(column, name)| (name.clone(), column)).collect();
        Ok(Table { path: path.to_owned(), file, length, columns, found })
    }

    /// Adds a row, whole or not at all, and leaves it to nobody's buffer. For a metric that has no column yet the
    /// table is written anew.
    pub(super) fn push(&mut self, row: &Row) -> io::Result<()> {
        if row.metrics.keys().any(|name| !self.columns.contains_key(column_of(name).as_ref())) {
            self.widen(row)?;
        }
        let mut cells = vec![String::new(); FIXED.len() + self.columns.len()];
        let fixed = [row.step.to_string(), row.epoch.to_string(), row.stage.to_string(), number(row.time)];
        cells.iter_mut().zip(fixed).for_each(|(cell, text)| *cell = text);
        for (name, value) in &row.metrics {
            if let Some(cell) = self.columns.get(column_of(name).as_ref()).and_then(|at| cells.get_mut(*at)) {
                *cell = number(*value);
            }
        }
        let mut writer = Writer::from_writer(Vec::new());
        writer.write_record(&cells)?;
        let line = writer.into_inner().map_err(|error| io::Error::other(error.to_string()))?;
        let written = self.file.write_all(&line).and_then(|()| self.file.flush());
        match written {
            Ok(()) => self.length += line.len() as u64,
            // Half a row must not stay. If that fails too, whoever opens the file next cuts it off.
            Err(_) => drop(self.file.set_len(self.length)),
        }
        written
    }

    /// Writes the table anew with the columns that this row has, too. Whoever is killed meanwhile leaves the old one.
    fn widen(&mut self, row: &Row) -> io::Result<()> {
        let mut header = header_of(&self.path)?;
        for name in row.metrics.keys().map(|name| column_of(name)) {
            if !self.columns.contains_key(name.as_ref()) && !header.iter().any(|known| **known == *name) {
                header.push(name.into_owned());
            }
        }
        let width = header.len();
        copy(&self.path, &header, u64::MAX, |row, cells| {
            cells.extend(row.iter().chain(std::iter::repeat(&b""[..])).take(width));
        })?;
        *self = Table::at_end(&self.path, &header, self.found)?;
        Ok(())
    }
}

/// A number as every reader knows it, with all its digits.
fn number(value: f64) -> String {
    if value.is_nan() { "nan".to_owned() } else { format!("{value:?}") }
}

/// The column of a metric. Those that every row has are not for metrics.
fn column_of(name: &str) -> std::borrow::Cow<'_, str> {
    if FIXED.contains(&name) { format!("metric/{name}").into() } else { name.into() }
}

/// What is in a file.
struct Found {
    header: Vec<String>,
    /// How many rows stay.
    kept: u64,
    /// Something does not: a row, or half of one.
    cuts: bool,
    /// The first row in which each column has something.
    first_use: Vec<u64>,
}

impl Found {
    fn read(path: &Path, keep: &Keep) -> io::Result<Found> {
        let mut reader = reader(path)?;
        let header = checked_header(&mut reader)?;
        let mut first_use = vec![u64::MAX; header.len()];
        let (mut times, mut row) = (Vec::new(), ByteRecord::new());
        while reader.read_byte_record(&mut row)? {
            for (used, _) in first_use.iter_mut().zip(&row).filter(|(_, cell)| !cell.is_empty()) {
                *used = (*used).min(times.len() as u64);
            }
            let time = row.get(TIME).and_then(|cell| std::str::from_utf8(cell).ok()?.parse().ok());
            times.push(time.unwrap_or(f64::NAN));
        }
        let is_whole = ends_a_line(path)?;
        if !is_whole {
            times.pop();
        }
        let kept = keep.count(times.iter().copied());
        Ok(Found { header, kept, cuts: !is_whole || kept < times.len() as u64, first_use })
    }

    /// Whether a column has something in what stays. One that came after the checkpoint has not, and will come again.
    fn is_used(&self, column: usize) -> bool {
        column < FIXED.len() || self.first_use[column] < self.kept
    }
}

fn reader(path: &Path) -> io::Result<Reader<BufReader<File>>> {
    let reader = BufReader::new(open_regular(path)?);
    Ok(ReaderBuilder::new().has_headers(false).flexible(true).from_reader(reader))
}

/// Its header, if it is a table such as ours.
fn checked_header(reader: &mut Reader<BufReader<File>>) -> io::Result<Vec<String>> {
    let mut header = ByteRecord::new();
    reader.read_byte_record(&mut header)?;
    let header: Vec<_> = header.iter().map(|cell| String::from_utf8_lossy(cell).into_owned()).collect();
    if header.iter().take(FIXED.len()).eq(FIXED.iter()) {
        return Ok(header);
    }
    let problem = format!("it is another kind of table, which does not begin with {}", FIXED.join(","));
    Err(io::Error::new(ErrorKind::InvalidData, problem))
}

fn header_of(path: &Path) -> io::Result<Vec<String>> {
    checked_header(&mut reader(path)?)
}

fn ends_a_line(path: &Path) -> io::Result<bool> {
    let mut file = open_regular(path)?;
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// Writes the table anew with another header and its first rows, the cells of which `choose` takes.
fn copy(
    path: &Path,
    header: &[String],
    rows: u64,
    choose: impl for<'r> Fn(&'r ByteRecord, &mut Vec<&'r [u8]>),
) -> io::Result<()> {
    let mut reader = reader(path)?;
    checked_header(&mut reader)?;
    write_whole(path, |writer| {
        writer.write_record(header)?;
        let mut row = ByteRecord::new();
        for _ in 0..rows {
            if !reader.read_byte_record(&mut row)? {
                break;
            }
            let mut cells = Vec::with_capacity(header.len());
            choose(&row, &mut cells);
            writer.write_record(cells)?;
        }
        Ok(())
    })
}

/// The name of a table that is not whole yet.
fn unfinished(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.unfinished"))
}

/// Writes a table whole or not at all: under another name first. What stood there makes way.
fn write_whole(
    path: &Path,
    write: impl FnOnce(&mut Writer<BufWriter<File>>) -> ::csv::Result<()>,
) -> io::Result<()> {
    let unfinished = unfinished(path);
    let written = create_own(&unfinished).and_then(|file| {
        let mut writer = Writer::from_writer(BufWriter::new(file));
        write(&mut writer)?;
        let file = writer.into_inner().map_err(|error| io::Error::other(error.to_string()))?;
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        fs::rename(&unfinished, path)
    });
    if written.is_err() {
        // What is left of it is of no use; that it could not be written is what people hear.
        let _ = fs::remove_file(&unfinished);
    }
    written
}
