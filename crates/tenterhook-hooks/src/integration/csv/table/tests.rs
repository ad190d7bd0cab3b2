use std::fs;

use proptest::prelude::*;

use super::*;

fn row(step: u64, metrics: &[(&str, f64)]) -> Cells {
    let metrics = metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    Cells::new([step, 0], Phase::Train, step as f64 + 0.5, &metrics)
}

fn opened(path: &Path) -> io::Result<Table> {
    let options = &mut OpenOptions::new();
    let file = open_regular_with(options.read(true).append(true).create(true), path)?;
    Table::open(ResumableFile::of(path, file)?)
}

/// Writes a table with these rows; opens it once.
fn table(path: &Path, rows: &[Cells]) {
    let mut table = opened(path).expect("it opens");
    for row in rows {
        table.push(row).expect("it is written");
    }
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).expect("it is there")
}

#[test]
fn a_later_column_is_empty_in_earlier_rows() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("t.csv");
    table(&path, &[row(1, &[("b", 0.1)]), row(2, &[("a,\"x\"", 1e-7)]), row(3, &[("b", f64::NAN)])]);
    let expected = "step,epoch,stage,time,b,\"a,\"\"x\"\"\"\n\
                    1,0,train,1.5,0.1,\n2,0,train,2.5,,1e-7\n3,0,train,3.5,nan,\n";
    assert_eq!(text(&path), expected);
    table(&path, &[row(4, &[("step", f64::INFINITY), ("b", 1.0)])]);
    assert!(
        text(&path).starts_with("step,epoch,stage,time,b,\"a,\"\"x\"\"\",metric/step\n"),
        "{}",
        text(&path)
    );
    assert!(text(&path).ends_with("3,0,train,3.5,nan,,\n4,0,train,4.5,1.0,,inf\n"), "{}", text(&path));
    assert_eq!(fs::read_dir(path.parent().expect("below")).expect("it is there").count(), 1);
}

#[test]
fn the_columns_of_a_table_are_those_of_its_rows() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("t.csv");
    let rows = [row(1, &[("a", 1.0)]), row(2, &[("a", 2.0), ("b", 2.0)]), row(3, &[("c", 3.0)])];
    table(&path, &rows[..2]);
    let expected = text(&path);
    table(&path, &rows[2..]);
    let first = || Ok(Box::new(rows.iter().take(2).cloned().map(Ok)) as Records<'_, Cells>);
    let columns = columns(first().expect("they are there")).expect("they read");
    write(&path, &columns, &first).expect("it is written");
    assert_eq!(text(&path), expected);
}

#[test]
fn a_table_of_another_format_is_not_modified() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("t.csv");
    fs::write(&path, "name,age\nme,7\n").expect("it is written");
    let error = opened(&path).expect_err("refused").to_string();
    assert!(error.contains("does not begin with step,epoch,stage,time"), "{error}");
    assert_eq!(text(&path), "name,age\nme,7\n");
    opened(directory.path()).expect_err("a directory is no table");
}

/// An operation on a table.
#[derive(Clone, Debug)]
enum Act {
    /// A row with these metrics, by their numbers.
    Push(Vec<(usize, f64)>),
    /// The process is killed after writing this number of bytes of a row.
    Kill(usize),
}

const NAMES: [&str; 7] = ["train/loss", "val,loss", "a \"b\"", "two\nlines", "step", "ünïcode", "time"];

fn act() -> impl Strategy<Value = Act> {
    let value = prop_oneof![any::<f64>(), Just(f64::NAN), Just(f64::NEG_INFINITY), Just(0.0)];
    prop_oneof![
        6 => proptest::collection::vec((0..NAMES.len(), value), 0..4).prop_map(Act::Push),
        1 => (1_usize..30).prop_map(Act::Kill),
    ]
}

/// The rows as text, with metrics in order of name.
fn shown(rows: &[Cells]) -> String {
    let sorted = rows.iter().map(|row| {
        let mut row = row.clone();
        row.metrics.sort();
        row
    });
    format!("{:#?}", sorted.collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_row_is_lost_when_columns_are_added(acts in proptest::collection::vec(act(), 0..40)) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("t.csv");
        let mut table = opened(&path).expect("it is made");
        let mut expected: Vec<Cells> = Vec::new();
        for (step, act) in acts.iter().enumerate() {
            match act {
                Act::Push(metrics) => {
                    let metrics: Vec<_> = metrics.iter().map(|(name, value)| (NAMES[*name], *value)).collect();
                    let row = row(step as u64, &metrics);
                    table.push(&row).expect("it is written");
                    expected.push(row);
                }
                Act::Kill(bytes) => {
                    let half = &b"77,0,train,77.5,,,,,,,,,,,,,,,"[..*bytes];
                    fs::write(&path, [text(&path).as_bytes(), half].concat()).expect("it is written");
                    table = opened(&path).expect("it opens");
                }
            }
        }
        drop(table);
        prop_assert_eq!(fs::read_dir(directory.path()).expect("it is there").count(), 1, "nothing else is left");
        let rows: Vec<_> = read(&path).expect("it opens").map(|row| row.expect("it reads")).collect();
        prop_assert_eq!(shown(&rows), shown(&expected));
        prop_assert!(rows.iter().zip(&expected).all(|(row, other)| row.key() == other.key()));
        let header = header(&mut reader(&path).expect("it opens")).expect("a header");
        let columns: BTreeSet<_> = header.iter().collect();
        prop_assert_eq!(columns.len(), header.len(), "no column twice");
    }
}
