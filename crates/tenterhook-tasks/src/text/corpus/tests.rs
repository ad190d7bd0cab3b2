//! Reading texts of all kinds, and their windows.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use tenterhook::data::{Dataset, Interleave, InterleaveOptions, Sample};

use super::*;

fn window(windows: &Windows, index: usize) -> Vec<u8> {
    windows.load(Sample { index, seed: 0 }).unwrap()
}

fn all(corpus: &Corpus) -> Vec<u8> {
    let mut bytes = vec![0; index(corpus.len())];
    corpus.read(0, &mut bytes).unwrap();
    bytes
}

fn index(position: u64) -> usize {
    usize::try_from(position).unwrap()
}

fn at(path: &Path) -> TextOptions {
    TextOptions { path: Some(path.to_owned()), ..TextOptions::default() }
}

#[track_caller]
fn refused(options: &TextOptions, context: usize, key: &str, parts: &[&str]) {
    let error = load(options, context).expect_err("it is refused");
    let text = error.to_string();
    assert_eq!(error.key, key, "{text}");
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

#[test]
fn the_handbook_is_split_80_10_10_and_long_enough() {
    let splits = load(&TextOptions::default(), 128).unwrap();
    let text = all(&Corpus::handbook());
    assert!((15_000..30_000).contains(&text.len()), "{}", text.len());
    assert!(std::str::from_utf8(&text).is_ok());
    let [train, validate, rest] = [&splits.train, &splits.validate, &splits.test].map(Windows::part);
    assert_eq!((train.start, train.end, validate.end), (0, validate.start, rest.start));
    assert_eq!(rest.end, text.len() as u64);
    assert!(validate.end - validate.start == text.len() as u64 / 10);
    assert!(splits.train.len() > 80 && splits.validate.len() > 9 && splits.test.len() > 9);
    assert_eq!(window(&splits.train, 1), text[128..257]);
}

proptest! {
    #[test]
    fn windows_stay_in_their_part_and_omit_only_its_rest(
        len in 60u64..400, context in 1usize..6, stride in proptest::option::of(1usize..9),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("text");
        let text: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        fs::write(&path, &text).unwrap();
        let splits = load(&TextOptions { stride, ..at(&path) }, context).unwrap();
        let step = stride.unwrap_or(context);
        for windows in [&splits.train, &splits.validate, &splits.test] {
            let part = windows.part();
            let part = &text[index(part.start)..index(part.end)];
            let expected: Vec<Vec<u8>> = part.windows(context + 1).step_by(step).map(<[u8]>::to_vec).collect();
            let found: Vec<Vec<u8>> = (0..windows.len()).map(|index| window(windows, index)).collect();
            prop_assert_eq!(found, expected);
            let behind = Sample { index: windows.len(), seed: 0 };
            prop_assert!(windows.load(behind).is_err());
        }
    }

    #[test]
    fn the_shortest_sufficient_text_is_found(
        context in 1usize..300, val in 0.0f64..0.4, test in 0.0f64..0.4,
    ) {
        let options = TextOptions { val_fraction: val, test_fraction: test, ..TextOptions::default() };
        let enough = |len| {
            let [train, validate, rest] = options.parts(len);
            let corpus = Arc::new(Corpus::handbook());
            let windows = |part| Windows::new(corpus.clone(), part, context, 1).len();
            windows(train) > 0 && (val <= 0.0 || windows(validate) > 0) && (test <= 0.0 || windows(rest) > 0)
        };
        let needed = options.needed(context);
        prop_assert!(enough(needed) && !enough(needed - 1), "{}", needed);
    }

    #[test]
    fn a_text_is_the_same_in_memory_and_on_disk(
        files in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 1..80),
        from in 0u64..200, count in 1usize..100,
    ) {
        let directory = tempfile::tempdir().unwrap();
        for (index, bytes) in files.iter().enumerate() {
            fs::write(directory.path().join(format!("{index:03}")), bytes).unwrap();
        }
        let text = files.concat();
        for small in [0, u64::MAX] {
            let corpus = Corpus::open_with(directory.path(), small).unwrap();
            prop_assert_eq!(corpus.len(), text.len() as u64);
            let mut bytes = vec![0; count];
            let found = corpus.read(from, &mut bytes);
            match text.get(index(from)..index(from) + count) {
                Some(expected) => prop_assert_eq!(&bytes, expected),
                None => prop_assert!(found.is_err()),
            }
        }
    }
}

#[test]
fn a_directory_is_its_files_sorted_by_path_without_hidden_ones() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("b.txt", "second ");
    write("a/z.txt", "first ");
    write("c/d/e", "third");
    write(".hidden", "no");
    write(".git/config", "no");
    assert_eq!(all(&Corpus::open(directory.path()).unwrap()), b"first second third");
}

#[cfg(unix)]
#[test]
fn links_to_files_are_followed_and_links_to_directories_are_not() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a"), "text").unwrap();
    std::os::unix::fs::symlink("a", directory.path().join("b")).unwrap();
    std::os::unix::fs::symlink(".", directory.path().join("circle")).unwrap();
    assert_eq!(all(&Corpus::open(directory.path()).unwrap()), b"texttext");
}

#[test]
fn a_huge_file_opens_at_once_and_is_read_window_by_window() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("huge");
    // A sparse file: it takes no space, and reading it whole would take too long.
    let file = fs::File::create(&path).unwrap();
    file.set_len(1 << 36).unwrap();
    let splits = load(&at(&path), 64).unwrap();
    assert_eq!(window(&splits.test, splits.test.len() - 1), [0; 65]);
    file.set_len(100).unwrap();
    let error = splits.test.load(Sample { index: 0, seed: 0 }).unwrap_err().to_string();
    assert!(error.contains("huge"), "a file that shrinks is an error that names it: {error}");
}

#[test]
fn a_text_that_is_missing_empty_or_too_short_is_an_error_with_its_fix() {
    let directory = tempfile::tempdir().unwrap();
    refused(&at(Path::new("no/such/text")), 8, "path", &["cannot read no/such/text"]);
    refused(&at(directory.path()), 8, "path", &["holds no file"]);
    let path = directory.path().join("short");
    fs::write(&path, "").unwrap();
    refused(&at(&path), 8, "path", &["short is 0 bytes long", "`context = 8`", "at least 90"]);
    fs::write(&path, [0; 89]).unwrap();
    refused(&at(&path), 8, "path", &["short is 89 bytes long", "give more text, or lower `context`"]);
    fs::write(&path, [0; 90]).unwrap();
    let splits = load(&at(&path), 8).unwrap();
    assert_eq!([splits.train.len(), splits.validate.len(), splits.test.len()], [8, 1, 1]);
    let none = TextOptions { val_fraction: 0.0, test_fraction: 0.0, ..at(&path) };
    assert!(load(&none, 80).unwrap().test.is_empty(), "an empty part needs no bytes");
}

#[test]
fn impossible_options_are_refused() {
    let options = TextOptions::default;
    refused(&options(), 0, "context", &["at least 1"]);
    refused(&TextOptions { stride: Some(0), ..options() }, 8, "stride", &["at least 1"]);
    refused(&TextOptions { val_fraction: -0.1, ..options() }, 8, "val_fraction", &["from 0"]);
    refused(&TextOptions { test_fraction: 1.0, ..options() }, 8, "test_fraction", &["not including, 1"]);
    refused(&TextOptions { val_fraction: f64::NAN, ..options() }, 8, "val_fraction", &["fraction"]);
    let both = TextOptions { val_fraction: 0.5, test_fraction: 0.5, ..options() };
    refused(&both, 8, "val_fraction", &["nothing to train on"]);
    assert!(toml::from_str::<TextOptions>("paths = 'x'").is_err());
}

fn source(name: &str, path: Option<&Path>) -> TextSource {
    TextSource { name: name.into(), path: path.map(Path::to_owned) }
}

#[test]
fn several_texts_are_split_separately_under_their_names() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("text");
    fs::write(&path, [7; 1000]).unwrap();
    let sources = vec![source("own", Some(&path)), source("handbook", None)];
    let mix = toml::from_str("interleave = 'weighted'\nweights = [3, 1]").unwrap();
    let Texts { texts, interleave } =
        load_all(&TextOptions { sources, mix, ..TextOptions::default() }, 9).unwrap();
    assert_eq!(interleave, Interleave::Weighted(vec![3.0, 1.0]));
    let names: Vec<_> = texts.iter().map(|(name, _)| name.as_deref()).collect();
    assert_eq!(names, [Some("own"), Some("handbook")]);
    assert_eq!([&texts[0].1.train, &texts[0].1.validate].map(Windows::part), [0..800, 800..900]);
    assert_eq!(window(&texts[0].1.test, 0), [7; 10]);
    assert_eq!(texts[1].1.test.part().end, Corpus::handbook().len());
    let one = load_all(&TextOptions::default(), 9).unwrap();
    assert_eq!(
        (one.texts.len(), one.texts[0].0.as_deref(), one.interleave),
        (1, None, Interleave::RoundRobin)
    );
}

#[test]
fn all_problems_of_several_texts_are_reported_with_their_keys() {
    let keys = |options: &TextOptions| -> Vec<_> {
        load_all(options, 8).unwrap_err().iter().map(|problem| problem.key.clone()).collect()
    };
    let mix: InterleaveOptions = toml::from_str("interleave = 'weighted'\nweights = [3]").unwrap();
    assert_eq!(keys(&TextOptions { mix: mix.clone(), ..TextOptions::default() }), ["data.mix"]);
    let sources = vec![source("a", None), source("", None), source("a", None), source("a/b", None)];
    let path = Some("text".into());
    assert_eq!(
        keys(&TextOptions { path, sources, mix, val_fraction: 1.0, ..TextOptions::default() }),
        [
            "data.val_fraction",
            "data.path",
            "data.mix.weights",
            "data.sources.1.name",
            "data.sources.2.name",
            "data.sources.3.name"
        ]
    );
    let sources = vec![source("a", None), source("b", Some(Path::new("no/such/text")))];
    assert_eq!(keys(&TextOptions { sources, ..TextOptions::default() }), ["data.sources.1.path"]);
}

#[test]
fn the_fingerprint_of_a_text_depends_on_its_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    let of = |small| Corpus::open_with(directory.path(), small).unwrap().fingerprint().unwrap();
    write("a", "one");
    write("b", "two");
    let first = of(0);
    assert_eq!(of(100), first, "in memory or not");
    write("b", "owt");
    assert_ne!(of(0), first);
    assert_ne!(of(100), first);
    assert_ne!(Corpus::handbook().fingerprint().unwrap(), first);
}
