//! Reading valid and broken files.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;
use tenterhook::data::{Dataset, Sample};

use super::*;

fn written(directory: &TempDir, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = directory.path().join(name);
    fs::write(&path, bytes).unwrap();
    path
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

fn at(path: impl Into<PathBuf>) -> DataOptions {
    DataOptions { path: Some(path.into()), ..DataOptions::default() }
}

/// The problem must have this key and contain all of these texts.
#[track_caller]
fn refused(options: &DataOptions, key: &str, parts: &[&str]) {
    let error = load(options).expect_err("it is refused");
    let text = error.to_string();
    assert_eq!(error.key, key, "{text}");
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

/// Rows of 2×2 pixels and a label: ten each of classes 0 and 1.
fn rows(write: impl Fn([u8; 4], u32) -> String) -> String {
    (0..20u8).map(|row| write([0, row, 16, 1], u32::from(row) % 2) + "\n").collect()
}

fn last([a, b, c, d]: [u8; 4], label: u32) -> String {
    format!("{a},{b},{c},{d},{label}")
}

fn lens(splits: &Splits) -> [usize; 3] {
    [splits.train.len(), splits.validate.len(), splits.test.len()]
}

#[test]
fn the_built_in_digits_are_complete_and_split_60_20_20() {
    let splits = load(&DataOptions::default()).unwrap();
    assert_eq!(lens(&splits).iter().sum::<usize>(), 1797);
    assert_eq!(lens(&splits), [1078, 362, 357]);
    for (set, share) in [(&splits.train, 0.6), (&splits.validate, 0.2), (&splits.test, 0.2)] {
        assert_eq!((set.height, set.width, set.classes), (8, 8, 10));
        for class in 0..10 {
            let of = |set: &ImageDataset| set.labels.iter().filter(|label| **label == class).count() as f64;
            let all = of(&splits.train) + of(&splits.validate) + of(&splits.test);
            assert!((of(set) - share * all).abs() <= 1.0, "class {class}");
        }
        let pixels: Vec<f32> = (0..set.len()).flat_map(|index| set.image(index)).collect();
        let bounds =
            pixels.iter().fold((1.0f32, 0.0f32), |(low, high), pixel| (low.min(*pixel), high.max(*pixel)));
        assert_eq!(bounds, (0.0, 1.0));
    }
    // The sums of all pixels and labels of the published file.
    let sum: f32 = [&splits.train, &splits.validate, &splits.test]
        .iter()
        .flat_map(|set| (0..set.len()).flat_map(|index| set.image(index)))
        .sum();
    assert!((sum * 16.0 - 561_718.0).abs() < 64.0, "{}", sum * 16.0);
    assert_eq!(splits.test.labels[..12], [2, 7, 4, 9, 6, 8, 7, 8, 0, 2, 6, 6], "the same in every version");
}

#[test]
fn a_sample_is_its_pixels_from_0_to_1_and_its_label() {
    let set = ImageDataset::from_bytes((1, 2), vec![0, 255, 51, 0], vec![3, 1], 255.0);
    let (pixels, label) = set.load(Sample { index: 1, seed: 0 }).unwrap();
    assert_eq!((pixels, label, set.classes), (vec![0.2, 0.0], 1, 4));
    assert!(set.load(Sample { index: 2, seed: 0 }).unwrap_err().to_string().contains("no image 2 among 2"));
}

#[test]
fn csv_files_are_read_with_any_label_column() {
    let directory = tempfile::tempdir().unwrap();
    let plain = load(&at(written(&directory, "last.csv", rows(last)))).unwrap();
    assert_eq!(lens(&plain), [12, 4, 4]);
    assert_eq!((plain.train.height, plain.train.width, plain.train.classes), (2, 2, 2));
    let images = |splits: &Splits| (0..12).map(|index| splits.train.image(index)).collect::<Vec<_>>();
    // 19 is the largest value, so these are bytes.
    assert!(images(&plain).iter().all(|image| (image[2] - 16.0 / 255.0).abs() < 1e-6));

    let first = |[a, b, c, d]: [u8; 4], label| format!("{label},{a},{b},{c},{d}");
    let same = |name: &str, text: Vec<u8>, options: DataOptions| {
        let splits = load(&DataOptions { path: Some(written(&directory, name, text)), ..options }).unwrap();
        assert_eq!(splits, plain, "{name}");
    };
    let label_first = DataOptions { label: Some(LabelColumn::First), ..DataOptions::default() };
    same("first.csv", rows(first).into(), label_first.clone());
    // The last column is 1 in all rows, so it holds no labels.
    same("guessed.csv", rows(first).into(), DataOptions::default());
    let header = "p0,p1,Target,p2,p3\n".to_owned();
    let named = rows(|[a, b, c, d], label| format!("{a},{b},{label},{c},{d}"));
    same("named.csv", (header + &named).into(), DataOptions::default());
    same("numbered.csv", ("0,1,2,3,\"label\"\n".to_owned() + &rows(last)).into(), DataOptions::default());
    same(
        "windows.csv",
        ("\u{feff}".to_owned() + &rows(last).replace('\n', "\r\n\r\n")).into(),
        DataOptions::default(),
    );
    same("semicolons.csv", rows(last).replace(',', " ; ").into(), DataOptions::default());
    same("packed.csv.gz", packed(rows(last).as_bytes()), DataOptions::default());
    let format = DataOptions { format: Some(Format::Csv), ..DataOptions::default() };
    same("no-ending", rows(last).into(), format);
    let skipped = DataOptions { header: Some(true), ..DataOptions::default() };
    same("skipped.csv", ("9,9,9,9,9\n".to_owned() + &rows(last)).into(), skipped);
}

#[test]
fn the_divisor_of_pixels_is_inferred_or_set_by_the_option() {
    let directory = tempfile::tempdir().unwrap();
    let brightest = |most: &str, scale| {
        let text = rows(|[_, b, ..], label| format!("0,{},{most},0.25,{label}", f32::from(b) / 32.0));
        let options = DataOptions { scale, ..at(written(&directory, "scaled.csv", text)) };
        load(&options).unwrap().train.image(0)[2]
    };
    let close =
        |found: f32, expected: f32| assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
    close(brightest("1", None), 1.0);
    close(brightest("16", None), 1.0);
    close(brightest("17", None), 17.0 / 255.0);
    close(brightest("255", None), 1.0);
    close(brightest("4000", None), 1.0);
    close(brightest("17", Some(34.0)), 0.5);
}

#[test]
fn images_are_square_unless_options_give_the_size() {
    let directory = tempfile::tempdir().unwrap();
    let path =
        written(&directory, "wide.csv", rows(|[a, b, c, d], label| format!("{a},{b},{c},{d},0,0,{label}")));
    refused(
        &at(&path),
        "width",
        &["wide.csv: has 6 pixel values per row", "no square", "set `height` and `width`"],
    );
    let size = |height, width| {
        load(&DataOptions { width, height, ..at(&path) }).map(|of| (of.train.height, of.train.width))
    };
    assert_eq!(size(Some(2), None).unwrap(), (2, 3));
    assert_eq!(size(None, Some(2)).unwrap(), (3, 2));
    assert_eq!(size(Some(1), Some(6)).unwrap(), (1, 6));
    assert!(
        size(Some(2), Some(2)).unwrap_err().to_string().contains("not 2×2; correct `height` and `width`")
    );
    assert_eq!(size(Some(4), None).unwrap_err().key, "height");
}

#[test]
fn errors_in_csv_files_name_the_line() {
    let directory = tempfile::tempdir().unwrap();
    let broken = |line: &str| at(written(&directory, "broken.csv", rows(last) + line));
    refused(&broken("1,2,3,0"), "path", &["broken.csv, line 21", "expected 5 values", "found 4"]);
    refused(&broken("1,2,3,4,5,0"), "path", &["line 21", "expected 5 values", "found 6"]);
    refused(&broken("1,2,x,4,0"), "path", &["line 21", "`x` in column 3 is not a number"]);
    refused(&broken("1,2,,4,0"), "path", &["line 21", "`` in column 3 is not a number"]);
    refused(&broken("1,2,nan,4,0"), "path", &["line 21", "`nan` in column 3 is not a number"]);
    refused(&broken("1,2,3,4,0.5"), "label", &["line 21", "column 5", "label 0.5 is not a whole number"]);
    refused(&broken("1,2,3,4,-1"), "label", &["line 21", "label -1 is not a whole number"]);
    refused(&broken("1,2,3,4,7"), "path", &["broken.csv", "has 1 of class 7", "at least 3 of each"]);
    refused(&broken("1,2,3,4,99"), "label", &["has a label 99 but only 21 images"]);
    refused(&at(written(&directory, "first.csv", "x,1,2,3,0\n")), "path", &["line 1", "`x` in column 1"]);
    refused(&at(written(&directory, "empty.csv", "")), "path", &["empty.csv: is empty"]);
    refused(&at(written(&directory, "header.csv", "a,b,label\n\n")), "path", &["header.csv: is empty"]);
    refused(&at(written(&directory, "one.csv", "1\n2\n")), "path", &["has one column only"]);
    refused(&at(written(&directory, "binary.csv", [0xff, 0xfe, 0])), "format", &["line 1", "is not text"]);
    let constant = "3,2,3,2,1\n".repeat(20);
    refused(
        &at(written(&directory, "constant.csv", constant)),
        "label",
        &["holds one class only", "set `label`"],
    );
}

#[test]
fn a_separate_test_file_can_be_given() {
    let directory = tempfile::tempdir().unwrap();
    let train = written(&directory, "train.csv", rows(last));
    let with =
        |text: &str| DataOptions { test_path: Some(written(&directory, "test.csv", text)), ..at(&train) };
    let splits = load(&with("0,51,0,0,1\n0,0,0,0,0\n")).unwrap();
    assert_eq!(lens(&splits), [16, 4, 2]);
    assert_eq!(splits.test.image(0), [0.0, 0.2, 0.0, 0.0], "scaled like the training data");
    refused(&with("0,0,0,0,2\n0,0,0,0,1"), "test_path", &["test.csv: has a label 2"]);
    refused(&with("0,0,0,0,0,0,0,0,0,1\n1,0,0,0,0,0,0,0,0,0"), "test_path", &["3×3", "2×2"]);
    refused(&with("0,0\n"), "test_path", &["test.csv"]);
    refused(&DataOptions { test_path: Some("gone.csv".into()), ..at(&train) }, "test_path", &["gone.csv"]);
}

fn idx(magic: [u8; 4], sizes: &[u32], bytes: &[u8]) -> Vec<u8> {
    let mut file = magic.to_vec();
    file.extend(sizes.iter().flat_map(|size| size.to_be_bytes()));
    file.extend(bytes);
    file
}

fn images(count: u8) -> Vec<u8> {
    let pixels: Vec<u8> = (0..count).flat_map(|image| [image, 0, 255, 0, 0, 0]).collect();
    idx([0, 0, 8, 3], &[count.into(), 2, 3], &pixels)
}

fn labels(count: u8) -> Vec<u8> {
    idx([0, 0, 8, 1], &[count.into()], &(0..count).map(|label| label % 2).collect::<Vec<_>>())
}

fn mnist(directory: &TempDir, zipped: bool) {
    for (part, count) in [("train", 20), ("t10k", 6)] {
        for (name, bytes) in [("images-idx3", images(count)), ("labels-idx1", labels(count))] {
            let (name, bytes) = (format!("{part}-{name}-ubyte"), bytes);
            if zipped {
                written(directory, &format!("{name}.gz"), packed(&bytes));
            } else {
                written(directory, &name, bytes);
            }
        }
    }
}

#[test]
fn a_directory_of_mnist_files_is_read_compressed_or_not() {
    let [plain, zipped] = [false, true].map(|is_zipped| {
        let directory = tempfile::tempdir().unwrap();
        mnist(&directory, is_zipped);
        load(&at(directory.path())).unwrap()
    });
    assert_eq!(lens(&plain), [16, 4, 6]);
    assert_eq!((plain.test.height, plain.test.width, plain.test.classes), (2, 3, 2));
    assert_eq!(plain.test.image(1), [1.0 / 255.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
    assert_eq!(plain.test.labels, [0, 1, 0, 1, 0, 1]);
    assert_eq!(plain, zipped);
}

#[test]
fn idx_files_are_read_by_path() {
    let directory = tempfile::tempdir().unwrap();
    mnist(&directory, false);
    let path = |name: &str| directory.path().join(name);
    let alone = load(&at(path("train-images-idx3-ubyte"))).unwrap();
    assert_eq!(lens(&alone), [12, 4, 4], "labels are found beside it");
    let options = DataOptions {
        labels_path: Some(written(&directory, "answers", labels(20))),
        test_path: Some(path("t10k-images-idx3-ubyte")),
        format: Some(Format::Idx),
        ..at(written(&directory, "pictures", images(20)))
    };
    assert_eq!(load(&options).unwrap(), load(&at(directory.path())).unwrap());
    let unlabelled = DataOptions { labels_path: None, ..options };
    refused(&unlabelled, "labels_path", &["pictures: needs the file of its labels", "`labels_path`"]);
}

#[test]
fn errors_in_idx_files_are_named() {
    let directory = tempfile::tempdir().unwrap();
    mnist(&directory, false);
    let (name, whole) = ("train-images-idx3-ubyte", images(20));
    let broken = |bytes: &[u8]| at(written(&directory, name, bytes));
    refused(&broken(&whole[..100]), "path", &[name, "is 100 bytes long, but its header says 136"]);
    refused(
        &broken(&[&whole[..], &[1]].concat()),
        "path",
        &["is longer than the 136 bytes that its header says"],
    );
    refused(&broken(&whole[..7]), "path", &["is 7 bytes long, but an IDX header has 16"]);
    refused(&broken(&[]), "path", &["is 0 bytes long"]);
    refused(
        &broken(&labels(20)),
        "path",
        &["begins with 0x00000801", "0x00000803", "give the file of images"],
    );
    refused(&broken(&images(19)), "path", &["holds 19 images, but", "labels-idx1-ubyte holds 20 labels"]);
    let huge = idx([0, 0, 8, 3], &[u32::MAX, u32::MAX, u32::MAX], &[]);
    refused(&broken(&huge), "path", &["is 16 bytes long, but its header says more than there can be"]);
    let none = idx([0, 0, 8, 3], &[20, 0, 0], &[]);
    refused(&broken(&none), "path", &["20 images of 0×0: nothing"]);
    let mut cut = packed(&whole);
    cut.truncate(cut.len() / 2);
    refused(&broken(&cut), "path", &["cannot read", name, "damaged or incomplete"]);
    fs::remove_file(directory.path().join("t10k-labels-idx1-ubyte")).unwrap();
    refused(&at(directory.path()), "path", &["holds no `t10k-labels-idx1-ubyte`"]);
}

#[test]
fn a_path_that_is_missing_or_has_no_known_format_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    refused(&at("no/such.csv"), "path", &["cannot read no/such.csv", "check the path"]);
    refused(&at(directory.path()), "path", &["holds no `train-images-idx3-ubyte`", "four files of MNIST"]);
    let unnamed = at(written(&directory, "images.bin", "1"));
    refused(&unnamed, "format", &["images.bin", "set `format` to \"csv\" or \"idx\""]);
    let csv = DataOptions { format: Some(Format::Csv), ..at(directory.path()) };
    refused(&csv, "path", &["is a directory"]);
}

#[test]
fn an_option_without_effect_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let csv = at(written(&directory, "a.csv", rows(last)));
    mnist(&directory, false);
    let mnist = at(directory.path());
    let none = DataOptions::default;
    refused(&DataOptions { width: Some(8), ..none() }, "width", &["no effect on the built-in digits"]);
    refused(&DataOptions { scale: Some(-1.0), ..csv.clone() }, "scale", &["positive"]);
    refused(&DataOptions { height: Some(0), ..csv.clone() }, "height", &["at least 1"]);
    let labels_path = Some(Path::new("x").to_owned());
    refused(&DataOptions { labels_path, ..csv.clone() }, "labels_path", &["no effect on CSV files"]);
    let test_labels_path = Some(Path::new("x").to_owned());
    refused(&DataOptions { test_labels_path, ..csv }, "test_labels_path", &["without `test_path`"]);
    refused(&DataOptions { header: Some(true), ..mnist.clone() }, "header", &["no effect on IDX files"]);
    refused(&DataOptions { test_path: Some("x".into()), ..mnist }, "test_path", &["`path` is a directory"]);
}

#[test]
fn options_are_read_from_configuration_and_described() {
    let text = "path = 'a.csv'\nformat = 'csv'\nlabel = 'first'\nwidth = 28\nscale = 255.0";
    let options: DataOptions = toml::from_str(text).unwrap();
    assert_eq!((options.format, options.label), (Some(Format::Csv), Some(LabelColumn::First)));
    assert!(toml::from_str::<DataOptions>("pth = 'a.csv'").unwrap_err().to_string().contains("pth"));
    let schema = serde_json::to_value(schemars::schema_for!(DataOptions)).unwrap();
    let described = schema["properties"].as_object().unwrap();
    assert_eq!(described.len(), 10);
    assert!(described.values().all(|option| option["description"].is_string()), "{schema}");
}

#[test]
fn every_pixel_and_every_label_is_part_of_the_fingerprint() {
    let of = |pixels: &[f32], labels: &[u32]| {
        ImageDataset::from_floats((1, 2), pixels.to_vec(), labels.to_vec(), 1.0).fingerprint().unwrap()
    };
    let first = of(&[0.0, 1.0, 2.0, 3.0], &[0, 1]);
    assert_eq!(of(&[0.0, 1.0, 2.0, 3.0], &[0, 1]), first);
    assert_ne!(of(&[0.0, 1.0, 2.0, 4.0], &[0, 1]), first);
    assert_ne!(of(&[0.0, 1.0, 2.0, 3.0], &[1, 1]), first);
    assert_ne!(of(&[0.0, 1.0, 2.0, 3.5], &[0, 1]), of(&[0.0, 1.0, 2.5, 3.0], &[0, 1]), "not whole numbers");
}

/// A million zeros compress to a thousand bytes.
fn bomb(beginning: &[u8], zeros: usize) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(beginning).unwrap();
    std::io::copy(&mut std::io::repeat(0).take(zeros as u64), &mut packed).unwrap();
    packed.finish().unwrap()
}

#[test]
fn a_compressed_file_is_decompressed_no_further_than_its_header_says() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("train-images-idx3-ubyte.gz");
    let mut header = vec![0, 0, 8, 3];
    header.extend([2_u32, 2, 2].iter().flat_map(|size| size.to_be_bytes()));
    std::fs::write(&path, bomb(&header, 50 << 20)).unwrap();
    let labels = directory.path().join("train-labels-idx1-ubyte");
    std::fs::write(&labels, [0, 0, 8, 1, 0, 0, 0, 2, 0, 1]).unwrap();
    let options = DataOptions { path: Some(path), labels_path: Some(labels), ..DataOptions::default() };
    let error = load(&options).unwrap_err().to_string();
    assert!(error.contains("is longer than the 24 bytes that its header says"), "{error}");
}

#[test]
fn a_line_without_an_end_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("d.csv");
    std::fs::write(&path, bomb(b"1", 65 << 20)).unwrap();
    let options = DataOptions { path: Some(path), ..DataOptions::default() };
    let error = load(&options).unwrap_err().to_string();
    assert!(error.contains("line 1: is longer than"), "{error}");
}

#[cfg(unix)]
#[test]
fn an_unreadable_mnist_file_is_not_treated_as_missing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("train-images-idx3-ubyte");
    std::os::unix::fs::symlink(&path, &path).unwrap();
    let options = DataOptions { path: Some(directory.path().to_owned()), ..DataOptions::default() };
    let error = load(&options).unwrap_err().to_string();
    assert!(error.contains("symbolic links"), "{error}");
}
