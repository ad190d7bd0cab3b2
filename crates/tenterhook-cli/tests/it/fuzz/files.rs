//! Fuzzed data files and weights.

use std::path::Path;

use tenterhook::TensorMap;
use tenterhook_tasks::digits::data::{DataOptions, load};

use super::harness::{Fuzz, SAFETENSORS};

fn loaded(path: &Path) -> Result<(), String> {
    match load(&DataOptions { path: Some(path.to_owned()), ..DataOptions::default() }) {
        Err(error) if error.to_string().len() > 4096 => {
            Err(format!("an endless error: {}", error.to_string().len()))
        }
        _ => Ok(()),
    }
}

#[test]
fn a_fuzzed_csv_file_is_read_or_refused() {
    let row = |label: u32| format!("{},{label}\n", ["1"; 16].join(","));
    let rows = |rows: u32| (0..rows).map(|number| row(number % 3)).collect::<String>();
    let header = format!("{},label\n", (0..16).map(|n| format!("p{n}")).collect::<Vec<_>>().join(","));
    let corpus = vec![
        rows(40).into_bytes(),
        (header + &rows(40)).into_bytes(),
        rows(40).replace(',', ";").into_bytes(),
    ];
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fuzzed.csv");
    Fuzz {
        name: "csv",
        corpus,
        words: &[",", ";", "label", "\n", "-1", "1e9", "0.5"],
        format: None,
        inputs: 400,
    }
    .run(|input| {
        std::fs::write(&path, input).unwrap();
        loaded(&path)
    });
}

#[test]
fn fuzzed_idx_files_are_read_or_refused() {
    let idx = |magic: u8, sizes: &[u32], bytes: Vec<u8>| -> Vec<u8> {
        let sizes = sizes.iter().flat_map(|size| size.to_be_bytes());
        [0, 0, 8, magic].into_iter().chain(sizes).chain(bytes).collect()
    };
    let images = idx(3, &[40, 4, 4], vec![7; 640]);
    let labels = idx(1, &[40], (0..40).map(|n| n % 3).collect());
    let directory = tempfile::tempdir().unwrap();
    let path = |file: &str| directory.path().join(file);
    let files = [("train-images-idx3-ubyte", &images), ("train-labels-idx1-ubyte", &labels)];
    for ((fuzzed, right), name) in files.into_iter().zip(["idx-images", "idx-labels"]) {
        for (file, right) in files {
            std::fs::write(path(file), right).unwrap();
        }
        let corpus = vec![right.clone(), images.clone(), labels.clone()];
        let words = ["\u{8}\u{3}", "\0\0\0\0"];
        Fuzz { name, corpus, words: &words, format: None, inputs: 400 }.run(|input| {
            std::fs::write(path(fuzzed), input).unwrap();
            loaded(&path(files[0].0))
        });
    }
}

#[test]
fn fuzzed_weights_are_read_or_refused() {
    let header = r#"{"a.weight":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"b":{"dtype":"F32","shape":[1],"data_offsets":[16,20]}}"#;
    let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 20]].concat();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fuzzed.safetensors");
    let words = ["\"shape\":[", "18446744073709551615", "\"dtype\":\"F64\"", "BF16", "[0,0]"];
    Fuzz { name: "safetensors", corpus: vec![file], words: &words, format: Some(SAFETENSORS), inputs: 1_000 }
        .run(|input| {
            std::fs::write(&path, input).unwrap();
            if let Ok(tensors) = TensorMap::read(&path) {
                tensors.write(&directory.path().join("again")).map_err(|error| error.to_string())?;
            }
            Ok(())
        });
}
