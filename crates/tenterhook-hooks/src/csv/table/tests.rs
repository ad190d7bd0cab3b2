use proptest::prelude::*;

use super::*;

fn row(step: u64, metrics: &[(&str, f64)]) -> Row {
    let metrics = metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    Row { step, epoch: 0, stage: Phase::Train, time: step as f64 + 0.5, metrics }
}

/// A table of these rows; opened and closed once.
fn table(path: &Path, rows: &[Row]) {
    let mut table = Table::open(path, &Keep::All).expect("it opens");
    for row in rows {
        table.push(row).expect("it is written");
    }
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).expect("it is there")
}

#[test]
fn a_column_that_comes_later_stands_in_earlier_rows_as_well_and_is_empty_there() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("below").join("t.csv");
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
fn of_what_was_cut_off_no_column_stays_either() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("t.csv");
    let rows = [row(1, &[("a", 1.0)]), row(2, &[("a", 2.0), ("b", 2.0)]), row(3, &[("c", 3.0)])];
    table(&path, &rows[..2]);
    let expected = text(&path);
    table(&path, &rows[2..]);
    let table = Table::open(&path, &Keep::Until { before: 0, sent: 2, time: 2.5 }).expect("it opens");
    assert_eq!((text(&path), table.found), (expected, 2));
    Table::open(&path, &Keep::Nothing).expect("it opens");
    assert_eq!(text(&path), "step,epoch,stage,time\n");
}

#[test]
fn what_is_no_table_of_this_kind_is_left_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("t.csv");
    fs::write(&path, "name,age\nme,7\n").expect("it is written");
    let error = Table::open(&path, &Keep::All).expect_err("refused").to_string();
    assert!(error.contains("does not begin with step,epoch,stage,time"), "{error}");
    assert_eq!(text(&path), "name,age\nme,7\n");
    let error = Table::open(directory.path(), &Keep::Nothing).expect_err("refused").to_string();
    assert_eq!(error, "not a regular file");
    fs::write(&path, "").expect("it is written");
    assert_eq!(Table::open(&path, &Keep::All).expect("nothing is there").found, 0);
}

#[cfg(unix)]
#[test]
fn a_link_stays_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let (path, link) = (directory.path().join("t.csv"), directory.path().join("link.csv"));
    table(&path, &[row(1, &[("a", 1.0)])]);
    std::os::unix::fs::symlink(&path, &link).expect("a link");
    table(&link, &[row(2, &[("b", 1.0)])]);
    assert!(link.is_symlink());
    assert_eq!(text(&path).lines().count(), 3);
}

/// What may happen to a table.
#[derive(Clone, Debug)]
enum Act {
    /// A row with these metrics, by their numbers.
    Push(Vec<(usize, f64)>),
    /// The process is killed within the writing of a row, after so many bytes of it.
    Kill(usize),
    /// A checkpoint is taken.
    Mark,
    /// The process is killed, and goes on from the last checkpoint.
    Resume,
}

const NAMES: [&str; 7] = ["train/loss", "val,loss", "a \"b\"", "two\nlines", "step", "ünïcode", "time"];

fn act() -> impl Strategy<Value = Act> {
    let value = prop_oneof![any::<f64>(), Just(f64::NAN), Just(f64::NEG_INFINITY), Just(0.0)];
    prop_oneof![
        6 => proptest::collection::vec((0..NAMES.len(), value), 0..4).prop_map(Act::Push),
        1 => (1_usize..30).prop_map(Act::Kill),
        1 => Just(Act::Mark),
        1 => Just(Act::Resume),
    ]
}

/// The rows that a reader finds, and all columns.
fn read(path: &Path) -> (Vec<String>, Vec<Row>) {
    let mut reader = Reader::from_path(path).expect("it is there");
    let header: Vec<_> = reader.headers().expect("a header").iter().map(str::to_owned).collect();
    let parse = |record: ::csv::StringRecord| {
        let cells: BTreeMap<_, _> = header.iter().cloned().zip(record.iter().map(str::to_owned)).collect();
        let metrics = header[FIXED.len()..].iter().filter(|name| !cells[*name].is_empty());
        Row {
            step: cells["step"].parse().expect("a number"),
            epoch: cells["epoch"].parse().expect("a number"),
            stage: serde_json::from_value(cells["stage"].as_str().into()).expect("a stage"),
            time: cells["time"].parse().expect("a number"),
            metrics: metrics.map(|name| (name.clone(), cells[name].parse().expect("a number"))).collect(),
        }
    };
    let rows = reader.records().map(|record| parse(record.expect("as long as the header"))).collect();
    (header, rows)
}

/// As text, in which every number is equal to itself.
fn shown(rows: &[Row]) -> String {
    format!("{rows:#?}")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_row_is_lost_whatever_columns_come_and_go(acts in proptest::collection::vec(act(), 0..40)) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("t.csv");
        let mut table = Table::open(&path, &Keep::Nothing).expect("it is made");
        let mut expected: Vec<Row> = Vec::new();
        let mut mark = Keep::Until { before: 0, sent: 0, time: 0.0 };
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
                    fs::write(directory.path().join(".t.csv.unfinished"), half).expect("it is written");
                    table = Table::open(&path, &Keep::All).expect("it opens");
                }
                Act::Mark => {
                    let time = expected.last().map_or(0.0, |row| row.time);
                    mark = Keep::Until { before: 0, sent: expected.len() as u64, time };
                }
                Act::Resume => {
                    let Keep::Until { sent, .. } = mark else { unreachable!() };
                    expected.truncate(usize::try_from(sent).expect("few"));
                    table = Table::open(&path, &mark).expect("it opens");
                    prop_assert_eq!(table.found, sent);
                }
            }
        }
        drop(table);
        Table::open(&path, &Keep::All).expect("it opens");
        prop_assert_eq!(fs::read_dir(directory.path()).expect("it is there").count(), 1, "nothing else is left");
        let (header, rows) = read(&path);
        for row in &mut expected {
            let metrics = std::mem::take(&mut row.metrics).into_iter();
            row.metrics = metrics.map(|(name, value)| (column_of(&name).into_owned(), value)).collect();
        }
        prop_assert_eq!(shown(&rows), shown(&expected));
        let mut columns = header[FIXED.len()..].to_vec();
        columns.sort();
        columns.dedup();
        prop_assert_eq!(columns.len(), header.len() - FIXED.len(), "no column twice");
    }
}
